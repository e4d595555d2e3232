#include "account.h"

#include <stddef.h>
#include <string.h>

#include "intervals.h"
#include "rings.h"

#define SECOND UINT64_C(1000000000)
#define EARLY (60 * SECOND)

/*
 * Room for intervals that may still change, shared among the devices in use: with lateness and the spacing of kernels
 * it says how long late records stay exact (one device, 10,000 separate kernels a second: 4.9 s; fewer, longer). Each
 * list must at least hold one buffer twice.
 */
enum { KERNEL_INTERVALS = 48 * 1024, COPY_INTERVALS = 8 * 1024, LIST_MIN = 2 * ACCOUNT_BUFFER_RECORDS_MAX + 8 };
enum { OVERHEAD_LIST = 2 * TRACER_DEVICES_MAX, LISTS = OVERHEAD_LIST + 1 };

/* Correlation ids rise; records of one launch lie within so many launches of each other. */
enum { LAUNCHES_REMEMBERED = 4096 };

struct device_state {
    struct interval_list lists[2];
    uint64_t swept_until; /* where the idle stretches have been counted up to */
    uint64_t any_end;     /* of the last kernel or copy that was closed; 0: none yet */
    struct slot slot;     /* the millisecond being filled */
};

static struct interval kernel_items[TRACER_DEVICES_MAX][KERNEL_INTERVALS];
static struct interval copy_items[TRACER_DEVICES_MAX][COPY_INTERVALS];
static struct interval overhead_items[COPY_INTERVALS];

static struct tracer_region *shared;
static struct device_state devices[TRACER_DEVICES_MAX];
static struct interval_list overheads = {overhead_items, 0};
static uint32_t devices_used;
static uint64_t earliest, closed_until;
static uint32_t launches_seen[LAUNCHES_REMEMBERED];

/* Intervals out of order, by list, until the buffer's end. */
static struct waiting {
    uint64_t start, end;
    uint32_t list;
} waiting[ACCOUNT_BUFFER_RECORDS_MAX];
static struct interval sorted[ACCOUNT_BUFFER_RECORDS_MAX];
static uint32_t waiting_count;
static uint64_t waiting_lists; /* a bit for each list that occurs */

uint64_t account_earliest(void) { return earliest; }

void account_start(struct tracer_region *region)
{
    uint64_t started = region->header.started_at_nanoseconds;
    uint64_t from = earliest = started > EARLY ? started - EARLY : 0;
    shared = region;
    closed_until = from;
    rings_start(region, from / SECOND);
    for (uint32_t i = 0; i < TRACER_DEVICES_MAX; i++) {
        devices[i].lists[ACCOUNT_KERNEL].items = kernel_items[i];
        devices[i].lists[ACCOUNT_COPY].items = copy_items[i];
        devices[i].swept_until = from;
        shared->devices[i].ordinal = i;
    }
    shared->header.closed_until_nanoseconds = from;
}

/* ---- reaching on ---- */

/* The rings must not overwrite what is still open. */
static void reach(uint64_t second)
{
    if (second >= closed_until / SECOND + TRACER_SECONDS_MAX)
        account_close((second - TRACER_SECONDS_MAX + 1) * SECOND, TRACER_SECOND_ASSUMED);
    rings_reach(second);
}

struct tracer_second *account_second(uint64_t second)
{
    reach(second);
    return rings_second(second);
}

void account_spread(uint64_t start, uint64_t end, uint64_t field_offset)
{
    if (start >= end)
        return;
    reach((end - 1) / SECOND);
    rings_spread(start, end, field_offset);
}

void account_flag(uint64_t start, uint64_t end, uint32_t flag)
{
    if (start >= end)
        return;
    reach((end - 1) / SECOND);
    rings_flag(start, end, flag);
}

static void count_out_of_reach(uint64_t nanoseconds)
{
    shared->header.out_of_reach_total++;
    shared->header.out_of_reach_nanoseconds_total += nanoseconds;
}

/* ---- records in ---- */

static struct interval_list *list_of(uint32_t list)
{
    return list == OVERHEAD_LIST ? &overheads : &devices[list / 2].lists[list % 2];
}

void account_merge(void)
{
    while (waiting_lists) {
        uint32_t list = (uint32_t)__builtin_ctzll(waiting_lists), count = 0;
        for (uint32_t i = 0; i < waiting_count; i++)
            if (waiting[i].list == list)
                sorted[count++] = (struct interval){waiting[i].start, waiting[i].end};
        intervals_merge(list_of(list), sorted, count);
        waiting_lists &= waiting_lists - 1;
    }
    waiting_count = 0;
}

