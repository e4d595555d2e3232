/*
 * A stand-in for libcupti with the binary interface of one release (FAKE_VERSION), for tests without a GPU. It keeps
 * CUPTI's documented rules:
 * - a record is written into its lane's buffer when the work is launched and completed when the work ends;
 * - a worker thread delivers buffers that are full and whose records are all complete, whatever their order;
 * - cuptiActivityFlushAll(0) delivers buffers whose records are all complete, full or not; a forced flush all of them;
 * - a client that gives no buffer loses the record, which is counted;
 * - shared callbacks belong to the last client that registered them, clock included;
 * - subscribers, where the release has them, each get records, buffers and a clock of their own.
 */
#include "fake_cupti.h"

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#define EXPORT __attribute__((visibility("default")))

#ifndef FAKE_VERSION
#define FAKE_VERSION 130400
#endif

/* As published with each release: CUPTI_API_VERSION, and the sizes of kernel, copy, set and overhead records. */
#if FAKE_VERSION == 120100
enum { API_VERSION = 18, KERNEL = 208, COPY = 88, SET = 88, OVERHEAD = 40 };
#elif FAKE_VERSION == 120900
enum { API_VERSION = 27, KERNEL = 208, COPY = 96, SET = 88, OVERHEAD = 56 };
#elif FAKE_VERSION == 130000
enum { API_VERSION = 130000, KERNEL = 216, COPY = 96, SET = 88, OVERHEAD = 56 };
#elif FAKE_VERSION == 130200
enum { API_VERSION = 130202, KERNEL = 232, COPY = 96, SET = 88, OVERHEAD = 56 };
#else
enum { API_VERSION = 130401, KERNEL = 248, COPY = 112, SET = 104, OVERHEAD = 56 };
#endif
enum { PEER = 96, GRAPH = 56, OTHER = 32 };
#define HAS_SUBSCRIBE (FAKE_VERSION >= 130000)
#define HAS_SUBSCRIBERS (FAKE_VERSION >= 130200)
#define HAS_SUBSCRIBER_CLOCK (FAKE_VERSION >= 130400)

enum { CLIENTS = 5, SHARED = 0, BUFFERS_MAX = 4096, LAUNCHES_MAX = 1 << 16 };

struct buffer {
    uint8_t *bytes;
    size_t size, used;
    uint32_t incomplete;
    int lane; /* -1: full */
    struct buffer *next;
};

struct cupti_subscriber {
    int in_use;
    cupti_requested requested;
    cupti_completed completed;
    cupti_requested_v2 requested_v2;
    cupti_completed_v2 completed_v2;
    cupti_clock clock;
    int promises_zeroes;
    uint64_t kinds; /* a bit for each kind enabled */
    size_t dropped;
    struct buffer *lanes[FAKE_LANES], *full, **full_end;
};

struct launch {
    struct buffer *buffer[CLIENTS];
    uint8_t *record[CLIENTS];
};

static struct cupti_subscriber clients[CLIENTS];
static struct launch launches[LAUNCHES_MAX];
static uint32_t launches_count;
static uint64_t dirty_buffers;
static char busy[CUPTI_SUBSCRIBER_NAME_BYTES];
static cupti_status enable_status;
static int old_driver, unreadable_incomplete, stuck_flush, delivering;

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t work = PTHREAD_COND_INITIALIZER, done = PTHREAD_COND_INITIALIZER;
static pthread_once_t once = PTHREAD_ONCE_INIT;

static size_t size_of(uint32_t kind)
{
    switch (kind) {
    case CUPTI_KIND_CONCURRENT_KERNEL: return KERNEL;
    case CUPTI_KIND_MEMCPY: return COPY;
    case CUPTI_KIND_MEMSET: return SET;
    case CUPTI_KIND_MEMCPY_PEER: return PEER;
    case CUPTI_KIND_OVERHEAD: return OVERHEAD;
    case CUPTI_KIND_GRAPH_TRACE: return GRAPH;
    default: return OTHER;
    }
}

/* ---- delivery; the lock is held, but not while a client's callback runs ---- */

