// Reductions of gradients and gathers of parameters.
#include "sim/cost/step_costs.h"
#include "tests/support/flow_step_world.h"
#include "tests/support/test_main.h"

bool world_makes_gradients(sp_action action)
{
    return action.kind == SP_ACTION_B || action.kind == SP_ACTION_W;
}

void world_prepare_reductions(world *w)
{
    const sp_layout *layout = &w->s->layout;
    for (int r = 0; r < layout->dp * layout->pp; r++) {
        reduction_state *state = &w->reductions[r % layout->pp];
        const sp_stage_plan *stage = &w->s->plan.stages[r];
        int makers[MOST_CHUNKS] = {0};
        for (size_t a = 0; a < stage->count; a++) {
            makers[stage->actions[a].chunk] += world_makes_gradients(stage->actions[a]);
        }
        for (int c = 0; c < layout->chunks; c++) {
            state->to_begin[c] += makers[c] > 0;
            state->to_end[c] += makers[c];
        }
        state->actions += (int)stage->count;
    }
}

void world_note_begin(world *w, int rank, sp_action action, int64_t took_ns)
{
    const sp_layout *layout = &w->s->layout;
    const sp_stage_plan *stage = &w->s->plan.stages[rank];
    int pp = rank % layout->pp;
    reduction_state *state = &w->reductions[pp];
    bool last = world_makes_gradients(action) && w->s->costs.buckets != NULL;
    for (size_t a = w->ranks[rank].done + 1; last && a < stage->count; a++) {
        last = !world_makes_gradients(stage->actions[a]) || stage->actions[a].chunk != action.chunk;
    }
    if (last) {
        int c = action.chunk;
        int64_t count = w->s->costs.buckets[pp * layout->chunks + c].count;
        int64_t first_ns = w->now_ns + took_ns / count;
        state->first_ns[c] = first_ns > state->first_ns[c] ? first_ns : state->first_ns[c];
        state->made[c] = --state->to_begin[c] == 0;
    }
}

void world_note_end(world *w, int pp, sp_action action)
{
    reduction_state *state = &w->reductions[pp];
    state->actions--;
    state->ready_ns = w->now_ns;
    if (world_makes_gradients(action)) {
        state->to_end[action.chunk]--;
        state->last_ns[action.chunk] = w->now_ns;
    }
}

void world_end_reduction_part(world *w, int pp, int64_t end_ns)
{
    reduction_state *state = &w->reductions[pp];
    const sp_epilogue_cost *epilogue = &w->s->costs.ranks[pp].epilogue;
    state->under_way = false;
    state->free_ns = end_ns;
    switch (state->phase) {
    case 0:
        state->phase = 1;
        break;
    case 1:
        state->made[state->chunk] = false;
        state->phase = 0;
        break;
    case 2:
        state->free_ns += epilogue->tied_reduce_ns + epilogue->optimizer_ns;
        state->phase = 3;
        break;
    default:
        state->gathered_ns = end_ns;
        state->phase = 4;
    }
}

// What the next step's first forward hides of the gather.
static int64_t hidden_ns(const world *w, int pp)
{
    const sp_layout *layout = &w->s->layout;
    int64_t least_ns = w->s->costs.ranks[pp].epilogue.hideable_gather_ns;
    for (int d = 0; d < layout->dp; d++) {
        const sp_stage_plan *stage = &w->s->plan.stages[d * layout->pp + pp];
        size_t a = 0;
        while (stage->actions[a].kind != SP_ACTION_F) {
            a++;
        }
        int vstage = sp_layout_vstage(layout, pp, stage->actions[a].chunk);
        sp_action_cost took =
            sp_action_cost_of(&w->s->plan, &w->s->costs, stage->actions[a], vstage, false);
        least_ns = took.compute_ns < least_ns ? took.compute_ns : least_ns;
    }
    return least_ns;
}

// Of what takes closed_ns by its formula hidden_ns are hidden.
static void start_part(world *w, int pp, int64_t ready_ns, int64_t closed_ns, double bytes,
                       int rounds, int64_t hidden_ns)
{
    const sp_layout *layout = &w->s->layout;
    reduction_state *state = &w->reductions[pp];
    int64_t alone_ns = closed_ns;
    if (layout->dp * layout->cp > 1) {
        AUTO(sp_route) route = world_rings(w, pp, layout->dp);
        alone_ns -= llround(1e9 * world_saved_s(w, &route, bytes, rounds, (double)closed_ns / 1e9));
    }
    if (hidden_ns > 0) {
        int64_t shown_ns = alone_ns > hidden_ns ? alone_ns - hidden_ns : 0;
        bytes *= shown_ns > 0 ? (double)shown_ns / (double)alone_ns : 0.0;
        alone_ns = shown_ns;
    }
    int64_t at_ns = ready_ns > state->free_ns ? ready_ns : state->free_ns;
    if (alone_ns == 0 || layout->dp * layout->cp == 1) {
        world_end_reduction_part(w, pp, at_ns + alone_ns);
        return;
    }
    state->under_way = true;
    world_start_flow(w, A_REDUCTION, pp, world_rings(w, pp, layout->dp), at_ns, bytes, rounds,
                     alone_ns);
}

static int chunk_to_reduce(const reduction_state *state, int chunks)
{
    int next = -1;
    for (int c = 0; c < chunks; c++) {
        if (state->made[c] && (next < 0 || state->first_ns[c] < state->first_ns[next])) {
            next = c;
        }
    }
    return next;
}

static void start_bucket(world *w, int pp, bool last)
{
    const reduction_state *state = &w->reductions[pp];
    const sp_layout *layout = &w->s->layout;
    const sp_bucket_cost *b = &w->s->costs.buckets[pp * layout->chunks + state->chunk];
    double last_bytes = b->bytes / (double)b->count;
    start_part(w, pp, last ? state->last_ns[state->chunk] : state->first_ns[state->chunk],
               last ? b->bucket_ns : b->total_ns - b->bucket_ns,
               last ? last_bytes : b->bytes - last_bytes, layout->zero == 0 ? 2 : 1, 0);
}

void world_reduce(world *w, int pp)
{
    const sp_layout *layout = &w->s->layout;
    reduction_state *state = &w->reductions[pp];
    const sp_epilogue_cost *epilogue = &w->s->costs.ranks[pp].epilogue;
    while (!state->under_way && state->phase < 4) {
        if (state->phase == 0) {
            state->chunk = chunk_to_reduce(state, layout->chunks);
            if (state->chunk < 0 && state->actions > 0) {
                return;
            }
            if (state->chunk < 0) {
                state->phase = 2;
                continue;
            }
            start_bucket(w, pp, false);
        } else if (state->phase == 1) {
            if (state->to_end[state->chunk] > 0) {
                return;
            }
            start_bucket(w, pp, true);
        } else if (state->phase == 2) {
            start_part(w, pp, state->ready_ns, epilogue->grad_reduce_ns - epilogue->tied_reduce_ns,
                       epilogue->reduce_bytes, layout->zero == 0 ? 2 : 1, 0);
        } else {
            start_part(w, pp, 0, epilogue->param_gather_ns, epilogue->gather_bytes, 1,
                       hidden_ns(w, pp));
        }
    }
}
