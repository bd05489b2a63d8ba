#include "sim/base/alloc.h"
#include "sim/base/order.h"
#include "sim/cost/action_cost.h"
#include "sim/network/collective_route.h"
#include "tests/support/flow_step.h"
#include "tests/support/test_main.h"

enum { MOST_FLOWS = 8192, MOST_LINKS = 512, MOST_CHUNKS = 2, MOST_PP = 4, MOST_GPUS = 64 };

typedef enum flow_kind { A_SEND, AN_EXCHANGE, A_SHARE, A_REDUCTION } flow_kind;

typedef struct flowing {
    flow_kind kind;
    int of;            // rank that sends or exchanges; pipeline rank that reduces
    int64_t *there_ns; // of a send
    int64_t begins_ns; // the latency has passed
    double bytes_left, most, rate;
    sp_route route;
    bool ended;
} flowing;

typedef struct rank_state {
    size_t done;
    bool runs;
    int64_t start_ns, end_ns; // of the action that runs; -1: not known
    int awaited;              // sends that it waits for
    // Turns of an action that exchanges: before its work, beside it, behind it.
    int turn, flows; // under way
    int64_t turn_ns[3], turn_end_ns;
    bool keys_wait; // what computation hides of keys or heads begins with the work
    int64_t hidden_ns;
    double hidden_bytes;
    int64_t shown_ns[2]; // of its exchange, behind what is hidden: of keys, of heads
    double shown_bytes[2];
    // Of the parameters and gradients of all data-parallel ranks: gathered before the work,
    // gathered and scattered beside it, scattered behind it.
    int share; // that comes next
    int64_t share_ns[4];
    double share_bytes[4];
} rank_state;

typedef struct reduction_state {
    int to_begin[MOST_CHUNKS], to_end[MOST_CHUNKS]; // ranks, and actions that make gradients
    bool made[MOST_CHUNKS];
    int64_t first_ns[MOST_CHUNKS], last_ns[MOST_CHUNKS];
    int actions, chunk, phase; // first buckets, last bucket, reduction, gather, over
    bool under_way;
    int64_t free_ns, ready_ns, gathered_ns;
} reduction_state;

typedef struct world {
    const flow_step *s;
    sp_topology *topology;
    flowing flow[MOST_FLOWS];
    int flows;
    rank_state *ranks;
    reduction_state reductions[MOST_PP];
    int64_t *table; // when what was given is at the rank that reads it; -1: not yet
    int64_t now_ns;
} world;

static bool is_open(const world *w, const flowing *f)
{
    return !f->ended && f->begins_ns <= w->now_ns && f->bytes_left > 0.0;
}

// Every flow grows until a link of its own is full, all at the same pace.
static void share(world *w)
{
    static double left[MOST_LINKS];
    static bool open[MOST_FLOWS];
    int links = sp_topology_links(w->topology);
    assert_true(links <= MOST_LINKS);
    memcpy(left, sp_topology_bytes_per_s(w->topology), (size_t)links * sizeof *left);
    int count = 0;
    for (int i = 0; i < w->flows; i++) {
        open[i] = is_open(w, &w->flow[i]);
        w->flow[i].rate = 0.0;
        count += open[i];
    }
    while (count > 0) {
        double users[MOST_LINKS] = {0};
        double growth = HUGE_VAL;
        for (int i = 0; i < w->flows; i++) {
            const flowing *f = &w->flow[i];
            for (int h = 0; open[i] && h < f->route.hops; h++) {
                users[f->route.path[h].link] += f->route.path[h].times;
            }
            if (open[i] && f->most > 0.0) {
                growth = fmin(growth, f->most - f->rate);
            }
        }
        for (int l = 0; l < links; l++) {
            growth = users[l] > 0.0 ? fmin(growth, left[l] / users[l]) : growth;
        }
        for (int l = 0; l < links; l++) {
            left[l] -= users[l] * growth;
        }
        for (int i = 0; i < w->flows; i++) {
            flowing *f = &w->flow[i];
            f->rate += open[i] ? growth : 0.0;
            bool full = open[i] && f->most > 0.0 && f->rate > f->most * (1.0 - 1e-12);
            for (int h = 0; open[i] && h < f->route.hops; h++) {
                full = full || left[f->route.path[h].link] < 1e-3;
            }
            count -= full;
            open[i] = open[i] && !full;
        }
    }
}