static void hand_over(struct cupti_subscriber *client, struct buffer *buffer)
{
    cupti_completed completed = client->completed;
    cupti_completed_v2 completed_v2 = client->completed_v2;
    for (uint32_t i = 0; i < launches_count; i++)
        if (launches[i].buffer[client - clients] == buffer)
            launches[i].buffer[client - clients] = NULL; /* too late to complete it */
    delivering++;
    pthread_mutex_unlock(&lock);
    if (completed_v2)
        completed_v2(buffer->bytes, buffer->size, buffer->used, NULL);
    else if (completed)
        completed(NULL, 0, buffer->bytes, buffer->size, buffer->used);
    free(buffer);
    pthread_mutex_lock(&lock);
    delivering--;
    pthread_cond_broadcast(&done);
}

/* One full buffer whose records are all complete, taken out of its queue; NULL when there is none. */
static struct buffer *take_full(struct cupti_subscriber *client, int forced)
{
    for (struct buffer **at = &client->full; *at; at = &(*at)->next) {
        struct buffer *found = *at;
        if (found->incomplete && !forced)
            continue;
        *at = found->next;
        if (!*at)
            client->full_end = at;
        return found;
    }
    return NULL;
}

static int deliver_full(int forced)
{
    for (struct cupti_subscriber *client = clients; client < clients + CLIENTS; client++) {
        struct buffer *buffer = client->in_use ? take_full(client, forced) : NULL;
        if (buffer) {
            hand_over(client, buffer);
            return 1;
        }
    }
    return 0;
}

static void *run_worker(void *unused)
{
    pthread_mutex_lock(&lock);
    for (;;)
        if (!deliver_full(0))
            pthread_cond_wait(&work, &lock);
    return unused;
}

static void make_full(struct cupti_subscriber *client, uint32_t lane)
{
    struct buffer *buffer = client->lanes[lane];
    client->lanes[lane] = NULL;
    buffer->lane = -1;
    buffer->next = NULL;
    *client->full_end = buffer;
    client->full_end = &buffer->next;
}

static void start(void)
{
    const char *value;
    for (struct cupti_subscriber *client = clients; client < clients + CLIENTS; client++)
        client->full_end = &client->full;
    clients[SHARED].in_use = 1;
    if ((value = getenv("FAKE_CUPTI_BUSY")))
        snprintf(busy, sizeof busy, "%s", value);
    if ((value = getenv("FAKE_CUPTI_ENABLE_STATUS")))
        enable_status = atoi(value);
    old_driver = getenv("FAKE_CUPTI_OLD_DRIVER") != NULL;
    stuck_flush = getenv("FAKE_CUPTI_STUCK_FLUSH") != NULL;
    pthread_t worker;
    if (pthread_create(&worker, NULL, run_worker, NULL) == 0)
        pthread_detach(worker);
}

static void enter(void)
{
    pthread_once(&once, start);
    pthread_mutex_lock(&lock);
}

static cupti_status leave(cupti_status status)
{
    pthread_mutex_unlock(&lock);
    return status;
}

/* ---- buffers and records ---- */

static struct buffer *request(struct cupti_subscriber *client, uint32_t lane)
{
    uint8_t *bytes = NULL;
    size_t size = 0, limit = 0;
    if (client->requested_v2)
        client->requested_v2(&bytes, &size, &limit, NULL);
    else if (client->requested)
        client->requested(&bytes, &size, &limit);
    struct buffer *buffer = bytes ? calloc(1, sizeof *buffer) : NULL;
    if (!buffer)
        return NULL;
    if (!client->promises_zeroes)
        memset(bytes, 0, size);
    for (size_t i = 0; i < size; i++)
        if (bytes[i]) {
            dirty_buffers++;
            break;
        }
    *buffer = (struct buffer){.bytes = bytes, .size = size, .lane = (int)lane};
    return client->lanes[lane] = buffer;
}

