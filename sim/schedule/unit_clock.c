#include "sim/schedule/unit_clock.h"

#include "sim/base/alloc.h"

enum { NOT_YET = -1 };

typedef struct replay {
    const sp_plan *plan;
    const sp_pack_list *list[2]; // forward, backward
    size_t *slot[2];             // of each pack on its first rank
    int64_t *end[2];             // [slots * virtual stages]: F; B or I
    size_t *done;                // [ranks]
    int64_t *time;               // [ranks]
    sp_i_unit_clock *clock;
} replay;

int64_t sp_i_unit_length(sp_action action)
{
    bool copy = action.kind == SP_ACTION_O || action.kind == SP_ACTION_L;
    return copy ? 0 : action.kind == SP_ACTION_B ? 2 * SP_I_UNIT : SP_I_UNIT;
}

static int side_of(sp_action action)
{
    return action.kind == SP_ACTION_B || action.kind == SP_ACTION_I || action.kind == SP_ACTION_W;
}

static const sp_pack *pack_of(const replay *r, sp_action action)
{
    return &r->list[side_of(action)]->packs[action.pack];
}

static int64_t *end_at(const replay *r, sp_action action, int dp, int vstage)
{
    int side = side_of(action);
    size_t member = (size_t)(dp - pack_of(r, action)->dp_first);
    size_t slot = r->slot[side][action.pack] + member;
    return &r->end[side][slot * (size_t)sp_layout_vstages(&r->plan->layout) + (size_t)vstage];
}

static bool passes(sp_action action)
{
    return action.kind == SP_ACTION_F || action.kind == SP_ACTION_B || action.kind == SP_ACTION_I;
}

static sp_status allocate(replay *r, sp_error *err)
{
    const sp_plan *plan = r->plan;
    size_t ranks = (size_t)plan->layout.dp * (size_t)plan->layout.pp;
    size_t vstages = (size_t)sp_layout_vstages(&plan->layout);
    bool ok = true;
    r->list[0] = &plan->packing->forward;
    r->list[1] = sp_packing_backward(plan->packing);
    for (int side = 0; side < 2; side++) {
        size_t slots = 0;
        r->slot[side] = sp_i_calloc(r->list[side]->count + 1, sizeof *r->slot[side]);
        for (size_t k = 0; r->slot[side] != NULL && k < r->list[side]->count; k++) {
            r->slot[side][k] = slots;
            slots += (size_t)r->list[side]->packs[k].dp_count;
        }
        r->end[side] = sp_i_malloc((slots * vstages + 1) * sizeof *r->end[side]);
        ok = ok && r->slot[side] != NULL && r->end[side] != NULL;
        for (size_t i = 0; r->end[side] != NULL && i < slots * vstages; i++) {
            r->end[side][i] = NOT_YET;
        }
    }
    r->done = sp_i_calloc(ranks, sizeof *r->done);
    r->time = sp_i_calloc(ranks, sizeof *r->time);
    r->clock->first = sp_i_calloc(ranks + 1, sizeof *r->clock->first);
    ok = ok && r->done != NULL && r->time != NULL && r->clock->first != NULL;
    for (size_t l = 0; ok && l < ranks; l++) {
        r->clock->first[l + 1] = r->clock->first[l] + plan->stages[l].count;
    }
    if (ok) {
        r->clock->start = sp_i_calloc(r->clock->first[ranks] + 1, sizeof *r->clock->start);
        ok = r->clock->start != NULL;
    }
    return ok ? SP_OK : sp_error_no_memory(err, "the plan in unit time");
}

static size_t lane_of(const replay *r, int dp, int pp)
{
    return (size_t)dp * (size_t)r->plan->layout.pp + (size_t)pp;
}

// Moves *start behind the input of an action; false where that is not there yet.
static bool wait_input(const replay *r, sp_action action, int dp, int pp, int64_t *start)
{
    const sp_layout *layout = &r->plan->layout;
    int source = sp_layout_vstage(layout, pp, action.chunk) + (action.kind == SP_ACTION_F ? -1 : 1);
    if (!passes(action) || source < 0 || source >= sp_layout_vstages(layout)) {
        return true;
    }
    int64_t end = *end_at(r, action, dp, source);
    *start = end > *start ? end : *start;
    return end != NOT_YET;
}

