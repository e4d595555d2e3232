/*
 * The state of one simulated node, as the Python side (collector/simulate/standin.py) lays it out in a file and this
 * library maps it. Values stand in NVML's own units, so that the C side only copies. Little-endian, every record a
 * multiple of eight bytes.
 */
#ifndef TRUELOAD_STANDIN_STATE_H
#define TRUELOAD_STANDIN_STATE_H

#include <stdint.h>

#include "nvml_abi.h"

#define STANDIN_STATE_VARIABLE "TRUELOAD_STANDIN_STATE"
#define STANDIN_MAGIC UINT64_C(0x314C4D564E444C54) /* "TLDNVML1" as bytes */
#define STANDIN_VERSION 1u

enum { STANDIN_DEVICES_MAX = 16, STANDIN_PROCESSES_MAX = 32, STANDIN_FAULTS_MAX = 16 };

struct standin_process {
    uint64_t used_memory_bytes;   /* NVML_VALUE_NOT_AVAILABLE: unknown */
    uint32_t pid;
    uint32_t driver_util_percent; /* UINT32_MAX: no sample of this process */
};

/* A call of this exact name on the device answers at once with this code and fills in nothing. */
struct standin_fault {
    char call[60];
    int32_t return_code;
};

/* Since an arbitrary start: the time passed, and the integral over it of each share of activity. */
struct standin_gpm {
    double elapsed_seconds;
    double engine_active_seconds, sm_active_seconds, sm_occupancy_seconds;
    double tensor_active_seconds, dram_active_seconds;
};

struct standin_device {
    char uuid[96], name[96], serial[32]; /* an empty serial: the board reports none */
    uint32_t pci_domain, pci_bus, pci_device, minor_number;
    uint64_t memory_total_bytes, memory_used_bytes, energy_millijoules, clock_event_reasons;
    uint32_t driver_util_percent, driver_memory_util_percent, power_milliwatts, sm_clock_megahertz;
    int32_t temperature_celsius;
    uint32_t lost, gpm_supported, process_count, fault_count, unused;
    struct standin_gpm gpm;
    struct standin_process processes[STANDIN_PROCESSES_MAX];
    struct standin_fault faults[STANDIN_FAULTS_MAX];
};

struct standin_node {
    uint64_t written_at_microseconds; /* since the epoch */
    int32_t init_return_code;
    uint32_t device_count, cuda_driver_version, unused;
    char driver_version[80], nvml_version[80];
};

struct standin_file {
    uint64_t magic;
    uint32_t version, size_bytes;
    uint64_t sequence; /* odd while a write is under way; everything below belongs to it */
    struct standin_node node;
    struct standin_device devices[STANDIN_DEVICES_MAX];
};

/* Map the file that STANDIN_STATE_VARIABLE names, or count one more user of it. */
nvml_status standin_open(void);

/* One user less. The mapping stays, for another thread may be reading it. */
nvml_status standin_close(void);

/* The present state of the node, never half-written. */
nvml_status standin_read_node(struct standin_node *node);

/* The present state of one device, never half-written; its own loss and faults are not looked at here. */
nvml_status standin_read_device(unsigned index, struct standin_device *device);

#endif
