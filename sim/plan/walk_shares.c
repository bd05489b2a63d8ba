#include "sim/plan/walk_private.h"

void sp_i_walk_shares_allocate(sp_i_walk *w)
{
    size_t dp = (size_t)w->depends.plan->layout.dp;
    size_t pp = (size_t)w->depends.plan->layout.pp;
    w->found = sp_arena_take(&w->work, dp * pp, sizeof *w->found);
    w->took = sp_arena_take(&w->work, dp * pp, sizeof *w->took);
    w->shares_ready_ns = sp_arena_take(&w->work, dp, sizeof *w->shares_ready_ns);
    w->head_ns = sp_arena_take(&w->work, w->depends.slots[0] * pp, sizeof *w->head_ns);
}

// The next share of a rank that stands before its next action; NULL: none. `own` asks for one of
// the rank's own actions, which stands before that action or just behind.
static const sp_share *next_share(const sp_i_walk *w, const sp_i_walk_rank *rank, bool own)
{
    size_t count;
    const sp_share *shares =
        sp_shares_of(w->driver->shares, &w->depends.plan->layout, rank->dp, rank->pp, &count);
    size_t at = rank->shares_done;
    bool is = at < count && shares[at].own == own && (own || shares[at].before <= rank->done);
    return is ? &shares[at] : NULL;
}

static bool is_shared(const sp_i_walk *w, const sp_plan_place *place, sp_share_part *part)
{
    return sp_action_is_shared(w->depends.plan, place->pp, place->action, part);
}

static bool is_of(const sp_share *share, sp_share_part part, sp_action action)
{
    bool again = action.kind == SP_ACTION_R;
    return share != NULL && share->part == part && share->action.pack == action.pack &&
           (share->action.kind == SP_ACTION_R) == again;
}

bool sp_i_walk_share_pending(const sp_i_walk *w, const sp_i_walk_rank *rank, sp_plan_place *awaited)
{
    const sp_share *share = next_share(w, rank, false);
    if (share != NULL) {
        const sp_layout *layout = &w->depends.plan->layout;
        int chunk;
        *awaited = (sp_plan_place){.dp = rank->dp, .action = share->action};
        sp_layout_locate(layout, sp_share_stage(layout, share->part), &awaited->pp, &chunk);
        awaited->action.chunk = (uint16_t)chunk;
    }
    return share != NULL;
}

bool sp_i_walk_shares_ready(const sp_i_walk *w, const sp_plan_place *place, sp_plan_place *awaited)
{
    sp_share_part part;
    if (!is_shared(w, place, &part)) {
        return true;
    }
    for (int p = 0; p < w->depends.plan->layout.pp; p++) {
        const sp_i_walk_rank *rank = sp_i_walk_rank_of(w, place->dp, p);
        if (p != place->pp && !is_of(next_share(w, rank, false), part, place->action)) {
            if (!sp_i_walk_share_pending(w, rank, awaited) && rank->done < rank->stage->count) {
                *awaited = (sp_plan_place){
                    .dp = place->dp, .pp = p, .action = rank->stage->actions[rank->done]};
            }
            return false;
        }
    }
    return true;
}

static const sp_share **found_of(const sp_i_walk *w, int dp)
{
    return w->found + (size_t)dp * (size_t)w->depends.plan->layout.pp;
}

void sp_i_walk_shares_take(sp_i_walk *w, const sp_plan_place *place)
{
    sp_share_part part;
    if (!is_shared(w, place, &part)) {
        return;
    }
    const sp_share **found = found_of(w, place->dp);
    for (int p = 0; p < w->depends.plan->layout.pp; p++) {
        sp_i_walk_rank *rank = sp_i_walk_rank_of(w, place->dp, p);
        const sp_share *share = next_share(w, rank, p == place->pp);
        found[p] = is_of(share, part, place->action) ? share : NULL;
        rank->shares_done += found[p] != NULL;
    }
}

const sp_share **sp_i_walk_shares_taken(const sp_i_walk *w, const sp_plan_place *place)
{
    sp_share_part part;
    return is_shared(w, place, &part) ? found_of(w, place->dp) : NULL;
}

// When all ranks have their shares of the head of all that a backward reads.
static int64_t heads_ns(const sp_i_walk *w, const sp_plan_place *place)
{
    size_t pp = (size_t)w->depends.plan->layout.pp;
    int64_t end_ns = 0;
    for (size_t i = 0; i < sp_depends_reads(&w->depends, place->action); i++) {
        const sp_action forward = {.kind = SP_ACTION_F,
                                   .pack = sp_depends_read(&w->depends, place->action, i)};
        size_t at = sp_depends_slot(&w->depends, forward, place->dp) * pp;
        for (size_t p = 0; p < pp; p++) {
            end_ns = w->head_ns[at + p] > end_ns ? w->head_ns[at + p] : end_ns;
        }
    }
    return end_ns;
}

