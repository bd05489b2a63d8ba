// Where a timeline has each action, share and copy that a plan names, and from that what each of
// them waited for.
#include "sim/metrics/predecessors.h"

#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include "sim/base/alloc.h"
#include "sim/metrics/export_private.h"
#include "sim/plan/depends.h"

enum { SHARE_TABLES = 8 }; // a part, first and again

struct sp_predecessors {
    const sp_timeline *timeline;
    const sp_step_costs *costs; // NULL: transfers need no time
    sp_depends depends;
    size_t *rank_of;                 // [dp * pp]: the timeline's entry
    int64_t *at[SP_ACTION_KINDS];    // by entry of `depends`: its place; I in that of B; NULL: none
    int64_t *share_at[SHARE_TABLES]; // [slot * pp]: a rank's share; NULL: none
    size_t *first_span, *first_copy; // [timeline ranks]: where a rank's part of the tables begins
    int64_t *leaving;                // [spans]: the copy that what follows waits for; NULL: none
    int64_t *copy_before;            // [copies]: the one before it in its direction
    int64_t *copy_after;             // [copies]: the action after which it is issued
    sp_arena work;
};

static sp_action_kind table_of(sp_action action)
{
    return action.kind == SP_ACTION_I ? SP_ACTION_B : (sp_action_kind)action.kind;
}

