#include "sim/plan/walk.h"

#include <stdlib.h>

enum { UNIT = 4 }; // the time of a forward

// A place in the order of all actions and shares. At one time shared work comes in the order of
// sp_share_part, so that what one rank runs there is in the order of its list; then other actions.
typedef struct timestamp {
    int64_t time;
    int rank;
} timestamp;

enum { OTHER_ACTION = SP_SHARE_HEAD_BACKWARD + 1 };

// An action for which all pipeline ranks work.
typedef struct shared_action {
    timestamp at;
    int pp; // whose action it is
    size_t place;
    sp_share_part part;
    sp_action action;
} shared_action;

typedef struct maker {
    const sp_plan *plan;
    size_t *first;         // [dp * pp + 1]: of each rank's actions
    int64_t *start;        // of each action in unit time; of copies nothing
    shared_action *shared; // by dp, then in order
    size_t *of_dp;         // [dp + 1]
    uint8_t *split; // [2][backward packs]: the rank at hand has an I on its first, last chunk
    sp_share *next;
    sp_arena work;
} maker;

static int64_t unit_ns(sp_action action)
{
    return sp_action_is_copy(action) ? 0 : action.kind == SP_ACTION_B ? 2 * UNIT : UNIT;
}

static sp_status take_units(void *context SP_UNUSED, const sp_walk_action *action,
                            sp_walk_outcome *outcome, sp_error *err SP_UNUSED)
{
    outcome->took.compute_ns = unit_ns(action->place.action);
    return SP_OK;
}

// Fills the starts of all actions; SP_ERR_DEADLOCK where the plan does not end.
static sp_status find_starts(maker *m)
{
    const sp_walk_driver units = {.run = take_units};
    size_t ranks = (size_t)m->plan->layout.dp * (size_t)m->plan->layout.pp;
    sp_timeline timeline;
    m->first = sp_arena_take(&m->work, ranks + 1, sizeof *m->first);
    for (size_t r = 0; r < ranks; r++) {
        m->first[r + 1] = m->first[r] + m->plan->stages[r].count;
    }
    m->start = sp_arena_take(&m->work, m->first[ranks], sizeof *m->start);
    sp_timeline_init(&timeline, m->plan);
    sp_status status = sp_walk(m->plan, &units, &timeline, NULL, NULL);
    for (size_t r = 0; status == SP_OK && r < ranks; r++) {
        const sp_span *span = timeline.ranks[r].spans;
        for (size_t a = 0; a < m->plan->stages[r].count; a++) {
            if (!sp_action_is_copy(m->plan->stages[r].actions[a])) {
                m->start[m->first[r] + a] = (span++)->start_ns;
            }
        }
    }
    sp_timeline_fini(&timeline);
    return status;
}

static timestamp timestamp_of(const maker *m, int dp, int pp, size_t place)
{
    size_t rank = (size_t)dp * (size_t)m->plan->layout.pp + (size_t)pp;
    sp_action action = m->plan->stages[rank].actions[place];
    int64_t start = m->start[m->first[rank] + place];
    sp_share_part part;
    if (!sp_action_is_shared(m->plan, pp, action, &part)) {
        return (timestamp){start + unit_ns(action) / 4, OTHER_ACTION};
    }
    bool ends = part == SP_SHARE_HEAD || part == SP_SHARE_EMBEDDING_BACKWARD;
    return (timestamp){start + (ends ? unit_ns(action) : 0), (int)part};
}

static int compare_timestamps(const timestamp *a, const timestamp *b)
{
    return a->time != b->time ? (a->time > b->time) - (a->time < b->time) : a->rank - b->rank;
}

static int compare_shared(const void *a, const void *b)
{
    const shared_action *x = a;
    const shared_action *y = b;
    int order = compare_timestamps(&x->at, &y->at);
    return order != 0 ? order
                      : (x->action.pack > y->action.pack) - (x->action.pack < y->action.pack);
}

// All shared actions; with `shared` NULL only their number by rank.
static void find_shared(maker *m)
{
    const sp_layout *layout = &m->plan->layout;
    size_t count = 0;
    for (int d = 0; d < layout->dp; d++) {
        m->of_dp[d] = count;
        for (int p = 0; p < layout->pp; p++) {
            const sp_stage_plan *stage = sp_plan_stage(m->plan, d, p);
            for (size_t a = 0; a < stage->count; a++) {
                shared_action found = {.pp = p, .place = a, .action = stage->actions[a]};
                if (!sp_action_is_shared(m->plan, p, found.action, &found.part)) {
                    continue;
                }
                if (m->shared != NULL) {
                    found.at = timestamp_of(m, d, p, a);
                    m->shared[count] = found;
                }
                count++;
            }
        }
    }
    m->of_dp[layout->dp] = count;
}

