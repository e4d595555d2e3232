/*
 * A CUDA application as the tracer sees one, driven line by line through standard input; each line is answered by one
 * line. Times are CUPTI's, as written into the records. test files say what each command is for.
 *
 *   load                        open libcupti before cuInit, as PyTorch does
 *   init                        cuInit
 *   kernel LANE DEVICE START END CORRELATION NAME GRID BLOCK REGISTERS STATIC DYNAMIC
 *   copy LANE KIND DEVICE START END     graph LANE DEVICE START END CORRELATION
 *   overhead LANE KIND START END        other LANE
 *   launch LANE DEVICE NAME     answers a number; finish NUMBER START END
 *   bulk FILE                   many kernels: records of struct bulk
 *   storm THREADS COUNT         as many threads, each running so many kernels at the present time
 *   deliver LANE | drain | flush FLAG | busy [NAME] | enable_status N | unreadable ON | dirty
 *   profiler start|stop|count   another client of the shared callbacks; enable KIND; finalize
 *   nvtx push|push_ex|domain_push|start|start_ex|domain_start NAME      a range that begins, as NVTX's headers do it;
 *                               registered_ before all but push and start: by the handle of a registered string
 *   step N | fork exit|_exit|storm|exec | exit N | _exit N
 */
#include <dlfcn.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "fake_cupti.h"
#include "nvtx_abi.h"

struct bulk {
    uint32_t lane, device, correlation, name;
    uint64_t start, end;
};

static void *cupti_library;

static void *symbol(void *library, const char *name)
{
    void *found = library ? dlsym(library, name) : NULL;
    if (!found) {
        fprintf(stderr, "no %s: %s\n", name, dlerror());
        exit(70);
    }
    return found;
}

#define CUPTI(name) (*(__typeof__(&name))symbol(cupti_library, #name))

/* Declared for CUPTI(): the calls of the real interface that a profiler makes. */
cupti_status cuptiActivityRegisterCallbacks(cupti_requested, cupti_completed);
cupti_status cuptiActivityEnable(uint32_t);
cupti_status cuptiActivityDisable(uint32_t);
cupti_status cuptiActivityFlushAll(uint32_t);
cupti_status cuptiFinalize(void);

static void load(void)
{
    if (!cupti_library)
        cupti_library = dlopen(getenv("FAKE_CUPTI"), RTLD_NOW | RTLD_GLOBAL);
}

static void init(void)
{
    void *cuda = dlopen("libcuda.so.1", RTLD_NOW);
    int (*cu_init)(unsigned);
    *(void **)&cu_init = symbol(cuda, "cuInit");
    cu_init(0);
    load();
}

static uint64_t now(void)
{
    struct timespec time;
    clock_gettime(CLOCK_REALTIME, &time);
    return (uint64_t)time.tv_sec * 1000000000u + (uint64_t)time.tv_nsec;
}

/* ---- another profiler, which frees its buffers as it gets them ---- */

static _Atomic uint64_t profiler_buffers;

static void profiler_requested(uint8_t **buffer, size_t *size, size_t *limit)
{
    *limit = 0;
    *size = 1 << 16;
    *buffer = malloc(*size);
    memset(*buffer, 0xff, *size); /* CUPTI zeroes it unless told that it is */
}

static void profiler_completed(void *context, uint32_t stream, uint8_t *buffer, size_t size, size_t valid_size)
{
    (void)context;
    (void)stream;
    (void)size;
    (void)valid_size;
    profiler_buffers++;
    free(buffer); /* whosever it was: CUPTI's samples do so */
}

static void profile(const char *what)
{
    static const uint32_t kinds[] = {CUPTI_KIND_CONCURRENT_KERNEL, CUPTI_KIND_MEMCPY, CUPTI_KIND_MEMSET};
    if (strcmp(what, "start") == 0)
        CUPTI(cuptiActivityRegisterCallbacks)(profiler_requested, profiler_completed);
    for (size_t i = 0; i < sizeof kinds / sizeof kinds[0]; i++) {
        if (strcmp(what, "start") == 0)
            CUPTI(cuptiActivityEnable)(kinds[i]);
        if (strcmp(what, "stop") == 0)
            CUPTI(cuptiActivityDisable)(kinds[i]);
    }
}

/* ---- work ---- */

