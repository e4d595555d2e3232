#include "cupti.h"

#include <dlfcn.h>
#include <string.h>

static const struct cupti_client *our;
/* Set by the thread that arms, read by CUPTI's callbacks. */
static _Atomic(enum tracer_mode) mode;
static _Atomic(cupti_subscriber) subscriber;
static uint32_t version;
static int graphs_as_one;
static int is_shared_library; /* the application had loaded it: others may use it */

/* The calls of CUPTI, named as the symbols are. */
static struct {
    cupti_status (*GetVersion)(uint32_t *);
    cupti_status (*ActivityEnable)(uint32_t);
    cupti_status (*ActivityFlushAll)(uint32_t);
    cupti_status (*ActivityGetNextRecord)(uint8_t *, size_t, struct cupti_record **);
    cupti_status (*ActivityGetNumDroppedRecords)(void *, uint32_t, size_t *);
    cupti_status (*ActivityRegisterCallbacks)(cupti_requested, cupti_completed);
    /* May be absent. */
    cupti_status (*ActivityRegisterTimestampCallback)(cupti_clock);
    cupti_status (*Subscribe_v2)(cupti_subscriber *, cupti_api_callback, void *, struct cupti_subscriber_parameters *);
    cupti_status (*Unsubscribe)(cupti_subscriber);
    cupti_status (*ActivityEnable_v2)(cupti_subscriber, uint32_t, void *);
    cupti_status (*ActivityDisable_v2)(cupti_subscriber, uint32_t, void *);
    cupti_status (*ActivityGetNextRecord_v2)(cupti_subscriber, uint8_t *, size_t, struct cupti_record **);
    cupti_status (*ActivityGetNumDroppedRecords_v2)(cupti_subscriber, void *, uint32_t, size_t *);
    cupti_status (*ActivityRegisterCallbacks_v2)(cupti_subscriber, cupti_requested_v2, cupti_completed_v2);
    cupti_status (*ActivitySetAttribute_v2)(cupti_subscriber, uint32_t, size_t *, void *);
} cupti;

static const struct {
    const char *name;
    void *call; /* address of the pointer above */
    int needed;
} symbols[] = {
    {"cuptiGetVersion", &cupti.GetVersion, 1},
    {"cuptiActivityEnable", &cupti.ActivityEnable, 1},
    {"cuptiActivityFlushAll", &cupti.ActivityFlushAll, 1},
    {"cuptiActivityGetNextRecord", &cupti.ActivityGetNextRecord, 1},
    {"cuptiActivityGetNumDroppedRecords", &cupti.ActivityGetNumDroppedRecords, 1},
    {"cuptiActivityRegisterCallbacks", &cupti.ActivityRegisterCallbacks, 1},
    {"cuptiActivityRegisterTimestampCallback", &cupti.ActivityRegisterTimestampCallback, 0},
    {"cuptiSubscribe_v2", &cupti.Subscribe_v2, 0},
    {"cuptiUnsubscribe", &cupti.Unsubscribe, 0},
    {"cuptiActivityEnable_v2", &cupti.ActivityEnable_v2, 0},
    {"cuptiActivityDisable_v2", &cupti.ActivityDisable_v2, 0},
    {"cuptiActivityGetNextRecord_v2", &cupti.ActivityGetNextRecord_v2, 0},
    {"cuptiActivityGetNumDroppedRecords_v2", &cupti.ActivityGetNumDroppedRecords_v2, 0},
    {"cuptiActivityRegisterCallbacks_v2", &cupti.ActivityRegisterCallbacks_v2, 0},
    {"cuptiActivitySetAttribute_v2", &cupti.ActivitySetAttribute_v2, 0},
};

enum tracer_mode cupti_mode(void) { return mode; }
uint32_t cupti_version(void) { return version; }

/* ---- libcuda ---- */

/* A pointer to a function cannot be cast to from void * in ISO C; its bytes can be copied. */
static int find_symbol(void *library, const char *name, void *target)
{
    void *found = library ? dlsym(library, name) : NULL;
    memcpy(target, &found, sizeof found);
    return found != NULL;
}

static void *loaded_cuda(void) { return dlopen("libcuda.so.1", RTLD_NOW | RTLD_NOLOAD); }

uint32_t cuda_driver_version(void)
{
    cuda_status (*get)(int *);
    int found = 0;
    void *cuda = loaded_cuda();
    if (!find_symbol(cuda, "cuDriverGetVersion", &get) || get(&found) != 0)
        return 0;
    return found > 0 ? (uint32_t)found : 0;
}

int cuda_device_uuid(uint32_t ordinal, uint8_t uuid[16])
{
    cuda_status (*get_device)(int *, int);
    cuda_status (*get_uuid)(uint8_t *, int);
    int device;
    void *cuda = loaded_cuda();
    return find_symbol(cuda, "cuDeviceGet", &get_device) &&
           /* The second version answers with the MIG instance's own id. */
           (find_symbol(cuda, "cuDeviceGetUuid_v2", &get_uuid) || find_symbol(cuda, "cuDeviceGetUuid", &get_uuid)) &&
           get_device(&device, (int)ordinal) == 0 && get_uuid(uuid, device) == 0;
}