static uint8_t *write_record(struct cupti_subscriber *client, uint32_t lane, const void *record, uint64_t bytes)
{
    uint32_t kind = *(const uint32_t *)record;
    if (!(client->kinds >> kind & 1))
        return NULL;
    size_t size = size_of(kind);
    struct buffer *buffer = client->lanes[lane];
    if (buffer && buffer->used + size > buffer->size) {
        make_full(client, lane);
        pthread_cond_signal(&work);
        buffer = NULL;
    }
    if (!buffer && !(buffer = request(client, lane))) {
        client->dropped++;
        return NULL;
    }
    uint8_t *at = buffer->bytes + buffer->used;
    memcpy(at, record, bytes < size ? bytes : size);
    buffer->used += size;
    return at;
}

/* CUPTI asks for the time when it turns the GPU's times into the CPU's. */
static void ask_clock(const struct cupti_subscriber *client)
{
    cupti_clock clock = client->clock ? client->clock : clients[SHARED].clock;
    if (clock)
        clock();
}

EXPORT void fake_record(uint32_t lane, const void *record, uint64_t bytes)
{
    enter();
    for (struct cupti_subscriber *client = clients; client < clients + CLIENTS; client++)
        if (client->in_use && client->kinds >> *(const uint32_t *)record & 1) {
            ask_clock(client);
            write_record(client, lane, record, bytes);
        }
    leave(0);
}

EXPORT uint32_t fake_launch(uint32_t lane, const void *record, uint64_t bytes)
{
    enter();
    struct launch *launch = &launches[launches_count];
    for (int i = 0; i < CLIENTS; i++) {
        uint8_t *at = clients[i].in_use ? write_record(&clients[i], lane, record, bytes) : NULL;
        launch->record[i] = at;
        launch->buffer[i] = at ? clients[i].lanes[lane] : NULL;
        if (at)
            launch->buffer[i]->incomplete++;
    }
    uint32_t number = launches_count++;
    leave(0);
    return number;
}

EXPORT void fake_finish(uint32_t number, uint64_t start_at, uint64_t end)
{
    enter();
    struct launch *launch = &launches[number];
    for (int i = 0; i < CLIENTS; i++) {
        if (!launch->buffer[i])
            continue;
        ask_clock(&clients[i]);
        struct cupti_kernel *kernel = (struct cupti_kernel *)launch->record[i]; /* copies have their times there too */
        kernel->start = start_at;
        kernel->end = end;
        launch->buffer[i]->incomplete--;
        launch->buffer[i] = NULL;
    }
    pthread_cond_signal(&work);
    leave(0);
}

EXPORT void fake_overhead(uint32_t lane, uint32_t kind, uint64_t start_at, uint64_t end)
{
    struct cupti_overhead_with_data record = {
        .common = {.kind = CUPTI_KIND_OVERHEAD, .overhead_kind = kind, .start = start_at, .end = end}};
    enter();
    for (struct cupti_subscriber *client = clients; client < clients + CLIENTS; client++) {
        if (!client->in_use || !(client->kinds >> CUPTI_KIND_OVERHEAD & 1))
            continue;
        record.data = kind == CUPTI_OVERHEAD_COMMAND_BUFFER_FULL && OVERHEAD == sizeof record ? malloc(12) : NULL;
        if (!write_record(client, lane, &record, sizeof record))
            free(record.data);
    }
    leave(0);
}

EXPORT void fake_deliver(uint32_t lane)
{
    enter();
    for (struct cupti_subscriber *client = clients; client < clients + CLIENTS; client++)
        if (client->lanes[lane])
            make_full(client, lane);
    pthread_cond_signal(&work);
    leave(0);
}

static int has_deliverable(void)
{
    for (struct cupti_subscriber *client = clients; client < clients + CLIENTS; client++)
        for (struct buffer *buffer = client->in_use ? client->full : NULL; buffer; buffer = buffer->next)
            if (!buffer->incomplete)
                return 1;
    return 0;
}

EXPORT void fake_drain(void)
{
    enter();
    while (delivering || has_deliverable()) {
        pthread_cond_signal(&work);
        struct timespec soon;
        clock_gettime(CLOCK_REALTIME, &soon);
        soon.tv_nsec += 10000000;
        soon.tv_sec += soon.tv_nsec / 1000000000;
        soon.tv_nsec %= 1000000000;
        pthread_cond_timedwait(&done, &lock, &soon);
    }
    leave(0);
}

