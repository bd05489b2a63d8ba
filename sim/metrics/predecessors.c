#include "sim/metrics/predecessors.h"

#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include "sim/base/alloc.h"
#include "sim/metrics/export_private.h"
#include "sim/plan/dependencies.h"

#define NOWHERE SIZE_MAX

struct sp_predecessors {
    const sp_timeline *timeline;
    const sp_step_costs *costs; // NULL: transfers need no time
    sp_plan_items items;
    size_t *rank_of;           // [dp * pp]: the timeline's entry
    size_t *place;             // [items]: in its list of the timeline, or NOWHERE
    size_t *item;              // [of all lists, rank after rank]: of each place
    size_t (*first)[SP_LISTS]; // [timeline ranks]: where a rank's lists begin there
    sp_arena work;
};

// Numbers the ranks of the timeline; data-parallel ranks without an entry do not run.
static const uint8_t *number_ranks(sp_predecessors *p, bool *shares)
{
    const sp_layout *layout = &p->timeline->plan->layout;
    uint8_t *runs = sp_arena_take(&p->work, (size_t)layout->dp, sizeof *runs);
    size_t places = 0;
    p->rank_of =
        sp_arena_take(&p->work, (size_t)layout->dp * (size_t)layout->pp, sizeof *p->rank_of);
    p->first = sp_arena_take(&p->work, p->timeline->rank_count, sizeof *p->first);
    *shares = false;
    for (size_t r = 0; r < p->timeline->rank_count; r++) {
        const sp_rank_timeline *rank = &p->timeline->ranks[r];
        p->rank_of[rank->dp * layout->pp + rank->pp] = r;
        runs[rank->dp] = 1;
        p->first[r][SP_LIST_ACTIONS] = places;
        p->first[r][SP_LIST_SHARES] = places + rank->count;
        p->first[r][SP_LIST_COPIES] = places + rank->count + rank->share_count;
        places += rank->count + rank->share_count + rank->copy_count;
        *shares = *shares || rank->share_count > 0;
    }
    return runs;
}

static sp_timeline_list list_of(const sp_plan_item *plan_item)
{
    return plan_item->share > 0                   ? SP_LIST_SHARES
           : sp_action_is_copy(plan_item->action) ? SP_LIST_COPIES
                                                  : SP_LIST_ACTIONS;
}

// Actions and shares stand in the timeline in the order of their rank's list, copies by their
// starts.
static void place_items(sp_predecessors *p, size_t r)
{
    const sp_rank_timeline *rank = &p->timeline->ranks[r];
    const size_t counts[SP_LISTS] = {[SP_LIST_ACTIONS] = rank->count,
                                     [SP_LIST_SHARES] = rank->share_count,
                                     [SP_LIST_COPIES] = rank->copy_count};
    const size_t *first = &p->items.first[rank->dp * p->items.plan->layout.pp + rank->pp];
    size_t done[SP_LISTS] = {0};
    for (size_t c = 0; c < rank->copy_count; c++) {
        sp_action action = rank->copies[c].action;
        int vstage = sp_depends_vstage(&p->items.index, rank->pp, action);
        p->place[sp_plan_items_find(&p->items, action, rank->dp, vstage) - 1] = c;
    }
    for (size_t v = first[0]; v < first[1]; v++) {
        sp_timeline_list list = list_of(&p->items.items[v]);
        if (list != SP_LIST_COPIES && done[list] < counts[list]) {
            p->place[v] = done[list]++;
        }
        if (p->place[v] != NOWHERE) {
            p->item[p->first[r][list] + p->place[v]] = v;
        }
    }
}

sp_predecessors *sp_predecessors_new(const sp_timeline *timeline, const sp_step_costs *costs)
{
    bool shares;
    sp_predecessors *p = sp_calloc(1, sizeof *p);
    p->timeline = timeline;
    p->costs = costs;
    const uint8_t *runs = number_ranks(p, &shares);
    sp_plan_items_init(&p->items, timeline->plan, runs, shares, NULL);
    p->items.joint_inputs = timeline->varies;
    p->place = sp_arena_take(&p->work, p->items.count, sizeof *p->place);
    p->item = sp_arena_take(&p->work, p->items.count, sizeof *p->item);
    for (size_t v = 0; v < p->items.count; v++) {
        p->place[v] = NOWHERE;
    }
    for (size_t r = 0; r < timeline->rank_count; r++) {
        place_items(p, r);
    }
    return p;
}

