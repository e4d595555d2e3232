#include "region.h"

#include <errno.h>
#include <fcntl.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#ifndef MFD_CLOEXEC /* glibc before 2.27 */
#define MFD_CLOEXEC 1u
#define MFD_ALLOW_SEALING 2u
#endif
#ifndef MFD_NOEXEC_SEAL /* Linux before 6.3 */
#define MFD_NOEXEC_SEAL 8u
#endif
#ifndef F_ADD_SEALS
#define F_ADD_SEALS 1033
#define F_SEAL_SEAL 1
#define F_SEAL_SHRINK 2
#define F_SEAL_GROW 4
#endif

_Static_assert(sizeof(struct tracer_header) % sizeof(uint64_t) == 0, "copied in words");
_Static_assert(sizeof(struct tracer_second) == 48, "layout shared with layout.py");
_Static_assert(sizeof(struct tracer_bucket) == 2088, "layout shared with layout.py");
_Static_assert(sizeof(struct tracer_kernel) == 72, "layout shared with layout.py");

static int region_descriptor = -1;

static uint64_t clock_nanoseconds(clockid_t clock)
{
    struct timespec now;
    clock_gettime(clock, &now);
    return (uint64_t)now.tv_sec * 1000000000u + (uint64_t)now.tv_nsec;
}

uint64_t region_now(void) { return clock_nanoseconds(CLOCK_MONOTONIC); }

static size_t read_small_file(const char *path, char *target, size_t capacity)
{
    int file = open(path, O_RDONLY | O_CLOEXEC);
    if (file < 0)
        return 0;
    ssize_t length = read(file, target, capacity - 1);
    close(file);
    target[length > 0 ? length : 0] = '\0';
    return length > 0 ? (size_t)length : 0;
}

/* Field 22 of /proc/self/stat; the second one, the program's name, may hold blanks and parentheses. */
static uint64_t process_start_ticks(void)
{
    char text[1024];
    if (!read_small_file("/proc/self/stat", text, sizeof text))
        return 0;
    const char *at = strrchr(text, ')');
    for (int field = 2; at && field < 22; field++)
        at = strchr(at + 1, ' ');
    return at ? strtoull(at + 1, NULL, 10) : 0;
}

static void describe(struct tracer_header *header)
{
    header->magic = TRACER_MAGIC;
    header->version = TRACER_VERSION;
    header->header_bytes = sizeof *header;
    header->total_bytes = sizeof(struct tracer_region);
    header->devices_max = TRACER_DEVICES_MAX;
    header->seconds_max = TRACER_SECONDS_MAX;
    header->slots_max = TRACER_SLOTS_MAX;
    header->kernels_max = TRACER_KERNELS_MAX;
    header->names_bytes = TRACER_NAMES_BYTES;
    header->lost_max = TRACER_LOST_MAX;
    header->bins_max = TRACER_BINS_MAX;
    header->overheads_max = TRACER_OVERHEADS_MAX;
    header->seconds_offset = offsetof(struct tracer_region, seconds);
    header->devices_offset = offsetof(struct tracer_region, devices);
    header->kernels_offset = offsetof(struct tracer_region, kernels);
    header->names_offset = offsetof(struct tracer_region, names);
    header->second_bytes = sizeof(struct tracer_second);
    header->device_bytes = sizeof(struct tracer_device);
    header->bucket_bytes = sizeof(struct tracer_bucket);
    header->kernel_bytes = sizeof(struct tracer_kernel);
}

static void identify(struct tracer_header *header)
{
    header->pid = getpid();
    header->process_start_ticks = process_start_ticks();
    char boot_id[sizeof header->boot_id];
    if (read_small_file("/proc/sys/kernel/random/boot_id", boot_id, sizeof boot_id))
        memcpy(header->boot_id, boot_id, strcspn(boot_id, "\n"));
    header->started_at_nanoseconds = region_now();
    header->clock_offset_nanoseconds =
        (int64_t)clock_nanoseconds(CLOCK_REALTIME) - (int64_t)header->started_at_nanoseconds;
}

/* Never executable: newer kernels complain about memory that does not say so, and with vm.memfd_noexec=2 refuse it. */
static int create_memory(void)
{
    int memory = (int)syscall(SYS_memfd_create, TRACER_NAME, MFD_CLOEXEC | MFD_ALLOW_SEALING | MFD_NOEXEC_SEAL);
    return memory >= 0 || errno != EINVAL
               ? memory
               : (int)syscall(SYS_memfd_create, TRACER_NAME, MFD_CLOEXEC | MFD_ALLOW_SEALING);
}

struct tracer_region *region_create(void)
{
    int memory = create_memory();
    if (memory < 0)
        return NULL;
    struct tracer_region *region = MAP_FAILED;
    if (ftruncate(memory, sizeof *region) == 0)
        region = mmap(NULL, sizeof *region, PROT_READ | PROT_WRITE, MAP_SHARED, memory, 0);
    if (region == MAP_FAILED) {
        close(memory);
        return NULL;
    }
    identify(&region->header);
    describe(&region->header);
    /* Sealed last: a reader that finds the seals finds a whole header. Without shrinking no reader can get a SIGBUS. */
    if (fcntl(memory, F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL) != 0) {
        munmap(region, sizeof *region);
        close(memory);
        return NULL;
    }
    region_descriptor = memory;
    return region;
}

void region_abandon(struct tracer_region *region)
{
    mmap(region, sizeof *region, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0);
    if (region_descriptor >= 0)
        close(region_descriptor);
    region_descriptor = -1;
}