// How many shares and actions of the stage a share reads.
static size_t inputs_of(const sp_i_walk *w, sp_share_part part)
{
    return part == SP_SHARE_EMBEDDING       ? 0
           : part == SP_SHARE_HEAD_BACKWARD ? (size_t)w->depends.plan->layout.pp - 1
                                            : 1;
}

// One rank's share runs when the rank is free and its input there; returns its end.
static int64_t run_share(sp_i_walk *w, sp_i_walk_rank *rank, const sp_share *share,
                         const sp_action_cost *took, int64_t input_ns)
{
    sp_i_walk_start start = {.at_ns = input_ns, .waits = inputs_of(w, share->part)};
    sp_i_walk_wait_rank(rank, true, &start);
    int64_t end_ns = start.at_ns + sp_action_cost_ns(took);
    sp_rank_timeline *times = rank->timeline;
    w->waits += start.waits;
    if (times != NULL) {
        times->shares[times->share_count++] = (sp_share_span){.span = {.start_ns = start.at_ns,
                                                                       .end_ns = end_ns,
                                                                       .tp_ns = took->tp_ns,
                                                                       .cp_ns = took->cp_ns,
                                                                       .dp_ns = took->dp_ns,
                                                                       .action = share->action},
                                                              .part = share->part,
                                                              .own = share->own};
    }
    rank->computed = true;
    rank->end_ns = end_ns;
    rank->sending_ns = 0;
    rank->leaving_ns = SP_NOT_YET;
    return end_ns;
}

void sp_i_walk_shares_before(sp_i_walk *w, const sp_plan_place *place, const sp_action_cost *took)
{
    sp_share_part part;
    if (!is_shared(w, place, &part) || !sp_share_comes_first(part)) {
        return;
    }
    const sp_share **found = found_of(w, place->dp);
    int64_t input_ns = part == SP_SHARE_HEAD_BACKWARD ? heads_ns(w, place) : 0;
    int64_t ready_ns = 0;
    for (int p = 0; p < w->depends.plan->layout.pp; p++) {
        if (found[p] != NULL) {
            int64_t end_ns =
                run_share(w, sp_i_walk_rank_of(w, place->dp, p), found[p], &took[p], input_ns);
            ready_ns = end_ns > ready_ns ? end_ns : ready_ns;
        }
    }
    w->shares_ready_ns[place->dp] = ready_ns;
}

void sp_i_walk_shares_wait(sp_i_walk *w, const sp_plan_place *place, sp_i_walk_start *start)
{
    sp_share_part part;
    if (!is_shared(w, place, &part) || !sp_share_comes_first(part)) {
        return;
    }
    start->waits += (size_t)w->depends.plan->layout.pp - 1;
    if (w->shares_ready_ns[place->dp] > start->at_ns) {
        start->at_ns = w->shares_ready_ns[place->dp];
        start->awaited_ns = 0;
    }
}

// The share that a rank runs of its own action stands behind the copies that follow the action.
static void run_after(sp_i_walk *w, sp_i_walk_rank *rank, const sp_share *share,
                      const sp_action_cost *took, int64_t input_ns)
{
    size_t pp = (size_t)w->depends.plan->layout.pp;
    int64_t end_ns = run_share(w, rank, share, took, input_ns);
    if (share->part == SP_SHARE_HEAD) {
        size_t at = sp_depends_slot(&w->depends, share->action, rank->dp) * pp;
        w->head_ns[at + (size_t)rank->pp] = end_ns;
    }
}

void sp_i_walk_shares_after(sp_i_walk *w, const sp_plan_place *place, const sp_action_cost *took)
{
    sp_share_part part;
    if (!is_shared(w, place, &part) || sp_share_comes_first(part)) {
        return;
    }
    const sp_share **found = found_of(w, place->dp);
    int64_t input_ns = sp_i_walk_rank_of(w, place->dp, place->pp)->end_ns;
    for (int p = 0; p < w->depends.plan->layout.pp; p++) {
        sp_i_walk_rank *rank = sp_i_walk_rank_of(w, place->dp, p);
        if (found[p] != NULL && found[p]->own) {
            rank->late = found[p];
            rank->late_took = took[p];
        } else if (found[p] != NULL) {
            run_after(w, rank, found[p], &took[p], input_ns);
        }
    }
}

void sp_i_walk_share_late(sp_i_walk *w, sp_i_walk_rank *rank)
{
    if (rank->late != NULL && rank->late->before <= rank->done) {
        run_after(w, rank, rank->late, &rank->late_took, rank->end_ns);
        rank->late = NULL;
    }
}