static void keep(uint32_t list, uint64_t start, uint64_t end)
{
    if (intervals_append(list_of(list), start, end))
        return;
    waiting[waiting_count++] = (struct waiting){start, end, list};
    waiting_lists |= UINT64_C(1) << list;
    if (waiting_count == ACCOUNT_BUFFER_RECORDS_MAX)
        account_merge();
}

static uint32_t list_capacity(uint32_t list)
{
    if (list == OVERHEAD_LIST)
        return COPY_INTERVALS;
    uint32_t total = list % 2 == ACCOUNT_KERNEL ? KERNEL_INTERVALS : COPY_INTERVALS;
    uint32_t share = total / (devices_used ? devices_used : 1);
    return share > LIST_MIN ? share : LIST_MIN;
}

void account_make_room(void)
{
    account_merge();
    for (uint32_t list = 0; list < LISTS; list++) {
        const struct interval_list *full = list_of(list);
        if (full->count + ACCOUNT_BUFFER_RECORDS_MAX > list_capacity(list))
            account_close(full->items[full->count / 2].start, TRACER_SECOND_EARLY);
    }
}

static void use_device(struct tracer_device *device)
{
    if (device->flags & TRACER_DEVICE_USED)
        return;
    device->flags |= TRACER_DEVICE_USED;
    devices_used++;
}

static void count_late(struct tracer_device *device, uint64_t start, uint64_t end)
{
    device->late_count_total++;
    device->late_nanoseconds_total += end - start;
    struct tracer_bucket *bucket = rings_bucket(device, start / SECOND);
    if (bucket)
        bucket->late_count++;
    rings_add(device, start, end, offsetof(struct tracer_bucket, late_nanoseconds));
}

void account_activity(uint32_t ordinal, enum account_category category, uint64_t start, uint64_t end)
{
    struct tracer_device *device = &shared->devices[ordinal];
    use_device(device);
    reach(end / SECOND);
    size_t sum = category == ACCOUNT_KERNEL ? offsetof(struct tracer_bucket, kernel_sum_nanoseconds)
                                            : offsetof(struct tracer_bucket, copy_sum_nanoseconds);
    struct tracer_bucket *bucket = rings_bucket(device, start / SECOND);
    if (category == ACCOUNT_KERNEL) {
        device->kernels_total++;
        device->kernel_sum_nanoseconds_total += end - start;
        if (bucket)
            bucket->kernels++;
    } else {
        device->copies_total++;
        device->copy_sum_nanoseconds_total += end - start;
        if (bucket)
            bucket->copies++;
    }
    uint64_t from = rings_oldest() * SECOND;
    if (start < from) {
        count_out_of_reach(min64(end, from) - start);
        start = min64(end, from);
    }
    rings_add(device, start, end, sum);
    if (start < closed_until && start < end) {
        count_late(device, start, min64(end, closed_until));
        start = closed_until;
    }
    if (start < end)
        keep(2 * ordinal + category, start, end);
}

static uint32_t bin_of(uint64_t nanoseconds)
{
    uint32_t bin = 63 - (uint32_t)__builtin_clzll(nanoseconds | 1);
    return bin < TRACER_BINS_MAX ? bin : TRACER_BINS_MAX - 1;
}

void account_kernel_length(uint32_t ordinal, uint64_t nanoseconds)
{
    shared->devices[ordinal].kernel_lengths_total[bin_of(nanoseconds)]++;
}

void account_launch(uint32_t ordinal, uint32_t correlation_id, uint64_t start)
{
    uint32_t *seen = &launches_seen[correlation_id % LAUNCHES_REMEMBERED];
    if (correlation_id && *seen == correlation_id)
        return;
    *seen = correlation_id;
    struct tracer_device *device = &shared->devices[ordinal];
    device->launches_total++;
    struct tracer_bucket *bucket = rings_bucket(device, start / SECOND);
    if (bucket)
        bucket->launches++;
}

void account_overhead(uint32_t kind, uint64_t start, uint64_t end)
{
    uint32_t index = kind < 1u << 16 ? kind == 1 : (kind >> 16) + 1;
    if (index >= TRACER_OVERHEADS_MAX)
        index = TRACER_OVERHEADS_MAX - 1;
    shared->header.overhead_count_total[index]++;
    shared->header.overhead_nanoseconds_total[index] += end - start;
    reach(end / SECOND);
    account_spread(start, end, offsetof(struct tracer_second, overhead_nanoseconds));
    start = max64(start, closed_until);
    if (start < end)
        keep(OVERHEAD_LIST, start, end);
}

