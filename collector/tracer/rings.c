#include "rings.h"

#include <string.h>

#define SECOND UINT64_C(1000000000)
#define MILLISECOND UINT64_C(1000000)

static struct tracer_region *shared;
static uint64_t newest_second;

void rings_start(struct tracer_region *region, uint64_t second)
{
    shared = region;
    newest_second = second;
}

void rings_reach(uint64_t second) { newest_second = max64(newest_second, second); }

uint64_t rings_newest(void) { return newest_second; }

uint64_t rings_oldest(void)
{
    return newest_second < TRACER_SECONDS_MAX ? 0 : newest_second - TRACER_SECONDS_MAX + 1;
}

struct tracer_second *rings_second(uint64_t second)
{
    if (second < rings_oldest())
        return NULL;
    struct tracer_second *entry = &shared->seconds[second % TRACER_SECONDS_MAX];
    if (entry->second != second) {
        memset(entry, 0, sizeof *entry);
        entry->second = second;
    }
    return entry;
}

struct tracer_bucket *rings_bucket(struct tracer_device *device, uint64_t second)
{
    if (second < rings_oldest())
        return NULL;
    struct tracer_bucket *bucket = &device->buckets[second % TRACER_SECONDS_MAX];
    if (bucket->second != second) {
        memset(bucket, 0, sizeof *bucket);
        bucket->second = second;
    }
    return bucket;
}

void rings_spread(uint64_t start, uint64_t end, size_t field_offset)
{
    for (start = max64(start, rings_oldest() * SECOND); start < end;) {
        uint64_t stop = min64(end, (start / SECOND + 1) * SECOND);
        struct tracer_second *entry = rings_second(start / SECOND);
        if (entry)
            *(uint64_t *)((char *)entry + field_offset) += stop - start;
        start = stop;
    }
}

void rings_flag(uint64_t start, uint64_t end, uint32_t flag)
{
    for (start = max64(start, rings_oldest() * SECOND); start < end; start = (start / SECOND + 1) * SECOND) {
        struct tracer_second *entry = rings_second(start / SECOND);
        if (entry)
            entry->flags |= flag;
    }
}

void rings_add(struct tracer_device *device, uint64_t start, uint64_t end, size_t field_offset)
{
    while (start < end) {
        uint64_t stop = min64(end, (start / SECOND + 1) * SECOND);
        struct tracer_bucket *bucket = rings_bucket(device, start / SECOND);
        if (bucket)
            *(uint64_t *)((char *)bucket + field_offset) += stop - start;
        start = stop;
    }
}

void rings_fill_slots(struct tracer_device *device, struct slot *slot, uint64_t start, uint64_t end)
{
    while (start < end) {
        uint64_t at = start / MILLISECOND, stop = min64(end, (at + 1) * MILLISECOND);
        if (at != slot->at)
            *slot = (struct slot){.at = at};
        slot->nanoseconds += stop - start;
        struct tracer_bucket *bucket = rings_bucket(device, at / TRACER_SLOTS_MAX);
        if (bucket)
            bucket->slots[at % TRACER_SLOTS_MAX] =
                (uint16_t)((slot->nanoseconds * TRACER_SLOT_FULL + MILLISECOND / 2) / MILLISECOND);
        start = stop;
    }
}
