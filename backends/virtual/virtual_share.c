#include "backends/virtual/virtual_share.h"

#include "backends/virtual/virtual_wait.h"

// The next share of a rank that stands before its next action; NULL: none. Of the rank's own
// actions `own` asks for those, which stand before them or just behind.
static const sp_share *next_share(const sp_i_virtual_state *s, int dp, int pp, bool own)
{
    size_t count;
    const sp_share *shares = sp_shares_of(&s->shares, &s->plan->layout, dp, pp, &count);
    const sp_i_virtual_lane *lane = sp_i_virtual_lane_of(s, dp, pp);
    size_t at = lane->shares_done;
    bool is = at < count && shares[at].own == own && (own || shares[at].before <= lane->done);
    return is ? &shares[at] : NULL;
}

static bool meets(const sp_i_virtual_state *s, const sp_plan_place *place, sp_share_end *end)
{
    return s->shares.items != NULL &&
           sp_share_end_of(&s->plan->layout, sp_i_virtual_vstage(s, place), place->action, end) &&
           sp_i_virtual_pack(s, place->action)->computed > 0;
}

static bool is_of(const sp_share *share, sp_share_end end, sp_action action)
{
    bool again = action.kind == SP_ACTION_R;
    return share != NULL && share->end == end && share->action.pack == action.pack &&
           (share->action.kind == SP_ACTION_R) == again;
}

bool sp_i_virtual_share_pending(const sp_i_virtual_state *state, int dp, int pp,
                                sp_plan_place *awaited)
{
    const sp_share *share = next_share(state, dp, pp, false);
    if (share != NULL) {
        const sp_layout *layout = &state->plan->layout;
        int chunk;
        *awaited = (sp_plan_place){.dp = dp, .action = share->action};
        sp_layout_locate(layout, sp_share_stage(layout, share->end), &awaited->pp, &chunk);
        awaited->action.chunk = (uint16_t)chunk;
    }
    return share != NULL;
}

bool sp_i_virtual_share_ready(const sp_i_virtual_state *state, const sp_plan_place *place,
                              sp_plan_place *awaited)
{
    sp_share_end end;
    if (!meets(state, place, &end)) {
        return true;
    }
    for (int p = 0; p < state->plan->layout.pp; p++) {
        if (p != place->pp && !is_of(next_share(state, place->dp, p, false), end, place->action)) {
            const sp_i_virtual_lane *lane = sp_i_virtual_lane_of(state, place->dp, p);
            const sp_stage_plan *stage = sp_plan_stage(state->plan, place->dp, p);
            if (!sp_i_virtual_share_pending(state, place->dp, p, awaited) &&
                lane->done < stage->count) {
                *awaited =
                    (sp_plan_place){.dp = place->dp, .pp = p, .action = stage->actions[lane->done]};
            }
            return false;
        }
    }
    return true;
}

static const sp_share **found_of(const sp_i_virtual_state *s, int dp)
{
    return s->found + (size_t)dp * (size_t)s->plan->layout.pp;
}

void sp_i_virtual_share_take(sp_i_virtual_state *state, const sp_plan_place *place)
{
    sp_share_end end;
    if (!meets(state, place, &end)) {
        return;
    }
    const sp_share **found = found_of(state, place->dp);
    for (int p = 0; p < state->plan->layout.pp; p++) {
        const sp_share *share = next_share(state, place->dp, p, p == place->pp);
        found[p] = is_of(share, end, place->action) ? share : NULL;
        sp_i_virtual_lane_of(state, place->dp, p)->shares_done += found[p] != NULL;
    }
}

const sp_share **sp_i_virtual_share_taken(const sp_i_virtual_state *state,
                                          const sp_plan_place *place)
{
    sp_share_end end;
    return meets(state, place, &end) ? found_of(state, place->dp) : NULL;
}

static size_t entry_of(const sp_i_virtual_state *s, sp_action action, int dp)
{
    return sp_i_virtual_index(s, action, dp, 0) / s->vstages * (size_t)s->plan->layout.pp;
}

static int64_t later(int64_t a, int64_t b)
{
    return a > b ? a : b;
}

