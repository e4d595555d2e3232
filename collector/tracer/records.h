/* From a buffer of CUPTI's records to the account and the table of kernels. */
#ifndef TRUELOAD_TRACER_RECORDS_H
#define TRUELOAD_TRACER_RECORDS_H

#include "layout.h"

/* Take every record of a buffer that CUPTI has returned. Needs the tracer's lock and an open write. `now` and the
 * account's start bound what is plausible. */
void records_take(struct tracer_region *region, uint8_t *buffer, uint64_t valid_size, uint64_t now);

#endif
