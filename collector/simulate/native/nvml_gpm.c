/* GPM: a sample is a snapshot of the device's running integrals, a metric the mean between two samples. */
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#include "standin_call.h"

struct nvml_gpm_sample {
    int filled;
    unsigned device_index;
    struct standin_gpm counters;
};

static const struct gpm_metric {
    unsigned id;
    size_t offset;
    const char *short_name, *long_name;
} gpm_metrics[] = {
    {1, offsetof(struct standin_gpm, engine_active_seconds), "gr_engine", "graphics or compute engine active"},
    {2, offsetof(struct standin_gpm, sm_active_seconds), "sm_active", "SMs with a resident warp"},
    {3, offsetof(struct standin_gpm, sm_occupancy_seconds), "sm_occupancy", "resident warps of those possible"},
    {5, offsetof(struct standin_gpm, tensor_active_seconds), "any_tensor", "tensor pipes active"},
    {10, offsetof(struct standin_gpm, dram_active_seconds), "dram", "memory interface active"},
    {11, offsetof(struct standin_gpm, fp64_active_seconds), "fp64", "FP64 pipes active"},
    {12, offsetof(struct standin_gpm, fp32_active_seconds), "fp32", "FP32 pipes active"},
    {13, offsetof(struct standin_gpm, fp16_active_seconds), "fp16", "FP16 pipes active"},
};

/* The metrics array of the newest header; a larger number is no honest request. */
static const unsigned gpm_metrics_limit = 477;

static nvml_status find_metric(unsigned id, const struct gpm_metric **found)
{
    for (size_t i = 0; i < sizeof gpm_metrics / sizeof gpm_metrics[0]; i++)
        if (gpm_metrics[i].id == id) {
            *found = &gpm_metrics[i];
            return NVML_SUCCESS;
        }
    return NVML_NOT_SUPPORTED;
}

static double counter(const struct standin_gpm *counters, size_t offset)
{
    double seconds;
    memcpy(&seconds, (const char *)counters + offset, sizeof seconds);
    return seconds;
}

static void fill_metric(nvml_gpm_metric *metric, const struct standin_gpm *from, const struct standin_gpm *to)
{
    const struct gpm_metric *kind = NULL;
    double elapsed = to->elapsed_seconds - from->elapsed_seconds;
    metric->nvmlReturn = find_metric(metric->metricId, &kind);
    if (metric->nvmlReturn == NVML_SUCCESS && elapsed == 0)
        metric->nvmlReturn = NVML_NO_DATA; /* both samples saw the same state */
    if (metric->nvmlReturn != NVML_SUCCESS)
        return;
    metric->value = 100 * (counter(to, kind->offset) - counter(from, kind->offset)) / elapsed;
    metric->metricInfo = (nvml_gpm_metric_info){kind->short_name, kind->long_name, "%"};
}

EXPORT nvml_status nvmlGpmQueryDeviceSupport(nvml_device_handle handle, nvml_gpm_support *support)
{
    REQUIRE(support);
    if (support->version != 1)
        return NVML_ARGUMENT_VERSION_MISMATCH;
    ENTER(handle);
    support->isSupportedDevice = device.gpm_supported;
    return NVML_SUCCESS;
}

EXPORT nvml_status nvmlGpmSampleAlloc(nvml_gpm_sample_handle *sample)
{
    REQUIRE(sample);
    *sample = calloc(1, sizeof **sample);
    return *sample ? NVML_SUCCESS : NVML_MEMORY;
}

EXPORT nvml_status nvmlGpmSampleFree(nvml_gpm_sample_handle sample)
{
    REQUIRE(sample);
    free(sample);
    return NVML_SUCCESS;
}

EXPORT nvml_status nvmlGpmSampleGet(nvml_device_handle handle, nvml_gpm_sample_handle sample)
{
    REQUIRE(sample);
    struct standin_device device;
    unsigned index;
    nvml_status status = standin_enter(handle, __func__, &device, &index);
    if (status != STANDIN_GO_ON)
        return status;
    if (!device.gpm_supported)
        return NVML_NOT_SUPPORTED;
    *sample = (struct nvml_gpm_sample){.filled = 1, .device_index = index, .counters = device.gpm};
    return NVML_SUCCESS;
}

EXPORT nvml_status nvmlGpmMigSampleGet(nvml_device_handle handle, unsigned gpu_instance_id,
                                       nvml_gpm_sample_handle sample)
{
    REQUIRE(sample);
    struct standin_device device;
    unsigned index;
    nvml_status status = standin_enter(handle, __func__, &device, &index);
    if (status != STANDIN_GO_ON)
        return status;
    for (unsigned i = 0; i < STANDIN_INSTANCES_MAX && device.mig_enabled && device.gpm_supported; i++) {
        const struct standin_instance *instance = &device.instances[i];
        if (!instance->uuid[0] || instance->gpu_instance_id != gpu_instance_id)
            continue;
        *sample = (struct nvml_gpm_sample){.filled = 1, .device_index = index, .counters = instance->gpm};
        return NVML_SUCCESS;
    }
    return NVML_NOT_FOUND;
}

EXPORT nvml_status nvmlGpmMetricsGet(nvml_gpm_metrics_get *request)
{
    REQUIRE(request);
    if (request->version != 1)
        return NVML_ARGUMENT_VERSION_MISMATCH;
    nvml_gpm_sample_handle from = request->sample1, to = request->sample2;
    REQUIRE(from && to && from->filled && to->filled && request->numMetrics <= gpm_metrics_limit);
    /* Two devices, or time that ran backwards: the counters of a reloaded driver, or samples in the wrong order. */
    REQUIRE(from->device_index == to->device_index && from->counters.elapsed_seconds <= to->counters.elapsed_seconds);
    struct standin_device device;
    nvml_status status = standin_enter_index(to->device_index, __func__, &device);
    if (status != STANDIN_GO_ON)
        return status;
    for (unsigned i = 0; i < request->numMetrics; i++)
        fill_metric(&request->metrics[i], &from->counters, &to->counters);
    return NVML_SUCCESS;
}
