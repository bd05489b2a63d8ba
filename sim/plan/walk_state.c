#include "sim/plan/walk_private.h"

// The ranks: those of the timeline, or all.
static void make_ranks(sp_i_walk *w, const sp_plan *plan, sp_timeline *timeline)
{
    size_t dp = (size_t)plan->layout.dp;
    size_t pp = (size_t)plan->layout.pp;
    w->rank_count = timeline != NULL ? timeline->rank_count : dp * pp;
    w->ranks = sp_arena_take(&w->work, w->rank_count, sizeof *w->ranks);
    w->rank_of_dp = sp_arena_take(&w->work, dp, sizeof *w->rank_of_dp);
    w->runs = sp_arena_take(&w->work, dp, sizeof *w->runs);
    w->queue = sp_arena_take(&w->work, w->rank_count, sizeof *w->queue);
    w->gave = sp_arena_take(&w->work, dp, sizeof *w->gave);
    w->starts = sp_arena_take(&w->work, dp, sizeof *w->starts);
    w->members = sp_arena_take(&w->work, dp, sizeof *w->members);
    for (size_t l = 0; l < w->rank_count; l++) {
        sp_rank_timeline *times = timeline != NULL ? &timeline->ranks[l] : NULL;
        int d = times != NULL ? times->dp : (int)(l / pp);
        w->ranks[l] = (sp_i_walk_rank){.stage = sp_plan_stage(plan, d, (int)(l % pp)),
                                       .timeline = times,
                                       .dp = d,
                                       .pp = (int)(l % pp),
                                       .last_out_ns = SP_NOT_YET,
                                       .last_back_ns = SP_NOT_YET,
                                       .leaving_ns = SP_NOT_YET};
        w->rank_of_dp[d] = l / pp * pp;
        w->runs[d] = 1;
    }
}

// The kinds of actions of the ranks, as bits.
static unsigned kinds_of(const sp_i_walk *w)
{
    unsigned kinds = 0;
    for (size_t l = 0; l < w->rank_count; l++) {
        const sp_stage_plan *stage = w->ranks[l].stage;
        for (size_t a = 0; a < stage->count; a++) {
            kinds |= 1u << stage->actions[a].kind;
        }
    }
    return kinds;
}

static void make_tables(sp_i_walk *w)
{
    unsigned kinds = kinds_of(w);
    size_t entries = w->depends.slots[0] * (size_t)w->depends.vstages;
    bool copies = (kinds & (1u << SP_ACTION_O | 1u << SP_ACTION_L)) != 0;
    w->end_ns[0] = sp_depends_timestamps(&w->depends, 0);
    w->end_ns[1] = sp_depends_timestamps(&w->depends, 1);
    w->out_ns = copies ? sp_depends_timestamps(&w->depends, 0) : NULL;
    w->back_ns = copies ? sp_depends_timestamps(&w->depends, 0) : NULL;
    if ((kinds & 1u << SP_ACTION_R) != 0) {
        w->recomputed = sp_arena_take(&w->work, entries, 1);
    }
    if (w->driver->shares != NULL && w->driver->shares->items != NULL) {
        sp_i_walk_shares_allocate(w);
    }
    if (w->driver->send != NULL) {
        sp_i_walk_network_allocate(w);
    }
}

void sp_i_walk_fini(sp_i_walk *w)
{
    sp_free(w->end_ns[0]);
    sp_free(w->end_ns[1]);
    sp_free(w->there_ns[0]);
    sp_free(w->there_ns[1]);
    sp_free(w->out_ns);
    sp_free(w->back_ns);
    sp_arena_free(&w->work);
    sp_depends_fini(&w->depends);
}

void sp_i_walk_init(sp_i_walk *walk, const sp_plan *plan, const sp_walk_driver *driver,
                    sp_timeline *timeline)
{
    int64_t ranks = (int64_t)plan->layout.dp * plan->layout.pp;
    *walk =
        (sp_i_walk){.driver = driver,
                    .limit_ns = driver->limit_ns > 0 ? driver->limit_ns : INT64_MAX / 4 / ranks};
    make_ranks(walk, plan, timeline);
    sp_depends_init(&walk->depends, plan, walk->runs, NULL);
    make_tables(walk);
}