void sp_predecessors_free(sp_predecessors *p)
{
    if (p != NULL) {
        sp_plan_items_fini(&p->items);
        sp_arena_free(&p->work);
        sp_free(p);
    }
}

const sp_span *sp_timeline_item_span(const sp_timeline *timeline, sp_timeline_item item)
{
    const sp_rank_timeline *rank = &timeline->ranks[item.rank];
    return item.list == SP_LIST_ACTIONS  ? &rank->spans[item.index]
           : item.list == SP_LIST_COPIES ? &rank->copies[item.index]
                                         : &rank->shares[item.index].span;
}

void sp_timeline_item_name(const sp_timeline *timeline, sp_timeline_item item,
                           char name[SP_ITEM_NAME])
{
    sp_action action = sp_timeline_item_span(timeline, item)->action;
    sp_action_name(action, timeline->plan->layout.chunks, name);
    if (item.list == SP_LIST_SHARES) {
        sp_share_part part = timeline->ranks[item.rank].shares[item.index].part;
        size_t used = strlen(name);
        snprintf(name + used, SP_ITEM_NAME - used, " %s",
                 part == SP_SHARE_HEAD || part == SP_SHARE_HEAD_BACKWARD ? "head" : "embedding");
    }
}

// ---- what an item waits for ----

typedef struct search {
    const sp_predecessors *p;
    int64_t start_ns;  // of what waits
    int64_t latest_ns; // that it had something, so far
    int rank;          // of that, as ranked below
    sp_timeline_item *found;
    bool any;
} search;

static sp_timeline_item item_at(const sp_predecessors *p, size_t v)
{
    const sp_plan_item *plan_item = &p->items.items[v];
    return (sp_timeline_item){
        .rank = p->rank_of[plan_item->dp * p->items.plan->layout.pp + plan_item->pp],
        .index = p->place[v],
        .list = list_of(plan_item)};
}

// How long what an action gave was under way to pipeline rank `to`; of a pair from its end on.
static int64_t transfer_ns(const void *context, size_t v, int to)
{
    const sp_predecessors *p = context;
    const sp_plan_item *plan_item = &p->items.items[v];
    sp_timeline_item item = item_at(p, v);
    const sp_rank_timeline *rank = &p->timeline->ranks[item.rank];
    const sp_span *span = &rank->spans[item.index];
    if (rank->there_ns != NULL && rank->there_ns[item.index] != SP_NOT_YET) {
        return rank->there_ns[item.index] - span[span->action.with_next].end_ns;
    }
    return p->costs == NULL || plan_item->pp == to
               ? 0
               : sp_step_costs_p2p_ns(p->costs, sp_action_is_backward(plan_item->action),
                                      (size_t)plan_item->action.pack, plan_item->pp, to,
                                      p->items.plan->layout.pp);
}

// Ranks what an item had at the same time, of which the first of these counts: the order of its
// rank, the other ranks of its pack, copies back, what it reads from other virtual stages, shares.
static int rank_of_wait(const sp_predecessors *p, size_t v, const sp_dependency *d)
{
    const sp_plan_item *plan_item = &p->items.items[v];
    const sp_plan_item *from = &p->items.items[d->item];
    bool copies = plan_item->share == 0 && sp_action_is_copy(plan_item->action);
    if (plan_item->dp != from->dp) {
        return 1;
    }
    switch (d->reason) {
    case SP_WAIT_ORDER:
        return copies && list_of(from) == SP_LIST_ACTIONS ? 2 : 0;
    case SP_WAIT_COPY_OUT:
        return copies ? 1 : 0;
    case SP_WAIT_ACTIVATIONS:
        return 1;
    case SP_WAIT_COPY_BACK:
        return 2;
    case SP_WAIT_INPUT:
    case SP_WAIT_GRADIENT:
        return 3;
    default:
        return 4;
    }
}

