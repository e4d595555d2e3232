/*
 * The part of NVTX 3's binary interface that the tracer uses, declared here from its documented layout. A program that
 * uses NVTX asks the library named by NVTX_INJECTION64_PATH, at its first call, to fill in tables of functions.
 */
#ifndef TRUELOAD_NVTX_ABI_H
#define TRUELOAD_NVTX_ABI_H

#include <stddef.h>
#include <stdint.h>

enum { NVTX_TABLE_OF_CALLBACKS = 1 };
enum { NVTX_MODULE_CORE = 1, NVTX_MODULE_CORE2 = 5 };

/* Places in the table of each module. */
enum {
    NVTX_CORE_RANGE_START_EX = 4,
    NVTX_CORE_RANGE_START_A = 5,
    NVTX_CORE_RANGE_PUSH_EX = 8,
    NVTX_CORE_RANGE_PUSH_A = 9,
};
enum {
    NVTX_CORE2_DOMAIN_RANGE_START_EX = 2,
    NVTX_CORE2_DOMAIN_RANGE_PUSH_EX = 4,
    NVTX_CORE2_DOMAIN_REGISTER_STRING_A = 10,
};

/* A registered message is the handle that the registration answered; NULL when no tool is there. */
enum { NVTX_MESSAGE_ASCII = 1, NVTX_MESSAGE_REGISTERED = 3 };

/* What a push answers when nobody keeps count of the depth. */
enum { NVTX_NO_PUSH_POP_TRACKING = -2 };

struct nvtx_attributes {
    uint16_t version, size;
    uint32_t category;
    int32_t color_type;
    uint32_t color;
    int32_t payload_type, reserved;
    uint64_t payload;
    int32_t message_type;
    const char *message; /* or the handle */
};

_Static_assert(offsetof(struct nvtx_attributes, payload) == 24, "NVTX's layout");
_Static_assert(offsetof(struct nvtx_attributes, message_type) == 32, "NVTX's layout");
_Static_assert(offsetof(struct nvtx_attributes, message) == 40, "NVTX's layout");

typedef void (*nvtx_function)(void);

struct nvtx_callbacks {
    size_t struct_size;
    int (*get_module_table)(int module, nvtx_function ***table, unsigned *size);
};

typedef const void *(*nvtx_get_table)(uint32_t id);

#endif
