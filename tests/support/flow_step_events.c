#include "tests/support/flow_step_world.h"
#include "tests/support/test_main.h"

static int64_t next_time(const world *w)
{
    int64_t next_ns = INT64_MAX;
    for (int r = 0; r < w->s->layout.dp * w->s->layout.pp; r++) {
        const rank_state *state = &w->ranks[r];
        if (state->runs && state->end_ns >= 0 && state->end_ns < next_ns) {
            next_ns = state->end_ns;
        }
        bool waits = state->runs && state->end_ns < 0 && state->turn_end_ns > w->now_ns;
        if (waits && state->turn_end_ns < next_ns) {
            next_ns = state->turn_end_ns;
        }
    }
    for (int i = 0; i < w->flows; i++) {
        const flowing *f = &w->flow[i];
        if (!f->ended) {
            bool runs = world_flow_is_open(w, f);
            double left_ns = runs ? f->bytes_left / f->rate * 1e9 : 0.0;
            int64_t at_ns = runs ? w->now_ns + (int64_t)ceil(left_ns - 0.5) : f->begins_ns;
            next_ns = at_ns < next_ns ? at_ns : next_ns;
        }
    }
    return next_ns;
}

static void end_flow(world *w, const flowing *f)
{
    rank_state *rank = &w->ranks[f->of];
    if (f->kind == A_REDUCTION) {
        world_end_reduction_part(w, f->of, w->now_ns);
    } else if (f->kind == A_SEND) {
        *f->there_ns = w->now_ns;
        rank->awaited -= w->s->costs.blocking_transfers;
    } else if (f->kind == A_SHARE) {
        rank->flows--;
        world_start_share(w, f->of);
    } else if (rank->shown_ns[0] > 0 || rank->shown_ns[1] > 0) {
        int part = rank->shown_ns[0] > 0 ? 0 : 1;
        world_start_exchange(w, f->of, rank->shown_bytes[part], part, rank->shown_ns[part]);
        rank->shown_ns[part] = 0;
    } else {
        rank->flows--;
    }
}

static void pass(world *w, int64_t until_ns)
{
    int flows = w->flows;
    for (int i = 0; i < flows; i++) {
        flowing *f = &w->flow[i];
        f->bytes_left -= f->ended ? 0.0 : f->rate * (double)(until_ns - w->now_ns) * 1e-9;
    }
    w->now_ns = until_ns;
    for (int i = 0; i < flows; i++) {
        flowing *f = &w->flow[i];
        if (!f->ended && f->begins_ns <= until_ns && f->bytes_left < 0.51e-9 * f->rate + 1e-6) {
            f->ended = true;
            end_flow(w, f);
        }
    }
}

void flow_step_events(const flow_step *s, sp_timeline *ran)
{
    static world w;
    w = (world){.s = s};
    size_t ranks = (size_t)(s->layout.dp * s->layout.pp);
    size_t entries = 2 * s->packing.forward.count * (size_t)sp_layout_vstages(&s->layout);
    w.ranks = sp_calloc(ranks, sizeof *w.ranks);
    w.table = sp_malloc(entries * sizeof *w.table);
    assert_true(w.ranks != NULL && w.table != NULL);
    memset(w.table, 0xff, entries * sizeof *w.table);
    world_prepare_reductions(&w);
    must_succeed(sp_topology_new(&s->cluster, &s->network.rates, &w.topology, ERR));
    sp_timeline_init(ran, &s->plan);
    for (int64_t next_ns = 0; next_ns != INT64_MAX; next_ns = next_time(&w)) {
        pass(&w, next_ns);
        world_act(&w, ran);
        world_share_links(&w);
    }
    for (size_t r = 0; r < ranks; r++) {
        assert_int_equal(w.ranks[r].done, s->plan.stages[r].count);
        ran->ranks[r].gather_end_ns = w.reductions[r % (size_t)s->layout.pp].gathered_ns;
    }
    for (int i = 0; i < w.flows; i++) {
        sp_route_fini(&w.flow[i].route);
    }
    sp_topology_free(w.topology);
    sp_free(w.table);
    sp_free(w.ranks);
}
