/*
 * The tracer: libcuda loads it through CUDA_INJECTION64_PATH and calls InitializeInjection inside cuInit. README.md
 * tells what it does; this file holds its life: start, one flush a second, loss and return, fork, end.
 */
#include <dlfcn.h>
#include <errno.h>
#include <pthread.h>
#include <signal.h>
#include <stddef.h>
#include <stdlib.h>
#include <sys/prctl.h>
#include <time.h>
#include <unistd.h>

#include "account.h"
#include "cupti.h"
#include "log.h"
#include "pool.h"
#include "records.h"
#include "region.h"
#include "settings.h"
#include "steps.h"
#include "watch.h"

#define SECOND UINT64_C(1000000000)
#define EXPORT __attribute__((visibility("default")))

/* How long the end of the process waits for the last flush; CUPTI may be stuck in a driver that is being torn down. */
#define EXIT_PATIENCE_NANOSECONDS SECOND

/* At the end everything is closed, up to the latest time that a record may have. */
#define END_AHEAD_NANOSECONDS (2 * SECOND)

enum { UUID_ATTEMPTS = 16 };

static struct tracer_region *_Atomic published; /* NULL before the start; kept in a forked child, but abandoned */
static struct tracer_settings settings;
static _Atomic int forked;
static _Atomic uint64_t clock_calls, buffers_requested, buffers_refused, buffers_completed;

/* Guards the region, the account and everything below. */
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t wake;
static int ending, ended;
static uint64_t armed_at; /* up to where armed time has been accounted */
static struct watch watch;

/* ---- what CUPTI calls ---- */

/* CUPTI's default clock is CLOCK_REALTIME. This one looks alike, so that a profiler which shares CUPTI with us and
 * brings no clock of its own still finds its records where it expects them, but it cannot be set. */
static uint64_t client_clock(void)
{
    atomic_fetch_add_explicit(&clock_calls, 1, memory_order_relaxed);
    return region_now() + (uint64_t)published->header.clock_offset_nanoseconds;
}

/* May run on the application's launching thread: no lock, no allocation. */
static uint8_t *client_lend(size_t *size)
{
    atomic_fetch_add_explicit(&buffers_requested, 1, memory_order_relaxed);
    uint8_t *buffer = forked ? NULL : pool_lend(region_now());
    if (buffer)
        *size = POOL_BUFFER_BYTES;
    else
        atomic_fetch_add_explicit(&buffers_refused, 1, memory_order_relaxed);
    return buffer;
}

static void client_take(uint8_t *buffer, size_t valid_size)
{
    if (forked || !pool_is_lent(buffer))
        return; /* not ours to read, nor to free: another client lent it before we took over */
    struct tracer_region *region = published;
    uint64_t began = region_now();
    pthread_mutex_lock(&lock);
    region_begin_write(region);
    uint64_t records = region->header.records_total;
    records_take(region, buffer, valid_size < POOL_BUFFER_BYTES ? valid_size : POOL_BUFFER_BYTES, began);
    uint64_t finished = region_now();
    region->header.callback_nanoseconds_total += finished - began;
    account_spread(began, finished, offsetof(struct tracer_second, callback_nanoseconds));
    struct tracer_second *second = account_second(began / SECOND);
    if (second)
        second->records += (uint32_t)(region->header.records_total - records);
    region_end_write(region);
    pthread_mutex_unlock(&lock);
    pool_return(buffer);
    atomic_fetch_add_explicit(&buffers_completed, 1, memory_order_relaxed);
}

static const struct cupti_client client = {client_clock, client_lend, client_take};

/* ---- loss and return (flush thread, lock held) ---- */

static void lose(struct tracer_region *region, uint64_t from, uint64_t now, uint32_t reason, int32_t code)
{
    struct tracer_header *header = &region->header;
    struct tracer_lost *range = &header->lost[header->lost_total++ % TRACER_LOST_MAX];
    *range = (struct tracer_lost){.from_nanoseconds = from, .reason = reason, .code = code};
    header->state = TRACER_LOST;
    account_flag(from, now, TRACER_SECOND_LOST);
    log_line("lost since %llu ns ago, reason %u, code %d", (unsigned long long)(now - from), reason, code);
}

static void regain(struct tracer_region *region, uint64_t now)
{
    struct tracer_header *header = &region->header;
    header->lost[(header->lost_total - 1) % TRACER_LOST_MAX].until_nanoseconds = now;
    header->state = TRACER_ARMED;
    armed_at = now;
    log_line("records reach us again");
}

