/*
 * The shared memory that one traced process publishes: a memfd of this layout, named TRACER_NAME, sealed against
 * changes of its size. The tracer writes, the agent reads. layout.py is its twin; a test compares every offset.
 * README.md says what the values mean together. Little-endian; times are CLOCK_MONOTONIC of the traced process in
 * nanoseconds unless they say otherwise; wall clock = time + clock_offset_nanoseconds. Names ending in _total count
 * since the start.
 */
#ifndef TRUELOAD_TRACER_LAYOUT_H
#define TRUELOAD_TRACER_LAYOUT_H

#include <stdint.h>

#define TRACER_NAME "trueload-tracer"
#define TRACER_MAGIC UINT64_C(0x3143415254444C54) /* "TLDTRAC1" as bytes */
#define TRACER_VERSION 1u

enum {
    TRACER_DEVICES_MAX = 16,
    TRACER_SECONDS_MAX = 90,   /* seconds that stay readable: hold_nanoseconds and half a minute for the agent */
    TRACER_SLOTS_MAX = 1000,   /* milliseconds in a second */
    TRACER_KERNELS_MAX = 512,
    TRACER_NAMES_BYTES = 128 * 1024,
    TRACER_NAME_BYTES_MAX = 1024, /* longer names are cut; their hash is that of the whole name */
    TRACER_LOST_MAX = 32,
    TRACER_BINS_MAX = 40,      /* bin n counts lengths in [2^n, 2^(n+1)) ns, the last one all longer ones: 9 minutes */
    TRACER_OVERHEADS_MAX = 10, /* 0 unknown, 1 driver compiler, n + 1 for CUPTI's kind n << 16, the last one all others */
    TRACER_SLOT_FULL = 65535,  /* a millisecond with a kernel running throughout */
};

enum tracer_state {
    TRACER_STARTING = 0,
    TRACER_ARMED = 1,  /* records arrive, or would */
    TRACER_LOST = 2,   /* another client has CUPTI; see lost */
    TRACER_PAUSED = 3, /* the off phase of a duty cycle */
    TRACER_FAILED = 4, /* never armed; failure_step and failure_code say why */
    TRACER_ENDED = 5,  /* the process ends; everything is closed */
};

enum tracer_mode {
    TRACER_MODE_NONE = 0,
    TRACER_MODE_SHARED_CALLBACKS = 1, /* one client at a time: the last to register its callbacks */
    TRACER_MODE_SUBSCRIBER = 2,       /* one of several, each with its own records */
};

enum tracer_step {
    TRACER_STEP_NONE = 0,
    TRACER_STEP_LOAD = 1,      /* no libcupti could be opened */
    TRACER_STEP_SYMBOLS = 2,   /* it lacks calls that are needed */
    TRACER_STEP_SUBSCRIBE = 3,
    TRACER_STEP_CALLBACKS = 4,
    TRACER_STEP_ENABLE = 5,
    TRACER_STEP_THREAD = 6,    /* failure_code is an errno */
};

enum tracer_reason {
    TRACER_LOST_REFUSED = 1,     /* CUPTI would not enable; code is its status */
    TRACER_LOST_BUFFER_KEPT = 2, /* a buffer has not come back for hold_nanoseconds: a longer kernel, or another client */
    TRACER_LOST_CLOCK_ONLY = 3,  /* our clock is asked, but nobody asks for our buffers */
    TRACER_LOST_DETACHED = 4,    /* our subscription is gone */
    TRACER_LOST_BUSY = 5,        /* another client holds CUPTI for itself alone */
};

enum tracer_second_flag {
    TRACER_SECOND_LOST = 1,    /* nothing is known of this second */
    TRACER_SECOND_PAUSED = 2,  /* partly or wholly in the off phase of a duty cycle */
    TRACER_SECOND_DROPPED = 4, /* CUPTI dropped records */
    TRACER_SECOND_ASSUMED = 8, /* closed because of its age while records might be outstanding */
    TRACER_SECOND_EARLY = 16,  /* closed early for want of room; late_nanoseconds tell what that cost */
};

enum tracer_device_flag { TRACER_DEVICE_USED = 1, TRACER_DEVICE_HAS_UUID = 2 };

struct tracer_lost {
    uint64_t from_nanoseconds, until_nanoseconds; /* until 0: still lost */
    uint32_t reason;
    int32_t code;
};

/* One second of the process, whatever its devices did. Slot: second % seconds_max. */
struct tracer_second {
    uint64_t second; /* floor(time / 1e9); 0: never used */
    uint64_t armed_nanoseconds;
    uint64_t callback_nanoseconds; /* spent in our own callbacks, by when they ran */
    uint64_t overhead_nanoseconds; /* sum over threads of CUPTI's OVERHEAD records */
    uint32_t flags, records, dropped, requests;
};