// Without a formula's even shares of NICs, if `sent` bytes go over every link of the route.
static double saved_by_links(const world *w, const sp_route *route, double sent, double latency_s,
                             double closed_s)
{
    const sp_cluster *cluster = &w->s->cluster;
    double nic_share = cluster->nic_bytes_per_s * cluster->nics_per_node / cluster->gpus_per_node;
    double by_links_s = 0.0, by_shares_s = 0.0;
    for (int h = 0; h < route->hops; h++) {
        sp_link link = sp_topology_link(w->topology, route->path[h].link);
        double rate = link.kind == SP_LINK_PCIE  ? nic_share
                      : link.kind == SP_LINK_NIC ? cluster->nic_bytes_per_s
                                                 : w->s->network.rates.nvlink_bytes_per_s;
        double s = sent * route->path[h].times / rate;
        by_links_s = link.kind == SP_LINK_PCIE || link.kind == SP_LINK_SPINE ? by_links_s
                                                                             : fmax(by_links_s, s);
        by_shares_s = link.kind == SP_LINK_SPINE ? by_shares_s : fmax(by_shares_s, s);
    }
    double saved_s = fmax(0.0, by_shares_s - by_links_s);
    return saved_s * fmin(1.0, closed_s / (latency_s + by_shares_s));
}

// Seconds that a transfer takes less alone than by its formula.
static double saved_s(const world *w, const sp_route *route, double bytes, int rounds,
                      double closed_s)
{
    double sent = rounds * bytes / route->parts;
    return sent > 0.0 ? saved_by_links(w, route, sent, rounds * route->latency_s, closed_s) : 0.0;
}

// Takes the route.
static flowing *start_flow(world *w, flow_kind kind, int of, sp_route route, int64_t at_ns,
                           double bytes, int rounds, int64_t alone_ns)
{
    assert_true(w->flows < MOST_FLOWS);
    sp_flow flow = sp_route_flow_of(&route, at_ns, bytes, rounds, (double)alone_ns / 1e9);
    flowing *f = &w->flow[w->flows++];
    *f = (flowing){.kind = kind,
                   .of = of,
                   .begins_ns = at_ns + llround(flow.latency_s * 1e9),
                   .bytes_left = flow.bytes,
                   .most = flow.most_bytes_per_s,
                   .route = route};
    return f;
}

static int64_t gpu_at(const sp_layout *layout, int tp, int cp, int rank, int pp)
{
    return tp * sp_layout_stride(layout, SP_AXIS_TP) + cp * sp_layout_stride(layout, SP_AXIS_CP) +
           rank / layout->pp * sp_layout_stride(layout, SP_AXIS_DP) +
           pp * sp_layout_stride(layout, SP_AXIS_PP);
}

// The context-parallel ranks of `ranks` data-parallel ranks from one on, by TP rank.
static int list_members(const world *w, int first_rank, int ranks, int64_t gpus[MOST_GPUS])
{
    const sp_layout *layout = &w->s->layout;
    int members = ranks * layout->cp;
    assert_true(layout->tp * members <= MOST_GPUS);
    for (int tp = 0; tp < layout->tp; tp++) {
        for (int m = 0; m < members; m++) {
            int rank = first_rank + m / layout->cp * layout->pp;
            gpus[tp * members + m] =
                gpu_at(layout, tp, m % layout->cp, rank, first_rank % layout->pp);
        }
        qsort(&gpus[tp * members], (size_t)members, sizeof *gpus, sp_ascending_int64s);
    }
    return members;
}

// Rings over all of those.
static sp_route rings(const world *w, int first_rank, int ranks)
{
    int64_t gpus[MOST_GPUS];
    sp_route route;
    int members = list_members(w, first_rank, ranks, gpus);
    must_succeed(sp_route_rings(w->topology, gpus, w->s->layout.tp, members, &route, ERR));
    return route;
}

// Over the ranks of one data-parallel rank: rings of every n-th of them, of which there are n.
static sp_route rings_of_every(const world *w, int rank, int n)
{
    int64_t gpus[MOST_GPUS];
    int64_t apart[MOST_GPUS];
    sp_route route;
    int tp = w->s->layout.tp;
    int members = list_members(w, rank, 1, gpus);
    int count = 0;
    for (int g = 0; g < tp * n; g++) {
        for (int m = g % n; m < members; m += n) {
            apart[count++] = gpus[g / n * members + m];
        }
    }
    must_succeed(sp_route_rings(w->topology, apart, tp * n, members / n, &route, ERR));
    return route;
}

// All-to-alls of n neighbours each.
static sp_route all_to_alls(const world *w, int rank, int n)
{
    int64_t gpus[MOST_GPUS];
    sp_route route;
    int members = list_members(w, rank, 1, gpus);
    must_succeed(
        sp_route_all_to_alls(w->topology, gpus, w->s->layout.tp * members / n, n, &route, ERR));
    return route;
}

// ---- reductions ----

static bool makes_gradients(sp_action action)
{
    return action.kind == SP_ACTION_B || action.kind == SP_ACTION_W;
}

