/* Reads the process list of device 0 as fast as it goes until it has seen it change 30000 times (or a minute has
 * passed), and prints how often it changed and how many lists held entries of two writes. */
#include <stdio.h>
#include <time.h>

#include "nvml_abi.h"

nvml_status nvmlInit_v2(void);
nvml_status nvmlDeviceGetHandleByIndex_v2(unsigned index, nvml_device_handle *handle);
nvml_status nvmlDeviceGetComputeRunningProcesses_v3(nvml_device_handle handle, unsigned *count, nvml_process_info *list);

static double seconds(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (double)now.tv_sec + (double)now.tv_nsec / 1e9;
}

int main(void)
{
    nvml_device_handle handle;
    nvml_process_info list[64];
    unsigned long torn = 0, changes = 0;
    unsigned long long last = 0;
    if (nvmlInit_v2() != 0 || nvmlDeviceGetHandleByIndex_v2(0, &handle) != 0)
        return 1;
    for (double end = seconds() + 60; changes < 30000 && seconds() < end;) {
        unsigned count = 64, mixed = 0;
        if (nvmlDeviceGetComputeRunningProcesses_v3(handle, &count, list) != 0)
            return 2;
        for (unsigned i = 1; i < count; i++)
            mixed |= list[i].usedGpuMemory != list[0].usedGpuMemory;
        torn += mixed;
        changes += list[0].usedGpuMemory != last;
        last = list[0].usedGpuMemory;
    }
    printf("%lu %lu\n", changes, torn);
    return 0;
}
