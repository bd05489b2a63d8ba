#include "sim/cost/step_costs.h"
#include "sim/verify/graph_private.h"

static void allocate(sp_i_builder *b)
{
    const sp_plan *plan = b->s->plan;
    const size_t *slots = b->index.slots;
    size_t stages = (size_t)plan->layout.dp * (size_t)plan->layout.pp;
    for (int kind = 0; kind < SP_ACTION_KINDS; kind++) {
        bool backward = sp_action_is_backward((sp_action){.kind = (uint8_t)kind});
        b->of[kind] = sp_arena_take(&b->work, slots[backward] * (size_t)b->index.vstages,
                                    sizeof *b->of[kind]);
    }
    for (int i = 0; b->shares.items != NULL && i < 2 * SP_I_SHARE_ENDS; i++) {
        size_t count = slots[0] + slots[1];
        size_t **share = &b->share[i / 2][i % 2];
        size_t **stage = &b->stage[i / 2][i % 2];
        *share = sp_arena_take(&b->work, count * (size_t)plan->layout.pp, sizeof **share);
        *stage = sp_arena_take(&b->work, count, sizeof **stage);
    }
    for (size_t i = 0; i < stages; i++) {
        b->s->vertex_count += plan->stages[i].count;
    }
    b->s->vertex_count += b->shares.items != NULL ? b->shares.first[stages] : 0;
    for (int side = 0; b->ran != NULL && side < 2; side++) {
        b->lag_ns[side] = sp_arena_take(&b->work, slots[side] * (size_t)b->index.vstages,
                                        sizeof *b->lag_ns[side]);
    }
    b->s->vertices = sp_malloc(b->s->vertex_count * sizeof *b->s->vertices);
}

// A rank's shares that stand before its action `before`, beyond the `done` first.
static size_t shares_between(const sp_i_builder *b, int dp, int pp, size_t done, size_t before)
{
    size_t count;
    size_t between = 0;
    const sp_share *shares = sp_shares_of(&b->shares, &b->s->plan->layout, dp, pp, &count);
    while (done + between < count && shares[done + between].before <= before) {
        between++;
    }
    return between;
}

// Numbers those shares from v on.
static size_t number_shares(sp_i_builder *b, int dp, int pp, size_t before, size_t v, size_t *done)
{
    size_t count;
    const sp_plan *plan = b->s->plan;
    const sp_share *shares = sp_shares_of(&b->shares, &plan->layout, dp, pp, &count);
    for (size_t left = shares_between(b, dp, pp, *done, before); left > 0; left--, v++) {
        size_t place = *done;
        const sp_share *share = &shares[(*done)++];
        sp_action_cost cost = sp_share_cost_of(plan, b->costs, share);
        size_t at = sp_depends_slot(&b->index, share->action, dp) * (size_t)plan->layout.pp;
        b->share[share->part][share->action.kind == SP_ACTION_R][at + (size_t)pp] = v + 1;
        b->s->vertices[v] = (sp_i_vertex){.action = share->action,
                                          .share = (uint8_t)(1 + share->part),
                                          .dp = dp,
                                          .pp = pp,
                                          .duration_ns = sp_action_cost_ns(&cost)};
        if (b->ran != NULL) {
            const sp_span *ran = &b->ran->ranks[dp * plan->layout.pp + pp].shares[place].span;
            b->s->vertices[v].duration_ns = ran->end_ns - ran->start_ns;
        }
    }
    return v;
}

// Has every forward pack of this backward been recomputed by the actions numbered so far?
static bool was_recomputed(const sp_i_builder *b, sp_action action, int dp, int vstage)
{
    bool all = action.kind == SP_ACTION_B || action.kind == SP_ACTION_I;
    for (size_t i = 0; all && i < sp_i_structure_reads(b, action); i++) {
        int32_t pack = sp_i_structure_read(b, action, i);
        all = sp_i_structure_find(b, SP_ACTION_R, pack, dp, vstage) != 0;
    }
    return all;
}

// How long the action took in the timeline; *span counts those of its rank. What it gave was under
// way from the end of its pair on.
static int64_t duration_as_run(sp_i_builder *b, const sp_i_vertex *at, size_t *span)
{
    const sp_layout *layout = &b->s->plan->layout;
    const sp_rank_timeline *rank = &b->ran->ranks[at->dp * layout->pp + at->pp];
    if (sp_action_is_copy(at->action)) {
        sp_action_cost cost =
            sp_action_cost_of(b->s->plan, b->costs, at->action,
                              sp_layout_vstage(layout, at->pp, at->action.chunk), false);
        return sp_action_cost_ns(&cost);
    }
    const sp_span *ran = &rank->spans[*span];
    if (rank->there_ns != NULL && sp_depends_passes(at->action) &&
        rank->there_ns[*span] != SP_NOT_YET) {
        int vstage = sp_layout_vstage(layout, at->pp, at->action.chunk);
        int64_t sent_ns = ran[at->action.with_next ? 1 : 0].end_ns;
        b->lag_ns[sp_action_is_backward(at->action)]
                 [sp_depends_entry(&b->index, at->action, at->dp, vstage)] =
            rank->there_ns[*span] - sent_ns;
    }
    (*span)++;
    return ran->end_ns - ran->start_ns;
}

// Numbers an action; `shares` of its rank stand before it.
static void number_action(sp_i_builder *b, int dp, int pp, size_t a, size_t v, size_t shares)
{
    const sp_plan *plan = b->s->plan;
    sp_action action = sp_plan_stage(plan, dp, pp)->actions[a];
    int vstage = sp_layout_vstage(&plan->layout, pp, action.chunk);
    int kind = action.kind == SP_ACTION_I ? SP_ACTION_B : action.kind;
    size_t pair = action.with_next ? 1 + shares_between(b, dp, pp, shares, a + 1) : 0;
    b->of[kind][sp_depends_entry(&b->index, action, dp, vstage)] = v + 1 + pair;
    b->copies = b->copies || action.kind == SP_ACTION_O;
    bool recomputed = was_recomputed(b, action, dp, vstage);
    sp_action_cost cost = sp_action_cost_of(plan, b->costs, action, vstage, recomputed);
    b->s->vertices[v] = (sp_i_vertex){
        .action = action, .dp = dp, .pp = pp, .duration_ns = sp_action_cost_ns(&cost)};
    sp_share_part part;
    if (b->shares.items != NULL && sp_share_part_of(&plan->layout, vstage, action, &part)) {
        b->stage[part][kind == SP_ACTION_R][sp_depends_slot(&b->index, action, dp)] = v + 1;
    }
}

void sp_i_structure_number(sp_i_builder *b)
{
    const sp_layout *layout = &b->s->plan->layout;
    size_t v = 0;
    allocate(b);
    for (int i = 0; i < layout->dp * layout->pp; i++) {
        int dp = i / layout->pp;
        int pp = i % layout->pp;
        size_t count = b->s->plan->stages[i].count;
        size_t shares = 0;
        size_t span = 0;
        for (size_t a = 0; a < count; a++, v++) {
            v = number_shares(b, dp, pp, a, v, &shares);
            number_action(b, dp, pp, a, v, shares);
            if (b->ran != NULL) {
                b->s->vertices[v].duration_ns = duration_as_run(b, &b->s->vertices[v], &span);
            }
        }
        v = number_shares(b, dp, pp, count, v, &shares);
    }
}