EXPORT void fake_set_busy(const char *holder)
{
    enter();
    snprintf(busy, sizeof busy, "%s", holder);
    leave(0);
}

EXPORT void fake_set_enable_status(cupti_status status)
{
    enter();
    enable_status = status;
    leave(0);
}

EXPORT void fake_set_unreadable_incomplete(int on)
{
    enter();
    unreadable_incomplete = on;
    leave(0);
}

EXPORT uint64_t fake_dirty_buffers(void)
{
    enter();
    uint64_t count = dirty_buffers;
    leave(0);
    return count;
}

/* ---- CUPTI's own calls ---- */

#define CALL EXPORT cupti_status

CALL cuptiGetVersion(uint32_t *version)
{
    *version = API_VERSION;
    return CUPTI_SUCCESS;
}

CALL cuptiActivityRegisterCallbacks(cupti_requested requested, cupti_completed completed)
{
    enter();
    clients[SHARED].requested = requested;
    clients[SHARED].completed = completed;
    return leave(CUPTI_SUCCESS);
}

CALL cuptiActivityRegisterTimestampCallback(cupti_clock clock)
{
    enter();
    clients[SHARED].clock = clock;
    return leave(CUPTI_SUCCESS);
}

static cupti_status set_attribute(struct cupti_subscriber *client, uint32_t attribute, const size_t *size, void *value)
{
    if (attribute == CUPTI_ATTRIBUTE_ZEROED_OUT_BUFFER && *size == sizeof(uint8_t))
        client->promises_zeroes = *(uint8_t *)value;
    else if (attribute == CUPTI_ATTRIBUTE_TIMESTAMP_CALLBACK && HAS_SUBSCRIBER_CLOCK && *size == sizeof client->clock)
        memcpy(&client->clock, value, sizeof client->clock);
    else
        return CUPTI_INVALID_PARAMETER;
    return CUPTI_SUCCESS;
}

CALL cuptiActivitySetAttribute(uint32_t attribute, size_t *size, void *value)
{
    enter();
    return leave(set_attribute(&clients[SHARED], attribute, size, value));
}

static cupti_status switch_kind(struct cupti_subscriber *client, uint32_t kind, int on)
{
    if (!client->in_use)
        return CUPTI_INVALID_PARAMETER;
    if (on && enable_status)
        return enable_status;
    client->kinds = (client->kinds & ~(UINT64_C(1) << kind)) | (uint64_t)on << kind;
    return CUPTI_SUCCESS;
}

CALL cuptiActivityEnable(uint32_t kind)
{
    enter();
    return leave(switch_kind(&clients[SHARED], kind, 1));
}

CALL cuptiActivityDisable(uint32_t kind)
{
    enter();
    return leave(switch_kind(&clients[SHARED], kind, 0));
}

CALL cuptiActivityFlushAll(uint32_t flag)
{
    enter();
    int registered = 0;
    for (struct cupti_subscriber *client = clients; client < clients + CLIENTS; client++)
        registered |= client->in_use && (client->completed || client->completed_v2);
    if (!registered)
        return leave(CUPTI_INVALID_OPERATION);
    while (stuck_flush && flag) {
        leave(0);
        pause();
        enter();
    }
    while (deliver_full((int)flag))
        ;
    for (struct cupti_subscriber *client = clients; client < clients + CLIENTS; client++)
        for (uint32_t lane = 0; lane < FAKE_LANES; lane++) {
            struct buffer *buffer = client->lanes[lane];
            if (!client->in_use || !buffer || (buffer->incomplete && !flag))
                continue;
            client->lanes[lane] = NULL;
            hand_over(client, buffer);
        }
    return leave(CUPTI_SUCCESS);
}

CALL cuptiActivityGetNextRecord(uint8_t *buffer, size_t valid_size, struct cupti_record **record)
{
    uint8_t *next = *record ? (uint8_t *)*record + size_of((*record)->kind) : buffer;
    if (next >= buffer + valid_size)
        return CUPTI_MAX_LIMIT_REACHED;
    const struct cupti_kernel *kernel = (const struct cupti_kernel *)next;
    if (kernel->kind == 0 || (unreadable_incomplete && kernel->kind == CUPTI_KIND_CONCURRENT_KERNEL && !kernel->end))
        return CUPTI_INVALID_KIND;
    *record = (struct cupti_record *)next;
    return CUPTI_SUCCESS;
}

