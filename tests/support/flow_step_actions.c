// What ranks run, send and exchange.
#include "sim/cost/step_costs.h"
#include "tests/support/flow_step_world.h"
#include "tests/support/test_main.h"

static int64_t *arrival(const world *w, sp_action action, int vstage)
{
    size_t packs = w->s->packing.forward.count;
    size_t row = (sp_action_is_backward(action) ? packs : 0) + (size_t)action.pack;
    return &w->table[row * (size_t)sp_layout_vstages(&w->s->layout) + (size_t)vstage];
}

static bool has_input(const world *w, int pp, sp_action action)
{
    const sp_layout *layout = &w->s->layout;
    int vstage = sp_layout_vstage(layout, pp, action.chunk);
    int from = action.kind == SP_ACTION_F ? vstage - 1 : vstage + 1;
    bool none = action.kind == SP_ACTION_W || from < 0 || from >= sp_layout_vstages(layout);
    return none || *arrival(w, action, from) >= 0;
}

static void send(world *w, int rank, int to, sp_action action, int64_t *there_ns)
{
    const flow_step *s = w->s;
    const sp_layout *layout = &s->layout;
    int pairs = layout->tp * layout->cp;
    int64_t from[MOST_GPUS], gpus[MOST_GPUS];
    sp_route route;
    bool backward = sp_action_is_backward(action);
    int pp = rank % layout->pp;
    for (int i = 0; i < pairs; i++) {
        from[i] = world_gpu_at(layout, i % layout->tp, i / layout->tp, rank, pp);
        gpus[i] = world_gpu_at(layout, i % layout->tp, i / layout->tp, rank, to);
    }
    int64_t alone_ns =
        sp_step_costs_p2p_ns(&s->costs, backward, (size_t)action.pack, pp, to, layout->pp);
    double bytes =
        (backward ? s->costs.side[1].pack : s->costs.side[0].pack)[action.pack].p2p_bytes;
    sp_route_pairs(w->topology, from, gpus, pairs, &route);
    alone_ns -= llround(1e9 * world_saved_s(w, &route, bytes * pairs, 1, (double)alone_ns / 1e9));
    world_start_flow(w, A_SEND, rank, route, w->now_ns, bytes * pairs, 1, alone_ns)->there_ns =
        there_ns;
    w->ranks[rank].awaited += s->costs.blocking_transfers;
}

static void give(world *w, int rank, sp_action action)
{
    const sp_layout *layout = &w->s->layout;
    int pp = rank % layout->pp;
    int vstage = sp_layout_vstage(layout, pp, action.chunk);
    int target = action.kind == SP_ACTION_F ? vstage + 1 : vstage - 1;
    if (action.kind == SP_ACTION_W || target < 0 || target >= sp_layout_vstages(layout)) {
        return;
    }
    int to, chunk;
    sp_layout_locate(layout, target, &to, &chunk);
    int64_t *there_ns = arrival(w, action, vstage);
    if (to == pp) {
        *there_ns = w->now_ns;
    } else {
        send(w, rank, to, action, there_ns);
    }
}

static void end_action(world *w, int rank, sp_timeline *ran)
{
    rank_state *state = &w->ranks[rank];
    const sp_action *at = &w->s->plan.stages[rank].actions[state->done];
    ran->ranks[rank].spans[state->done] =
        (sp_span){.start_ns = state->start_ns, .end_ns = w->now_ns, .action = *at};
    world_note_end(w, rank % w->s->layout.pp, *at);
    state->runs = false;
    state->done++;
    if (!at->with_next) {
        give(w, rank, *at);
        if (state->done > 1 && at[-1].with_next) {
            give(w, rank, at[-1]);
        }
    }
}

static sp_route exchange_route(const world *w, int rank, int part)
{
    int heads = w->s->costs.side[0].pack[0].cp.head_ranks;
    bool rings = part == 0 && heads < w->s->layout.cp;
    return rings ? world_rings_of_every(w, rank, heads > 1 ? heads : 1)
                 : world_all_to_alls(w, rank, heads);
}

void world_start_exchange(world *w, int rank, double bytes, int part, int64_t alone_ns)
{
    world_start_flow(w, AN_EXCHANGE, rank, exchange_route(w, rank, part), w->now_ns, bytes, 1,
                     alone_ns);
}

// How long a part takes alone, and what of it is shown.
static int64_t shorten(const world *w, int rank, int part, double bytes, double *s,
                       int64_t shown_ns)
{
    if (!(bytes > 0.0)) {
        return shown_ns;
    }
    AUTO(sp_route) route = exchange_route(w, rank, part);
    double saved = world_saved_s(w, &route, bytes, 1, *s);
    *s -= saved;
    return shown_ns > llround(1e9 * saved) ? shown_ns - llround(1e9 * saved) : 0;
}

