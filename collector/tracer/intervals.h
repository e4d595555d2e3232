/* Sorted, disjoint lists of half-open intervals, in fixed memory. */
#ifndef TRUELOAD_TRACER_INTERVALS_H
#define TRUELOAD_TRACER_INTERVALS_H

#include <stdint.h>

struct interval {
    uint64_t start, end;
};

/* No two items overlap or touch. The owner sees to it that there is room. */
struct interval_list {
    struct interval *items;
    uint32_t count;
};

/* Take an interval that does not start before the last one, as almost all do. 0: it does; use intervals_merge. */
static inline int intervals_append(struct interval_list *list, uint64_t start, uint64_t end)
{
    if (list->count) {
        struct interval *last = &list->items[list->count - 1];
        if (start < last->start)
            return 0;
        if (start <= last->end) {
            if (end > last->end)
                last->end = end;
            return 1;
        }
    }
    list->items[list->count++] = (struct interval){start, end};
    return 1;
}

/* Merge any intervals, in any order, overlapping or not; `more` is sorted in place. O(m log m + the tail they touch). */
void intervals_merge(struct interval_list *list, struct interval *more, uint32_t more_count);

/* Forget what lies before `until`; cut what straddles it. */
void intervals_trim(struct interval_list *list, uint64_t until);

#endif
