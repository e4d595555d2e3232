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
#define STANDIN_VERSION 2u

enum { STANDIN_DEVICES_MAX = 16, STANDIN_PROCESSES_MAX = 32, STANDIN_FAULTS_MAX = 16, STANDIN_EVENTS_MAX = 8,
       STANDIN_INSTANCES_MAX = 8 };

struct standin_process {
    uint64_t used_memory_bytes;   /* NVML_VALUE_NOT_AVAILABLE: unknown */
    uint32_t pid;
    uint32_t driver_util_percent; /* UINT32_MAX: no sample of this process */
    uint32_t mps, unused;         /* an MPS client is on the MPS list alone */
};

/* A call of this exact name on the device answers at once with this code and fills in nothing; see STANDIN_BLOCK. */
struct standin_fault {
    char call[60];
    int32_t return_code;
};

/* Since an arbitrary start: the time passed, and the integral over it of each share of activity. */
struct standin_gpm {
    double elapsed_seconds;
    double engine_active_seconds, sm_active_seconds, sm_occupancy_seconds;
    double tensor_active_seconds, dram_active_seconds;
    double fp64_active_seconds, fp32_active_seconds, fp16_active_seconds;
};

/* A MIG instance; the place in the array is its index, and one without UUID is a hole. */
struct standin_instance {
    char uuid[96], name[96];
    uint64_t memory_total_bytes, memory_used_bytes;
    uint32_t gpu_instance_id, compute_instance_id;
    struct standin_gpm gpm;
};

/* What an event set is told: NVML's bit for the kind, and its data (the Xid). */
struct standin_event {
    uint64_t type, data;
};

struct standin_device {
    char uuid[96], name[96], serial[32]; /* an empty serial: the board reports none */
    uint32_t pci_domain, pci_bus, pci_device, minor_number;
    uint64_t memory_total_bytes, memory_used_bytes, energy_millijoules, clock_event_reasons;
    uint32_t driver_util_percent, driver_memory_util_percent, power_milliwatts, sm_clock_megahertz;
    int32_t temperature_celsius;
    uint32_t lost, gpm_supported /* 2: with totals since boot */, process_count, fault_count, mig_enabled;
    int32_t memory_temperature_celsius; /* INT32_MIN: not supported */
    uint32_t memory_clock_megahertz;    /* 0: not supported */
    uint64_t power_capped_nanoseconds, thermal_slowed_nanoseconds, power_braked_nanoseconds;
    uint64_t pcie_transmitted_bytes, pcie_received_bytes, nvlink_transmitted_kib, nvlink_received_kib;
    uint64_t ecc_corrected, ecc_uncorrected;
    uint32_t remapped_corrected, remapped_uncorrected, remap_pending, remap_failed;
    uint32_t counters_supported, nvlink_supported; /* throttle and PCIe counters; NVLink's */
    uint64_t event_count;                          /* ever; the last ones are kept, number n at n modulo the most */
    struct standin_event events[STANDIN_EVENTS_MAX];
    struct standin_gpm gpm;
    struct standin_process processes[STANDIN_PROCESSES_MAX];
    struct standin_fault faults[STANDIN_FAULTS_MAX];
    struct standin_instance instances[STANDIN_INSTANCES_MAX];
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