/* ---- closing ---- */

/* Overhead within a stretch in which the device ran nothing. `at` moves on through the overheads. */
static void count_idle_overhead(struct tracer_device *device, uint64_t start, uint64_t end, uint32_t *at)
{
    for (; *at < overheads.count && overheads.items[*at].start < end; (*at)++) {
        uint64_t from = max64(start, overheads.items[*at].start), to = min64(end, overheads.items[*at].end);
        if (from < to) {
            device->overhead_idle_nanoseconds_total += to - from;
            rings_add(device, from, to, offsetof(struct tracer_bucket, overhead_idle_nanoseconds));
        }
        if (overheads.items[*at].end > end)
            return; /* reaches into what follows */
    }
}

static void count_gap(struct device_state *state, struct tracer_device *device, uint64_t start)
{
    if (state->any_end == 0 || start <= state->any_end)
        return;
    device->gaps_total++;
    device->gap_lengths_total[bin_of(start - state->any_end)]++;
    struct tracer_bucket *bucket = rings_bucket(device, start / SECOND);
    if (bucket)
        bucket->gaps++;
}

/* The union of both lists up to `until`, and what lies between. */
static void sweep_any(struct device_state *state, struct tracer_device *device, uint64_t until)
{
    const struct interval_list *kernels = &state->lists[ACCOUNT_KERNEL], *copies = &state->lists[ACCOUNT_COPY];
    uint32_t k = 0, c = 0, overhead = 0;
    for (;;) {
        uint64_t kernel_start = k < kernels->count ? kernels->items[k].start : UINT64_MAX;
        uint64_t copy_start = c < copies->count ? copies->items[c].start : UINT64_MAX;
        uint64_t start = min64(kernel_start, copy_start), end = start;
        if (start >= until)
            break;
        for (;;) {
            if (k < kernels->count && kernels->items[k].start <= end)
                end = max64(end, kernels->items[k++].end);
            else if (c < copies->count && copies->items[c].start <= end)
                end = max64(end, copies->items[c++].end);
            else
                break;
        }
        end = min64(end, until);
        count_idle_overhead(device, state->swept_until, start, &overhead);
        count_gap(state, device, start);
        device->any_busy_nanoseconds_total += end - start;
        rings_add(device, start, end, offsetof(struct tracer_bucket, any_busy_nanoseconds));
        state->any_end = state->swept_until = end;
    }
    count_idle_overhead(device, state->swept_until, until, &overhead);
    state->swept_until = until;
}

static void close_device(struct device_state *state, struct tracer_device *device, uint64_t until)
{
    sweep_any(state, device, until);
    const struct interval_list *kernels = &state->lists[ACCOUNT_KERNEL], *copies = &state->lists[ACCOUNT_COPY];
    for (uint32_t i = 0; i < kernels->count && kernels->items[i].start < until; i++) {
        uint64_t start = kernels->items[i].start, end = min64(kernels->items[i].end, until);
        device->kernel_busy_nanoseconds_total += end - start;
        rings_add(device, start, end, offsetof(struct tracer_bucket, kernel_busy_nanoseconds));
        rings_fill_slots(device, &state->slot, start, end);
    }
    for (uint32_t i = 0; i < copies->count && copies->items[i].start < until; i++) {
        uint64_t start = copies->items[i].start, end = min64(copies->items[i].end, until);
        device->copy_busy_nanoseconds_total += end - start;
        rings_add(device, start, end, offsetof(struct tracer_bucket, copy_busy_nanoseconds));
    }
    intervals_trim(&state->lists[ACCOUNT_KERNEL], until);
    intervals_trim(&state->lists[ACCOUNT_COPY], until);
}

void account_close(uint64_t until, uint32_t flag)
{
    account_merge();
    if (until <= closed_until)
        return;
    if (flag)
        rings_flag(closed_until, min64(until, (rings_newest() + 1) * SECOND), flag);
    for (uint32_t i = 0; i < TRACER_DEVICES_MAX; i++)
        if (shared->devices[i].flags & TRACER_DEVICE_USED)
            close_device(&devices[i], &shared->devices[i], until);
        else
            devices[i].swept_until = until;
    intervals_trim(&overheads, until);
    closed_until = until;
    shared->header.closed_until_nanoseconds = until;
}
