/*
 * A stand-in for libnvidia-ml.so.1: the calls that trueload makes, answered from a file that a test or the demo writes
 * meanwhile. One process sees one node. What is exported and what it answers: README.md.
 */
#include <stdio.h>
#include <string.h>
#include <time.h>

#include "standin_call.h"

/* Handles are addresses of these; what a handle stands for is its place in the array. */
struct nvml_device {
    char unused;
};
static struct nvml_device handles[STANDIN_DEVICES_MAX];
static struct nvml_device instance_handles[STANDIN_DEVICES_MAX][STANDIN_INSTANCES_MAX];

nvml_device_handle standin_handle(unsigned index) { return &handles[index]; }

static int fault_of(const struct standin_device *device, const char *call)
{
    for (unsigned i = 0; i < device->fault_count && i < STANDIN_FAULTS_MAX; i++)
        if (strncmp(device->faults[i].call, call, sizeof device->faults[i].call) == 0)
            return device->faults[i].return_code;
    return STANDIN_GO_ON;
}

nvml_status standin_enter_index(unsigned index, const char *call, struct standin_device *device)
{
    nvml_status status = standin_read_device(index, device);
    if (status != NVML_SUCCESS)
        return status;
    if (device->lost)
        return NVML_GPU_IS_LOST;
    int fault = fault_of(device, call);
    while (fault == STANDIN_BLOCK) { /* until the state is written without it */
        nanosleep(&(struct timespec){.tv_nsec = 5000000}, NULL);
        if (standin_read_device(index, device) == NVML_SUCCESS)
            fault = fault_of(device, call);
    }
    return fault;
}

/* Few calls answer for a MIG instance; the others do not know it. */
static int knows_instances(const char *call)
{
    static const char *const calls[] = {
        "nvmlDeviceGetUUID", "nvmlDeviceGetName", "nvmlDeviceGetMemoryInfo", "nvmlDeviceGetMemoryInfo_v2",
        "nvmlDeviceGetGpuInstanceId", "nvmlDeviceGetComputeInstanceId",
    };
    for (size_t i = 0; i < sizeof calls / sizeof calls[0]; i++)
        if (strcmp(call, calls[i]) == 0)
            return 1;
    return 0;
}

/* Show the device as one of its instances. */
static nvml_status enter_instance(unsigned index, unsigned place, const char *call, struct standin_device *device)
{
    nvml_status status = standin_enter_index(index, call, device);
    if (status != STANDIN_GO_ON)
        return status;
    const struct standin_instance *instance = &device->instances[place];
    if (!device->mig_enabled || !instance->uuid[0])
        return NVML_NOT_FOUND;
    if (!knows_instances(call))
        return NVML_NOT_SUPPORTED;
    memcpy(device->uuid, instance->uuid, sizeof device->uuid);
    memcpy(device->name, instance->name, sizeof device->name);
    device->memory_total_bytes = instance->memory_total_bytes;
    device->memory_used_bytes = instance->memory_used_bytes;
    device->minor_number = instance->gpu_instance_id; /* where nvmlDeviceGetGpuInstanceId looks for it */
    device->pci_device = instance->compute_instance_id;
    return STANDIN_GO_ON;
}

nvml_status standin_enter(nvml_device_handle handle, const char *call, struct standin_device *device, unsigned *index)
{
    struct standin_node node;
    nvml_status status = standin_read_node(&node);
    if (status != NVML_SUCCESS)
        return status;
    for (unsigned i = 0; i < STANDIN_DEVICES_MAX; i++) {
        for (unsigned place = 0; place < STANDIN_INSTANCES_MAX; place++)
            if (handle == &instance_handles[i][place])
                return enter_instance(i, place, call, device);
        if (handle != &handles[i])
            continue;
        if (index)
            *index = i;
        return standin_enter_index(i, call, device);
    }
    return NVML_INVALID_ARGUMENT;
}

static nvml_status copy_text(char *target, unsigned length, const char *text)
{
    REQUIRE(target);
    if (strlen(text) >= length)
        return NVML_INSUFFICIENT_SIZE;
    strcpy(target, text);
    return NVML_SUCCESS;
}