// What a rank gets of the rings of all data-parallel ranks.
static sp_route part_of_rings(const world *w, int rank)
{
    const sp_layout *layout = &w->s->layout;
    const sp_route_parts split = {sp_layout_stride(layout, SP_AXIS_DP), layout->dp};
    int64_t gpus[MOST_GPUS];
    sp_collective_route parts[MOST_GPUS];
    int members = world_list_members(w, rank % layout->pp, layout->dp, gpus);
    sp_collective_route_make_parts(w->topology, SP_ALGORITHM_RING, SP_ALL_GATHER, gpus, layout->tp,
                                   members, split, parts);
    for (int d = 0; d < layout->dp; d++) {
        if (d != rank / layout->pp) {
            sp_collective_route_fini(&parts[d]);
        }
    }
    return parts[rank / layout->pp].phases[0].route;
}

void world_start_share(world *w, int rank)
{
    rank_state *state = &w->ranks[rank];
    const int ends[] = {1, 3, 4};
    while (state->share < ends[state->turn]) {
        int next = state->share++;
        if (state->share_ns[next] > 0 && state->share_bytes[next] > 0.0) {
            state->flows++;
            world_start_flow(w, A_SHARE, rank, part_of_rings(w, rank), w->now_ns,
                             state->share_bytes[next], 1, state->share_ns[next]);
            return;
        }
    }
}

static void start_turn(world *w, int rank)
{
    rank_state *state = &w->ranks[rank];
    state->turn_end_ns = w->now_ns + state->turn_ns[state->turn];
    if (state->turn == 1 && state->keys_wait) {
        state->flows++;
        world_start_exchange(w, rank, state->hidden_bytes, 0, state->hidden_ns);
    }
    world_start_share(w, rank);
}

// By how much all data-parallel ranks' exchange, whose pace each keeps, is shorter.
static double shorten_share(const world *w, int rank, sp_exchanged *of)
{
    const sp_layout *layout = &w->s->layout;
    double saved = 0.0;
    if (of->bytes > 0.0) {
        AUTO(sp_route) route = world_rings(w, rank % layout->pp, layout->dp);
        saved = world_saved_s(w, &route, of->bytes, 1, of->s);
    }
    of->s -= saved;
    return saved;
}

// The data-parallel ranks exchange this for the action, of which shown_ns are not hidden by
// formulas. Returns what is not.
static int64_t set_shares(const world *w, int rank, sp_exchanged gather, sp_exchanged scatter,
                          int64_t shown_ns, int64_t work_ns)
{
    rank_state *state = &w->ranks[rank];
    int64_t saved_ns =
        llround(1e9 * (shorten_share(w, rank, &gather) + shorten_share(w, rank, &scatter)));
    shown_ns = shown_ns > saved_ns ? shown_ns - saved_ns : 0;
    double whole_s = gather.s + scatter.s;
    double gathers = whole_s > 0.0 ? gather.s / whole_s : 0.0;
    double shown = whole_s > 0.0 ? fmin(1.0, (double)shown_ns * 1e-9 / whole_s) : 0.0;
    state->share = 0;
    state->share_ns[0] = llround(gathers * (double)shown_ns);
    state->share_ns[1] = llround(gathers * (double)work_ns);
    state->share_ns[2] = work_ns - state->share_ns[1];
    state->share_ns[3] = shown_ns - state->share_ns[0];
    state->share_bytes[0] = shown * gather.bytes;
    state->share_bytes[1] = gather.bytes - state->share_bytes[0];
    state->share_bytes[3] = shown * scatter.bytes;
    state->share_bytes[2] = scatter.bytes - state->share_bytes[3];
    state->turn_ns[0] = state->share_ns[0];
    state->turn_ns[1] = work_ns;
    state->turn_ns[2] = state->share_ns[3];
    return shown_ns;
}

