/* What every exported call on a device begins with. */
#ifndef TRUELOAD_STANDIN_CALL_H
#define TRUELOAD_STANDIN_CALL_H

#include <stddef.h>

#include "standin_state.h"

#define EXPORT __attribute__((visibility("default")))

/* Not an NVML code: the call has no fault and answers from the state. A fault may well be NVML_SUCCESS (0), for real
 * drivers have answered "success" with nothing filled in. */
#define STANDIN_GO_ON (-1)

/* Nor is this: the call does not return while the device has the fault. */
#define STANDIN_BLOCK (-2)

/* Read the device at this index for the call of this name, or say what the call shall return at once. */
nvml_status standin_enter_index(unsigned index, const char *call, struct standin_device *device);

/* The handle of the device at this index. */
nvml_device_handle standin_handle(unsigned index);

/* The same for a handle; index may be NULL. */
nvml_status standin_enter(nvml_device_handle handle, const char *call, struct standin_device *device, unsigned *index);

/* Declare "device" and fill it with the present state, or return from the exported call. */
#define ENTER(handle)                                                          \
    struct standin_device device;                                              \
    do {                                                                       \
        nvml_status entered = standin_enter(handle, __func__, &device, NULL);  \
        if (entered != STANDIN_GO_ON)                                          \
            return entered;                                                    \
    } while (0)

#define REQUIRE(pointer)                                                       \
    do {                                                                       \
        if (!(pointer))                                                        \
            return NVML_INVALID_ARGUMENT;                                      \
    } while (0)

#endif
