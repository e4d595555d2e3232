#include "pool.h"

#include <stdatomic.h>
#include <string.h>

_Static_assert(POOL_BUFFERS < 64, "one bit each");

static _Alignas(64) uint8_t buffers[POOL_BUFFERS][POOL_BUFFER_BYTES];
static _Atomic uint64_t lent;        /* a bit for each buffer */
static _Atomic uint64_t written_off; /* lent for good */
static _Atomic uint64_t lent_at[POOL_BUFFERS];

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
            return buffers[place];
        }
    }
}

static uint32_t place_of(const uint8_t *buffer)
{
    uintptr_t offset = (uintptr_t)buffer - (uintptr_t)buffers;
    return offset % POOL_BUFFER_BYTES == 0 ? (uint32_t)(offset / POOL_BUFFER_BYTES) : POOL_BUFFERS;
}

int pool_is_lent(const uint8_t *buffer)
{
    uintptr_t offset = (uintptr_t)buffer - (uintptr_t)buffers;
    return offset < sizeof buffers && place_of(buffer) < POOL_BUFFERS &&
           (atomic_load(&lent) >> place_of(buffer) & 1) != 0;
}

void pool_return(uint8_t *buffer)
{
    uint64_t bit = UINT64_C(1) << place_of(buffer);
    memset(buffer, 0, POOL_BUFFER_BYTES);
    atomic_store(&lent_at[place_of(buffer)], 0);
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

uint32_t pool_write_off(uint64_t before)
{
    uint64_t out = atomic_load(&lent) & ~atomic_load(&written_off), gone = 0;
    for (; out; out &= out - 1) {
        uint64_t at = atomic_load(&lent_at[__builtin_ctzll(out)]);
        if (at && at < before)
            gone |= out & -out;
    }
    atomic_fetch_or(&written_off, gone);
    return (uint32_t)__builtin_popcountll(gone);
}