/* Register and enable anew. CUPTI's calls are made without the lock. */
static void rearm(struct tracer_region *region, uint64_t now)
{
    struct cupti_problem problem = {TRACER_STEP_NONE, 0};
    if (region->header.state == TRACER_LOST)
        pool_write_off(now - settings.quiet_nanoseconds, cupti_mode() != TRACER_MODE_SUBSCRIBER);
    if (cupti_mode() == TRACER_MODE_SUBSCRIBER)
        cupti_forget();
    int armed = cupti_arm(settings.graph_level, 1, &problem);
    pthread_mutex_lock(&lock);
    region_begin_write(region);
    if (armed && region->header.state == TRACER_LOST)
        regain(region, now);
    else if (!armed && region->header.state == TRACER_ARMED)
        lose(region, now, now, TRACER_LOST_REFUSED, problem.code);
    region->header.mode = cupti_mode();
    region_end_write(region);
    pthread_mutex_unlock(&lock);
}

/* ---- once a second ---- */

static void count_time(struct tracer_region *region, uint64_t now, int64_t dropped)
{
    struct tracer_header *header = &region->header;
    struct tracer_second *second = account_second(now / SECOND);
    uint64_t requested = atomic_load(&buffers_requested);
    if (second) {
        second->requests += (uint32_t)(requested - header->buffers_requested_total);
        second->dropped += dropped > 0 ? (uint32_t)dropped : 0;
        second->flags |= dropped > 0 ? TRACER_SECOND_DROPPED : 0;
    }
    header->dropped_total += dropped > 0 ? (uint64_t)dropped : 0;
    header->buffers_requested_total = requested;
    header->buffers_refused_total = atomic_load(&buffers_refused);
    header->buffers_completed_total = atomic_load(&buffers_completed);
    header->buffers_outstanding = pool_lent_count();
    if (header->state == TRACER_ARMED)
        account_spread(armed_at, now, offsetof(struct tracer_second, armed_nanoseconds));
    else
        account_flag(armed_at, now, header->state == TRACER_LOST ? TRACER_SECOND_LOST : TRACER_SECOND_PAUSED);
    armed_at = now;
}

/* A record that is still to come lies in a buffer that is out, and began after that buffer was asked for. Without one,
 * the flush has brought everything up to its begin. */
static void close_what_is_known(uint64_t flush_began, uint64_t lent_since)
{
    uint64_t known = flush_began < lent_since ? flush_began : lent_since;
    if (known > settings.lateness_nanoseconds)
        account_close(known - settings.lateness_nanoseconds, 0);
    if (flush_began > settings.hold_nanoseconds)
        account_close(flush_began - settings.hold_nanoseconds, TRACER_SECOND_ASSUMED);
}

/* 1: register anew. */
static int look(struct tracer_region *region, uint64_t now, uint64_t lent_since, int64_t dropped)
{
    int was_lost = region->header.state == TRACER_LOST;
    struct watch_verdict verdict = watch_look(
        &watch,
        (struct watch_sight){
            .now = now,
            .buffers_moved = atomic_load(&buffers_requested) + atomic_load(&buffers_completed),
            .clock_calls = atomic_load(&clock_calls),
            .lent_since = lent_since,
            .is_shared = cupti_mode() == TRACER_MODE_SHARED_CALLBACKS,
            .is_detached = dropped < 0,
            .is_blind = cupti_mode() == TRACER_MODE_NONE,
            .is_paused = region->header.state == TRACER_PAUSED,
        },
        was_lost);
    if (verdict.lost_reason && !was_lost)
        lose(region, verdict.lost_from, now, verdict.lost_reason, 0);
    if (verdict.is_back)
        regain(region, now);
    return verdict.rearm;
}

static int learn_uuid(struct tracer_region *region, uint32_t ordinal)
{
    struct tracer_device *device = &region->devices[ordinal];
    uint8_t uuid[sizeof device->uuid];
    if (!cuda_device_uuid(ordinal, uuid))
        return 0;
    pthread_mutex_lock(&lock);
    region_begin_write(region);
    for (size_t byte = 0; byte < sizeof uuid; byte++)
        device->uuid[byte] = uuid[byte];
    device->flags |= TRACER_DEVICE_HAS_UUID;
    region->header.cuda_driver_version = cuda_driver_version();
    region_end_write(region);
    pthread_mutex_unlock(&lock);
    return 1;
}

