/* NVML calls about the processes of a device. */
#include "standin_call.h"

/* NVML's convention for lists: too small a buffer gets the size that is needed, an empty list is a success. */
static nvml_status begin_list(unsigned available, unsigned *count, const void *entries)
{
    unsigned capacity = *count;
    *count = available;
    if (available > capacity)
        return NVML_INSUFFICIENT_SIZE;
    return available && !entries ? NVML_INVALID_ARGUMENT : NVML_SUCCESS;
}

static nvml_status list_processes(const struct standin_device *device, unsigned mps, unsigned *count,
                                  nvml_process_info *processes)
{
    unsigned available = 0, place = 0;
    for (unsigned i = 0; i < device->process_count; i++)
        available += device->processes[i].mps == mps;
    nvml_status status = begin_list(available, count, processes);
    for (unsigned i = 0; status == NVML_SUCCESS && i < device->process_count; i++)
        if (device->processes[i].mps == mps)
            processes[place++] = (nvml_process_info){
                .pid = device->processes[i].pid,
                .usedGpuMemory = device->processes[i].used_memory_bytes,
                .gpuInstanceId = NVML_NO_INSTANCE,
                .computeInstanceId = NVML_NO_INSTANCE,
            };
    return status;
}

EXPORT nvml_status nvmlDeviceGetComputeRunningProcesses_v3(nvml_device_handle handle, unsigned *count,
                                                           nvml_process_info *processes)
{
    REQUIRE(count);
    ENTER(handle);
    return list_processes(&device, 0, count, processes);
}

EXPORT nvml_status nvmlDeviceGetGraphicsRunningProcesses_v3(nvml_device_handle handle, unsigned *count,
                                                            nvml_process_info *processes)
{
    REQUIRE(count);
    ENTER(handle);
    return begin_list(0, count, processes);
}

EXPORT nvml_status nvmlDeviceGetMPSComputeRunningProcesses_v3(nvml_device_handle handle, unsigned *count,
                                                              nvml_process_info *processes)
{
    REQUIRE(count);
    ENTER(handle);
    return list_processes(&device, 1, count, processes);
}

/* Each write of the state is one sample of every process that has a share; a device without any is "not found". */
EXPORT nvml_status nvmlDeviceGetProcessUtilization(nvml_device_handle handle, nvml_process_utilization_sample *samples,
                                                   unsigned *count, unsigned long long last_seen_microseconds)
{
    REQUIRE(count);
    ENTER(handle);
    if (device.mig_enabled)
        return NVML_NOT_SUPPORTED;
    struct standin_node node;
    nvml_status status = standin_read_node(&node);
    if (status != NVML_SUCCESS)
        return status;
    unsigned capacity = samples ? *count : 0, available = 0;
    for (unsigned i = 0; i < device.process_count; i++) {
        const struct standin_process *process = &device.processes[i];
        if (process->driver_util_percent == UINT32_MAX || node.written_at_microseconds <= last_seen_microseconds)
            continue;
        if (available < capacity)
            samples[available] = (nvml_process_utilization_sample){
                .pid = process->pid,
                .timeStamp = node.written_at_microseconds,
                .smUtil = process->driver_util_percent,
            };
        available++;
    }
    *count = available;
    if (available == 0)
        return NVML_NOT_FOUND;
    return available > capacity ? NVML_INSUFFICIENT_SIZE : NVML_SUCCESS;
}