static void begin_action(world *w, int rank, sp_action action)
{
    const flow_step *s = w->s;
    const sp_layout *layout = &s->layout;
    rank_state *state = &w->ranks[rank];
    int vstage = sp_layout_vstage(layout, rank % layout->pp, action.chunk);
    sp_action_cost took = sp_action_cost_of(&s->plan, &s->costs, action, vstage, false);
    int64_t took_ns = sp_action_cost_ns(&took);
    sp_cp_exchange each = action.kind == SP_ACTION_W   ? (sp_cp_exchange){0}
                          : action.kind == SP_ACTION_F ? s->costs.side[0].pack[action.pack].cp
                                                       : s->costs.side[1].pack[action.pack].cp;
    if (action.kind == SP_ACTION_B || action.kind == SP_ACTION_I) {
        each.s += s->costs.side[1].pack[action.pack].cp_again.s;
        each.bytes += s->costs.side[1].pack[action.pack].cp_again.bytes;
        each.heads_s += s->costs.side[1].pack[action.pack].cp_again.heads_s;
        each.heads_bytes += s->costs.side[1].pack[action.pack].cp_again.heads_bytes;
    }
    double layers = s->costs.stages[vstage].layers;
    state->runs = true;
    state->start_ns = w->now_ns;
    sp_exchanged gather = {0}, scatter = {0};
    if (s->costs.shards && layout->dp * layout->cp > 1) {
        gather = action.kind != SP_ACTION_W ? s->costs.sharded[vstage].gather : gather;
        scatter = world_makes_gradients(action) ? s->costs.sharded[vstage].scatter : scatter;
    }
    state->keys_wait = layout->cp > 1 && each.s + each.heads_s > 0.0;
    if (state->keys_wait) {
        // Heads are hidden where there is nothing else, and not shown.
        bool alone = !(each.s > 0.0);
        int64_t heads_ns = alone ? took.cp_ns : llround(layers * each.heads_s * 1e9);
        heads_ns = heads_ns < took.cp_ns ? heads_ns : took.cp_ns;
        double keys_s = layers * each.s, heads_s = layers * each.heads_s;
        int64_t keys_ns = took.cp_ns - heads_ns;
        state->hidden_ns = took_ns - took.cp_ns - took.dp_ns;
        keys_ns = shorten(w, rank, 0, layers * each.bytes, &keys_s, keys_ns);
        heads_ns = shorten(w, rank, 1, layers * each.heads_bytes, &heads_s, heads_ns);
        took_ns += keys_ns + heads_ns - took.cp_ns;
        state->shown_ns[0] = keys_ns;
        state->shown_ns[1] = heads_ns;
        double hidden_bytes = layers * (alone ? each.heads_bytes : each.bytes);
        double whole_s = alone ? heads_s : keys_s;
        double shown_bytes =
            hidden_bytes * fmin(1.0, (double)state->shown_ns[alone] * 1e-9 / whole_s);
        state->shown_bytes[0] = shown_bytes;
        state->shown_bytes[1] = alone ? shown_bytes : layers * each.heads_bytes;
        state->hidden_bytes = hidden_bytes - shown_bytes;
    }
    int64_t work_ns = took_ns - took.dp_ns;
    took_ns = work_ns + set_shares(w, rank, gather, scatter, took.dp_ns, work_ns);
    world_note_begin(w, rank, action, took_ns);
    state->end_ns = w->now_ns + took_ns;
    if (state->keys_wait || gather.s + scatter.s > 0.0) {
        state->end_ns = -1;
        state->turn = 0;
        start_turn(w, rank);
    }
}

static bool can_begin(const world *w, int rank)
{
    const rank_state *state = &w->ranks[rank];
    const sp_stage_plan *stage = &w->s->plan.stages[rank];
    int pp = rank % w->s->layout.pp;
    if (state->runs || state->awaited > 0 || state->done == stage->count) {
        return false;
    }
    const sp_action *at = &stage->actions[state->done];
    return has_input(w, pp, *at) && (!at->with_next || has_input(w, pp, at[1]));
}

// Goes on to the next turn of an action where all of one is over.
static bool end_turn(world *w, int rank)
{
    rank_state *state = &w->ranks[rank];
    if (!state->runs || state->end_ns >= 0 || state->flows > 0 || state->turn_end_ns > w->now_ns) {
        return false;
    }
    if (++state->turn == 3) {
        state->end_ns = w->now_ns;
    } else {
        start_turn(w, rank);
    }
    return true;
}

void world_act(world *w, sp_timeline *ran)
{
    int ranks = w->s->layout.dp * w->s->layout.pp;
    for (bool more = true; more;) {
        more = false;
        for (int r = 0; r < ranks; r++) {
            more = end_turn(w, r) || more;
            if (w->ranks[r].runs && w->ranks[r].end_ns == w->now_ns) {
                end_action(w, r, ran);
                more = true;
            }
            if (can_begin(w, r)) {
                begin_action(w, r, w->s->plan.stages[r].actions[w->ranks[r].done]);
                more = true;
            }
        }
    }
    for (int p = 0; p < w->s->layout.pp; p++) {
        world_reduce(w, p);
    }
}