static void prepare_reductions(world *w)
{
    const sp_layout *layout = &w->s->layout;
    for (int r = 0; r < layout->dp * layout->pp; r++) {
        reduction_state *state = &w->reductions[r % layout->pp];
        const sp_stage_plan *stage = &w->s->plan.stages[r];
        int makers[MOST_CHUNKS] = {0};
        for (size_t a = 0; a < stage->count; a++) {
            makers[stage->actions[a].chunk] += makes_gradients(stage->actions[a]);
        }
        for (int c = 0; c < layout->chunks; c++) {
            state->to_begin[c] += makers[c] > 0;
            state->to_end[c] += makers[c];
        }
        state->actions += (int)stage->count;
    }
}

static void note_begin(world *w, int rank, sp_action action, int64_t took_ns)
{
    const sp_layout *layout = &w->s->layout;
    const sp_stage_plan *stage = &w->s->plan.stages[rank];
    int pp = rank % layout->pp;
    reduction_state *state = &w->reductions[pp];
    bool last = makes_gradients(action) && w->s->costs.buckets != NULL;
    for (size_t a = w->ranks[rank].done + 1; last && a < stage->count; a++) {
        last = !makes_gradients(stage->actions[a]) || stage->actions[a].chunk != action.chunk;
    }
    if (last) {
        int c = action.chunk;
        int64_t count = w->s->costs.buckets[pp * layout->chunks + c].count;
        int64_t first_ns = w->now_ns + took_ns / count;
        state->first_ns[c] = first_ns > state->first_ns[c] ? first_ns : state->first_ns[c];
        state->made[c] = --state->to_begin[c] == 0;
    }
}

static void note_end(world *w, int pp, sp_action action)
{
    reduction_state *state = &w->reductions[pp];
    state->actions--;
    state->ready_ns = w->now_ns;
    if (makes_gradients(action)) {
        state->to_end[action.chunk]--;
        state->last_ns[action.chunk] = w->now_ns;
    }
}

static void end_part(world *w, int pp, int64_t end_ns)
{
    reduction_state *state = &w->reductions[pp];
    const sp_epilogue_cost *epilogue = &w->s->costs.epilogue[pp];
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
    int64_t least_ns = w->s->costs.epilogue[pp].hideable_gather_ns;
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
        sp_route route = rings(w, pp, layout->dp);
        alone_ns -= llround(1e9 * saved_s(w, &route, bytes, rounds, (double)closed_ns / 1e9));
        sp_route_fini(&route);
    }
    if (hidden_ns > 0) {
        int64_t shown_ns = alone_ns > hidden_ns ? alone_ns - hidden_ns : 0;
        bytes *= shown_ns > 0 ? (double)shown_ns / (double)alone_ns : 0.0;
        alone_ns = shown_ns;
    }
    int64_t at_ns = ready_ns > state->free_ns ? ready_ns : state->free_ns;
    if (alone_ns == 0 || layout->dp * layout->cp == 1) {
        end_part(w, pp, at_ns + alone_ns);
        return;
    }
    state->under_way = true;
    start_flow(w, A_REDUCTION, pp, rings(w, pp, layout->dp), at_ns, bytes, rounds, alone_ns);
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

static void reduce(world *w, int pp)
{
    const sp_layout *layout = &w->s->layout;
    reduction_state *state = &w->reductions[pp];
    const sp_epilogue_cost *epilogue = &w->s->costs.epilogue[pp];
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

// ---- actions ----

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
        from[i] = gpu_at(layout, i % layout->tp, i / layout->tp, rank, pp);
        gpus[i] = gpu_at(layout, i % layout->tp, i / layout->tp, rank, to);
    }
    int64_t alone_ns =
        sp_step_costs_p2p_ns(&s->costs, backward, (size_t)action.pack, pp, to, layout->pp);
    double bytes = (backward ? s->costs.p2p_b_bytes : s->costs.p2p_f_bytes)[action.pack];
    must_succeed(sp_route_pairs(w->topology, from, gpus, pairs, &route, ERR));
    alone_ns -= llround(1e9 * saved_s(w, &route, bytes * pairs, 1, (double)alone_ns / 1e9));
    start_flow(w, A_SEND, rank, route, w->now_ns, bytes * pairs, 1, alone_ns)->there_ns = there_ns;
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
    note_end(w, rank % w->s->layout.pp, *at);
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
    int heads = w->s->costs.cp_f[0].head_ranks;
    bool rings = part == 0 && heads < w->s->layout.cp;
    return rings ? rings_of_every(w, rank, heads > 1 ? heads : 1) : all_to_alls(w, rank, heads);
}

// Of a part of it: 0 keys and values, 1 heads, which are the first where they are alone.
static void start_exchange(world *w, int rank, double bytes, int part, int64_t alone_ns)
{
    start_flow(w, AN_EXCHANGE, rank, exchange_route(w, rank, part), w->now_ns, bytes, 1, alone_ns);
}

