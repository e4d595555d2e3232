/* NVML calls that read what a device does right now. */
#include "standin_call.h"

static unsigned long long free_bytes(const struct standin_device *device)
{
    uint64_t total = device->memory_total_bytes, used = device->memory_used_bytes;
    return used < total ? total - used : 0;
}

EXPORT nvml_status nvmlDeviceGetMemoryInfo(nvml_device_handle handle, nvml_memory *memory)
{
    REQUIRE(memory);
    ENTER(handle);
    memory->total = device.memory_total_bytes;
    memory->used = device.memory_used_bytes;
    memory->free = free_bytes(&device);
    return NVML_SUCCESS;
}

EXPORT nvml_status nvmlDeviceGetMemoryInfo_v2(nvml_device_handle handle, nvml_memory_v2 *memory)
{
    REQUIRE(memory);
    if (memory->version != NVML_VERSIONED(nvml_memory_v2, 2))
        return NVML_ARGUMENT_VERSION_MISMATCH;
    ENTER(handle);
    memory->total = device.memory_total_bytes;
    memory->reserved = 0;
    memory->used = device.memory_used_bytes;
    memory->free = free_bytes(&device);
    return NVML_SUCCESS;
}

EXPORT nvml_status nvmlDeviceGetUtilizationRates(nvml_device_handle handle, nvml_utilization *utilization)
{
    REQUIRE(utilization);
    ENTER(handle);
    if (device.mig_enabled)
        return NVML_NOT_SUPPORTED;
    utilization->gpu = device.driver_util_percent;
    utilization->memory = device.driver_memory_util_percent;
    return NVML_SUCCESS;
}

EXPORT nvml_status nvmlDeviceGetPowerUsage(nvml_device_handle handle, unsigned *milliwatts)
{
    REQUIRE(milliwatts);
    ENTER(handle);
    *milliwatts = device.power_milliwatts;
    return NVML_SUCCESS;
}

EXPORT nvml_status nvmlDeviceGetTotalEnergyConsumption(nvml_device_handle handle, unsigned long long *millijoules)
{
    REQUIRE(millijoules);
    ENTER(handle);
    *millijoules = device.energy_millijoules;
    return NVML_SUCCESS;
}

EXPORT nvml_status nvmlDeviceGetTemperature(nvml_device_handle handle, unsigned sensor, unsigned *celsius)
{
    REQUIRE(celsius && sensor == NVML_TEMPERATURE_GPU);
    ENTER(handle);
    *celsius = (unsigned)device.temperature_celsius;
    return NVML_SUCCESS;
}

EXPORT nvml_status nvmlDeviceGetTemperatureV(nvml_device_handle handle, nvml_temperature_v1 *temperature)
{
    REQUIRE(temperature);
    if (temperature->version != NVML_VERSIONED(nvml_temperature_v1, 1))
        return NVML_ARGUMENT_VERSION_MISMATCH;
    REQUIRE(temperature->sensorType == NVML_TEMPERATURE_GPU);
    ENTER(handle);
    temperature->temperature = device.temperature_celsius;
    return NVML_SUCCESS;
}

EXPORT nvml_status nvmlDeviceGetClockInfo(nvml_device_handle handle, unsigned type, unsigned *megahertz)
{
    REQUIRE(megahertz && type <= NVML_CLOCK_VIDEO);
    ENTER(handle);
    if (type == NVML_CLOCK_MEM && device.memory_clock_megahertz) {
        *megahertz = device.memory_clock_megahertz;
        return NVML_SUCCESS;
    }
    if (type != NVML_CLOCK_GRAPHICS && type != NVML_CLOCK_SM)
        return NVML_NOT_SUPPORTED;
    *megahertz = device.sm_clock_megahertz; /* both clocks are one domain on current boards */
    return NVML_SUCCESS;
}

EXPORT nvml_status nvmlDeviceGetCurrentClocksEventReasons(nvml_device_handle handle, unsigned long long *reasons)
{
    REQUIRE(reasons);
    ENTER(handle);
    *reasons = device.clock_event_reasons;
    return NVML_SUCCESS;
}

EXPORT nvml_status nvmlDeviceGetCurrentClocksThrottleReasons(nvml_device_handle handle, unsigned long long *reasons)
{
    REQUIRE(reasons);
    ENTER(handle);
    *reasons = device.clock_event_reasons;
    return NVML_SUCCESS;
}

EXPORT nvml_status nvmlDeviceGetTotalEccErrors(nvml_device_handle handle, unsigned error_type, unsigned counter_type,
                                               unsigned long long *count)
{
    (void)counter_type;
    REQUIRE(count);
    ENTER(handle);
    if (!device.counters_supported)
        return NVML_NOT_SUPPORTED;
    *count = error_type ? device.ecc_uncorrected : device.ecc_corrected;
    return NVML_SUCCESS;
}