// The start of a rank's next action as its own list and inputs have it; false: not yet known.
static bool can_start(const replay *r, int dp, int pp, int64_t *start)
{
    size_t lane = lane_of(r, dp, pp);
    const sp_stage_plan *stage = &r->plan->stages[lane];
    sp_action action = stage->actions[r->done[lane]];
    *start = r->time[lane];
    return wait_input(r, action, dp, pp, start) &&
           (!action.with_next || wait_input(r, stage->actions[r->done[lane] + 1], dp, pp, start));
}

static bool stands_before(const replay *r, size_t lane, sp_action action)
{
    const sp_stage_plan *stage = &r->plan->stages[lane];
    if (r->done[lane] == stage->count) {
        return false;
    }
    sp_action next = stage->actions[r->done[lane]];
    return next.kind == action.kind && next.chunk == action.chunk && next.pack == action.pack;
}

static void advance(const replay *r, int dp, int pp, int64_t start)
{
    size_t lane = lane_of(r, dp, pp);
    size_t at = r->done[lane]++;
    const sp_action *action = &r->plan->stages[lane].actions[at];
    r->clock->start[r->clock->first[lane] + at] = start;
    r->time[lane] = start + sp_i_unit_length(*action);
    // What the first of a pair gives is there when the second is done.
    bool second = at > 0 && action[-1].with_next;
    for (int i = second ? -1 : 0; i <= 0 && !action->with_next; i++) {
        if (passes(action[i])) {
            int vstage = sp_layout_vstage(&r->plan->layout, pp, action[i].chunk);
            *end_at(r, action[i], dp, vstage) = r->time[lane];
        }
    }
}

// Runs the next action of a rank, with the other ranks of its pack; false where it cannot start.
static bool step(const replay *r, int dp, int pp)
{
    size_t lane = lane_of(r, dp, pp);
    sp_action action = r->plan->stages[lane].actions[r->done[lane]];
    const sp_pack *pack = pack_of(r, action);
    bool alone = sp_i_unit_length(action) == 0 || action.kind == SP_ACTION_W;
    int first = alone ? dp : pack->dp_first;
    int end = alone ? dp + 1 : pack->dp_first + pack->dp_count;
    int64_t start = 0;
    for (int d = first; d < end; d++) {
        int64_t own;
        if (!stands_before(r, lane_of(r, d, pp), action) || !can_start(r, d, pp, &own)) {
            return false;
        }
        start = own > start ? own : start;
    }
    for (int d = first; d < end; d++) {
        advance(r, d, pp, start);
    }
    return true;
}

static bool run(const replay *r)
{
    const sp_layout *layout = &r->plan->layout;
    bool moves = true;
    bool all = false;
    while (moves && !all) {
        moves = false;
        all = true;
        for (int d = 0; d < layout->dp; d++) {
            for (int p = 0; p < layout->pp; p++) {
                size_t lane = lane_of(r, d, p);
                while (r->done[lane] < r->plan->stages[lane].count && step(r, d, p)) {
                    moves = true;
                }
                all = all && r->done[lane] == r->plan->stages[lane].count;
            }
        }
    }
    return all;
}

sp_status sp_i_unit_clock_make(const sp_plan *plan, sp_i_unit_clock *clock, bool *ends,
                               sp_error *err)
{
    replay r = {.plan = plan, .clock = clock};
    *clock = (sp_i_unit_clock){0};
    *ends = false;
    sp_status status = allocate(&r, err);
    if (status == SP_OK) {
        *ends = run(&r);
    }
    for (int side = 0; side < 2; side++) {
        sp_i_free(r.slot[side]);
        sp_i_free(r.end[side]);
    }
    sp_i_free(r.done);
    sp_i_free(r.time);
    if (!*ends) {
        sp_i_unit_clock_fini(clock);
    }
    return status;
}

void sp_i_unit_clock_fini(sp_i_unit_clock *clock)
{
    sp_i_free(clock->first);
    sp_i_free(clock->start);
    *clock = (sp_i_unit_clock){0};
}
