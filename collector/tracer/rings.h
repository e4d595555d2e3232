/* The published rings: a second of the process each, a bucket of each device and second, and its slots. Every time must
 * have been reached before it is written to; what lies further back than the rings hold is passed over. */
#ifndef TRUELOAD_TRACER_RINGS_H
#define TRUELOAD_TRACER_RINGS_H

#include <stddef.h>
#include <stdint.h>

#include "layout.h"

/* A millisecond that is being filled, in ascending order, so that rounding happens once. */
struct slot {
    uint64_t at, nanoseconds;
};

static inline uint64_t min64(uint64_t a, uint64_t b) { return a < b ? a : b; }
static inline uint64_t max64(uint64_t a, uint64_t b) { return a > b ? a : b; }

void rings_start(struct tracer_region *region, uint64_t second);

/* Move on so far that this second has a place; the oldest lose theirs. */
void rings_reach(uint64_t second);

uint64_t rings_oldest(void);
uint64_t rings_newest(void);

/* The second's place, made anew if need be; NULL when the rings have moved past it. */
struct tracer_second *rings_second(uint64_t second);
struct tracer_bucket *rings_bucket(struct tracer_device *device, uint64_t second);

/* Distribute [start, end) over the seconds' field at this offset, or set the flag on every second that it meets. */
void rings_spread(uint64_t start, uint64_t end, size_t field_offset);
void rings_flag(uint64_t start, uint64_t end, uint32_t flag);

/* Distribute [start, end) over the field at this offset of the device's buckets. */
void rings_add(struct tracer_device *device, uint64_t start, uint64_t end, size_t field_offset);

/* The same over its slots; intervals must come in ascending order and disjoint. */
void rings_fill_slots(struct tracer_device *device, struct slot *slot, uint64_t start, uint64_t end);

#endif
