#include "watch.h"

/* A buffer can be asked for just after a look at the counts, so that one look proves nothing. */
static const uint32_t clock_only_sights_enough = 3;

/* Registering anew while nothing at all happens costs nothing if we were alone, but takes the records from a profiler
 * that pauses; so it waits longer than after a loss that was seen. */
static const uint64_t silence_factor = 4;

void watch_start(struct watch *watch, uint64_t now, uint64_t hold_nanoseconds, uint64_t quiet_nanoseconds)
{
    *watch = (struct watch){
        .hold_nanoseconds = hold_nanoseconds,
        .quiet_nanoseconds = quiet_nanoseconds,
        .last = {.now = now, .lent_since = UINT64_MAX},
        .stirred_at = now,
    };
}

/* CUPTI asks a registered clock for the time when it finishes records. If it does so while none of our buffers is out
 * and none is asked for, the records go to somebody else. */
static void look_at_clock(struct watch *watch, const struct watch_sight *sight, int moved, int ticked)
{
    if (!sight->is_shared || moved || sight->lent_since != UINT64_MAX) {
        watch->clock_only_sights = 0;
        return;
    }
    if (!ticked)
        return;
    if (watch->clock_only_sights++ == 0)
        watch->clock_only_since = watch->last.now;
}

static void look_for_loss(const struct watch *watch, const struct watch_sight *sight, struct watch_verdict *verdict)
{
    if (sight->is_detached)
        *verdict = (struct watch_verdict){.lost_reason = TRACER_LOST_DETACHED, .lost_from = watch->last.now};
    else if (sight->lent_since < sight->now && sight->now - sight->lent_since > watch->hold_nanoseconds)
        *verdict = (struct watch_verdict){.lost_reason = TRACER_LOST_BUFFER_KEPT, .lost_from = sight->lent_since};
    else if (watch->clock_only_sights >= clock_only_sights_enough)
        *verdict = (struct watch_verdict){.lost_reason = TRACER_LOST_CLOCK_ONLY, .lost_from = watch->clock_only_since};
}

struct watch_verdict watch_look(struct watch *watch, struct watch_sight sight, int is_lost)
{
    int moved = sight.buffers_moved != watch->last.buffers_moved;
    int ticked = sight.clock_calls != watch->last.clock_calls;
    struct watch_verdict verdict = {0};
    look_at_clock(watch, &sight, moved, ticked);
    look_for_loss(watch, &sight, &verdict);
    if (moved || ticked)
        watch->stirred_at = sight.now;
    uint64_t quiet_for = sight.now - watch->stirred_at;
    if (is_lost) {
        verdict.is_back = moved && verdict.lost_reason == 0;
        uint64_t enough = watch->quiet_nanoseconds * (sight.is_blind ? silence_factor : 1);
        verdict.rearm = !verdict.is_back && quiet_for >= enough;
    } else if (sight.is_shared && !sight.is_paused && sight.lent_since == UINT64_MAX) {
        verdict.rearm = verdict.lost_reason == 0 && quiet_for >= silence_factor * watch->quiet_nanoseconds;
    }
    if (verdict.rearm) {
        watch->stirred_at = sight.now; /* and not again before it has been quiet for as long once more */
        watch->clock_only_sights = 0;
    }
    watch->last = sight;
    return verdict;
}
