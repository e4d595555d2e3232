/*
 * The account of GPU time: intervals in, unions per second out. Exact in integer nanoseconds as long as a record arrives
 * before its time is closed; what comes later is counted as late and joins no union. All calls need the tracer's lock
 * and an open write (region.h), and none allocates.
 */
#ifndef TRUELOAD_TRACER_ACCOUNT_H
#define TRUELOAD_TRACER_ACCOUNT_H

#include "layout.h"
#include "pool.h"

/* The smallest record is 40 bytes long. */
enum { ACCOUNT_BUFFER_RECORDS_MAX = POOL_BUFFER_BYTES / 40 };

enum account_category { ACCOUNT_KERNEL = 0, ACCOUNT_COPY = 1 };

/* Begin the account of a fresh region, a minute before its start: no record can be older than the tracer, but times
 * computed from the GPU's clock get some leave. */
void account_start(struct tracer_region *region);

/* Where the account begins; an earlier time is impossible. */
uint64_t account_earliest(void);

/* Once before the records of a buffer: make room for as many as it can hold, closing early what fills the lists. */
void account_make_room(void);

/* A kernel, or with `category` a copy or memory set, on the device of this ordinal (below TRACER_DEVICES_MAX). An
 * empty interval counts but has no length. */
void account_activity(uint32_t ordinal, enum account_category category, uint64_t start, uint64_t end);

/* The length of one kernel, for the histogram. */
void account_kernel_length(uint32_t ordinal, uint64_t nanoseconds);

/* Once after the records of a buffer. */
void account_merge(void);

/* One more launch of this kernel's API call, unless a kernel with the same correlation id was seen just before. */
void account_launch(uint32_t ordinal, uint32_t correlation_id, uint64_t start);

/* An OVERHEAD record, with `kind` as CUPTI numbers it. */
void account_overhead(uint32_t kind, uint64_t start, uint64_t end);

/* Nothing that begins before `until` is expected any more: carry it into the buckets and let go of it. `flag`
 * (TRACER_SECOND_…, or 0) marks the seconds that this closes. */
void account_close(uint64_t until, uint32_t flag);

/* The second's place in the ring, made anew if need be; NULL when the ring has moved past it. */
struct tracer_second *account_second(uint64_t second);

/* Distribute [start, end) over the seconds' field at this offset. */
void account_spread(uint64_t start, uint64_t end, uint64_t field_offset);

/* Set the flag on every second that [start, end) meets, as far as the ring reaches. */
void account_flag(uint64_t start, uint64_t end, uint32_t flag);

#endif
