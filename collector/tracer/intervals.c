#include "intervals.h"

#include <stddef.h>
#include <stdlib.h>
#include <string.h>

/* Records of one buffer are nearly in order, so that insertion beats a general sort; a heap sort bounds the rest. */
static const uint32_t insertion_moves_per_item = 8;

static int insertion_sort(struct interval *items, uint32_t count)
{
    uint64_t moves = 0, limit = (uint64_t)count * insertion_moves_per_item;
    for (uint32_t i = 1; i < count; i++) {
        struct interval item = items[i];
        uint32_t at = i;
        for (; at > 0 && items[at - 1].start > item.start; at--)
            items[at] = items[at - 1];
        items[at] = item;
        moves += i - at;
        if (moves > limit)
            return 0;
    }
    return 1;
}

static void sift_down(struct interval *items, uint32_t at, uint32_t count)
{
    for (;;) {
        uint32_t child = 2 * at + 1;
        if (child >= count)
            return;
        if (child + 1 < count && items[child + 1].start > items[child].start)
            child++;
        if (items[at].start >= items[child].start)
            return;
        struct interval swapped = items[at];
        items[at] = items[child];
        items[child] = swapped;
        at = child;
    }
}

/* qsort may call malloc, which a callback of CUPTI must not. */
static void heap_sort(struct interval *items, uint32_t count)
{
    for (uint32_t at = count / 2; at-- > 0;)
        sift_down(items, at, count);
    for (uint32_t last = count; last-- > 1;) {
        struct interval largest = items[0];
        items[0] = items[last];
        items[last] = largest;
        sift_down(items, 0, last);
    }
}

/* The first item that could meet an interval beginning at `start`: the first that does not end before it. */
static uint32_t first_not_before(const struct interval_list *list, uint64_t start)
{
    uint32_t low = 0, high = list->count;
    while (low < high) {
        uint32_t middle = low + (high - low) / 2;
        if (list->items[middle].end < start)
            low = middle + 1;
        else
            high = middle;
    }
    return low;
}

/* Interleave from the back, so that no second list is needed; nothing is joined yet. */
static void interleave(struct interval *items, uint32_t from, uint32_t count, const struct interval *more, uint32_t m)
{
    uint32_t old = count, write = count + m;
    while (m > 0)
        items[--write] = old > from && items[old - 1].start > more[m - 1].start ? items[--old] : more[--m];
}

void intervals_merge(struct interval_list *list, struct interval *more, uint32_t more_count)
{
    if (more_count == 0)
        return;
    if (!insertion_sort(more, more_count))
        heap_sort(more, more_count);
    uint32_t from = first_not_before(list, more[0].start);
    interleave(list->items, from, list->count, more, more_count);
    uint32_t total = list->count + more_count;
    uint32_t kept = from;
    for (uint32_t i = from + 1; i < total; i++) {
        struct interval *last = &list->items[kept];
        const struct interval *next = &list->items[i];
        if (next->start > last->end)
            list->items[++kept] = *next;
        else if (next->end > last->end)
            last->end = next->end;
    }
    list->count = kept + 1;
}

void intervals_trim(struct interval_list *list, uint64_t until)
{
    uint32_t gone = 0;
    while (gone < list->count && list->items[gone].end <= until)
        gone++;
    list->count -= gone;
    if (gone)
        memmove(list->items, list->items + gone, list->count * sizeof *list->items);
    if (list->count && list->items[0].start < until)
        list->items[0].start = until;
}