/* ---- finding libcupti ---- */

static void *open_library(const char *path)
{
    static const char *const names[] = {"libcupti.so.13", "libcupti.so.12", "libcupti.so.11.8", "libcupti.so"};
    enum { NAMES = sizeof names / sizeof names[0], DRIVER_OF_CUDA_13 = 13000 };
    void *library = NULL;
    for (size_t i = 0; !library && i < NAMES; i++)
        library = dlopen(names[i], RTLD_NOW | RTLD_NOLOAD);
    is_shared_library = library != NULL;
    if (!library && path && *path)
        return dlopen(path, RTLD_NOW | RTLD_LOCAL);
    /* A CUPTI newer than the driver does not initialise; an older one does. */
    uint32_t driver = cuda_driver_version();
    for (size_t i = driver && driver < DRIVER_OF_CUDA_13 ? 1 : 0; !library && i < NAMES; i++)
        library = dlopen(names[i], RTLD_NOW | RTLD_LOCAL);
    return library;
}

int cupti_load(const char *path, const struct cupti_client *client, struct cupti_problem *problem)
{
    our = client;
    void *library = open_library(path);
    if (!library) {
        *problem = (struct cupti_problem){TRACER_STEP_LOAD, 0};
        return 0;
    }
    for (size_t i = 0; i < sizeof symbols / sizeof symbols[0]; i++)
        if (!find_symbol(library, symbols[i].name, symbols[i].call) && symbols[i].needed) {
            *problem = (struct cupti_problem){TRACER_STEP_SYMBOLS, 0};
            return 0;
        }
    cupti.GetVersion(&version);
    return 1;
}

/* ---- callbacks in both conventions ---- */

static void lend(uint8_t **buffer, size_t *size, size_t *record_limit)
{
    *record_limit = 0; /* as many as fit */
    *size = 0;
    *buffer = our->lend(size);
}

static void take(void *context, uint32_t stream, uint8_t *buffer, size_t size, size_t valid_size)
{
    (void)context;
    (void)stream;
    (void)size;
    our->take(buffer, valid_size);
}

static void lend_v2(uint8_t **buffer, size_t *size, size_t *record_limit, void *info)
{
    (void)info;
    lend(buffer, size, record_limit);
}

static void take_v2(uint8_t *buffer, size_t size, size_t valid_size, void *info)
{
    (void)info;
    (void)size;
    our->take(buffer, valid_size);
}

static void no_api_callback(void *userdata, uint32_t domain, uint32_t id, const void *data)
{
    (void)userdata;
    (void)domain;
    (void)id;
    (void)data;
}

/* ---- arming ---- */

static cupti_status enable(uint32_t kind)
{
    return mode == TRACER_MODE_SUBSCRIBER ? cupti.ActivityEnable_v2(subscriber, kind, NULL)
                                          : cupti.ActivityEnable(kind);
}

static int fail(struct cupti_problem *problem, enum tracer_step step, cupti_status status)
{
    *problem = (struct cupti_problem){step, status};
    return 0;
}

static int enable_kinds(struct cupti_problem *problem)
{
    static const uint32_t needed[] = {CUPTI_KIND_CONCURRENT_KERNEL, CUPTI_KIND_MEMCPY, CUPTI_KIND_MEMSET};
    if (graphs_as_one)
        graphs_as_one = enable(CUPTI_KIND_GRAPH_TRACE) == CUPTI_SUCCESS;
    for (size_t i = 0; i < sizeof needed / sizeof needed[0]; i++) {
        cupti_status status = enable(needed[i]);
        if (status != CUPTI_SUCCESS)
            return fail(problem, TRACER_STEP_ENABLE, status);
    }
    enable(CUPTI_KIND_MEMCPY_PEER); /* good to have; what is missing shows in the counts */
    enable(CUPTI_KIND_OVERHEAD);
    return 1;
}

static int has_subscriber_calls(void)
{
    /* 13.0 and 13.1 have cuptiSubscribe_v2 without the rest; 13.2 walks buffers and counts drops for all alike. */
    return cupti.Subscribe_v2 && cupti.Unsubscribe && cupti.ActivityEnable_v2 && cupti.ActivityDisable_v2 &&
           cupti.ActivityRegisterCallbacks_v2 && cupti.ActivitySetAttribute_v2;
}

/* 1: subscribed. 0: cannot be had here, use the shared callbacks. -1: another client has CUPTI for itself. */
static int subscribe(struct cupti_problem *problem)
{
    if (!has_subscriber_calls())
        return 0;
    char holder[CUPTI_SUBSCRIBER_NAME_BYTES] = "";
    struct cupti_subscriber_parameters parameters = {
        .struct_size = sizeof parameters,
        .name = "trueload",
        .old_name = holder,
        .old_name_size = sizeof holder,
        .allow_multiple = 1,
    };
    cupti_subscriber made = NULL;
    cupti_status status = cupti.Subscribe_v2(&made, no_api_callback, NULL, &parameters);
    if (status == CUPTI_SUCCESS) {
        subscriber = made;
        return 1;
    }
    /* An older driver gives the same status as a busy one, but no name. */
    if (status != CUPTI_MULTIPLE_SUBSCRIBERS_NOT_SUPPORTED || holder[0] == '\0')
        return 0;
    fail(problem, TRACER_STEP_SUBSCRIBE, status);
    return -1;
}

