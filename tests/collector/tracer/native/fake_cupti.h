/*
 * What the stand-in for libcupti offers beyond CUPTI's own calls: ways to make things happen. Each "lane" stands for a
 * launching thread of the application, which has a buffer of its own, as in CUPTI. Times are written as given.
 */
#ifndef FAKE_CUPTI_H
#define FAKE_CUPTI_H

#include <stdint.h>

#include "cupti_abi.h"

enum { FAKE_LANES = 64 };

/* One record, complete at once, for every client that has its kind enabled. `record` begins as cupti_abi.h says. */
void fake_record(uint32_t lane, const void *record, uint64_t bytes);

/* The same, but incomplete until fake_finish gives its times. Returns what to name it by. */
uint32_t fake_launch(uint32_t lane, const void *record, uint64_t bytes);
void fake_finish(uint32_t launch, uint64_t start, uint64_t end);

/* Deliver the lane's buffer now, from the worker thread, as if it were full. */
void fake_deliver(uint32_t lane);

/* Wait until the worker has delivered all that is full and complete. */
void fake_drain(void);

/* Behaviour; the same can be set from the environment (FAKE_CUPTI_BUSY and so on, see fake_cupti.c). */
void fake_set_busy(const char *holder);
void fake_set_enable_status(cupti_status status);
void fake_set_unreadable_incomplete(int on);

/* How many buffers were found not to be zero though their owner had promised it. */
uint64_t fake_dirty_buffers(void);

/* A copy of CUPTI's version of the overhead record's data; the client frees it. */
void fake_overhead(uint32_t lane, uint32_t kind, uint64_t start, uint64_t end);

#endif
