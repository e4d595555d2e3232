/* Which kernels ran with which launch configuration: count, total and longest time. Fixed size; what comes when it is
 * full is counted as "other". All calls need the tracer's lock and an open write. */
#ifndef TRUELOAD_TRACER_KERNELS_H
#define TRUELOAD_TRACER_KERNELS_H

#include "cupti_abi.h"
#include "layout.h"

/* Once per buffer: names may have been unloaded since the last one, and their memory reused. */
void kernels_begin_buffer(void);

void kernels_count(struct tracer_region *region, const struct cupti_kernel *record, uint64_t nanoseconds);

/* Of a name, the same in every process and release: it may be stored. */
uint64_t kernels_hash(const char *name, uint64_t length);

#endif