// When all ranks have their shares of the head of all that a backward reads.
static int64_t heads_ns(const sp_i_virtual_state *s, const sp_plan_place *place)
{
    int64_t end_ns = 0;
    for (size_t i = 0; i < sp_i_virtual_reads(s, place->action); i++) {
        const sp_action forward = {.kind = SP_ACTION_F,
                                   .pack = sp_i_virtual_read(s, place->action, i)};
        size_t at = entry_of(s, forward, place->dp);
        for (int p = 0; p < s->plan->layout.pp; p++) {
            end_ns = later(end_ns, s->head_ns[at + (size_t)p]);
        }
    }
    return end_ns;
}

// One rank's share runs when the rank is free and its input there; returns its end.
static int64_t run_share(sp_i_virtual_state *s, int dp, int pp, const sp_share *share,
                         const sp_action_cost *took, int64_t input_ns)
{
    sp_i_virtual_lane *lane = sp_i_virtual_lane_of(s, dp, pp);
    const sp_plan_place here = {.dp = dp, .pp = pp, .action = share->action};
    sp_i_virtual_start start = {.at_ns = input_ns};
    sp_i_virtual_wait_rank(s, &here, true, &start);
    int64_t end_ns = start.at_ns + sp_action_cost_ns(took);
    if (s->timeline != NULL) {
        sp_rank_timeline *rank =
            &s->timeline->ranks[(size_t)dp * (size_t)s->plan->layout.pp + (size_t)pp];
        rank->shares[rank->share_count++] = (sp_share_span){.span = {.start_ns = start.at_ns,
                                                                     .end_ns = end_ns,
                                                                     .tp_ns = took->tp_ns,
                                                                     .cp_ns = took->cp_ns,
                                                                     .dp_ns = took->dp_ns,
                                                                     .action = share->action},
                                                            .end = share->end,
                                                            .own = share->own};
    }
    lane->computed = true;
    lane->end_ns = end_ns;
    lane->sending_ns = 0;
    lane->leaving_ns = SP_I_NOT_YET;
    return end_ns;
}

void sp_i_virtual_share_before(sp_i_virtual_state *state, const sp_plan_place *place,
                               const sp_action_cost *took)
{
    sp_share_end end;
    if (!meets(state, place, &end) ||
        (end != SP_SHARE_EMBEDDING && end != SP_SHARE_HEAD_BACKWARD)) {
        return;
    }
    const sp_share **found = found_of(state, place->dp);
    int64_t input_ns = end == SP_SHARE_HEAD_BACKWARD ? heads_ns(state, place) : 0;
    int64_t ready_ns = 0;
    for (int p = 0; p < state->plan->layout.pp; p++) {
        if (found[p] != NULL) {
            ready_ns =
                later(ready_ns, run_share(state, place->dp, p, found[p], &took[p], input_ns));
        }
    }
    state->ready_ns[place->dp] = ready_ns;
}

void sp_i_virtual_share_wait(const sp_i_virtual_state *state, const sp_plan_place *place,
                             sp_i_virtual_start *start)
{
    sp_share_end end;
    if (meets(state, place, &end) && (end == SP_SHARE_EMBEDDING || end == SP_SHARE_HEAD_BACKWARD) &&
        state->ready_ns[place->dp] > start->at_ns) {
        start->at_ns = state->ready_ns[place->dp];
        start->awaited_ns = 0;
    }
}

void sp_i_virtual_share_after(sp_i_virtual_state *state, const sp_plan_place *place,
                              const sp_action_cost *took)
{
    sp_share_end end;
    if (!meets(state, place, &end) ||
        (end != SP_SHARE_HEAD && end != SP_SHARE_EMBEDDING_BACKWARD)) {
        return;
    }
    const sp_share **found = found_of(state, place->dp);
    int64_t input_ns = sp_i_virtual_lane_of(state, place->dp, place->pp)->end_ns;
    size_t at = entry_of(state, place->action, place->dp);
    for (int p = 0; p < state->plan->layout.pp; p++) {
        if (found[p] == NULL) {
            continue;
        }
        int64_t end_ns = run_share(state, place->dp, p, found[p], &took[p], input_ns);
        if (end == SP_SHARE_HEAD) {
            state->head_ns[at + (size_t)p] = end_ns;
        }
    }
}
