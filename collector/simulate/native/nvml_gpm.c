/* GPM: a sample is a snapshot of the device's running integrals, a metric the mean between two samples. */
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#include "standin_call.h"

struct nvml_gpm_sample {
    int filled;
    unsigned device_index;
    int has_totals;
    struct standin_gpm counters;
    double pcie_transmitted, pcie_received, nvlink_transmitted, nvlink_received; /* bytes since an arbitrary start */
};

#define ACTIVE(field) offsetof(struct nvml_gpm_sample, counters) + offsetof(struct standin_gpm, field)
#define PER_MIB (1.0 / (1024 * 1024))
#define CYCLES 1e9 /* a clock of 1 GHz */

/* A mean over the time between two samples, or a total as of the later one, in units of 1 / factor. */
static const struct gpm_metric {
    unsigned id;
    size_t offset;
    double factor;
    int is_total;
    const char *short_name, *long_name, *unit;
} gpm_metrics[] = {
    {1, ACTIVE(engine_active_seconds), 100, 0, "gr_engine", "graphics or compute engine active", "%"},
    {2, ACTIVE(sm_active_seconds), 100, 0, "sm_active", "SMs with a resident warp", "%"},
    {3, ACTIVE(sm_occupancy_seconds), 100, 0, "sm_occupancy", "resident warps of those possible", "%"},
    {5, ACTIVE(tensor_active_seconds), 100, 0, "any_tensor", "tensor pipes active", "%"},
    {10, ACTIVE(dram_active_seconds), 100, 0, "dram", "memory interface active", "%"},
    {11, ACTIVE(fp64_active_seconds), 100, 0, "fp64", "FP64 pipes active", "%"},
    {12, ACTIVE(fp32_active_seconds), 100, 0, "fp32", "FP32 pipes active", "%"},
    {13, ACTIVE(fp16_active_seconds), 100, 0, "fp16", "FP16 pipes active", "%"},
    {20, offsetof(struct nvml_gpm_sample, pcie_transmitted), PER_MIB, 0, "pcie_tx", "PCIe sent", "MiB/s"},
    {21, offsetof(struct nvml_gpm_sample, pcie_received), PER_MIB, 0, "pcie_rx", "PCIe received", "MiB/s"},
    {60, offsetof(struct nvml_gpm_sample, nvlink_received), PER_MIB, 0, "nvlink_rx", "NVLink received", "MiB/s"},
    {61, offsetof(struct nvml_gpm_sample, nvlink_transmitted), PER_MIB, 0, "nvlink_tx", "NVLink sent", "MiB/s"},
    {248, ACTIVE(elapsed_seconds), CYCLES, 1, "sm_cycles", "SM cycles elapsed", "cycles"},
    {249, ACTIVE(sm_active_seconds), CYCLES, 1, "sm_cycles_active", "SM cycles active", "cycles"},
    {250, ACTIVE(tensor_active_seconds), CYCLES, 1, "mma_cycles", "tensor cycles active", "cycles"},
    {255, offsetof(struct nvml_gpm_sample, pcie_transmitted), 1, 1, "pcie_tx_total", "PCIe sent", "B"},
    {256, offsetof(struct nvml_gpm_sample, pcie_received), 1, 1, "pcie_rx_total", "PCIe received", "B"},
    {258, ACTIVE(fp64_active_seconds), CYCLES, 1, "fp64_cycles", "FP64 cycles active", "cycles"},
    {259, ACTIVE(fp32_active_seconds), CYCLES, 1, "fp32_cycles", "FP32 cycles active", "cycles"},
    {260, ACTIVE(fp16_active_seconds), CYCLES, 1, "fp16_cycles", "FP16 cycles active", "cycles"},
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

static double counter(const struct nvml_gpm_sample *sample, size_t offset)
{
    double value;
    memcpy(&value, (const char *)sample + offset, sizeof value);
    return value;
}

static struct nvml_gpm_sample take(const struct standin_device *device, unsigned index)
{
    return (struct nvml_gpm_sample){
        .filled = 1,
        .device_index = index,
        .has_totals = device->gpm_supported > 1,
        .counters = device->gpm,
        .pcie_transmitted = (double)device->pcie_transmitted_bytes,
        .pcie_received = (double)device->pcie_received_bytes,
        .nvlink_transmitted = 1024.0 * (double)device->nvlink_transmitted_kib,
        .nvlink_received = 1024.0 * (double)device->nvlink_received_kib,
    };
}

static void fill_metric(nvml_gpm_metric *metric, const struct nvml_gpm_sample *from, const struct nvml_gpm_sample *to)
{
    const struct gpm_metric *kind = NULL;
    double elapsed = to->counters.elapsed_seconds - from->counters.elapsed_seconds;
    metric->nvmlReturn = find_metric(metric->metricId, &kind);
    if (metric->nvmlReturn == NVML_SUCCESS && kind->is_total && !to->has_totals)
        metric->nvmlReturn = NVML_NOT_SUPPORTED;
    if (metric->nvmlReturn == NVML_SUCCESS && elapsed == 0)
        metric->nvmlReturn = NVML_NO_DATA; /* both samples saw the same state */
    if (metric->nvmlReturn != NVML_SUCCESS)
        return;
    double now = counter(to, kind->offset);
    metric->value = kind->is_total ? now * kind->factor : kind->factor * (now - counter(from, kind->offset)) / elapsed;
    metric->metricInfo = (nvml_gpm_metric_info){kind->short_name, kind->long_name, kind->unit};
}

EXPORT nvml_status nvmlGpmQueryDeviceSupport(nvml_device_handle handle, nvml_gpm_support *support)
{
    REQUIRE(support);
    if (support->version != 1)
        return NVML_ARGUMENT_VERSION_MISMATCH;
    ENTER(handle);
    support->isSupportedDevice = device.gpm_supported != 0;
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
    *sample = take(&device, index);
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
        /* An instance has activity of its own and shares the links. */
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
        fill_metric(&request->metrics[i], from, to);
    return NVML_SUCCESS;
}