static int arm_subscriber(struct cupti_problem *problem)
{
    uint8_t zeroed = 1;
    size_t size = sizeof zeroed;
    cupti.ActivitySetAttribute_v2(subscriber, CUPTI_ATTRIBUTE_ZEROED_OUT_BUFFER, &size, &zeroed);
    /* Refused before 13.4: CUPTI's own clock then differs from ours only where the wall clock is set meanwhile. */
    cupti_clock clock = our->clock;
    size = sizeof clock;
    cupti.ActivitySetAttribute_v2(subscriber, CUPTI_ATTRIBUTE_TIMESTAMP_CALLBACK, &size, &clock);
    cupti_status status = cupti.ActivityRegisterCallbacks_v2(subscriber, lend_v2, take_v2);
    if (status != CUPTI_SUCCESS)
        return fail(problem, TRACER_STEP_CALLBACKS, status);
    return enable_kinds(problem);
}

static int arm_shared(struct cupti_problem *problem)
{
    /* That our buffers are zeroed is not said here, though CUPTI then zeroes them on the launching thread: it would hold
     * for a profiler that comes later, too, whose buffers need not be, and whose records would hold what stood there. */
    if (cupti.ActivityRegisterTimestampCallback)
        cupti.ActivityRegisterTimestampCallback(our->clock);
    cupti_status status = cupti.ActivityRegisterCallbacks(lend, take);
    if (status != CUPTI_SUCCESS)
        return fail(problem, TRACER_STEP_CALLBACKS, status);
    return enable_kinds(problem);
}

/* Whether a profiler registered its callbacks before CUDA was initialised, and so before us: a flush is refused
 * (CUPTI_INVALID_OPERATION) as long as nobody has. */
static int are_callbacks_taken(void)
{
    return is_shared_library && cupti.ActivityFlushAll(CUPTI_FLUSH_COMPLETE) == CUPTI_SUCCESS;
}

int cupti_arm(int graph_level, int take_over, struct cupti_problem *problem)
{
    graphs_as_one = graph_level;
    if (mode != TRACER_MODE_SUBSCRIBER) {
        int subscribed = subscribe(problem);
        if (subscribed < 0)
            return 0;
        if (!subscribed && !take_over && are_callbacks_taken())
            return fail(problem, TRACER_STEP_SUBSCRIBE, CUPTI_MULTIPLE_SUBSCRIBERS_NOT_SUPPORTED);
        mode = subscribed ? TRACER_MODE_SUBSCRIBER : TRACER_MODE_SHARED_CALLBACKS;
    }
    return mode == TRACER_MODE_SUBSCRIBER ? arm_subscriber(problem) : arm_shared(problem);
}

void cupti_forget(void)
{
    if (mode == TRACER_MODE_SUBSCRIBER && subscriber)
        cupti.Unsubscribe(subscriber);
    subscriber = NULL;
    mode = TRACER_MODE_NONE;
}

int cupti_pause(void)
{
    static const uint32_t kinds[] = {CUPTI_KIND_GRAPH_TRACE, CUPTI_KIND_CONCURRENT_KERNEL, CUPTI_KIND_MEMCPY,
                                     CUPTI_KIND_MEMSET,      CUPTI_KIND_MEMCPY_PEER,       CUPTI_KIND_OVERHEAD};
    int paused = mode == TRACER_MODE_SUBSCRIBER;
    for (size_t i = !graphs_as_one; paused && i < sizeof kinds / sizeof kinds[0]; i++)
        cupti.ActivityDisable_v2(subscriber, kinds[i], NULL);
    return paused;
}

int cupti_resume(struct cupti_problem *problem) { return enable_kinds(problem); }

/* ---- running ---- */

void cupti_flush(int forced) { cupti.ActivityFlushAll(forced ? CUPTI_FLUSH_FORCED : CUPTI_FLUSH_COMPLETE); }

cupti_status cupti_next_record(uint8_t *buffer, size_t valid_size, struct cupti_record **record)
{
    return mode == TRACER_MODE_SUBSCRIBER && cupti.ActivityGetNextRecord_v2
               ? cupti.ActivityGetNextRecord_v2(subscriber, buffer, valid_size, record)
               : cupti.ActivityGetNextRecord(buffer, valid_size, record);
}

int64_t cupti_take_dropped(void)
{
    size_t dropped = 0;
    if (mode != TRACER_MODE_SUBSCRIBER || !cupti.ActivityGetNumDroppedRecords_v2)
        return cupti.ActivityGetNumDroppedRecords(NULL, 0, &dropped) == CUPTI_SUCCESS ? (int64_t)dropped : 0;
    cupti_status status = cupti.ActivityGetNumDroppedRecords_v2(subscriber, NULL, 0, &dropped);
    return status == CUPTI_SUCCESS ? (int64_t)dropped : -1;
}
