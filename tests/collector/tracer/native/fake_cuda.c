/* A stand-in for libcuda.so.1: cuInit loads the injection library as the driver does. */
#include <dlfcn.h>
#include <pthread.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#define CALL __attribute__((visibility("default"))) int

enum { SUCCESS = 0, NOT_INITIALIZED = 3, DEVICES = 16 };

static pthread_once_t once = PTHREAD_ONCE_INIT;
static _Atomic int initialised;

static void inject(void)
{
    const char *path = getenv("CUDA_INJECTION64_PATH");
    void *library = path ? dlopen(path, RTLD_NOW | RTLD_LOCAL) : NULL;
    void *found = library ? dlsym(library, "InitializeInjection") : NULL;
    int (*initialize)(void);
    memcpy(&initialize, &found, sizeof found);
    if (found)
        initialize();
    initialised = 1;
}

CALL cuInit(unsigned flags)
{
    (void)flags;
    pthread_once(&once, inject);
    return SUCCESS;
}

CALL cuDriverGetVersion(int *version)
{
    const char *told = getenv("FAKE_CUDA_DRIVER_VERSION");
    *version = told ? atoi(told) : 13000;
    return SUCCESS;
}

CALL cuDeviceGet(int *device, int ordinal)
{
    *device = ordinal;
    return !initialised ? NOT_INITIALIZED : ordinal < DEVICES ? SUCCESS : 101;
}

CALL cuDeviceGetUuid_v2(uint8_t *uuid, int device)
{
    for (int i = 0; i < 16; i++)
        uuid[i] = (uint8_t)(device * 16 + i);
    return initialised ? SUCCESS : NOT_INITIALIZED;
}

CALL cuDeviceGetName(char *name, int size, int device)
{
    static const char told[] = "Stand-in GPU";
    if (!initialised || device >= DEVICES || size < (int)sizeof told)
        return 1;
    memcpy(name, told, sizeof told);
    return SUCCESS;
}

/* As much as a program needs to launch a kernel that does nothing. */
CALL cuDevicePrimaryCtxRetain(void **context, int device)
{
    (void)device;
    *context = &initialised;
    return initialised ? SUCCESS : NOT_INITIALIZED;
}

CALL cuCtxSetCurrent(void *context) { return context ? SUCCESS : 201; }

CALL cuModuleLoadData(void **module, const void *image)
{
    *module = &once;
    return strstr(image, ".entry empty()") ? SUCCESS : 218;
}

CALL cuModuleGetFunction(void **function, void *module, const char *name)
{
    *function = module;
    return strcmp(name, "empty") == 0 ? SUCCESS : 500;
}

CALL cuLaunchKernel(void *function, unsigned grid_x, unsigned grid_y, unsigned grid_z, unsigned block_x,
                    unsigned block_y, unsigned block_z, unsigned shared_memory, void *stream, void **parameters,
                    void **extra)
{
    (void)shared_memory;
    (void)stream;
    (void)parameters;
    (void)extra;
    return function && grid_x * grid_y * grid_z * block_x * block_y * block_z == 1 ? SUCCESS : 1;
}

CALL cuCtxSynchronize(void) { return SUCCESS; }
