#include "steps.h"

#include <stdatomic.h>
#include <string.h>

#include "layout.h"
#include "nvtx_abi.h"

#define EXPORT __attribute__((visibility("default")))

/* A range of this name is one step, and so is one whose name begins as torch.profiler names its steps. */
static const char step_name[] = "trueload.step";
static const char profiler_step_prefix[] = "ProfilerStep#";

static _Atomic uint64_t before_publishing;
static _Atomic uint64_t *_Atomic counter = &before_publishing;

void steps_publish(struct tracer_region *region)
{
    _Atomic uint64_t *published = (_Atomic uint64_t *)&region->header.steps_total;
    /* A step that another thread counts between these two lines is the only one that can get lost. */
    atomic_store(&counter, published);
    atomic_fetch_add(published, atomic_exchange(&before_publishing, 0));
}

/* Called by trueload.step. */
EXPORT void trueload_step(uint64_t count)
{
    atomic_fetch_add_explicit(atomic_load(&counter), count, memory_order_relaxed);
}

/* ---- NVTX: ranges are only looked at by name; nothing is kept of them, and ends are not even asked for ---- */

static int is_step(const char *name)
{
    if (!name || (name[0] != step_name[0] && name[0] != profiler_step_prefix[0]))
        return 0;
    return strcmp(name, step_name) == 0 || strncmp(name, profiler_step_prefix, sizeof profiler_step_prefix - 1) == 0;
}

static void look_at_name(const char *name)
{
    if (is_step(name))
        trueload_step(1);
}

static void look_at_attributes(const struct nvtx_attributes *attributes)
{
    if (!attributes || attributes->size < sizeof *attributes)
        return;
    if (attributes->message_type == NVTX_MESSAGE_ASCII)
        look_at_name(attributes->message);
    else if (attributes->message_type == NVTX_MESSAGE_REGISTERED && attributes->message == step_name)
        trueload_step(1);
}

/* Every registered name of a step gets the same handle; all others none, as when no tool is there. */
static const void *register_string(void *domain, const char *name)
{
    (void)domain;
    return is_step(name) ? step_name : NULL;
}

/* Those of ranges all answer what NVTX answers when no tool is there. */

static int push_a(const char *name)
{
    look_at_name(name);
    return NVTX_NO_PUSH_POP_TRACKING;
}

static int push_ex(const struct nvtx_attributes *attributes)
{
    look_at_attributes(attributes);
    return NVTX_NO_PUSH_POP_TRACKING;
}

static int domain_push_ex(void *domain, const struct nvtx_attributes *attributes)
{
    (void)domain;
    return push_ex(attributes);
}

static uint64_t start_a(const char *name)
{
    look_at_name(name);
    return 0;
}

static uint64_t start_ex(const struct nvtx_attributes *attributes)
{
    look_at_attributes(attributes);
    return 0;
}

static uint64_t domain_start_ex(void *domain, const struct nvtx_attributes *attributes)
{
    (void)domain;
    return start_ex(attributes);
}

struct hook {
    unsigned place;
    nvtx_function function;
};

static void set_hooks(const struct nvtx_callbacks *callbacks, int module, const struct hook *hooks, size_t count)
{
    nvtx_function **table = NULL;
    unsigned size = 0;
    if (!callbacks->get_module_table(module, &table, &size) || !table)
        return;
    for (size_t i = 0; i < count; i++)
        if (hooks[i].place < size && table[hooks[i].place])
            *table[hooks[i].place] = hooks[i].function;
}

/* Called by NVTX inside the program's first call of it. 0 would mean that the library refuses. */
EXPORT int InitializeInjectionNvtx2(nvtx_get_table get_table)
{
    static const struct hook core[] = {
        {NVTX_CORE_RANGE_START_EX, (nvtx_function)start_ex},
        {NVTX_CORE_RANGE_START_A, (nvtx_function)start_a},
        {NVTX_CORE_RANGE_PUSH_EX, (nvtx_function)push_ex},
        {NVTX_CORE_RANGE_PUSH_A, (nvtx_function)push_a},
    };
    static const struct hook core2[] = {
        {NVTX_CORE2_DOMAIN_RANGE_START_EX, (nvtx_function)domain_start_ex},
        {NVTX_CORE2_DOMAIN_RANGE_PUSH_EX, (nvtx_function)domain_push_ex},
        {NVTX_CORE2_DOMAIN_REGISTER_STRING_A, (nvtx_function)register_string},
    };
    const struct nvtx_callbacks *callbacks = get_table ? get_table(NVTX_TABLE_OF_CALLBACKS) : NULL;
    if (!callbacks || callbacks->struct_size < sizeof *callbacks || !callbacks->get_module_table)
        return 0;
    set_hooks(callbacks, NVTX_MODULE_CORE, core, sizeof core / sizeof core[0]);
    set_hooks(callbacks, NVTX_MODULE_CORE2, core2, sizeof core2 / sizeof core2[0]);
    return 1;
}