static size_t entry_of(const sp_predecessors *p, const sp_plan_place *place)
{
    int vstage = sp_depends_vstage(&p->depends, place->pp, place->action);
    return sp_depends_entry(&p->depends, place->action, place->dp, vstage);
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

// ---- the tables of what a timeline has ----

enum { LAST_OUT = 0, LAST_BACK = 1 };

static void note(const sp_predecessors *p, const sp_rank_timeline *rank, const sp_span *span,
                 size_t index)
{
    const sp_plan_place place = {.dp = rank->dp, .pp = rank->pp, .action = span->action};
    int64_t *table = p->at[table_of(span->action)];
    if (table != NULL) {
        table[entry_of(p, &place)] = (int64_t)index;
    }
}

static size_t share_table(const sp_share_span *share)
{
    return 2 * (size_t)share->part + (share->span.action.kind == SP_ACTION_R);
}

static void note_shares(const sp_predecessors *p, const sp_rank_timeline *rank)
{
    size_t pp = (size_t)p->depends.plan->layout.pp;
    for (size_t i = 0; i < rank->share_count; i++) {
        const sp_share_span *share = &rank->shares[i];
        size_t slot = sp_depends_slot(&p->depends, share->span.action, rank->dp);
        p->share_at[share_table(share)][slot * pp + (size_t)rank->pp] = (int64_t)i;
    }
}

// The places of a rank's copies among its actions, from the plan's list.
static void note_copies(const sp_predecessors *p, size_t r)
{
    const sp_rank_timeline *rank = &p->timeline->ranks[r];
    const sp_stage_plan *stage = sp_plan_stage(p->depends.plan, rank->dp, rank->pp);
    int64_t last[2] = {SP_NOT_YET, SP_NOT_YET};
    int64_t spans = 0;
    for (size_t a = 0; a < stage->count; a++) {
        const sp_plan_place place = {.dp = rank->dp, .pp = rank->pp, .action = stage->actions[a]};
        if (!sp_action_is_copy(place.action)) {
            p->leaving[p->first_span[r] + (size_t)spans++] =
                place.action.kind == SP_ACTION_F ? last[LAST_OUT] : SP_NOT_YET;
            continue;
        }
        int64_t copy = p->at[place.action.kind][entry_of(p, &place)];
        int64_t *before = &last[place.action.kind == SP_ACTION_O ? LAST_OUT : LAST_BACK];
        p->copy_before[p->first_copy[r] + (size_t)copy] = *before;
        p->copy_after[p->first_copy[r] + (size_t)copy] = spans - 1;
        *before = copy;
    }
}

static void fill_tables(const sp_predecessors *p)
{
    for (size_t r = 0; r < p->timeline->rank_count; r++) {
        const sp_rank_timeline *rank = &p->timeline->ranks[r];
        for (size_t i = 0; i < rank->count; i++) {
            note(p, rank, &rank->spans[i], i);
        }
        for (size_t i = 0; i < rank->copy_count; i++) {
            note(p, rank, &rank->copies[i], i);
        }
        note_shares(p, rank);
        if (p->leaving != NULL) {
            note_copies(p, r);
        }
    }
}

// The kinds of what ran, as bits.
static unsigned kinds_of(const sp_timeline *timeline)
{
    unsigned kinds = 0;
    for (size_t r = 0; r < timeline->rank_count; r++) {
        const sp_rank_timeline *rank = &timeline->ranks[r];
        for (size_t i = 0; i < rank->count; i++) {
            kinds |= 1u << table_of(rank->spans[i].action);
        }
        for (size_t i = 0; i < rank->copy_count; i++) {
            kinds |= 1u << rank->copies[i].action.kind;
        }
    }
    return kinds & ~(1u << SP_ACTION_W); // nothing waits for weight gradients
}

static void make_tables(sp_predecessors *p, size_t spans, size_t copies, size_t shares)
{
    unsigned kinds = kinds_of(p->timeline);
    size_t pp = (size_t)p->depends.plan->layout.pp;
    for (int k = 0; k < SP_ACTION_KINDS; k++) {
        if ((kinds & 1u << k) != 0) {
            p->at[k] = sp_depends_timestamps(&p->depends, k == SP_ACTION_B);
        }
    }
    for (size_t t = 0; t < SHARE_TABLES && shares > 0; t++) {
        size_t part = t / 2;
        bool backward = part == SP_SHARE_EMBEDDING_BACKWARD || part == SP_SHARE_HEAD_BACKWARD;
        size_t count = p->depends.slots[backward] * pp;
        p->share_at[t] = sp_arena_take(&p->work, count, sizeof *p->share_at[t]);
        for (size_t i = 0; i < count; i++) {
            p->share_at[t][i] = SP_NOT_YET;
        }
    }
    if (copies > 0) {
        p->leaving = sp_arena_take(&p->work, spans, sizeof *p->leaving);
        p->copy_before = sp_arena_take(&p->work, copies, sizeof *p->copy_before);
        p->copy_after = sp_arena_take(&p->work, copies, sizeof *p->copy_after);
    }
}

// Numbers the ranks of the timeline; data-parallel ranks without an entry do not run.
static void make_ranks(sp_predecessors *p, uint8_t **runs, size_t *spans, size_t *copies,
                       size_t *shares)
{
    const sp_layout *layout = &p->timeline->plan->layout;
    size_t count = p->timeline->rank_count;
    *runs = sp_arena_take(&p->work, (size_t)layout->dp, sizeof **runs);
    p->rank_of =
        sp_arena_take(&p->work, (size_t)layout->dp * (size_t)layout->pp, sizeof *p->rank_of);
    p->first_span = sp_arena_take(&p->work, count, sizeof *p->first_span);
    p->first_copy = sp_arena_take(&p->work, count, sizeof *p->first_copy);
    for (size_t r = 0; r < count; r++) {
        const sp_rank_timeline *rank = &p->timeline->ranks[r];
        p->rank_of[(size_t)rank->dp * (size_t)layout->pp + (size_t)rank->pp] = r;
        (*runs)[rank->dp] = 1;
        p->first_span[r] = *spans;
        p->first_copy[r] = *copies;
        *spans += rank->count;
        *copies += rank->copy_count;
        *shares += rank->share_count;
    }
}

sp_predecessors *sp_predecessors_new(const sp_timeline *timeline, const sp_step_costs *costs)
{
    uint8_t *runs;
    size_t spans = 0;
    size_t copies = 0;
    size_t shares = 0;
    sp_predecessors *p = sp_calloc(1, sizeof *p);
    p->timeline = timeline;
    p->costs = costs;
    make_ranks(p, &runs, &spans, &copies, &shares);
    sp_depends_init(&p->depends, timeline->plan, runs, NULL);
    make_tables(p, spans, copies, shares);
    fill_tables(p);
    return p;
}

void sp_predecessors_free(sp_predecessors *p)
{
    if (p == NULL) {
        return;
    }
    for (int k = 0; k < SP_ACTION_KINDS; k++) {
        sp_free(p->at[k]);
    }
    sp_depends_fini(&p->depends);
    sp_arena_free(&p->work);
    sp_free(p);
}

// ---- what an item waits for ----

typedef struct search {
    const sp_predecessors *p;
    int64_t start_ns;  // of what waits
    int64_t latest_ns; // that it had something, so far
    sp_timeline_item *found;
    bool any;
} search;

// On a measured timeline a start may lie before the end of what it should have waited for, and a
// transfer need less time than its cost says.
static void consider(search *s, sp_timeline_item item, int64_t lag_ns)
{
    int64_t end_ns = sp_timeline_item_span(s->p->timeline, item)->end_ns;
    int64_t had_ns = end_ns + lag_ns < s->start_ns ? end_ns + lag_ns : s->start_ns;
    if (end_ns <= s->start_ns && (!s->any || had_ns > s->latest_ns)) {
        s->any = true;
        s->latest_ns = had_ns;
        *s->found = item;
    }
}

static size_t rank_at(const sp_predecessors *p, int dp, int pp)
{
    return p->rank_of[(size_t)dp * (size_t)p->depends.plan->layout.pp + (size_t)pp];
}

static bool find(const sp_predecessors *p, const sp_plan_place *place, sp_timeline_item *item)
{
    const int64_t *table = p->at[table_of(place->action)];
    int64_t at = table != NULL ? table[entry_of(p, place)] : SP_NOT_YET;
    if (at == SP_NOT_YET) {
        return false;
    }
    *item = (sp_timeline_item){.rank = rank_at(p, place->dp, place->pp),
                               .index = (size_t)at,
                               .list = sp_action_is_copy(place->action) ? SP_LIST_COPIES
                                                                        : SP_LIST_ACTIONS};
    return true;
}

// An action's output is there at its end, that of a pair at the end of the second.
static void consider_action(search *s, const sp_plan_place *place, int64_t lag_ns)
{
    sp_timeline_item item;
    if (find(s->p, place, &item)) {
        const sp_span *span = sp_timeline_item_span(s->p->timeline, item);
        item.index += item.list == SP_LIST_ACTIONS && span->action.with_next;
        consider(s, item, lag_ns);
    }
}

static int64_t transfer_ns(const sp_predecessors *p, sp_action action, int from, int to)
{
    return p->costs == NULL || from == to
               ? 0
               : sp_step_costs_p2p_ns(p->costs, sp_action_is_backward(action), (size_t)action.pack,
                                      from, to, p->depends.plan->layout.pp);
}

// How long what an action gave was under way to rank `to`; of a pair from its end on.
static int64_t under_way_ns(const sp_predecessors *p, sp_timeline_item item, int to)
{
    const sp_rank_timeline *rank = &p->timeline->ranks[item.rank];
    const sp_span *span = &rank->spans[item.index];
    if (rank->there_ns == NULL || rank->there_ns[item.index] == SP_NOT_YET) {
        return transfer_ns(p, span->action, rank->pp, to);
    }
    return rank->there_ns[item.index] - span[span->action.with_next].end_ns;
}

static void wait_source(search *s, const sp_plan_place *place)
{
    sp_plan_place from;
    sp_timeline_item item;
    if (sp_depends_from(&s->p->depends, place, &from) && find(s->p, &from, &item)) {
        consider_action(s, &from, under_way_ns(s->p, item, place->pp));
    }
}

static int64_t send_ns(const sp_predecessors *p, sp_timeline_item item)
{
    const sp_rank_timeline *rank = &p->timeline->ranks[item.rank];
    sp_action action = rank->spans[item.index].action;
    int vstage = sp_depends_vstage(&p->depends, rank->pp, action);
    int target = sp_depends_target(&p->depends, action, vstage);
    return target < 0 ? 0 : under_way_ns(p, item, p->depends.rank_of[target]);
}

// How long a rank waits for what an action sends; a pair sends at its end.
static int64_t sending_ns(const sp_predecessors *p, sp_timeline_item item)
{
    const sp_rank_timeline *rank = &p->timeline->ranks[item.rank];
    const sp_span *span = &rank->spans[item.index];
    if (p->costs == NULL || !p->costs->blocking_transfers || span->action.with_next) {
        return 0;
    }
    int64_t own_ns = send_ns(p, item);
    bool second = item.index > 0 && span[-1].action.with_next;
    item.index -= second;
    int64_t first_ns = second ? send_ns(p, item) : 0;
    return first_ns > own_ns ? first_ns : own_ns;
}

// How many spans of a rank's list start before `ns`.
static size_t count_before(const sp_timeline *timeline, size_t rank, sp_timeline_list list,
                           int64_t ns)
{
    const sp_rank_timeline *of = &timeline->ranks[rank];
    size_t from = 0;
    size_t to = list == SP_LIST_SHARES ? of->share_count : of->count;
    while (from < to) {
        sp_timeline_item middle = {.rank = rank, .index = from + (to - from) / 2, .list = list};
        if (sp_timeline_item_span(timeline, middle)->start_ns < ns) {
            from = middle.index + 1;
        } else {
            to = middle.index;
        }
    }
    return from;
}

// Finds what the item's rank did just before it. Where a share and an action start together the
// share is taken to be first.
static bool find_previous(const sp_predecessors *p, sp_timeline_item item, sp_timeline_item *before)
{
    const sp_rank_timeline *rank = &p->timeline->ranks[item.rank];
    bool share = item.list == SP_LIST_SHARES;
    int64_t start_ns = sp_timeline_item_span(p->timeline, item)->start_ns;
    size_t spans =
        share ? count_before(p->timeline, item.rank, SP_LIST_ACTIONS, start_ns) : item.index;
    size_t shares =
        share ? item.index : count_before(p->timeline, item.rank, SP_LIST_SHARES, start_ns + 1);
    bool is_share = shares > 0 && (spans == 0 || rank->shares[shares - 1].span.end_ns >
                                                     rank->spans[spans - 1].end_ns);
    *before = (sp_timeline_item){.rank = item.rank,
                                 .index = (is_share ? shares : spans) - 1,
                                 .list = is_share ? SP_LIST_SHARES : SP_LIST_ACTIONS};
    return spans + shares > 0;
}

// An item waits for what its rank did before; after a forward also for the copy that left before
// it.
static void wait_rank(search *s, sp_timeline_item item)
{
    sp_timeline_item before;
    if (!find_previous(s->p, item, &before)) {
        return;
    }
    bool action = before.list == SP_LIST_ACTIONS;
    consider(s, before, action ? sending_ns(s->p, before) : 0);
    int64_t leaving = action && s->p->leaving != NULL
                          ? s->p->leaving[s->p->first_span[before.rank] + before.index]
                          : SP_NOT_YET;
    if (leaving != SP_NOT_YET) {
        consider(
            s,
            (sp_timeline_item){.rank = item.rank, .index = (size_t)leaving, .list = SP_LIST_COPIES},
            0);
    }
}

static void wait_copies_back(search *s, const sp_plan_place *place)
{
    sp_plan_place copy = *place;
    copy.action.kind = SP_ACTION_L;
    for (size_t i = 0; i < sp_depends_reads(&s->p->depends, place->action); i++) {
        copy.action.pack = sp_depends_read(&s->p->depends, place->action, i);
        consider_action(s, &copy, 0);
    }
}

// A merged pack waits for what each of its ranks did before, and where its actions may take longer
// on one of them also for what each of them reads (sp_walk_driver.joint_inputs).
static void wait_members(search *s, const sp_plan_place *place)
{
    const sp_pack *pack = sp_depends_pack(&s->p->depends, place->action);
    if (sp_depends_alone(pack, place->action)) {
        return;
    }
    for (int i = 0; i < pack->dp_count; i++) {
        sp_plan_place member = *place;
        sp_timeline_item item;
        member.dp = pack->dp_first + i;
        if (member.dp != place->dp && find(s->p, &member, &item)) {
            wait_rank(s, item);
            if (sp_action_is_backward(place->action)) {
                wait_copies_back(s, &member);
            }
            if (s->p->timeline->varies) {
                wait_source(s, &member);
            }
        }
    }
}

static void consider_shares(search *s, const sp_plan_place *place, size_t table)
{
    int pp = s->p->depends.plan->layout.pp;
    size_t slot = sp_depends_slot(&s->p->depends, place->action, place->dp);
    for (int r = 0; r < pp && s->p->share_at[table] != NULL; r++) {
        int64_t at = s->p->share_at[table][slot * (size_t)pp + (size_t)r];
        if (at != SP_NOT_YET) {
            consider(s,
                     (sp_timeline_item){.rank = rank_at(s->p, place->dp, r),
                                        .index = (size_t)at,
                                        .list = SP_LIST_SHARES},
                     0);
        }
    }
}

static void wait_shares(search *s, const sp_plan_place *place)
{
    sp_share_part part;
    if (sp_action_is_shared(s->p->depends.plan, place->pp, place->action, &part) &&
        sp_share_comes_first(part)) {
        consider_shares(s, place, 2 * (size_t)part + (place->action.kind == SP_ACTION_R));
    }
}

static void wait_others(search *s, sp_timeline_item item, const sp_plan_place *place)
{
    wait_members(s, place);
    if (place->action.kind != SP_ACTION_F && place->action.kind != SP_ACTION_W) {
        wait_copies_back(s, place);
    }
    wait_source(s, place);
    if (place->action.with_next) {
        sp_plan_place second = *place;
        second.action = s->p->timeline->ranks[item.rank].spans[item.index + 1].action;
        wait_source(s, &second);
    }
    wait_shares(s, place);
}

// Where the rank was never idle before the action, nothing else came later.
static void wait_action(search *s, sp_timeline_item item, const sp_plan_place *place)
{
    wait_rank(s, item);
    if (!s->any || s->latest_ns < s->start_ns) {
        wait_others(s, item, place);
    }
}

// A copy waits for the one before it in its direction and for what it copies; back also for the
// action after which it is issued.
static void wait_copy(search *s, sp_timeline_item item, const sp_plan_place *place)
{
    size_t at = s->p->first_copy[item.rank] + item.index;
    bool out = place->action.kind == SP_ACTION_O;
    sp_plan_place from = *place;
    if (s->p->copy_before[at] != SP_NOT_YET) {
        sp_timeline_item before = item;
        before.index = (size_t)s->p->copy_before[at];
        consider(s, before, 0);
    }
    from.action.kind = out ? SP_ACTION_F : SP_ACTION_O;
    consider_action(s, &from, 0);
    if (!out && s->p->copy_after[at] != SP_NOT_YET) {
        consider(s,
                 (sp_timeline_item){.rank = item.rank,
                                    .index = (size_t)s->p->copy_after[at],
                                    .list = SP_LIST_ACTIONS},
                 0);
    }
}

// A share at the end of the model waits for the stage's action; one before it for the shares of the
// head of all that the backward reads.
static void wait_share(search *s, sp_timeline_item item, const sp_plan_place *place)
{
    const sp_depends *depends = &s->p->depends;
    sp_share_part part = s->p->timeline->ranks[item.rank].shares[item.index].part;
    wait_rank(s, item);
    if (!sp_share_comes_first(part)) {
        sp_plan_place stage =
            sp_depends_at(depends, place, sp_share_stage(&depends->plan->layout, part));
        consider_action(s, &stage, 0);
    }
    for (size_t i = 0;
         part == SP_SHARE_HEAD_BACKWARD && i < sp_depends_reads(depends, place->action); i++) {
        sp_plan_place forward = *place;
        forward.action.kind = SP_ACTION_F;
        forward.action.pack = sp_depends_read(depends, place->action, i);
        consider_shares(s, &forward, 2 * (size_t)SP_SHARE_HEAD);
        consider_shares(s, &forward, 2 * (size_t)SP_SHARE_HEAD + 1);
    }
}

bool sp_predecessor(const sp_predecessors *p, sp_timeline_item item, sp_timeline_item *before)
{
    const sp_rank_timeline *rank = &p->timeline->ranks[item.rank];
    const sp_span *span = sp_timeline_item_span(p->timeline, item);
    const sp_plan_place place = {.dp = rank->dp, .pp = rank->pp, .action = span->action};
    search s = {.p = p, .start_ns = span->start_ns, .found = before};
    switch (item.list) {
    case SP_LIST_ACTIONS:
        wait_action(&s, item, &place);
        break;
    case SP_LIST_COPIES:
        wait_copy(&s, item, &place);
        break;
    case SP_LIST_SHARES:
        wait_share(&s, item, &place);
        break;
    case SP_LISTS:
        break;
    }
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
        sp_reserve((void **)items, &capacity, *count + 1, sizeof **items);
        (*items)[(*count)++] = at;
        more = sp_predecessor(p, at, &at);
    }
    for (size_t i = 0; i < *count / 2; i++) {
        sp_timeline_item swapped = (*items)[i];
        (*items)[i] = (*items)[*count - 1 - i];
        (*items)[*count - 1 - i] = swapped;
    }
}
