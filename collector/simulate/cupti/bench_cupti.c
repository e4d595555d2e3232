/*
 * As much of libcupti as the tracer needs to be measured without a GPU: it fills buffers with kernels and returns them
 * as fast as it can. collector/tracer/bench.py loads it under the path that the tracer takes for libcupti. The kernels: `streams`
 * streams, each with kernels of 2 to 8 microseconds and a quarter of the time between them.
 */
#include <string.h>
#include <time.h>

#include "../../tracer/cupti_abi.h"

#define EXPORT __attribute__((visibility("default")))

enum { KERNEL_BYTES = 216, KERNELS = 64, NAME_BYTES = 128, STREAMS_MAX = 16, API_VERSION = 130000 };

static cupti_requested requested;
static cupti_completed completed;
static char names[KERNELS][NAME_BYTES];

EXPORT cupti_status cuptiGetVersion(uint32_t *version)
{
    *version = API_VERSION;
    return CUPTI_SUCCESS;
}

EXPORT cupti_status cuptiActivityRegisterCallbacks(cupti_requested request, cupti_completed complete)
{
    requested = request;
    completed = complete;
    return CUPTI_SUCCESS;
}

EXPORT cupti_status cuptiActivityEnable(uint32_t kind)
{
    (void)kind;
    return CUPTI_SUCCESS;
}

EXPORT cupti_status cuptiActivityFlushAll(uint32_t flag)
{
    (void)flag;
    return CUPTI_SUCCESS;
}

EXPORT cupti_status cuptiActivityGetNumDroppedRecords(void *context, uint32_t stream, size_t *dropped)
{
    (void)context;
    (void)stream;
    *dropped = 0;
    return CUPTI_SUCCESS;
}

EXPORT cupti_status cuptiActivityGetNextRecord(uint8_t *buffer, size_t valid_size, struct cupti_record **record)
{
    uint8_t *next = *record ? (uint8_t *)*record + KERNEL_BYTES : buffer;
    if (next >= buffer + valid_size)
        return CUPTI_MAX_LIMIT_REACHED;
    *record = (struct cupti_record *)next;
    return CUPTI_SUCCESS;
}

static uint64_t now(void)
{
    struct timespec time;
    clock_gettime(CLOCK_MONOTONIC, &time);
    return (uint64_t)time.tv_sec * 1000000000u + (uint64_t)time.tv_nsec;
}

static uint32_t random_below(uint64_t *state, uint32_t limit)
{
    *state = *state * UINT64_C(6364136223846793005) + UINT64_C(1442695040888963407);
    return (uint32_t)((*state >> 33) % limit);
}

static struct cupti_kernel make(uint64_t *chance, uint64_t number)
{
    uint32_t which = random_below(chance, KERNELS);
    return (struct cupti_kernel){
        .kind = CUPTI_KIND_CONCURRENT_KERNEL,
        .registers_per_thread = 32,
        .correlation_id = (uint32_t)number + 1,
        .grid = {1 << which % 8, 1, 1},
        .block = {128, 1, 1},
        .name = names[which],
    };
}

/* What anybody must do with a buffer: step through it and read two numbers of each record. */
static uint64_t walk(uint8_t *buffer, size_t valid_size)
{
    struct cupti_record *record = NULL;
    uint64_t sum = 0;
    while (cuptiActivityGetNextRecord(buffer, valid_size, &record) == CUPTI_SUCCESS)
        sum += ((struct cupti_kernel *)record)->end - ((struct cupti_kernel *)record)->start;
    return sum;
}

struct timing {
    uint64_t records, walk_nanoseconds, callback_nanoseconds;
};

/* Run `count` kernels from `begin` (in CUPTI's time) on. Fills in one timing per buffer and one interval per kernel;
 * both have room for `count`. Returns the number of buffers; 0: no buffer was lent. */
EXPORT uint64_t bench_run(uint64_t count, uint32_t streams, uint64_t begin, struct timing *timings,
                          uint64_t (*intervals)[2])
{
    uint64_t chance = 2102, clocks[STREAMS_MAX], buffers = 0;
    volatile uint64_t sink = 0;
    for (uint32_t i = 0; i < KERNELS; i++) {
        memset(names[i], 'a' + (int)(i % 26), NAME_BYTES - 1);
        names[i][i] = '_';
    }
    for (uint32_t i = 0; i < streams && i < STREAMS_MAX; i++)
        clocks[i] = begin + random_below(&chance, 5000);
    for (uint64_t done = 0; requested && done < count;) {
        uint8_t *buffer = NULL;
        size_t size = 0, used = 0, limit;
        requested(&buffer, &size, &limit);
        if (!buffer)
            return 0;
        uint64_t first = done;
        for (; done < count && used + KERNEL_BYTES <= size; done++, used += KERNEL_BYTES) {
            uint64_t *clock = &clocks[done % streams];
            struct cupti_kernel kernel = make(&chance, done);
            uint32_t length = 2000 + random_below(&chance, 6000);
            kernel.start = intervals[done][0] = *clock;
            kernel.end = intervals[done][1] = *clock + length;
            *clock += length + length / 3;
            memcpy(buffer + used, &kernel, sizeof kernel);
        }
        uint64_t began = now();
        sink += walk(buffer, used);
        uint64_t walked = now();
        completed(NULL, 0, buffer, size, used);
        timings[buffers++] = (struct timing){done - first, walked - began, now() - walked};
    }
    return buffers;
}