/* ---- library and node ---- */

EXPORT nvml_status nvmlInitWithFlags(unsigned flags)
{
    (void)flags;
    return standin_open();
}

EXPORT nvml_status nvmlInit_v2(void) { return standin_open(); }

EXPORT nvml_status nvmlShutdown(void) { return standin_close(); }

EXPORT const char *nvmlErrorString(nvml_status status)
{
    switch (status) {
    case NVML_SUCCESS: return "Success";
    case NVML_UNINITIALIZED: return "Not initialised";
    case NVML_INVALID_ARGUMENT: return "Invalid argument";
    case NVML_NOT_SUPPORTED: return "Not supported";
    case NVML_NOT_FOUND: return "Not found";
    case NVML_INSUFFICIENT_SIZE: return "Buffer too small";
    case NVML_TIMEOUT: return "Timeout";
    case NVML_DRIVER_NOT_LOADED: return "Driver not loaded";
    case NVML_LIBRARY_NOT_FOUND: return "Library or its state file not found";
    case NVML_GPU_IS_LOST: return "GPU is lost";
    case NVML_MEMORY: return "Out of memory";
    case NVML_NO_DATA: return "No data";
    case NVML_ARGUMENT_VERSION_MISMATCH: return "Structure of an unknown version";
    default: return "Unknown error";
    }
}

EXPORT nvml_status nvmlSystemGetDriverVersion(char *version, unsigned length)
{
    struct standin_node node;
    nvml_status status = standin_read_node(&node);
    return status == NVML_SUCCESS ? copy_text(version, length, node.driver_version) : status;
}

EXPORT nvml_status nvmlSystemGetNVMLVersion(char *version, unsigned length)
{
    struct standin_node node;
    nvml_status status = standin_read_node(&node);
    return status == NVML_SUCCESS ? copy_text(version, length, node.nvml_version) : status;
}

EXPORT nvml_status nvmlSystemGetCudaDriverVersion_v2(int *version)
{
    REQUIRE(version);
    struct standin_node node;
    nvml_status status = standin_read_node(&node);
    if (status == NVML_SUCCESS)
        *version = (int)node.cuda_driver_version;
    return status;
}

EXPORT nvml_status nvmlSystemGetCudaDriverVersion(int *version) { return nvmlSystemGetCudaDriverVersion_v2(version); }

EXPORT nvml_status nvmlDeviceGetCount_v2(unsigned *count)
{
    REQUIRE(count);
    struct standin_node node;
    nvml_status status = standin_read_node(&node);
    if (status == NVML_SUCCESS)
        *count = node.device_count;
    return status;
}

/* ---- identity ---- */

EXPORT nvml_status nvmlDeviceGetHandleByIndex_v2(unsigned index, nvml_device_handle *handle)
{
    REQUIRE(handle);
    struct standin_device device;
    nvml_status status = standin_enter_index(index, __func__, &device);
    if (status != STANDIN_GO_ON)
        return status;
    *handle = &handles[index];
    return NVML_SUCCESS;
}

EXPORT nvml_status nvmlDeviceGetHandleByUUID(const char *uuid, nvml_device_handle *handle)
{
    REQUIRE(uuid && handle);
    struct standin_node node;
    nvml_status status = standin_read_node(&node);
    for (unsigned i = 0; status == NVML_SUCCESS && i < node.device_count; i++) {
        struct standin_device device;
        status = standin_read_device(i, &device);
        if (status != NVML_SUCCESS || strncmp(device.uuid, uuid, sizeof device.uuid) != 0)
            continue;
        status = standin_enter_index(i, __func__, &device);
        if (status != STANDIN_GO_ON)
            return status;
        *handle = &handles[i];
        return NVML_SUCCESS;
    }
    return status == NVML_SUCCESS ? NVML_NOT_FOUND : status;
}

EXPORT nvml_status nvmlDeviceGetIndex(nvml_device_handle handle, unsigned *index)
{
    REQUIRE(index);
    struct standin_device device;
    nvml_status status = standin_enter(handle, __func__, &device, index);
    return status == STANDIN_GO_ON ? NVML_SUCCESS : status;
}

