#include "pool.h"

#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

_Static_assert(POOL_BUFFERS < 64, "one bit each");

static _Atomic(uint8_t *) buffers[POOL_BUFFERS]; /* NULL: there was no memory, or it is no longer ours */
static _Atomic uint64_t lent;        /* a bit for each buffer */
static _Atomic uint64_t written_off; /* lent for good */
static _Atomic uint64_t lent_at[POOL_BUFFERS];

void pool_start(void)
{
    for (uint32_t place = 0; place < POOL_BUFFERS; place++) {
        uint8_t *buffer = calloc(1, POOL_BUFFER_BYTES);
        atomic_store(&buffers[place], buffer);
        if (!buffer) {
            atomic_fetch_or(&written_off, UINT64_C(1) << place);
            atomic_fetch_or(&lent, UINT64_C(1) << place);
        }
    }
}

uint8_t *pool_lend(uint64_t now)
{
    uint64_t taken = atomic_load(&lent);
    for (;;) {
        uint64_t available = ~taken & ((UINT64_C(1) << POOL_BUFFERS) - 1);
        if (!available)
            return NULL;
        /* The lowest: a process that needs few buffers touches few. */
        uint64_t bit = available & -available;
        uint32_t place = (uint32_t)__builtin_ctzll(available);
        if (atomic_compare_exchange_weak(&lent, &taken, taken | bit)) {
            atomic_store(&lent_at[place], now);
            return atomic_load(&buffers[place]);
        }
    }
}

static uint32_t place_of(const uint8_t *buffer)
{
    uint32_t place = 0;
    while (place < POOL_BUFFERS && atomic_load(&buffers[place]) != buffer)
        place++;
    return place;
}

int pool_is_lent(const uint8_t *buffer)
{
    uint32_t place = buffer ? place_of(buffer) : POOL_BUFFERS;
    return place < POOL_BUFFERS && (atomic_load(&lent) >> place & 1) != 0;
}

void pool_return(uint8_t *buffer)
{
    uint32_t place = place_of(buffer);
    if (place == POOL_BUFFERS)
        return; /* written off for good at this very moment */
    uint64_t bit = UINT64_C(1) << place;
    memset(buffer, 0, POOL_BUFFER_BYTES);
    atomic_store(&lent_at[place], 0);
    atomic_fetch_and(&written_off, ~bit);
    atomic_fetch_and(&lent, ~bit);
}

uint32_t pool_lent_count(void)
{
    return (uint32_t)__builtin_popcountll(atomic_load(&lent) & ~atomic_load(&written_off));
}

uint64_t pool_lent_since(void)
{
    uint64_t out = atomic_load(&lent) & ~atomic_load(&written_off);
    uint64_t since = UINT64_MAX;
    for (; out; out &= out - 1) {
        uint64_t at = atomic_load(&lent_at[__builtin_ctzll(out)]);
        if (at && at < since) /* 0: being lent or returned at this moment */
            since = at;
    }
    return since;
}

void pool_write_off(uint64_t before, int for_good)
{
    uint64_t out = atomic_load(&lent) & ~atomic_load(&written_off);
    for (; out; out &= out - 1) {
        uint32_t place = (uint32_t)__builtin_ctzll(out);
        uint64_t at = atomic_load(&lent_at[place]);
        if (!at || at >= before)
            continue;
        if (for_good)
            atomic_store(&buffers[place], NULL);
        atomic_fetch_or(&written_off, out & -out);
    }
}
