/*
 * A fixed set of buffers to lend to CUPTI. Lock-free: a buffer may be asked for on the application's launching thread.
 *
 * They come from malloc. Where CUPTI's callbacks are shared, a profiler that registers its own while our buffers are out
 * gets those back in our place, and profilers do with what comes back as CUPTI's samples do: they free it.
 */
#ifndef TRUELOAD_TRACER_POOL_H
#define TRUELOAD_TRACER_POOL_H

#include <stdint.h>

/* CUPTI uses one buffer per launching thread, plus those whose work is still queued on the GPU: together 12,000 kernels,
 * with graphs not too many. Memory that is never lent is never touched. */
enum { POOL_BUFFERS = 32, POOL_BUFFER_BYTES = 96 * 1024 };

/* Once, before anything is lent: make the buffers. Where memory is short there are fewer. */
void pool_start(void);

/* An all-zero buffer, or NULL when all are lent. */
uint8_t *pool_lend(uint64_t now);

/* 1 where the buffer is one of ours and was lent; nobody else may come back with it. */
int pool_is_lent(const uint8_t *buffer);

/* Zero the buffer and take it back. */
void pool_return(uint8_t *buffer);

uint32_t pool_lent_count(void);

/* When the oldest buffer still lent was asked for; UINT64_MAX when none is. A buffer holds no record of anything that
 * was launched before it was asked for. */
uint64_t pool_lent_since(void);

/* Give up buffers that were lent before this time: they hardly come back, but may still be written to. With `for_good`
 * another client may have got and freed them: they are never touched again, and their addresses mean nothing. Else they
 * are taken back should they return. */
void pool_write_off(uint64_t before, int for_good);

#endif