static struct cupti_kernel kernel_of(uint32_t device, const char *name)
{
    return (struct cupti_kernel){.kind = CUPTI_KIND_CONCURRENT_KERNEL,
                                 .registers_per_thread = 32,
                                 .device_id = device,
                                 .grid = {80, 1, 1},
                                 .block = {256, 1, 1},
                                 .name = name};
}

/* CUPTI keeps a kernel's name as long as its module is loaded. */
static const char *interned(const char *name)
{
    static struct name {
        struct name *next;
        char text[];
    } *names;
    for (const struct name *known = names; known; known = known->next)
        if (strcmp(known->text, name) == 0)
            return known->text;
    struct name *fresh = malloc(sizeof *fresh + strlen(name) + 1);
    strcpy(fresh->text, name);
    fresh->next = names;
    names = fresh;
    return fresh->text;
}

static void kernel(const char *line)
{
    unsigned lane, device, correlation, grid, block, registers;
    int fixed, dynamic;
    unsigned long long from, to;
    char name[4096];
    if (sscanf(line, "%u %u %llu %llu %u %4095s %u %u %u %d %d", &lane, &device, &from, &to, &correlation, name, &grid,
               &block, &registers, &fixed, &dynamic) != 11)
        exit(71);
    struct cupti_kernel record = kernel_of(device, strcmp(name, "-") ? interned(name) : NULL);
    record.start = from;
    record.end = to;
    record.correlation_id = correlation;
    record.grid[0] = (int)grid;
    record.block[0] = (int)block;
    record.registers_per_thread = (uint16_t)registers;
    record.static_shared_memory = fixed;
    record.dynamic_shared_memory = dynamic;
    CUPTI(fake_record)(lane, &record, sizeof record);
}

static void copy(const char *line)
{
    struct cupti_transfer record = {0};
    unsigned lane;
    unsigned long long from, to;
    if (sscanf(line, "%u %u %u %llu %llu", &lane, &record.kind, &record.device_id, &from, &to) != 5)
        exit(71);
    record.start = from;
    record.end = to;
    CUPTI(fake_record)(lane, &record, sizeof record);
}

static void graph(const char *line)
{
    struct cupti_graph record = {.kind = CUPTI_KIND_GRAPH_TRACE};
    unsigned lane;
    unsigned long long from, to;
    if (sscanf(line, "%u %u %llu %llu %u", &lane, &record.device_id, &from, &to, &record.correlation_id) != 5)
        exit(71);
    record.start = from;
    record.end = to;
    CUPTI(fake_record)(lane, &record, sizeof record);
}

static void overhead(const char *line)
{
    unsigned lane, kind;
    unsigned long long from, to;
    if (sscanf(line, "%u %u %llu %llu", &lane, &kind, &from, &to) != 4)
        exit(71);
    CUPTI(fake_overhead)(lane, kind, from, to);
}

static void bulk(const char *path)
{
    static char names[1024][16];
    FILE *file = fopen(path, "rb");
    struct bulk item;
    uint64_t count = 0;
    while (file && fread(&item, sizeof item, 1, file) == 1) {
        char *name = names[item.name % 1024];
        if (!*name)
            snprintf(name, sizeof names[0], "kernel_%u", item.name % 1024);
        struct cupti_kernel record = kernel_of(item.device, name);
        record.start = item.start;
        record.end = item.end;
        record.correlation_id = item.correlation;
        CUPTI(fake_record)(item.lane, &record, sizeof record);
        if (++count % 4096 == 0)
            CUPTI(fake_drain)(); /* no GPU is as fast as this loop */
    }
    if (file)
        fclose(file);
}

struct gust {
    uint32_t lane, count;
};

static void *run_gust(void *argument)
{
    const struct gust *gust = argument;
    struct cupti_kernel record = kernel_of(gust->lane % 4, "storm");
    for (uint32_t i = 0; i < gust->count; i++) {
        record.end = now();
        record.start = record.end - 1000;
        record.correlation_id++;
        CUPTI(fake_record)(gust->lane, &record, sizeof record);
        if (i % 256 == 0)
            CUPTI(fake_drain)();
    }
    return NULL;
}