static cupti_status take_dropped(struct cupti_subscriber *client, size_t *dropped)
{
    if (!client->in_use)
        return CUPTI_INVALID_PARAMETER;
    *dropped = client->dropped;
    client->dropped = 0;
    return CUPTI_SUCCESS;
}

CALL cuptiActivityGetNumDroppedRecords(void *context, uint32_t stream, size_t *dropped)
{
    (void)context;
    (void)stream;
    enter();
    return leave(take_dropped(&clients[SHARED], dropped));
}

/* Detach everybody. */
CALL cuptiFinalize(void)
{
    enter();
    for (struct cupti_subscriber *client = clients; client < clients + CLIENTS; client++) {
        client->kinds = 0;
        client->in_use = client == &clients[SHARED];
        client->requested = NULL;
        client->completed = NULL;
        client->clock = NULL;
    }
    return leave(CUPTI_SUCCESS);
}

#if HAS_SUBSCRIBE

CALL cuptiUnsubscribe(cupti_subscriber subscriber)
{
    enter();
    subscriber->in_use = 0;
    return leave(CUPTI_SUCCESS);
}

CALL cuptiSubscribe_v2(cupti_subscriber *subscriber, cupti_api_callback callback, void *userdata,
                       struct cupti_subscriber_parameters *parameters)
{
    (void)callback;
    (void)userdata;
    enter();
    if (parameters->struct_size != sizeof *parameters)
        return leave(CUPTI_INVALID_PARAMETER);
    if (*busy)
        snprintf(parameters->old_name, parameters->old_name_size, "%s", busy);
    if (*busy || old_driver || !HAS_SUBSCRIBERS)
        return leave(CUPTI_MULTIPLE_SUBSCRIBERS_NOT_SUPPORTED);
    for (int i = SHARED + 1; i < CLIENTS; i++)
        if (!clients[i].in_use) {
            *subscriber = &clients[i];
            clients[i] = (struct cupti_subscriber){.in_use = 1};
            clients[i].full_end = &clients[i].full;
            return leave(CUPTI_SUCCESS);
        }
    return leave(CUPTI_UNKNOWN);
}

#endif
#if HAS_SUBSCRIBERS

CALL cuptiActivityEnable_v2(cupti_subscriber subscriber, uint32_t kind, void *configuration)
{
    (void)configuration;
    enter();
    return leave(switch_kind(subscriber, kind, 1));
}

CALL cuptiActivityDisable_v2(cupti_subscriber subscriber, uint32_t kind, void *configuration)
{
    (void)configuration;
    enter();
    return leave(switch_kind(subscriber, kind, 0));
}

CALL cuptiActivityRegisterCallbacks_v2(cupti_subscriber subscriber, cupti_requested_v2 requested,
                                       cupti_completed_v2 completed)
{
    enter();
    subscriber->requested_v2 = requested;
    subscriber->completed_v2 = completed;
    return leave(CUPTI_SUCCESS);
}

CALL cuptiActivitySetAttribute_v2(cupti_subscriber subscriber, uint32_t attribute, size_t *size, void *value)
{
    enter();
    return leave(set_attribute(subscriber, attribute, size, value));
}

#endif
#if HAS_SUBSCRIBER_CLOCK

CALL cuptiActivityGetNextRecord_v2(cupti_subscriber subscriber, uint8_t *buffer, size_t valid_size,
                                   struct cupti_record **record)
{
    return subscriber && subscriber->in_use ? cuptiActivityGetNextRecord(buffer, valid_size, record)
                                            : CUPTI_INVALID_PARAMETER;
}

CALL cuptiActivityGetNumDroppedRecords_v2(cupti_subscriber subscriber, void *context, uint32_t stream, size_t *dropped)
{
    (void)context;
    (void)stream;
    enter();
    return leave(subscriber ? take_dropped(subscriber, dropped) : CUPTI_INVALID_PARAMETER);
}

#endif
