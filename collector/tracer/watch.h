/*
 * Whether another client has taken CUPTI from us. Where its callbacks are shared, the last to register them gets
 * everything and nobody is told: the loss can only be inferred. Pure: it sees numbers and answers.
 */
#ifndef TRUELOAD_TRACER_WATCH_H
#define TRUELOAD_TRACER_WATCH_H

#include "layout.h"

/* What the flush thread knows after a flush. Counts are running totals. */
struct watch_sight {
    uint64_t now;
    uint64_t buffers_moved; /* asked for or come back */
    uint64_t clock_calls;
    uint64_t lent_since;    /* when the oldest buffer still out was asked for; UINT64_MAX: none is */
    int is_shared;          /* TRACER_MODE_SHARED_CALLBACKS */
    int is_detached;        /* CUPTI says that our subscription is gone */
    int is_blind;           /* our clock was never registered: nothing would stir it */
    int is_paused;
};

struct watch {
    uint64_t hold_nanoseconds, quiet_nanoseconds;
    struct watch_sight last;
    uint64_t stirred_at;           /* when anything last happened at all */
    uint64_t clock_only_since;     /* 0: not the case */
    uint32_t clock_only_sights;
};

struct watch_verdict {
    uint32_t lost_reason; /* 0, or why and since when records no longer reach us */
    uint64_t lost_from;
    int is_back;          /* records reach us (again) */
    int rearm;            /* nothing has stirred for long: register anew */
};

void watch_start(struct watch *watch, uint64_t now, uint64_t hold_nanoseconds, uint64_t quiet_nanoseconds);

struct watch_verdict watch_look(struct watch *watch, struct watch_sight sight, int is_lost);

#endif
