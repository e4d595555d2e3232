/* Field values: several readings by number in one call, each with a return code of its own. Sample buffers. */
#include <limits.h>
#include <string.h>

#include "standin_call.h"

/* Give one field's value, or its return code. */
static nvml_status read_field(const struct standin_device *device, uint32_t field, unsigned long long *value)
{
    int counters = device->counters_supported != 0, nvlink = device->nvlink_supported != 0;
    const struct {
        uint32_t field;
        int supported;
        unsigned long long value;
    } known[] = {
        {3, counters, device->ecc_corrected},
        {4, counters, device->ecc_uncorrected},
        {74, counters, device->power_capped_nanoseconds},
        {82, device->memory_temperature_celsius != INT32_MIN, (unsigned)device->memory_temperature_celsius},
        {138, nvlink, device->nvlink_transmitted_kib},
        {139, nvlink, device->nvlink_received_kib},
        {142, counters, device->remapped_corrected},
        {143, counters, device->remapped_uncorrected},
        {144, counters, device->remap_pending},
        {145, counters, device->remap_failed},
        {185, counters, device->power_milliwatts},
        {197, counters, device->pcie_transmitted_bytes},
        {198, counters, device->pcie_received_bytes},
        {269, counters, device->thermal_slowed_nanoseconds},
        {270, counters, 0},
        {271, counters, device->power_braked_nanoseconds},
    };
    for (size_t i = 0; i < sizeof known / sizeof known[0]; i++)
        if (known[i].field == field) {
            *value = known[i].value;
            return known[i].supported ? NVML_SUCCESS : NVML_NOT_SUPPORTED;
        }
    return NVML_NOT_SUPPORTED;
}

EXPORT nvml_status nvmlDeviceGetFieldValues(nvml_device_handle handle, int count, nvml_field_value *values)
{
    REQUIRE(values && count > 0);
    ENTER(handle);
    struct standin_node node;
    nvml_status status = standin_read_node(&node);
    if (status != NVML_SUCCESS)
        return status;
    for (int i = 0; i < count; i++) {
        values[i].timestamp = (int64_t)node.written_at_microseconds;
        values[i].latencyUsec = 0;
        values[i].valueType = NVML_VALUE_ULONGLONG;
        values[i].value.ullVal = 0;
        values[i].nvmlReturn = read_field(&device, values[i].fieldId, &values[i].value.ullVal);
    }
    return NVML_SUCCESS;
}

/* Each write of the state is one sample, of the power and of the utilization. */
EXPORT nvml_status nvmlDeviceGetSamples(nvml_device_handle handle, int type, unsigned long long last_seen_microseconds,
                                        int *value_type, unsigned *count, nvml_sample *samples)
{
    REQUIRE(value_type && count);
    ENTER(handle);
    if (type != NVML_SAMPLES_POWER && (type != NVML_SAMPLES_GPU_UTILIZATION || device.mig_enabled))
        return NVML_NOT_SUPPORTED;
    struct standin_node node;
    nvml_status status = standin_read_node(&node);
    if (status != NVML_SUCCESS)
        return status;
    *value_type = NVML_VALUE_UINT;
    if (node.written_at_microseconds <= last_seen_microseconds)
        return NVML_NOT_FOUND;
    if (samples) {
        if (*count == 0)
            return NVML_INSUFFICIENT_SIZE;
        memset(samples, 0, sizeof *samples);
        samples->timeStamp = node.written_at_microseconds;
        samples->sampleValue.uiVal = type == NVML_SAMPLES_POWER ? device.power_milliwatts : device.driver_util_percent;
    }
    *count = 1;
    return NVML_SUCCESS;
}