static void storm(unsigned threads, unsigned count)
{
    pthread_t thread[FAKE_LANES];
    struct gust gusts[FAKE_LANES];
    for (unsigned i = 0; i < threads && i < FAKE_LANES; i++) {
        gusts[i] = (struct gust){i, count};
        pthread_create(&thread[i], NULL, run_gust, &gusts[i]);
    }
    for (unsigned i = 0; i < threads && i < FAKE_LANES; i++)
        pthread_join(thread[i], NULL);
}

static void step(unsigned long count)
{
    void *tracer = dlopen(getenv("CUDA_INJECTION64_PATH"), RTLD_NOW | RTLD_NOLOAD);
    void (*call)(uint64_t);
    *(void **)&call = symbol(tracer, "trueload_step");
    call(count);
}

/* ---- NVTX as its headers do it: tables of pointers to functions, filled in by the injection library at first use ---- */

static nvtx_function range_start_ex, range_start_a, range_push_ex, range_push_a, domain_start_ex, domain_push_ex;
static nvtx_function register_string;

static int module_table(int module, nvtx_function ***table, unsigned *size)
{
    static nvtx_function unused;
    static nvtx_function *core[] = {NULL,    &unused, &unused, &unused, &range_start_ex, &range_start_a,
                                    &unused, &unused, &range_push_ex, &range_push_a, &unused, &unused};
    static nvtx_function *core2[] = {NULL,    &unused, &domain_start_ex, &unused, &domain_push_ex, &unused, &unused,
                                     &unused, &unused, &unused,          &register_string, &unused};
    *table = module == NVTX_MODULE_CORE ? core : core2;
    *size = module == NVTX_MODULE_CORE ? sizeof core / sizeof core[0] : sizeof core2 / sizeof core2[0];
    return 1;
}

static const void *export_table(uint32_t id)
{
    static const struct nvtx_callbacks callbacks = {sizeof callbacks, module_table};
    return id == NVTX_TABLE_OF_CALLBACKS ? &callbacks : NULL;
}

static void load_nvtx(void)
{
    static int loaded;
    const char *path = getenv("NVTX_INJECTION64_PATH");
    if (loaded++ || !path)
        return;
    int (*initialize)(nvtx_get_table);
    *(void **)&initialize = symbol(dlopen(path, RTLD_LAZY), "InitializeInjectionNvtx2");
    if (!initialize(export_table))
        exit(73);
}

/* Answers what the function answers; without an injection library there is none to call. */
static long nvtx(const char *line)
{
    char how[32], name[256];
    if (sscanf(line, "%31s %255[^\n]", how, name) != 2)
        exit(71);
    load_nvtx();
    struct nvtx_attributes attributes = {
        .version = 3, .size = sizeof attributes, .message_type = NVTX_MESSAGE_ASCII, .message = name};
    if (strncmp(how, "registered_", 11) == 0) { /* once per name, as a program would; the handle stands for it */
        attributes.message_type = NVTX_MESSAGE_REGISTERED;
        attributes.message =
            register_string ? ((const char *(*)(void *, const char *))register_string)(NULL, name) : NULL;
        memmove(how, how + 11, strlen(how) - 10);
    }
    if (strcmp(how, "push") == 0)
        return range_push_a ? ((int (*)(const char *))range_push_a)(name) : 1;
    if (strcmp(how, "push_ex") == 0)
        return range_push_ex ? ((int (*)(const struct nvtx_attributes *))range_push_ex)(&attributes) : 1;
    if (strcmp(how, "domain_push") == 0)
        return domain_push_ex ? ((int (*)(void *, const struct nvtx_attributes *))domain_push_ex)(NULL, &attributes) : 1;
    if (strcmp(how, "start") == 0)
        return range_start_a ? (long)((uint64_t(*)(const char *))range_start_a)(name) : 1;
    if (strcmp(how, "start_ex") == 0)
        return range_start_ex ? (long)((uint64_t(*)(const struct nvtx_attributes *))range_start_ex)(&attributes) : 1;
    return domain_start_ex ? (long)((uint64_t(*)(void *, const struct nvtx_attributes *))domain_start_ex)(NULL, &attributes)
                           : 1;
}