/* One second of one device. A closed, armed second without its bucket had no activity. Slot: second % seconds_max. */
struct tracer_bucket {
    uint64_t second;
    /* Lengths of unions; they grow until the second is closed. */
    uint64_t kernel_busy_nanoseconds, copy_busy_nanoseconds, any_busy_nanoseconds;
    /* Sums of lengths, each record cut at the edges of the second. */
    uint64_t kernel_sum_nanoseconds, copy_sum_nanoseconds;
    uint64_t overhead_idle_nanoseconds; /* union over threads of OVERHEAD records, where neither kernel nor copy ran */
    uint64_t late_nanoseconds;          /* of records for time already closed: in no union, but in the sums */
    uint32_t kernels, copies, launches; /* by start; launches: distinct correlation ids of kernels */
    uint32_t gaps;                      /* stretches without kernel or copy, by their end */
    uint32_t late_count, unused;
    uint16_t slots[TRACER_SLOTS_MAX];   /* share of each millisecond covered by the union of kernels */
};

struct tracer_device {
    uint32_t ordinal, flags; /* the process's own CUDA ordinal */
    uint8_t uuid[16];
    uint64_t kernel_busy_nanoseconds_total, copy_busy_nanoseconds_total, any_busy_nanoseconds_total;
    uint64_t kernel_sum_nanoseconds_total, copy_sum_nanoseconds_total, overhead_idle_nanoseconds_total;
    uint64_t kernels_total, copies_total, launches_total, gaps_total;
    uint64_t late_nanoseconds_total, late_count_total;
    uint64_t kernel_lengths_total[TRACER_BINS_MAX], gap_lengths_total[TRACER_BINS_MAX];
    struct tracer_bucket buckets[TRACER_SECONDS_MAX];
};

struct tracer_kernel {
    uint64_t name_hash;
    uint32_t name_offset, name_bytes; /* in the names; 0 bytes: no room was left for this name */
    uint32_t grid[3], block[3];
    uint32_t registers_per_thread, shared_memory_bytes; /* static and dynamic */
    uint64_t count_total, nanoseconds_total, nanoseconds_max;
};

struct tracer_header {
    uint64_t magic;
    uint32_t version, header_bytes;
    uint64_t total_bytes;
    uint64_t sequence; /* odd while a write is under way; all below but steps_total belongs to it */
    uint32_t devices_max, seconds_max, slots_max, kernels_max;
    uint32_t names_bytes, lost_max, bins_max, overheads_max;
    uint32_t seconds_offset, devices_offset, kernels_offset, names_offset;
    uint32_t second_bytes, device_bytes, bucket_bytes, kernel_bytes;
    int32_t pid; /* as the process sees itself: the last number of NSpid in /proc/PID/status */
    uint32_t cupti_version, mode, state;
    uint32_t failure_step;
    int32_t failure_code;
    uint32_t graph_level; /* 1: a CUDA graph is one interval, gaps inside it count as busy */
    uint32_t cuda_driver_version;
    uint64_t process_start_ticks; /* field 22 of /proc/PID/stat; 0: not readable */
    int64_t clock_offset_nanoseconds; /* CLOCK_REALTIME - CLOCK_MONOTONIC at the start */
    uint64_t started_at_nanoseconds, lateness_nanoseconds, hold_nanoseconds;
    uint64_t duty_on_nanoseconds, duty_off_nanoseconds; /* both 0: always on */
    char boot_id[40];
    uint64_t updated_at_nanoseconds; /* a heartbeat, once per flush */
    uint64_t closed_until_nanoseconds; /* seconds that end before are final */
    uint64_t steps_total; /* of trueload_step; written atomically, apart from the sequence */
    uint64_t records_total, incomplete_total, implausible_total, unknown_total, dropped_total;
    uint64_t buffers_requested_total, buffers_refused_total, buffers_completed_total, buffers_outstanding;
    uint64_t callback_nanoseconds_total, flushes_total, flush_nanoseconds_total;
    uint64_t out_of_reach_total, out_of_reach_nanoseconds_total; /* late by more than seconds_max: in no bucket */
    uint64_t kernels_used, names_used;
    uint64_t other_count_total, other_nanoseconds_total, other_nanoseconds_max; /* kernels beyond the table */
    uint64_t overhead_count_total[TRACER_OVERHEADS_MAX], overhead_nanoseconds_total[TRACER_OVERHEADS_MAX];
    uint64_t lost_total; /* ranges so far; the newest lost_max of them stand at lost[n % lost_max] */
    struct tracer_lost lost[TRACER_LOST_MAX];
};

struct tracer_region {
    struct tracer_header header;
    struct tracer_second seconds[TRACER_SECONDS_MAX];
    struct tracer_device devices[TRACER_DEVICES_MAX];
    struct tracer_kernel kernels[TRACER_KERNELS_MAX];
    char names[TRACER_NAMES_BYTES];
};

#endif
