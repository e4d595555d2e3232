#include "records.h"

#include <stdlib.h>

#include "account.h"
#include "cupti.h"
#include "kernels.h"

/* CUPTI computes times from the GPU's clock; it may be ahead of ours by so much. */
#define AHEAD_NANOSECONDS UINT64_C(2000000000)

/* One buffer's view: what all its records are checked against. */
struct intake {
    struct tracer_region *region;
    uint64_t offset;           /* from our clock to CUPTI's */
    uint64_t earliest, latest; /* in our clock */
};

/* CUPTI's times to ours, or 0 for a record to reject: without its times (CUPTI leaves them 0), or with times that cannot
 * be, as another client's clock gives them. */
static int check(const struct intake *intake, uint64_t *start, uint64_t *end)
{
    if (*start == 0 || *end == 0) {
        intake->region->header.incomplete_total++;
        return 0;
    }
    *start -= intake->offset;
    *end -= intake->offset;
    if (*start < intake->earliest || *end > intake->latest || *start > *end) {
        intake->region->header.implausible_total++;
        return 0;
    }
    return 1;
}

static int check_on_device(const struct intake *intake, uint32_t device, uint64_t *start, uint64_t *end)
{
    if (device < TRACER_DEVICES_MAX)
        return check(intake, start, end);
    intake->region->header.implausible_total++;
    return 0;
}

static void take_kernel(const struct intake *intake, const struct cupti_kernel *record)
{
    uint64_t start = record->start, end = record->end;
    if (!check_on_device(intake, record->device_id, &start, &end))
        return;
    account_kernel_length(record->device_id, end - start);
    account_activity(record->device_id, ACCOUNT_KERNEL, start, end);
    account_launch(record->device_id, record->correlation_id, start);
    kernels_count(intake->region, record, end - start);
}

static void take_transfer(const struct intake *intake, const struct cupti_transfer *record)
{
    uint64_t start = record->start, end = record->end;
    if (check_on_device(intake, record->device_id, &start, &end))
        account_activity(record->device_id, ACCOUNT_COPY, start, end);
}

static void take_graph(const struct intake *intake, const struct cupti_graph *record)
{
    uint64_t start = record->start, end = record->end;
    if (!check_on_device(intake, record->device_id, &start, &end))
        return;
    account_activity(record->device_id, ACCOUNT_KERNEL, start, end);
    account_launch(record->device_id, record->correlation_id, start);
}

static void take_overhead(const struct intake *intake, struct cupti_record *any)
{
    const struct cupti_overhead *record = (const struct cupti_overhead *)any;
    if (record->overhead_kind == CUPTI_OVERHEAD_COMMAND_BUFFER_FULL && cupti_version() >= CUPTI_VERSION_12_4) {
        struct cupti_overhead_with_data *with_data = (struct cupti_overhead_with_data *)any;
        free(with_data->data); /* ours to free, says CUPTI's documentation */
        with_data->data = NULL;
    }
    uint64_t start = record->start, end = record->end;
    if (check(intake, &start, &end))
        account_overhead(record->overhead_kind, start, end);
}

static void take_record(const struct intake *intake, struct cupti_record *record)
{
    intake->region->header.records_total++;
    switch (record->kind) {
    case CUPTI_KIND_CONCURRENT_KERNEL:
        take_kernel(intake, (const struct cupti_kernel *)record);
        break;
    case CUPTI_KIND_MEMCPY:
    case CUPTI_KIND_MEMCPY_PEER:
    case CUPTI_KIND_MEMSET:
        take_transfer(intake, (const struct cupti_transfer *)record);
        break;
    case CUPTI_KIND_GRAPH_TRACE:
        take_graph(intake, (const struct cupti_graph *)record);
        break;
    case CUPTI_KIND_OVERHEAD:
        take_overhead(intake, record);
        break;
    default: /* kinds that another client enabled, while the callbacks are shared */
        intake->region->header.unknown_total++;
    }
}

void records_take(struct tracer_region *region, uint8_t *buffer, uint64_t valid_size, uint64_t now)
{
    struct intake intake = {
        .region = region,
        .offset = (uint64_t)region->header.clock_offset_nanoseconds,
        .earliest = account_earliest(),
        .latest = now + AHEAD_NANOSECONDS,
    };
    account_make_room();
    kernels_begin_buffer();
    struct cupti_record *record = NULL;
    cupti_status status;
    while ((status = cupti_next_record(buffer, valid_size, &record)) == CUPTI_SUCCESS)
        take_record(&intake, record);
    if (status != CUPTI_MAX_LIMIT_REACHED)
        region->header.incomplete_total++; /* the rest of the buffer is unreadable */
    account_merge();
}
