/* The published memory: making it, and writing to it so that a reader can tell a whole state from a torn one. */
#ifndef TRUELOAD_TRACER_REGION_H
#define TRUELOAD_TRACER_REGION_H

#include <stdatomic.h>

#include "layout.h"

/* The time of every value in the region: CLOCK_MONOTONIC. */
uint64_t region_now(void);

/* Make and seal the memfd and fill in what never changes. NULL where the kernel refuses; the tracer then stays off. */
struct tracer_region *region_create(void);

/* In a forked child: let go of the parent's memory and descriptor. What is written afterwards is seen by nobody.
 * Async-signal-safe. */
void region_abandon(struct tracer_region *region);

/* Writers hold the tracer's lock; readers in other processes retry while the sequence is odd or has changed. */
static inline void region_begin_write(struct tracer_region *region)
{
    _Atomic uint64_t *sequence = (_Atomic uint64_t *)&region->header.sequence;
    atomic_store_explicit(sequence, atomic_load_explicit(sequence, memory_order_relaxed) + 1, memory_order_relaxed);
    atomic_thread_fence(memory_order_release);
}

static inline void region_end_write(struct tracer_region *region)
{
    _Atomic uint64_t *sequence = (_Atomic uint64_t *)&region->header.sequence;
    atomic_store_explicit(sequence, atomic_load_explicit(sequence, memory_order_relaxed) + 1, memory_order_release);
}

#endif
