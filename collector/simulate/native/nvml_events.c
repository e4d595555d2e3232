/* Events of the devices, by waiting for them. */
#include <stdlib.h>
#include <time.h>

#include "standin_call.h"

struct nvml_event_set {
    unsigned long long kinds[STANDIN_DEVICES_MAX];
    uint64_t told[STANDIN_DEVICES_MAX];
    uint64_t looked_at_microseconds; /* the write of the state that nothing more can come of */
};

enum { poll_milliseconds = 250 }; /* a driver wakes its caller; looking more often would cost what nothing real does */
static const unsigned long long supported_kinds = 0x1 | 0x2 | 0x8; /* corrected ECC, uncorrected ECC, Xid */

EXPORT nvml_status nvmlEventSetCreate(nvml_event_set_handle *set)
{
    REQUIRE(set);
    *set = calloc(1, sizeof **set);
    return *set ? NVML_SUCCESS : NVML_MEMORY;
}

EXPORT nvml_status nvmlEventSetFree(nvml_event_set_handle set)
{
    REQUIRE(set);
    free(set);
    return NVML_SUCCESS;
}

EXPORT nvml_status nvmlDeviceGetSupportedEventTypes(nvml_device_handle handle, unsigned long long *kinds)
{
    REQUIRE(kinds);
    ENTER(handle);
    *kinds = supported_kinds;
    return NVML_SUCCESS;
}

EXPORT nvml_status nvmlDeviceRegisterEvents(nvml_device_handle handle, unsigned long long kinds,
                                            nvml_event_set_handle set)
{
    REQUIRE(set);
    struct standin_device device;
    unsigned index;
    nvml_status status = standin_enter(handle, __func__, &device, &index);
    if (status != STANDIN_GO_ON)
        return status;
    if (kinds & ~supported_kinds)
        return NVML_NOT_SUPPORTED;
    set->kinds[index] |= kinds;
    set->told[index] = device.event_count;
    return NVML_SUCCESS;
}

/* Take the next event that nobody was told yet, of any device of the set. */
static int next_event(nvml_event_set_handle set, nvml_event_data *data)
{
    for (unsigned i = 0; i < STANDIN_DEVICES_MAX; i++) {
        struct standin_device device;
        if (!set->kinds[i] || standin_read_device(i, &device) != NVML_SUCCESS)
            continue;
        if (device.event_count > set->told[i] + STANDIN_EVENTS_MAX)
            set->told[i] = device.event_count - STANDIN_EVENTS_MAX;
        while (set->told[i] < device.event_count) {
            const struct standin_event *event = &device.events[set->told[i]++ % STANDIN_EVENTS_MAX];
            if (!(event->type & set->kinds[i]))
                continue;
            *data = (nvml_event_data){standin_handle(i), event->type, event->data, NVML_NO_INSTANCE, NVML_NO_INSTANCE};
            return 1;
        }
    }
    return 0;
}

EXPORT nvml_status nvmlEventSetWait_v2(nvml_event_set_handle set, nvml_event_data *data, unsigned timeout_milliseconds)
{
    REQUIRE(set && data);
    for (unsigned waited = 0;; waited += poll_milliseconds) {
        struct standin_node node;
        nvml_status status = standin_read_node(&node);
        if (status != NVML_SUCCESS)
            return status;
        if (node.written_at_microseconds != set->looked_at_microseconds) {
            if (next_event(set, data))
                return NVML_SUCCESS;
            set->looked_at_microseconds = node.written_at_microseconds;
        }
        if (waited >= timeout_milliseconds)
            return NVML_TIMEOUT;
        nanosleep(&(struct timespec){.tv_nsec = poll_milliseconds * 1000000}, NULL);
    }
}