/* All devices as soon as CUDA runs (before, it may still be initialising), and what is then still missing when it is
 * used. Called before a time is closed: a reader never finds it closed and its device without a name. */
static void learn_uuids(struct tracer_region *region)
{
    static int attempts[TRACER_DEVICES_MAX], is_initialised;
    if (!atomic_load(&buffers_requested))
        return;
    int is_first = !is_initialised && learn_uuid(region, 0);
    is_initialised |= is_first;
    for (uint32_t i = 0; i < TRACER_DEVICES_MAX; i++) {
        pthread_mutex_lock(&lock);
        uint32_t flags = region->devices[i].flags;
        pthread_mutex_unlock(&lock);
        if (flags & TRACER_DEVICE_HAS_UUID)
            continue;
        if (is_first || (flags & TRACER_DEVICE_USED && attempts[i]++ < UUID_ATTEMPTS))
            learn_uuid(region, i);
    }
}

/* The phases of a duty cycle; only where pausing touches nobody else's records. */
static void keep_duty(struct tracer_region *region, uint64_t now)
{
    uint64_t on = settings.duty_on_nanoseconds, off = settings.duty_off_nanoseconds;
    enum tracer_state state = region->header.state;
    if (!off || cupti_mode() != TRACER_MODE_SUBSCRIBER || (state != TRACER_ARMED && state != TRACER_PAUSED))
        return;
    int is_on = (now - region->header.started_at_nanoseconds) % (on + off) < on;
    struct cupti_problem problem;
    if (is_on == (state == TRACER_ARMED) || !(is_on ? cupti_resume(&problem) : cupti_pause()))
        return;
    pthread_mutex_lock(&lock);
    region_begin_write(region);
    count_time(region, region_now(), 0);
    region->header.state = is_on ? TRACER_ARMED : TRACER_PAUSED;
    region_end_write(region);
    pthread_mutex_unlock(&lock);
}

static void flush(struct tracer_region *region, int forced)
{
    uint64_t began = region_now();
    int64_t dropped = 0;
    if (atomic_load(&buffers_requested)) { /* CUDA runs; before, CUPTI need not be ready for a flush */
        cupti_flush(forced);
        dropped = cupti_take_dropped();
    }
    uint64_t lent_since = pool_lent_since(), flushed = region_now();
    learn_uuids(region);
    uint64_t now = region_now();
    pthread_mutex_lock(&lock);
    region_begin_write(region);
    count_time(region, now, dropped);
    region->header.flushes_total++;
    region->header.flush_nanoseconds_total += flushed - began;
    int register_anew = !forced && look(region, now, lent_since, dropped);
    close_what_is_known(began, lent_since);
    if (forced) {
        account_close(now + END_AHEAD_NANOSECONDS, 0);
        region->header.state = TRACER_ENDED;
    }
    region->header.updated_at_nanoseconds = now;
    region_end_write(region);
    pthread_mutex_unlock(&lock);
    if (forced)
        return;
    if (register_anew)
        rearm(region, now);
    keep_duty(region, now);
}

static struct timespec after(clockid_t clock, uint64_t nanoseconds)
{
    struct timespec now;
    clock_gettime(clock, &now);
    uint64_t fraction = (uint64_t)now.tv_nsec + nanoseconds % SECOND;
    return (struct timespec){.tv_sec = now.tv_sec + (time_t)(nanoseconds / SECOND + fraction / SECOND),
                             .tv_nsec = (long)(fraction % SECOND)};
}

static void *run(void *argument)
{
    struct tracer_region *region = argument;
    prctl(PR_SET_NAME, "trueload-tracer");
    pthread_mutex_lock(&lock);
    while (!ending) {
        struct timespec next = after(CLOCK_MONOTONIC, settings.flush_nanoseconds);
        while (!ending && pthread_cond_timedwait(&wake, &lock, &next) == 0)
            ; /* woken without cause */
        if (ending)
            break;
        pthread_mutex_unlock(&lock);
        flush(region, 0);
        pthread_mutex_lock(&lock);
    }
    pthread_mutex_unlock(&lock);
    flush(region, 1);
    pthread_mutex_lock(&lock);
    ended = 1;
    pthread_cond_broadcast(&wake);
    pthread_mutex_unlock(&lock);
    return NULL;
}

/* ---- beginning and end ---- */