EXPORT nvml_status nvmlDeviceGetUUID(nvml_device_handle handle, char *uuid, unsigned length)
{
    ENTER(handle);
    return copy_text(uuid, length, device.uuid);
}

EXPORT nvml_status nvmlDeviceGetName(nvml_device_handle handle, char *name, unsigned length)
{
    ENTER(handle);
    return copy_text(name, length, device.name);
}

EXPORT nvml_status nvmlDeviceGetSerial(nvml_device_handle handle, char *serial, unsigned length)
{
    ENTER(handle);
    return device.serial[0] ? copy_text(serial, length, device.serial) : NVML_NOT_SUPPORTED;
}

EXPORT nvml_status nvmlDeviceGetMinorNumber(nvml_device_handle handle, unsigned *minor_number)
{
    REQUIRE(minor_number);
    ENTER(handle);
    *minor_number = device.minor_number;
    return NVML_SUCCESS;
}

EXPORT nvml_status nvmlDeviceGetPciInfo_v3(nvml_device_handle handle, nvml_pci_info *pci)
{
    REQUIRE(pci);
    ENTER(handle);
    memset(pci, 0, sizeof *pci);
    pci->domain = device.pci_domain;
    pci->bus = device.pci_bus;
    pci->device = device.pci_device;
    pci->pciDeviceId = 0x10DE; /* the vendor; the stand-in is no particular board */
    /* The masks keep each number within its digits, which the compiler then knows too. */
    snprintf(pci->busIdLegacy, sizeof pci->busIdLegacy, "%04X:%02X:%02X.0", pci->domain & 0xFFFFu, pci->bus & 0xFFu,
             pci->device & 0xFFu);
    snprintf(pci->busId, sizeof pci->busId, "%08X:%02X:%02X.0", pci->domain, pci->bus & 0xFFu, pci->device & 0xFFu);
    return NVML_SUCCESS;
}

EXPORT nvml_status nvmlDeviceGetMigMode(nvml_device_handle handle, unsigned *current, unsigned *pending)
{
    REQUIRE(current && pending);
    ENTER(handle);
    *current = *pending = device.mig_enabled;
    return NVML_SUCCESS;
}

EXPORT nvml_status nvmlDeviceGetMaxMigDeviceCount(nvml_device_handle handle, unsigned *count)
{
    REQUIRE(count);
    ENTER(handle);
    *count = device.mig_enabled ? STANDIN_INSTANCES_MAX : 0;
    return NVML_SUCCESS;
}

EXPORT nvml_status nvmlDeviceGetMigDeviceHandleByIndex(nvml_device_handle handle, unsigned place,
                                                       nvml_device_handle *instance)
{
    REQUIRE(instance);
    struct standin_device device;
    unsigned index;
    nvml_status status = standin_enter(handle, __func__, &device, &index);
    if (status != STANDIN_GO_ON)
        return status;
    if (!device.mig_enabled)
        return NVML_NOT_SUPPORTED;
    if (place >= STANDIN_INSTANCES_MAX || !device.instances[place].uuid[0])
        return NVML_NOT_FOUND;
    *instance = &instance_handles[index][place];
    return NVML_SUCCESS;
}

EXPORT nvml_status nvmlDeviceGetGpuInstanceId(nvml_device_handle handle, unsigned *id)
{
    REQUIRE(id);
    ENTER(handle);
    if (strncmp(device.uuid, "MIG-", 4) != 0)
        return NVML_INVALID_ARGUMENT;
    *id = device.minor_number;
    return NVML_SUCCESS;
}

EXPORT nvml_status nvmlDeviceGetComputeInstanceId(nvml_device_handle handle, unsigned *id)
{
    REQUIRE(id);
    ENTER(handle);
    if (strncmp(device.uuid, "MIG-", 4) != 0)
        return NVML_INVALID_ARGUMENT;
    *id = device.pci_device;
    return NVML_SUCCESS;
}