// On a measured timeline a start may lie before the end of what it should have waited for, and a
// transfer need less time than its cost says.
static void consider(void *context, size_t v, const sp_dependency *d)
{
    search *s = context;
    const sp_predecessors *p = s->p;
    // The forwards that an action reads its rank ran before what stands just before it.
    bool is_told =
        d->reason != SP_WAIT_ACTIVATIONS || list_of(&p->items.items[v]) == SP_LIST_COPIES;
    if (!is_told || p->place[d->item] == NOWHERE) {
        return;
    }
    bool lags = d->lag == SP_LAG_TRANSFER || (p->costs != NULL && p->costs->blocking_transfers);
    int64_t lag_ns = lags ? sp_dependency_lag_ns(&p->items, v, d, transfer_ns, p) : 0;
    sp_timeline_item item = item_at(p, d->item);
    int64_t end_ns = sp_timeline_item_span(p->timeline, item)->end_ns;
    int64_t had_ns = end_ns + lag_ns < s->start_ns ? end_ns + lag_ns : s->start_ns;
    int rank = rank_of_wait(p, v, d);
    bool is_later = had_ns > s->latest_ns || (had_ns == s->latest_ns && rank < s->rank);
    if (end_ns <= s->start_ns && (!s->any || is_later)) {
        s->any = true;
        s->latest_ns = had_ns;
        s->rank = rank;
        *s->found = item;
    }
}

bool sp_predecessor(const sp_predecessors *p, sp_timeline_item item, sp_timeline_item *before)
{
    size_t v = p->item[p->first[item.rank][item.list] + item.index];
    search s = {
        .p = p, .start_ns = sp_timeline_item_span(p->timeline, item)->start_ns, .found = before};
    sp_dependencies(&p->items, v, consider, &s);
    return s.any;
}

const char *sp_waited_for(const sp_predecessors *p, sp_timeline_item item, char text[SP_WAITED_FOR])
{
    sp_timeline_item before;
    char name[SP_ITEM_NAME];
    char label[SP_I_LABEL];
    if (!sp_predecessor(p, item, &before) ||
        (before.rank == item.rank && before.list != SP_LIST_COPIES)) {
        return NULL;
    }
    sp_timeline_item_name(p->timeline, before, name);
    sp_i_export_label(&p->timeline->ranks[before.rank], label);
    snprintf(text, SP_WAITED_FOR, "%s of %s", name, label);
    return text;
}

// ---- the critical path ----

// Finds what ends last: an action or a share of a vocabulary.
static bool find_last(const sp_timeline *timeline, sp_timeline_item *last)
{
    bool any = false;
    for (size_t r = 0; r < timeline->rank_count; r++) {
        const sp_rank_timeline *rank = &timeline->ranks[r];
        const sp_timeline_item ends[] = {
            {.rank = r, .index = rank->count - 1, .list = SP_LIST_ACTIONS},
            {.rank = r, .index = rank->share_count - 1, .list = SP_LIST_SHARES}};
        for (int e = 0; e < 2; e++) {
            size_t count = e == 0 ? rank->count : rank->share_count;
            if (count > 0 && (!any || sp_timeline_item_span(timeline, ends[e])->end_ns >
                                          sp_timeline_item_span(timeline, *last)->end_ns)) {
                *last = ends[e];
                any = true;
            }
        }
    }
    return any;
}

void sp_critical_path(const sp_predecessors *p, sp_timeline_item **items, size_t *count)
{
    size_t capacity = 0;
    sp_timeline_item at;
    *items = NULL;
    *count = 0;
    for (bool more = find_last(p->timeline, &at); more;) {
        *SP_ADDED(*items, capacity, *count) = at;
        more = sp_predecessor(p, at, &at);
    }
    for (size_t i = 0; i < *count / 2; i++) {
        sp_timeline_item swapped = (*items)[i];
        (*items)[i] = (*items)[*count - 1 - i];
        (*items)[*count - 1 - i] = swapped;
    }
}