/* Our thread makes the last flush, so that CUPTI being stuck costs the exit no more than its patience. */
static void at_exit(void)
{
    if (forked || getpid() != published->header.pid) /* a child that was made without fork has no thread of ours */
        return;
    struct timespec latest = after(CLOCK_REALTIME, EXIT_PATIENCE_NANOSECONDS); /* the clock of timedlock */
    if (pthread_mutex_timedlock(&lock, &latest) != 0)
        return;
    latest = after(CLOCK_MONOTONIC, EXIT_PATIENCE_NANOSECONDS);
    ending = 1;
    pthread_cond_broadcast(&wake);
    while (!ended && pthread_cond_timedwait(&wake, &lock, &latest) == 0)
        ;
    pthread_mutex_unlock(&lock);
}

static void in_child(void)
{
    forked = 1; /* first: no callback may take the lock, which somebody may have held when the process was copied */
    region_abandon(published);
}

static void give_up(struct tracer_region *region, struct cupti_problem problem)
{
    region->header.state = TRACER_FAILED;
    region->header.failure_step = problem.step;
    region->header.failure_code = problem.code;
    log_line("not tracing: step %d, code %d", (int)problem.step, (int)problem.code);
}

/* Another client is in the way now, but need not be for ever. */
static int is_temporary(struct cupti_problem problem)
{
    return problem.code == CUPTI_NOT_COMPATIBLE || problem.code == CUPTI_MULTIPLE_SUBSCRIBERS_NOT_SUPPORTED;
}

static int start_thread(struct tracer_region *region)
{
    pthread_condattr_t monotonic;
    pthread_condattr_init(&monotonic);
    pthread_condattr_setclock(&monotonic, CLOCK_MONOTONIC);
    pthread_cond_init(&wake, &monotonic);
    /* A new thread inherits the mask: the application's signals must never be handled on ours. */
    sigset_t all, before;
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before);
    pthread_t thread;
    int problem = pthread_create(&thread, NULL, run, region);
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    if (problem == 0)
        pthread_detach(thread);
    return problem;
}

/* Code that a thread and callbacks run in must stay mapped, whatever the loader of an injection library does later. */
static void stay_loaded(void)
{
    Dl_info us;
    if (dladdr((void *)&published, &us) && us.dli_fname)
        dlopen(us.dli_fname, RTLD_NOW | RTLD_NOLOAD | RTLD_NODELETE);
}

static void arm(struct tracer_region *region)
{
    struct cupti_problem problem = {TRACER_STEP_NONE, 0};
    uint64_t now = region_now();
    int loaded = cupti_load(settings.cupti_path, &client, &problem);
    region->header.cupti_version = cupti_version();
    region->header.cuda_driver_version = cuda_driver_version();
    if (loaded && cupti_arm(settings.graph_level, 0, &problem))
        region->header.state = TRACER_ARMED;
    else if (loaded && is_temporary(problem))
        lose(region, now, now, problem.step == TRACER_STEP_SUBSCRIBE ? TRACER_LOST_BUSY : TRACER_LOST_REFUSED,
             problem.code);
    else
        give_up(region, problem);
    region->header.mode = cupti_mode();
}

static void start(struct tracer_region *region)
{
    struct tracer_header *header = &region->header;
    header->lateness_nanoseconds = settings.lateness_nanoseconds;
    header->hold_nanoseconds = settings.hold_nanoseconds;
    header->duty_on_nanoseconds = settings.duty_on_nanoseconds;
    header->duty_off_nanoseconds = settings.duty_off_nanoseconds;
    header->graph_level = (uint32_t)settings.graph_level;
    armed_at = header->updated_at_nanoseconds = region_now();
    account_start(region);
    watch_start(&watch, armed_at, settings.hold_nanoseconds, settings.quiet_nanoseconds);
    pool_start();
    arm(region);
    if (header->state == TRACER_FAILED)
        return;
    int problem = start_thread(region);
    if (problem)
        give_up(region, (struct cupti_problem){TRACER_STEP_THREAD, problem});
    else
        atexit(at_exit);
}

EXPORT int InitializeInjection(void)
{
    static _Atomic int called;
    if (atomic_exchange(&called, 1))
        return 1;
    settings = settings_read();
    log_open(settings.log_path);
    struct tracer_region *region = region_create();
    if (!region) {
        log_line("not tracing: no sealed memory to publish in (errno %d)", errno);
        return 1;
    }
    published = region;
    steps_publish(region);
    stay_loaded();
    pthread_atfork(NULL, NULL, in_child);
    start(region);
    return 1; /* success; a failure of ours is no reason for the application to notice */
}
