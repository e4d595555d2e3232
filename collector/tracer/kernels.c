#include "kernels.h"

#include <string.h>

enum { INDEX_SIZE = 4 * TRACER_KERNELS_MAX, NAMES_REMEMBERED = 64 };

/* An open hash table: place in the kernels plus one, 0 for free. */
static uint16_t index_of_kernel[INDEX_SIZE];

/* Within one buffer a pointer stands for one name: CUPTI keeps the strings that the buffer's records refer to. */
static struct remembered {
    const char *name;
    uint64_t hash;
    uint32_t buffer;
} remembered[NAMES_REMEMBERED];
static uint32_t buffer_number;

void kernels_begin_buffer(void) { buffer_number++; }

static uint64_t mix(uint64_t hash, uint64_t word)
{
    hash = (hash ^ word) * UINT64_C(0x9E3779B97F4A7C15); /* 2^64 / golden ratio */
    return hash ^ (hash >> 29);
}

uint64_t kernels_hash(const char *name, uint64_t length)
{
    uint64_t hash = length;
    for (; length >= sizeof(uint64_t); length -= sizeof(uint64_t), name += sizeof(uint64_t)) {
        uint64_t word;
        memcpy(&word, name, sizeof word);
        hash = mix(hash, word);
    }
    uint64_t rest = 0;
    memcpy(&rest, name, length);
    return mix(mix(hash, rest), 0);
}

static uint64_t hash_of_name(const char *name)
{
    struct remembered *entry = &remembered[((uintptr_t)name >> 4) % NAMES_REMEMBERED];
    if (entry->name != name || entry->buffer != buffer_number)
        *entry = (struct remembered){name, name ? kernels_hash(name, strlen(name)) : 0, buffer_number};
    return entry->hash;
}

/* Names are kept once, whatever the number of their configurations. */
static void keep_name(struct tracer_region *region, struct tracer_kernel *kernel, const char *name)
{
    struct tracer_header *header = &region->header;
    for (uint32_t i = 0; i < header->kernels_used; i++)
        if (region->kernels[i].name_hash == kernel->name_hash && region->kernels[i].name_bytes) {
            kernel->name_offset = region->kernels[i].name_offset;
            kernel->name_bytes = region->kernels[i].name_bytes;
            return;
        }
    uint64_t length = name ? strlen(name) : 0;
    if (length > TRACER_NAME_BYTES_MAX)
        length = TRACER_NAME_BYTES_MAX;
    if (length > TRACER_NAMES_BYTES - header->names_used)
        return;
    memcpy(region->names + header->names_used, name ? name : "", length);
    kernel->name_offset = (uint32_t)header->names_used;
    kernel->name_bytes = (uint32_t)length;
    header->names_used += length;
}

static struct tracer_kernel key_of(const struct cupti_kernel *record)
{
    struct tracer_kernel key = {
        .name_hash = hash_of_name(record->name),
        .registers_per_thread = record->registers_per_thread,
        .shared_memory_bytes = (uint32_t)record->static_shared_memory + (uint32_t)record->dynamic_shared_memory,
    };
    for (int axis = 0; axis < 3; axis++) {
        key.grid[axis] = (uint32_t)record->grid[axis];
        key.block[axis] = (uint32_t)record->block[axis];
    }
    return key;
}

static int is_same(const struct tracer_kernel *a, const struct tracer_kernel *b)
{
    return a->name_hash == b->name_hash && memcmp(a->grid, b->grid, sizeof a->grid) == 0 &&
           memcmp(a->block, b->block, sizeof a->block) == 0 && a->registers_per_thread == b->registers_per_thread &&
           a->shared_memory_bytes == b->shared_memory_bytes;
}

static uint64_t hash_of_key(const struct tracer_kernel *key)
{
    uint64_t hash = key->name_hash;
    for (int axis = 0; axis < 3; axis++)
        hash = mix(hash, (uint64_t)key->grid[axis] << 32 | key->block[axis]);
    return mix(hash, (uint64_t)key->registers_per_thread << 32 | key->shared_memory_bytes);
}

/* The kernel's entry, made if there is room for one more; else NULL. */
static struct tracer_kernel *find(struct tracer_region *region, const struct cupti_kernel *record)
{
    struct tracer_kernel key = key_of(record);
    uint32_t at = (uint32_t)(hash_of_key(&key) % INDEX_SIZE);
    for (; index_of_kernel[at]; at = (at + 1) % INDEX_SIZE) {
        struct tracer_kernel *kernel = &region->kernels[index_of_kernel[at] - 1];
        if (is_same(kernel, &key))
            return kernel;
    }
    if (region->header.kernels_used == TRACER_KERNELS_MAX)
        return NULL;
    keep_name(region, &key, record->name);
    struct tracer_kernel *kernel = &region->kernels[region->header.kernels_used];
    *kernel = key;
    index_of_kernel[at] = (uint16_t)++region->header.kernels_used;
    return kernel;
}

void kernels_count(struct tracer_region *region, const struct cupti_kernel *record, uint64_t nanoseconds)
{
    struct tracer_header *header = &region->header;
    struct tracer_kernel *kernel = find(region, record);
    uint64_t *count = kernel ? &kernel->count_total : &header->other_count_total;
    uint64_t *total = kernel ? &kernel->nanoseconds_total : &header->other_nanoseconds_total;
    uint64_t *longest = kernel ? &kernel->nanoseconds_max : &header->other_nanoseconds_max;
    ++*count;
    *total += nanoseconds;
    if (nanoseconds > *longest)
        *longest = nanoseconds;
}