// How long a part takes alone, and what of it is shown.
static int64_t shorten(const world *w, int rank, int part, double bytes, double *s,
                       int64_t shown_ns)
{
    if (!(bytes > 0.0)) {
        return shown_ns;
    }
    sp_route route = exchange_route(w, rank, part);
    double saved = saved_s(w, &route, bytes, 1, *s);
    sp_route_fini(&route);
    *s -= saved;
    return shown_ns > llround(1e9 * saved) ? shown_ns - llround(1e9 * saved) : 0;
}

// What a rank gets of the rings of all data-parallel ranks.
static sp_route part_of_rings(const world *w, int rank)
{
    const sp_layout *layout = &w->s->layout;
    const sp_route_parts split = {sp_layout_stride(layout, SP_AXIS_DP), layout->dp};
    int64_t gpus[MOST_GPUS];
    sp_passage parts[MOST_GPUS];
    int members = list_members(w, rank % layout->pp, layout->dp, gpus);
    must_succeed(sp_passage_make_parts(w->topology, SP_ALGORITHM_RING, SP_ALL_GATHER, gpus,
                                       layout->tp, members, split, parts, ERR));
    for (int d = 0; d < layout->dp; d++) {
        if (d != rank / layout->pp) {
            sp_passage_fini(&parts[d]);
        }
    }
    return parts[rank / layout->pp].legs[0].route;
}

// The next of the turn's, if there is one.
static void start_share(world *w, int rank)
{
    rank_state *state = &w->ranks[rank];
    const int ends[] = {1, 3, 4};
    while (state->share < ends[state->turn]) {
        int next = state->share++;
        if (state->share_ns[next] > 0 && state->share_bytes[next] > 0.0) {
            state->flows++;
            start_flow(w, A_SHARE, rank, part_of_rings(w, rank), w->now_ns,
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
        start_exchange(w, rank, state->hidden_bytes, 0, state->hidden_ns);
    }
    start_share(w, rank);
}

// By how much all data-parallel ranks' exchange, whose pace each keeps, is shorter.
static double shorten_share(const world *w, int rank, sp_exchanged *of)
{
    const sp_layout *layout = &w->s->layout;
    double saved = 0.0;
    if (of->bytes > 0.0) {
        sp_route route = rings(w, rank % layout->pp, layout->dp);
        saved = saved_s(w, &route, of->bytes, 1, of->s);
        sp_route_fini(&route);
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
                          : action.kind == SP_ACTION_F ? s->costs.cp_f[action.pack]
                                                       : s->costs.cp_i[action.pack];
    if (action.kind == SP_ACTION_B || action.kind == SP_ACTION_I) {
        each.s += s->costs.cp_r[action.pack].s;
        each.bytes += s->costs.cp_r[action.pack].bytes;
        each.heads_s += s->costs.cp_r[action.pack].heads_s;
        each.heads_bytes += s->costs.cp_r[action.pack].heads_bytes;
    }
    double layers = s->costs.layers_of_vstage[vstage];
    state->runs = true;
    state->start_ns = w->now_ns;
    sp_exchanged gather = {0}, scatter = {0};
    if (s->costs.sharded != NULL && layout->dp * layout->cp > 1) {
        gather = action.kind != SP_ACTION_W ? s->costs.sharded[vstage].gather : gather;
        scatter = makes_gradients(action) ? s->costs.sharded[vstage].scatter : scatter;
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
    note_begin(w, rank, action, took_ns);
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

// Ends what is over now, and begins what can.
static void act(world *w, sp_timeline *ran)
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
        reduce(w, p);
    }
}

// ---- time ----

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
            bool runs = is_open(w, f);
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
        end_part(w, f->of, w->now_ns);
    } else if (f->kind == A_SEND) {
        *f->there_ns = w->now_ns;
        rank->awaited -= w->s->costs.blocking_transfers;
    } else if (f->kind == A_SHARE) {
        rank->flows--;
        start_share(w, f->of);
    } else if (rank->shown_ns[0] > 0 || rank->shown_ns[1] > 0) {
        int part = rank->shown_ns[0] > 0 ? 0 : 1;
        start_exchange(w, f->of, rank->shown_bytes[part], part, rank->shown_ns[part]);
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
    prepare_reductions(&w);
    must_succeed(sp_topology_new(&s->cluster, &s->network.rates, &w.topology, ERR));
    must_succeed(sp_timeline_init(ran, &s->plan, ERR));
    for (int64_t next_ns = 0; next_ns != INT64_MAX; next_ns = next_time(&w)) {
        pass(&w, next_ns);
        act(&w, ran);
        share(&w);
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
