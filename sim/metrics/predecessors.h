// Why each action of a timeline began when it did: what it waited for last, by the rules of a plan
// (sim/plan/depends.h), and the critical path, which is the chain of these from the last end back.
#ifndef SLIMPACK_SIM_METRICS_PREDECESSORS_H
#define SLIMPACK_SIM_METRICS_PREDECESSORS_H

#include "sim/cost/step_costs.h"
#include "sim/plan/timeline.h"

typedef enum sp_timeline_list {
    SP_LIST_ACTIONS, // sp_rank_timeline.spans
    SP_LIST_SHARES,
    SP_LIST_COPIES,
    SP_LISTS
} sp_timeline_list;

// Where a span stands: the entry of the timeline's ranks, and the place in one of its lists.
typedef struct sp_timeline_item {
    size_t rank, index;
    sp_timeline_list list;
} sp_timeline_item;

SP_API const sp_span *sp_timeline_item_span(const sp_timeline *timeline, sp_timeline_item item);

enum { SP_ITEM_NAME = 48, SP_WAITED_FOR = 128 };

static inline bool sp_share_is_of_head(sp_share_part part)
{
    return part == SP_SHARE_HEAD || part == SP_SHARE_HEAD_BACKWARD;
}

// The action's name, as in plan.json; of a share with the end of the model: "F3 head".
SP_API void sp_timeline_item_name(const sp_timeline *timeline, sp_timeline_item item,
                                  char name[SP_ITEM_NAME]);

typedef struct sp_predecessors sp_predecessors;

// Finds the predecessors in a timeline of a whole plan, which must outlive them. So must the costs,
// which say how long transfers take: those that the timeline was simulated with, or for a measured
// one those that were predicted. With NULL transfers are taken to need no time. O(actions) time and
// memory.
SP_API sp_predecessors *sp_predecessors_new(const sp_timeline *timeline,
                                            const sp_step_costs *costs);
SP_API void sp_predecessors_free(sp_predecessors *predecessors);

// Finds which of all that an item waits for came last (its end, and the transfer from there): the
// earlier work of its own rank where nothing else came later. False: the item waits for nothing.
// O(ranks and slices of its pack).
SP_API bool sp_predecessor(const sp_predecessors *predecessors, sp_timeline_item item,
                           sp_timeline_item *before);

// In words what an item waited for last, "F3 of dp0 pp1", in `text`; NULL where that is earlier
// work of its own rank, other than a copy, or nothing.
SP_API const char *sp_waited_for(const sp_predecessors *predecessors, sp_timeline_item item,
                                 char text[SP_WAITED_FOR]);

// From the first to the last end; *items is freed with sp_free.
void sp_critical_path(const sp_predecessors *predecessors, sp_timeline_item **items, size_t *count);

#endif
