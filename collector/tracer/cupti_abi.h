/*
 * The part of CUPTI's and libcuda's binary interface that the tracer uses, declared here from its documented layout so
 * that neither a CUDA toolkit nor a vendor header is needed to build.
 *
 * Records only ever grew at their end: the fields below lie at the same offsets in CUPTI 12.1, 12.9, 13.0, 13.4 and 13.5
 * (compared with offsetof over each release's header). Every record is therefore read as its common beginning, and
 * CUPTI's own iterator steps from one to the next.
 */
#ifndef TRUELOAD_CUPTI_ABI_H
#define TRUELOAD_CUPTI_ABI_H

#include <stddef.h>
#include <stdint.h>

typedef int cupti_status;

enum {
    CUPTI_SUCCESS = 0,
    CUPTI_INVALID_PARAMETER = 1,
    CUPTI_INVALID_OPERATION = 7,
    CUPTI_MAX_LIMIT_REACHED = 12,
    CUPTI_NOT_COMPATIBLE = 14,
    CUPTI_NOT_INITIALIZED = 15,
    CUPTI_INVALID_KIND = 21,
    CUPTI_MULTIPLE_SUBSCRIBERS_NOT_SUPPORTED = 39,
    CUPTI_UNKNOWN = 999,
};

enum {
    CUPTI_KIND_MEMCPY = 1,
    CUPTI_KIND_MEMSET = 2,
    CUPTI_KIND_CONCURRENT_KERNEL = 10,
    CUPTI_KIND_OVERHEAD = 17,
    CUPTI_KIND_MEMCPY_PEER = 22,
    CUPTI_KIND_GRAPH_TRACE = 51,
};

/* Overhead kinds are 0, 1 (compiler) and n << 16; the one that brings memory which the client frees is 6 << 16. */
enum { CUPTI_OVERHEAD_COMMAND_BUFFER_FULL = 6 << 16 };

enum { CUPTI_ATTRIBUTE_ZEROED_OUT_BUFFER = 5, CUPTI_ATTRIBUTE_TIMESTAMP_CALLBACK = 22 };

enum { CUPTI_FLUSH_COMPLETE = 0, CUPTI_FLUSH_FORCED = 1 };

/* cuptiGetVersion: a small number up to CUDA 12.9, then xxyyzz. 12.4 is the first whose OVERHEAD records bring memory. */
enum { CUPTI_VERSION_12_4 = 22 };

struct cupti_kernel {
    uint32_t kind;
    uint8_t cache_config, shared_memory_config;
    uint16_t registers_per_thread;
    uint32_t partitioned_cache_requested, partitioned_cache_executed;
    uint64_t start, end, completed;
    uint32_t device_id, context_id, stream_id;
    int32_t grid[3], block[3];
    int32_t static_shared_memory, dynamic_shared_memory;
    uint32_t local_memory_per_thread, local_memory_total, correlation_id;
    int64_t grid_id;
    const char *name;
};

/* Copies between host and device, between devices, and memory sets begin alike. */
struct cupti_transfer {
    uint32_t kind, details;
    uint64_t bytes, start, end;
    uint32_t device_id, context_id, stream_id, correlation_id;
};

struct cupti_graph {
    uint32_t kind, correlation_id;
    uint64_t start, end;
    uint32_t device_id, graph_id;
};

struct cupti_overhead {
    uint32_t kind, overhead_kind, object_kind, object_id[3];
    uint64_t start, end;
};

/* From 12.4 on; read only for the overhead kind that fills the pointer. */
struct cupti_overhead_with_data {
    struct cupti_overhead common;
    uint32_t correlation_id, unused;
    void *data;
};

_Static_assert(offsetof(struct cupti_kernel, start) == 16, "CUPTI's layout");
_Static_assert(offsetof(struct cupti_kernel, device_id) == 40, "CUPTI's layout");
_Static_assert(offsetof(struct cupti_kernel, grid) == 52, "CUPTI's layout");
_Static_assert(offsetof(struct cupti_kernel, static_shared_memory) == 76, "CUPTI's layout");
_Static_assert(offsetof(struct cupti_kernel, correlation_id) == 92, "CUPTI's layout");
_Static_assert(offsetof(struct cupti_kernel, name) == 104, "CUPTI's layout");
_Static_assert(offsetof(struct cupti_transfer, start) == 16, "CUPTI's layout");
_Static_assert(offsetof(struct cupti_transfer, device_id) == 32, "CUPTI's layout");
_Static_assert(offsetof(struct cupti_graph, start) == 8, "CUPTI's layout");
_Static_assert(offsetof(struct cupti_graph, device_id) == 24, "CUPTI's layout");
_Static_assert(offsetof(struct cupti_overhead, start) == 24, "CUPTI's layout");
_Static_assert(offsetof(struct cupti_overhead_with_data, data) == 48, "CUPTI's layout");

struct cupti_record {
    uint32_t kind;
};

typedef struct cupti_subscriber *cupti_subscriber; /* opaque */

enum { CUPTI_SUBSCRIBER_NAME_BYTES = 64 };

struct cupti_subscriber_parameters {
    size_t struct_size; /* up to and with allow_multiple and its padding */
    const char *name;
    char *old_name;
    size_t old_name_size;
    uint8_t allow_multiple;
    uint8_t padding[7];
};

typedef void (*cupti_api_callback)(void *userdata, uint32_t domain, uint32_t id, const void *data);
typedef uint64_t (*cupti_clock)(void);
typedef void (*cupti_requested)(uint8_t **buffer, size_t *size, size_t *record_limit);
typedef void (*cupti_completed)(void *context, uint32_t stream, uint8_t *buffer, size_t size, size_t valid_size);
typedef void (*cupti_requested_v2)(uint8_t **buffer, size_t *size, size_t *record_limit, void *info);
typedef void (*cupti_completed_v2)(uint8_t *buffer, size_t size, size_t valid_size, void *info);

typedef int cuda_status; /* CUDA_SUCCESS is 0 */

#endif