/* The child waits for a line, so that the test can look at it, and then leaves in the given way. */
static int fork_and_wait(const char *how)
{
    int ready[2], up[2], status = -1;
    char byte = 0;
    if (pipe(ready) != 0 || pipe(up) != 0)
        return -1;
    pid_t child = fork();
    if (child == 0) {
        if (strcmp(how, "storm") == 0) {
            struct cupti_kernel record = kernel_of(0, "child");
            record.end = now();
            record.start = record.end - 1000;
            for (int i = 0; i < 2000; i++) /* the child's copy of the fake still calls the tracer's callbacks */
                CUPTI(fake_record)(60, &record, sizeof record);
        }
        close(ready[1]);
        if (write(up[1], &byte, 1) < 0 || read(ready[0], &byte, 1) < 0)
            _exit(72);
        if (strcmp(how, "exec") == 0)
            execl("/bin/sleep", "sleep", "30", (char *)NULL);
        if (strcmp(how, "exit") == 0)
            exit(0);
        _exit(0);
    }
    if (read(up[0], &byte, 1) != 1)
        return -1;
    printf("%d\n", (int)child);
    fflush(stdout);
    char line[16];
    if (!fgets(line, sizeof line, stdin))
        return -1;
    close(ready[0]);
    close(ready[1]);
    close(up[0]);
    close(up[1]);
    if (strcmp(how, "exec") == 0) { /* let the test look at the new program */
        printf("running\n");
        fflush(stdout);
        if (!fgets(line, sizeof line, stdin))
            return -1;
        kill(child, 9);
    }
    waitpid(child, &status, 0);
    return status;
}

static void answer(const char *text)
{
    printf("%s\n", text);
    fflush(stdout);
}

static void answer_number(unsigned long long number)
{
    printf("%llu\n", number);
    fflush(stdout);
}

/* 0: unknown. */
static int obey(char *command, char *rest)
{
    unsigned a = 0, b = 0;
    unsigned long long from, to;
    sscanf(rest, "%u %u", &a, &b);
#define IS(word) (strcmp(command, word) == 0)
    if (IS("load")) load();
    else if (IS("init")) init();
    else if (IS("kernel")) kernel(rest);
    else if (IS("copy")) copy(rest);
    else if (IS("graph")) graph(rest);
    else if (IS("overhead")) overhead(rest);
    else if (IS("other")) CUPTI(fake_record)(a, &(uint32_t[8]){8}, 32);
    else if (IS("bulk")) bulk(rest);
    else if (IS("storm")) storm(a, b);
    else if (IS("deliver")) CUPTI(fake_deliver)(a);
    else if (IS("drain")) CUPTI(fake_drain)();
    else if (IS("flush")) CUPTI(cuptiActivityFlushAll)(a);
    else if (IS("busy")) CUPTI(fake_set_busy)(rest);
    else if (IS("enable_status")) CUPTI(fake_set_enable_status)((int)a);
    else if (IS("enable")) CUPTI(cuptiActivityEnable)(a);
    else if (IS("unreadable")) CUPTI(fake_set_unreadable_incomplete)((int)a);
    else if (IS("profiler") && !strcmp(rest, "count")) return answer_number(profiler_buffers), 1;
    else if (IS("profiler")) profile(rest);
    else if (IS("finalize")) CUPTI(cuptiFinalize)();
    else if (IS("step")) step(a);
    else if (IS("nvtx")) return printf("%ld\n", nvtx(rest)), fflush(stdout), 1;
    else if (IS("title")) { /* as setproctitle does: write over what the program was started with */
        char *value = getenv(rest);
        memset(value, 'x', strlen(value));
    }
    else if (IS("dirty")) return answer_number(CUPTI(fake_dirty_buffers)()), 1;
    else if (IS("fork")) return answer_number((unsigned)fork_and_wait(rest)), 1;
    else if (IS("exit")) exit((int)a);
    else if (IS("_exit")) _exit((int)a);
    else if (IS("finish") && sscanf(rest, "%u %llu %llu", &a, &from, &to) == 3) CUPTI(fake_finish)(a, from, to);
    else if (IS("launch")) {
        struct cupti_kernel record = kernel_of(b, "launched");
        return answer_number(CUPTI(fake_launch)(a, &record, sizeof record)), 1;
    } else return 0;
    answer("ok");
    return 1;
}

int main(void)
{
    static char line[8192];
    while (fgets(line, sizeof line, stdin)) {
        line[strcspn(line, "\n")] = '\0';
        char *rest = strchr(line, ' ');
        if (rest)
            *rest++ = '\0';
        if (!obey(line, rest ? rest : line + strlen(line)))
            answer("unknown");
    }
    return 0;
}
