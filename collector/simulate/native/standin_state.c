#include "standin_state.h"

#include <errno.h>
#include <fcntl.h>
#include <sched.h>
#include <stdatomic.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

_Static_assert(sizeof(struct standin_process) == 24, "layout shared with standin.py");
_Static_assert(sizeof(struct standin_device) % sizeof(uint64_t) == 0, "copied in words");
_Static_assert(sizeof(struct standin_node) % sizeof(uint64_t) == 0, "copied in words");
_Static_assert(offsetof(struct standin_file, node) % sizeof(uint64_t) == 0, "copied in words");

/* A writer needs well under a millisecond; one that died in the middle must not hang its readers. */
static const int64_t read_patience_milliseconds = 1000;

static atomic_flag opening = ATOMIC_FLAG_INIT;
static unsigned users;                        /* guarded by opening */
static struct standin_file *mapping;          /* guarded by opening; kept after the last user left */
static dev_t mapped_device;                   /* guarded by opening */
static ino_t mapped_inode;                    /* guarded by opening */
static struct standin_file *_Atomic in_use;   /* NULL: not initialised */

static int64_t monotonic_milliseconds(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (int64_t)now.tv_sec * 1000 + now.tv_nsec / 1000000;
}

static void copy_words(void *target, void *source, size_t size)
{
    _Atomic uint64_t *words = source;
    for (size_t i = 0; i < size / sizeof(uint64_t); i++) {
        uint64_t word = atomic_load_explicit(&words[i], memory_order_relaxed);
        memcpy((char *)target + i * sizeof word, &word, sizeof word);
    }
}

/* Copy a record of the file. The writer makes the sequence odd, writes, and makes it even again: a copy counts when
 * the sequence was even and the same before and after. */
static nvml_status read_record(struct standin_file *file, void *source, void *target, size_t size)
{
    _Atomic uint64_t *sequence = (_Atomic uint64_t *)&file->sequence;
    int64_t deadline = 0;
    for (;;) {
        uint64_t before = atomic_load_explicit(sequence, memory_order_acquire);
        if (before % 2 == 0) {
            copy_words(target, source, size);
            atomic_thread_fence(memory_order_acquire);
            if (atomic_load_explicit(sequence, memory_order_relaxed) == before)
                return NVML_SUCCESS;
        }
        int64_t now = monotonic_milliseconds();
        if (deadline == 0)
            deadline = now + read_patience_milliseconds;
        else if (now > deadline)
            return NVML_TIMEOUT;
        sched_yield();
    }
}

static nvml_status refuse(nvml_status status, const char *path, const char *why)
{
    fprintf(stderr, "trueload NVML stand-in: " STANDIN_STATE_VARIABLE "=%s: %s\n", path ? path : "", why);
    return status;
}

/* Map the file behind an open descriptor, unless it is the one already mapped. */
static nvml_status map_file(int descriptor, const char *path)
{
    struct stat status;
    if (fstat(descriptor, &status) != 0)
        return refuse(NVML_LIBRARY_NOT_FOUND, path, strerror(errno));
    if (mapping && status.st_dev == mapped_device && status.st_ino == mapped_inode)
        return NVML_SUCCESS;
    if (status.st_size < (off_t)sizeof(struct standin_file))
        return refuse(NVML_UNKNOWN, path, "too short for a state file; write it with collector.simulate.standin");
    struct standin_file *file = mmap(NULL, sizeof *file, PROT_READ, MAP_SHARED, descriptor, 0);
    if (file == MAP_FAILED)
        return refuse(NVML_LIBRARY_NOT_FOUND, path, strerror(errno));
    if (file->magic != STANDIN_MAGIC || file->version != STANDIN_VERSION || file->size_bytes != sizeof *file) {
        munmap(file, sizeof *file);
        return refuse(NVML_UNKNOWN, path, "not a state file of this version; write it and build the library anew");
    }
    mapping = file;
    mapped_device = status.st_dev;
    mapped_inode = status.st_ino;
    return NVML_SUCCESS;
}

static nvml_status map_state(void)
{
    const char *path = getenv(STANDIN_STATE_VARIABLE);
    if (!path || !*path)
        return refuse(NVML_LIBRARY_NOT_FOUND, path, "set it to the state file of the simulated node");
    int descriptor = open(path, O_RDONLY | O_CLOEXEC);
    if (descriptor < 0)
        return refuse(NVML_LIBRARY_NOT_FOUND, path, strerror(errno));
    nvml_status status = map_file(descriptor, path);
    close(descriptor);
    return status;
}

static nvml_status open_first(void)
{
    nvml_status status = map_state();
    if (status != NVML_SUCCESS)
        return status;
    struct standin_node node;
    status = read_record(mapping, &mapping->node, &node, sizeof node);
    return status == NVML_SUCCESS ? node.init_return_code : status;
}

nvml_status standin_open(void)
{
    while (atomic_flag_test_and_set(&opening))
        sched_yield();
    nvml_status status = users ? NVML_SUCCESS : open_first();
    if (status == NVML_SUCCESS) {
        users++;
        atomic_store(&in_use, mapping);
    }
    atomic_flag_clear(&opening);
    return status;
}

nvml_status standin_close(void)
{
    nvml_status status = NVML_SUCCESS;
    while (atomic_flag_test_and_set(&opening))
        sched_yield();
    if (users == 0)
        status = NVML_UNINITIALIZED;
    else if (--users == 0)
        atomic_store(&in_use, NULL);
    atomic_flag_clear(&opening);
    return status;
}

nvml_status standin_read_node(struct standin_node *node)
{
    struct standin_file *file = atomic_load(&in_use);
    return file ? read_record(file, &file->node, node, sizeof *node) : NVML_UNINITIALIZED;
}

nvml_status standin_read_device(unsigned index, struct standin_device *device)
{
    struct standin_file *file = atomic_load(&in_use);
    struct standin_node node;
    if (!file)
        return NVML_UNINITIALIZED;
    nvml_status status = read_record(file, &file->node, &node, sizeof node);
    if (status != NVML_SUCCESS)
        return status;
    if (index >= node.device_count || index >= STANDIN_DEVICES_MAX)
        return NVML_INVALID_ARGUMENT;
    return read_record(file, &file->devices[index], device, sizeof *device);
}
