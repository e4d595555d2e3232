/* A fixed set of buffers to lend to CUPTI. Lock-free: a buffer may be asked for on the application's launching thread. */
#ifndef TRUELOAD_TRACER_POOL_H
#define TRUELOAD_TRACER_POOL_H

#include <stdint.h>

/* CUPTI uses one buffer per launching thread, plus those whose work is still queued on the GPU: together 12,000 kernels,
 * with graphs not too many. Memory that is never lent is never touched. */
enum { POOL_BUFFERS = 32, POOL_BUFFER_BYTES = 96 * 1024 };

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

/* Give up buffers that were lent before this time: they never come back to us, but may still be written to. Returns
 * how many. */
uint32_t pool_write_off(uint64_t before);

#endif
