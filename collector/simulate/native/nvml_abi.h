/*
 * The part of NVML's binary interface that the stand-in answers, declared from its documented layout so that no vendor
 * header is needed. Field names follow the Python binding's ctypes structures: a test compares every offset with them.
 */
#ifndef TRUELOAD_NVML_ABI_H
#define TRUELOAD_NVML_ABI_H

#include <stdint.h>

typedef int nvml_status;

enum {
    NVML_SUCCESS = 0,
    NVML_UNINITIALIZED = 1,
    NVML_INVALID_ARGUMENT = 2,
    NVML_NOT_SUPPORTED = 3,
    NVML_NOT_FOUND = 6,
    NVML_INSUFFICIENT_SIZE = 7,
    NVML_TIMEOUT = 10,
    NVML_DRIVER_NOT_LOADED = 9,
    NVML_LIBRARY_NOT_FOUND = 12,
    NVML_GPU_IS_LOST = 15,
    NVML_MEMORY = 20,
    NVML_NO_DATA = 21,
    NVML_ARGUMENT_VERSION_MISMATCH = 25,
    NVML_UNKNOWN = 999,
};

enum { NVML_TEMPERATURE_GPU = 0 };
enum { NVML_CLOCK_GRAPHICS = 0, NVML_CLOCK_SM = 1, NVML_CLOCK_MEM = 2, NVML_CLOCK_VIDEO = 3 };

/* "Not part of a MIG instance" and "memory of this process unknown". */
#define NVML_NO_INSTANCE UINT32_MAX
#define NVML_VALUE_NOT_AVAILABLE UINT64_MAX

typedef struct nvml_device *nvml_device_handle; /* opaque */

typedef union {
    double dVal;
    unsigned uiVal;
    unsigned long long ullVal;
} nvml_value;

enum { NVML_VALUE_DOUBLE = 0, NVML_VALUE_UINT = 1, NVML_VALUE_ULONGLONG = 3 };

typedef struct {
    uint32_t fieldId, scopeId;
    int64_t timestamp, latencyUsec; /* microseconds */
    int valueType;
    nvml_status nvmlReturn;
    nvml_value value;
} nvml_field_value;

enum { NVML_SAMPLES_POWER = 0, NVML_SAMPLES_GPU_UTILIZATION = 1 };

typedef struct {
    unsigned long long timeStamp; /* microseconds since the epoch */
    nvml_value sampleValue;
} nvml_sample;

typedef struct nvml_event_set *nvml_event_set_handle; /* opaque */

typedef struct {
    nvml_device_handle device;
    unsigned long long eventType, eventData;
    unsigned gpuInstanceId, computeInstanceId;
} nvml_event_data;

/* Newer structures carry their size and a version in the first word. */
#define NVML_VERSIONED(type, version) ((uint32_t)(sizeof(type) | ((uint32_t)(version) << 24)))

typedef struct {
    char busIdLegacy[16];
    unsigned domain, bus, device, pciDeviceId, pciSubSystemId;
    char busId[32];
} nvml_pci_info;

typedef struct {
    unsigned long long total, free, used;
} nvml_memory;

typedef struct {
    unsigned version;
    unsigned long long total, reserved, free, used;
} nvml_memory_v2;

typedef struct {
    unsigned gpu, memory;
} nvml_utilization;

typedef struct {
    unsigned version, sensorType;
    int temperature;
} nvml_temperature_v1;

typedef struct {
    unsigned pid;
    unsigned long long usedGpuMemory;
    unsigned gpuInstanceId, computeInstanceId;
} nvml_process_info;

typedef struct {
    unsigned pid;
    unsigned long long timeStamp; /* microseconds since the epoch */
    unsigned smUtil, memUtil, encUtil, decUtil;
} nvml_process_utilization_sample;

typedef struct {
    unsigned version, isSupportedDevice;
} nvml_gpm_support;

typedef struct nvml_gpm_sample *nvml_gpm_sample_handle; /* opaque */

typedef struct {
    const char *shortName, *longName, *unit;
} nvml_gpm_metric_info;

typedef struct {
    unsigned metricId;
    nvml_status nvmlReturn;
    double value;
    nvml_gpm_metric_info metricInfo;
} nvml_gpm_metric;

typedef struct {
    unsigned version, numMetrics;
    nvml_gpm_sample_handle sample1, sample2;
    nvml_gpm_metric metrics[]; /* the caller's array grows with each release of the header */
} nvml_gpm_metrics_get;

#endif