// The place of the next action that is no copy.
static size_t next_place(const sp_stage_plan *stage, size_t place)
{
    while (place < stage->count && sp_action_is_copy(stage->actions[place])) {
        place++;
    }
    return place;
}

static uint8_t *split_of(const maker *m, bool head, int32_t pack)
{
    return &m->split[(head ? sp_packing_backward(m->plan->packing)->count : 0) + (size_t)pack];
}

// Which backwards of the chunks with embedding and LM head a rank splits.
static void find_splits(const maker *m, const sp_stage_plan *stage)
{
    for (size_t a = 0; a < stage->count; a++) {
        sp_action action = stage->actions[a];
        for (int head = 0; head < 2; head++) {
            int chunk = head ? m->plan->layout.chunks - 1 : 0;
            if (action.chunk == chunk &&
                (action.kind == SP_ACTION_B || action.kind == SP_ACTION_I)) {
                *split_of(m, head != 0, action.pack) = action.kind == SP_ACTION_I;
            }
        }
    }
}

// As B or I, what the rank does itself on the chunk.
static sp_action own_action(const maker *m, const shared_action *shared)
{
    bool head = shared->part == SP_SHARE_HEAD || shared->part == SP_SHARE_HEAD_BACKWARD;
    sp_action action = shared->action;
    action.with_next = 0;
    action.chunk = (uint16_t)(head ? m->plan->layout.chunks - 1 : 0);
    if (action.kind == SP_ACTION_B || action.kind == SP_ACTION_I) {
        action.kind = *split_of(m, head, action.pack) ? SP_ACTION_I : SP_ACTION_B;
    }
    return action;
}

static void place_shares(maker *m, int dp, int pp)
{
    const sp_stage_plan *stage = sp_plan_stage(m->plan, dp, pp);
    size_t place = next_place(stage, 0);
    find_splits(m, stage);
    for (size_t i = m->of_dp[dp]; i < m->of_dp[dp + 1]; i++) {
        const shared_action *shared = &m->shared[i];
        bool own = shared->pp == pp;
        bool head = shared->part == SP_SHARE_HEAD || shared->part == SP_SHARE_HEAD_BACKWARD;
        while (place < stage->count) {
            timestamp at = timestamp_of(m, dp, pp, place);
            bool done = own ? place < shared->place ||
                                  (shared->part == SP_SHARE_HEAD && place == shared->place)
                            : compare_timestamps(&at, &shared->at) < 0;
            if (!done) {
                break;
            }
            place = next_place(stage, place + 1);
        }
        if (head || !own) {
            *m->next++ = (sp_share){
                .part = shared->part, .action = own_action(m, shared), .own = own, .before = place};
        }
    }
}

static void make(maker *m, sp_shares *shares)
{
    const sp_layout *layout = &m->plan->layout;
    size_t ranks = (size_t)layout->dp * (size_t)layout->pp;
    size_t packs = sp_packing_backward(m->plan->packing)->count;
    m->of_dp = sp_arena_take(&m->work, (size_t)layout->dp + 1, sizeof *m->of_dp);
    find_shared(m);
    size_t count = m->of_dp[layout->dp];
    m->shared = sp_arena_take(&m->work, count, sizeof *m->shared);
    m->split = sp_arena_take(&m->work, 2 * packs, sizeof *m->split);
    shares->items = sp_calloc(count * (size_t)layout->pp + 1, sizeof *shares->items);
    shares->first = sp_calloc(ranks + 1, sizeof *shares->first);
    find_shared(m);
    m->next = shares->items;
    for (int d = 0; d < layout->dp; d++) {
        qsort(m->shared + m->of_dp[d], m->of_dp[d + 1] - m->of_dp[d], sizeof *m->shared,
              compare_shared);
        for (int p = 0; p < layout->pp; p++) {
            place_shares(m, d, p);
            shares->first[d * layout->pp + p + 1] = (size_t)(m->next - shares->items);
        }
    }
}

sp_status sp_shares_make(const sp_plan *plan, sp_shares *shares, sp_error *err SP_UNUSED)
{
    maker m = {.plan = plan};
    *shares = (sp_shares){0};
    if (!sp_shares_are(&plan->layout)) {
        return SP_OK;
    }
    sp_status status = find_starts(&m);
    if (status == SP_OK) {
        make(&m, shares);
    }
    sp_arena_free(&m.work);
    return status == SP_ERR_DEADLOCK ? SP_OK : status;
}

void sp_shares_fini(sp_shares *shares)
{
    sp_free(shares->items);
    sp_free(shares->first);
    *shares = (sp_shares){0};
}
