/* CUPTI, found at run time, behind the few things the tracer does with it. */
#ifndef TRUELOAD_TRACER_CUPTI_H
#define TRUELOAD_TRACER_CUPTI_H

#include "cupti_abi.h"
#include "layout.h"

/* What CUPTI calls. All may run on any thread, at any time after cupti_arm. */
struct cupti_client {
    cupti_clock clock;
    uint8_t *(*lend)(size_t *size);
    void (*take)(uint8_t *buffer, size_t valid_size);
};

/* Why something did not work: a step of layout.h and the status that CUPTI (or errno, for the thread) gave. */
struct cupti_problem {
    enum tracer_step step;
    int32_t code;
};

/* Find libcupti: the one that is already loaded, else `path`, else by the loader's search. 0: see problem. */
int cupti_load(const char *path, const struct cupti_client *client, struct cupti_problem *problem);

/* Register and enable everything, in the best mode that this CUPTI and driver allow. With `take_over` shared callbacks
 * are registered though somebody else's may be in place. 0: see problem. */
int cupti_arm(int graph_level, int take_over, struct cupti_problem *problem);

/* Only in TRACER_MODE_SUBSCRIBER: stop and resume our own records; nobody else's are touched. 0 when that failed. */
int cupti_pause(void);
int cupti_resume(struct cupti_problem *problem);

/* Let go of a subscription that is gone, so that cupti_arm makes a new one. */
void cupti_forget(void);

enum tracer_mode cupti_mode(void);
uint32_t cupti_version(void);

/* Deliver buffers whose records are all complete, or with `forced` all of them. May block for a while. */
void cupti_flush(int forced);

cupti_status cupti_next_record(uint8_t *buffer, size_t valid_size, struct cupti_record **record);

/* Records that CUPTI dropped since the last call. -1: our subscription is gone. */
int64_t cupti_take_dropped(void);

/* libcuda, which loaded us. 0: not known (not loaded, or not yet initialised). */
uint32_t cuda_driver_version(void);
int cuda_device_uuid(uint32_t ordinal, uint8_t uuid[16]);

#endif
