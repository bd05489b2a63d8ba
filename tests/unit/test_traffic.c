// A step's transfers as flows that share links: where no link is full they take their closed times,
// to the nanosecond; where links are shared every action runs when a small event simulation that is
// written here by itself says so. Every run is checked against igraph's longest path.
#include "sim/base/alloc.h"
#include "sim/cost/action_cost.h"
#include "sim/engine/engine.h"
#include "sim/network/route.h"
#include "tests/support/random_step.h"
#include "tests/support/test_main.h"
#include "tests/support/uniform_packing.h"

typedef struct step {
    sp_layout layout;
    sp_packing packing;
    sp_plan plan;
    sp_step_costs costs;
    sp_cluster cluster;
    sp_network network;
} step;

static void set_bytes(sp_step_costs *costs, double f_bytes, double b_bytes)
{
    costs->p2p_f_bytes = sp_calloc(costs->forward_packs, sizeof(double));
    costs->p2p_b_bytes = sp_calloc(costs->backward_packs, sizeof(double));
    assert_true(costs->p2p_f_bytes != NULL && costs->p2p_b_bytes != NULL);
    for (size_t k = 0; k < costs->forward_packs; k++) {
        costs->p2p_f_bytes[k] = f_bytes;
    }
    for (size_t k = 0; k < costs->backward_packs; k++) {
        costs->p2p_b_bytes[k] = b_bytes;
    }
}

// Nodes of two GPUs and one NIC of 10 GB/s: 10 bytes a nanosecond.
static void set_cluster(step *s, sp_network_detail detail)
{
    must_succeed(sp_cluster_builtin("h100-8", &s->cluster, ERR));
    s->cluster.gpus_per_node = 2;
    s->cluster.nics_per_node = 1;
    s->cluster.nic_bytes_per_s = 10e9;
    s->cluster.nodes = (int)((sp_layout_ranks(&s->layout) + 1) / 2);
    s->cluster.fabric = (sp_fabric){.rails = 1, .oversubscription = 1.0};
    s->network = (sp_network){.detail = detail,
                              .cluster = &s->cluster,
                              .rates = {.nvlink_bytes_per_s = 100e9,
                                        .nvlink_latency_s = 50e-9,
                                        .nic_efficiency = 1.0,
                                        .nic_latency_s = 100e-9}};
}

static void draw_layout(sp_prng *prng, step *s, sp_schedule_kind kind)
{
    s->layout = (sp_layout){.tp = 1 + prng_below(prng, 2), .cp = 1 + prng_below(prng, 2)};
    s->layout.pp = 2 + prng_below(prng, 3);
    s->layout.dp = 1 + prng_below(prng, 3);
    s->layout.chunks = kind == SP_SCHEDULE_INTERLEAVED || kind == SP_SCHEDULE_DUALPIPE_V ? 2 : 1;
    s->layout.placement = sp_schedule_placement(kind, s->layout.chunks);
    if (prng_below(prng, 2) == 0) {
        assert_true(sp_rank_order_read("pp-tp-dp-cp", &s->layout.order));
    }
}

// Longer than any latency.
static void lengthen(sp_step_costs *costs)
{
    for (size_t k = 0; k < costs->forward_packs; k++) {
        costs->p2p_f_ns[k] += 1000;
        costs->p2p_f_internode_ns[k] += 1000;
        costs->p2p_b_ns[k] += 1000;
        costs->p2p_b_internode_ns[k] += 1000;
    }
}

static int64_t below(sp_prng *prng, int bound)
{
    return prng_below(prng, bound);
}

// Reductions in buckets or at once, and gathers, of `bytes` or less.
static void draw_epilogue(sp_prng *prng, step *s, double bytes)
{
    sp_step_costs *costs = &s->costs;
    bool buckets = prng_below(prng, 2) == 0;
    s->layout.zero = prng_below(prng, 2);
    for (int r = 0; r < s->layout.pp; r++) {
        sp_epilogue_cost *epilogue = &costs->epilogue[r];
        epilogue->tied_reduce_ns = below(prng, 2) * below(prng, 500);
        epilogue->grad_reduce_ns = epilogue->tied_reduce_ns + (buckets ? 0 : 20000);
        epilogue->param_gather_ns = 20000 + below(prng, 9000);
        epilogue->hideable_gather_ns = below(prng, 2) * below(prng, 9000);
        epilogue->reduce_bytes = epilogue->gather_bytes = bytes * sp_prng_uniform(prng);
    }
    if (!buckets) {
        return;
    }
    costs->buckets = sp_calloc((size_t)sp_layout_vstages(&s->layout), sizeof *costs->buckets);
    assert_non_null(costs->buckets);
    for (int v = 0; v < sp_layout_vstages(&s->layout); v++) {
        sp_bucket_cost *bucket = &costs->buckets[v];
        *bucket = (sp_bucket_cost){.count = 1 + below(prng, 5), .bucket_ns = 5000, .bytes = bytes};
        bucket->total_ns = bucket->count * 5000 + (bucket->count > 1 ? below(prng, 3) - 1 : 0);
    }
}

// Exchanges of context-parallel ranks that take at least what the random costs show of them.
static void set_exchanges(step *s, double bytes)
{
    sp_step_costs *costs = &s->costs;
    size_t vstages = (size_t)sp_layout_vstages(&s->layout);
    costs->cp_f = sp_calloc(costs->forward_packs, sizeof *costs->cp_f);
    costs->cp_i = sp_calloc(costs->backward_packs, sizeof *costs->cp_i);
    costs->cp_r = sp_calloc(costs->backward_packs, sizeof *costs->cp_r);
    costs->layers_of_vstage = sp_calloc(vstages, sizeof *costs->layers_of_vstage);
    assert_true(costs->cp_f != NULL && costs->cp_i != NULL && costs->cp_r != NULL &&
                costs->layers_of_vstage != NULL);
    for (size_t v = 0; v < vstages; v++) {
        costs->layers_of_vstage[v] = 2;
    }
    for (size_t k = 0; k < costs->forward_packs; k++) {
        costs->cp_f[k] = (sp_cp_exchange){.s = 1e-6, .bytes = bytes};
        costs->cp_i[k] = (sp_cp_exchange){.s = 1e-6, .bytes = 2.0 * bytes};
    }
}

// Of random costs; `busy`: transfers that fill links, else they take a thousandth of what is there.
static void draw(sp_prng *prng, step *s, bool busy)
{
    static const sp_schedule_kind kinds[] = {SP_SCHEDULE_GPIPE, SP_SCHEDULE_1F1B,
                                             SP_SCHEDULE_INTERLEAVED, SP_SCHEDULE_ZB_H1,
                                             SP_SCHEDULE_DUALPIPE_V};
    sp_schedule_kind kind = kinds[prng_below(prng, 5)];
    draw_layout(prng, s, kind);
    must_succeed(uniform_packing(&s->packing, s->layout.dp, 2 * s->layout.pp, ERR));
    random_costs(prng, &s->layout, &s->packing, 0, &s->costs);
    s->costs.blocking_transfers = prng_below(prng, 2) == 0;
    double part = busy ? 1.0 : 0.001;
    lengthen(&s->costs);
    set_bytes(&s->costs, 20000.0 * part, 30000.0 * part);
    draw_epilogue(prng, s, 100000.0 * part);
    set_exchanges(s, 2000.0 * part);
    must_succeed(plan_by_schedule(&s->plan, &s->layout, &s->packing, kind, ERR));
    set_cluster(s, SP_NETWORK_FLOWS);
}

static void step_fini(step *s)
{
    sp_plan_fini(&s->plan);
    sp_step_costs_fini(&s->costs);
    sp_packing_fini(&s->packing);
}

static void run(const step *s, const sp_network *network, sp_timeline *timeline)
{
    const sp_engine_options options = {.verify = true, .unfold = true, .network = network};
    sp_memory_timeline memory;
    sp_engine_counts counts;
    must_succeed(sp_simulate(&s->plan, &s->costs, &options, timeline, &memory, &counts, ERR));
    sp_memory_timeline_fini(&memory);
}

static void assert_same(const sp_timeline *a, const sp_timeline *b)
{
    assert_int_equal(a->rank_count, b->rank_count);
    for (size_t r = 0; r < a->rank_count; r++) {
        assert_int_equal(a->ranks[r].count, b->ranks[r].count);
        assert_memory_equal(a->ranks[r].spans, b->ranks[r].spans,
                            a->ranks[r].count * sizeof *a->ranks[r].spans);
        assert_int_equal(a->ranks[r].gather_end_ns, b->ranks[r].gather_end_ns);
    }
    assert_int_equal(a->iteration_ns, b->iteration_ns);
}

static void compare(const step *s, const sp_network *first, const sp_network *second)
{
    sp_timeline a, b;
    run(s, first, &a);
    run(s, second, &b);
    assert_same(&a, &b);
    sp_timeline_fini(&a);
    sp_timeline_fini(&b);
}

TEST(links_that_are_never_full_change_nothing)
{
    sp_prng prng = prng_seeded(3);
    for (int round = 0; round < test_rounds(40); round++) {
        step s;
        draw(&prng, &s, false);
        compare(&s, NULL, &s.network);
        step_fini(&s);
    }
}

// Also where some transfers cannot meet others and take their closed times.
TEST(auto_is_flows)
{
    sp_prng prng = prng_seeded(4);
    for (int round = 0; round < test_rounds(40); round++) {
        step s;
        draw(&prng, &s, true);
        sp_network quick = s.network;
        quick.detail = SP_NETWORK_AUTO;
        compare(&s, &quick, &s.network);
        step_fini(&s);
    }
}

// ---- an event simulation of its own ----

// All happens in the order of time, one nanosecond after another in which something does.

enum { MOST_FLOWS = 8192, MOST_LINKS = 256, MOST_CHUNKS = 2, MOST_PP = 4 };

typedef enum flow_kind { A_SEND, AN_EXCHANGE, A_REDUCTION } flow_kind;

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
    int64_t shown_ns;         // of its exchange, behind what is hidden
    double shown_bytes;
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
    const step *s;
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

static int compare_gpus(const void *a, const void *b)
{
    int64_t x = *(const int64_t *)a;
    int64_t y = *(const int64_t *)b;
    return (x > y) - (x < y);
}

// Rings over the context-parallel ranks of `ranks` data-parallel ranks from one on.
static sp_route rings(const world *w, int first_rank, int ranks)
{
    const sp_layout *layout = &w->s->layout;
    int64_t gpus[64];
    int members = ranks * layout->cp;
    sp_route route;
    assert_true(layout->tp * members <= 64);
    for (int tp = 0; tp < layout->tp; tp++) {
        for (int m = 0; m < members; m++) {
            int rank = first_rank + m / layout->cp * layout->pp;
            gpus[tp * members + m] =
                gpu_at(layout, tp, m % layout->cp, rank, first_rank % layout->pp);
        }
        qsort(&gpus[tp * members], (size_t)members, sizeof *gpus, compare_gpus);
    }
    must_succeed(sp_route_rings(w->topology, gpus, layout->tp, members, &route, ERR));
    route.latency_s /= members - 1;
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

static void start_part(world *w, int pp, int64_t ready_ns, int64_t alone_ns, double bytes,
                       int rounds)
{
    const sp_layout *layout = &w->s->layout;
    reduction_state *state = &w->reductions[pp];
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
               last ? last_bytes : b->bytes - last_bytes, layout->zero == 0 ? 2 : 1);
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
                       epilogue->reduce_bytes, layout->zero == 0 ? 2 : 1);
        } else {
            double gathered = (double)epilogue->param_gather_ns;
            double hidden = (double)hidden_ns(w, pp);
            start_part(w, pp, 0, epilogue->param_gather_ns - hidden_ns(w, pp),
                       epilogue->gather_bytes * (1.0 - hidden / gathered), 1);
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
    const step *s = w->s;
    const sp_layout *layout = &s->layout;
    int pairs = layout->tp * layout->cp;
    int64_t from[4], gpus[4];
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

static void begin_action(world *w, int rank, sp_action action)
{
    const step *s = w->s;
    const sp_layout *layout = &s->layout;
    rank_state *state = &w->ranks[rank];
    int vstage = sp_layout_vstage(layout, rank % layout->pp, action.chunk);
    sp_action_cost took = sp_action_cost_of(&s->plan, &s->costs, action, vstage, false);
    int64_t took_ns = sp_action_cost_ns(&took);
    sp_cp_exchange each = action.kind == SP_ACTION_W   ? (sp_cp_exchange){0}
                          : action.kind == SP_ACTION_F ? s->costs.cp_f[action.pack]
                                                       : s->costs.cp_i[action.pack];
    double layers = s->costs.layers_of_vstage[vstage];
    note_begin(w, rank, action, took_ns);
    state->runs = true;
    state->start_ns = w->now_ns;
    state->end_ns = w->now_ns + took_ns;
    if (layout->cp > 1 && each.s > 0.0) {
        double shown = fmin(1.0, (double)took.cp_ns * 1e-9 / (layers * each.s));
        state->end_ns = -1;
        state->shown_ns = took.cp_ns;
        state->shown_bytes = shown * layers * each.bytes;
        start_flow(w, AN_EXCHANGE, rank, rings(w, rank, 1), w->now_ns,
                   (1.0 - shown) * layers * each.bytes, 1, took_ns - took.cp_ns);
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

// Ends what is over now, and begins what can.
static void act(world *w, sp_timeline *ran)
{
    int ranks = w->s->layout.dp * w->s->layout.pp;
    for (bool more = true; more;) {
        more = false;
        for (int r = 0; r < ranks; r++) {
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
    } else if (rank->shown_ns > 0) {
        start_flow(w, AN_EXCHANGE, f->of, rings(w, f->of, 1), w->now_ns, rank->shown_bytes, 1,
                   rank->shown_ns);
        rank->shown_ns = 0;
    } else {
        rank->end_ns = w->now_ns;
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

static void simulate(const step *s, sp_timeline *ran)
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

// Nanoseconds are rounded at every change of a rate there and at every event here.
TEST(a_step_event_by_event)
{
    sp_prng prng = prng_seeded(5);
    for (int round = 0; round < test_rounds(60); round++) {
        step s;
        sp_timeline walked, expected;
        draw(&prng, &s, true);
        run(&s, &s.network, &walked);
        simulate(&s, &expected);
        for (size_t r = 0; r < walked.rank_count; r++) {
            for (size_t a = 0; a < walked.ranks[r].count; a++) {
                assert_within((double)walked.ranks[r].spans[a].start_ns,
                              (double)expected.ranks[r].spans[a].start_ns, 200.0);
            }
            assert_within((double)walked.ranks[r].gather_end_ns,
                          (double)expected.ranks[r].gather_end_ns, 200.0);
        }
        sp_timeline_fini(&walked);
        sp_timeline_fini(&expected);
        step_fini(&s);
    }
}

// ---- closed forms ----

enum { F_NS = 10000, B_NS = 20000 };

// One micro-batch of 40,000 bytes on each of dp pipelines of two stages, whose first stages are in
// one node and the last in another: with two, they share its NIC.
static int64_t makespan_ns(const char *order, int dp, double rate, sp_network_detail detail)
{
    step s = {.layout = {.tp = 1, .cp = 1, .pp = 2, .dp = dp, .chunks = 1}};
    sp_timeline timeline;
    assert_true(sp_rank_order_read(order, &s.layout.order));
    must_succeed(uniform_packing(&s.packing, dp, 1, ERR));
    must_succeed(sp_i_step_costs_init(&s.costs, &s.layout, &s.packing, 1, false, ERR));
    set_bytes(&s.costs, 40000.0, 40000.0);
    s.costs.crosses_nodes[0] = s.costs.crosses_nodes[1] = 1;
    for (int k = 0; k < dp; k++) {
        s.costs.f[k].compute_ns = F_NS;
        s.costs.b[k].compute_ns = B_NS;
        s.costs.p2p_f_internode_ns[k] = s.costs.p2p_b_internode_ns[k] =
            llround(40000.0 / rate * 1e9);
    }
    must_succeed(plan_by_schedule(&s.plan, &s.layout, &s.packing, SP_SCHEDULE_1F1B, ERR));
    set_cluster(&s, detail);
    s.cluster.nodes = 2;
    s.cluster.nic_bytes_per_s = rate;
    s.network.rates.nic_latency_s = 0.0;
    s.cluster.gpus_per_node = dp;
    run(&s, &s.network, &timeline);
    int64_t ns = timeline.makespan_ns;
    sp_timeline_fini(&timeline);
    step_fini(&s);
    return ns;
}

// Both pipelines send a hidden state from node to node and a gradient back; both stages reduce
// inside their nodes.
TEST(bytes_on_links)
{
    step s = {.layout = {.tp = 1, .cp = 1, .pp = 2, .dp = 2, .chunks = 1, .zero = 0}};
    sp_topology *topology;
    double *bytes;
    double sums[SP_LINK_KINDS][2] = {{0.0}};
    must_succeed(uniform_packing(&s.packing, 2, 1, ERR));
    must_succeed(sp_i_step_costs_init(&s.costs, &s.layout, &s.packing, 1, false, ERR));
    set_bytes(&s.costs, 40000.0, 30000.0);
    for (int k = 0; k < 2; k++) {
        s.costs.p2p_f_ns[k] = s.costs.p2p_b_ns[k] = 100000;
        s.costs.epilogue[k].grad_reduce_ns = 100000;
        s.costs.epilogue[k].reduce_bytes = 5000.0;
    }
    must_succeed(plan_by_schedule(&s.plan, &s.layout, &s.packing, SP_SCHEDULE_1F1B, ERR));
    set_cluster(&s, SP_NETWORK_CLOSED);
    must_succeed(sp_step_traffic(&s.plan, &s.costs, &s.network, &topology, &bytes, ERR));
    for (int32_t l = 0; l < sp_topology_links(topology); l++) {
        sp_link link = sp_topology_link(topology, l);
        sums[link.kind][link.inward] += bytes[l];
    }
    for (int inward = 0; inward < 2; inward++) {
        // An all-reduce of n ranks sends 2 (n - 1) / n of the tensor from each.
        assert_close(sums[SP_LINK_NIC][inward], 2 * (40000.0 + 30000.0), 1e-12);
        assert_close(sums[SP_LINK_NVLINK][inward], 2 * 2 * 5000.0, 1e-12);
    }
    sp_topology_free(topology);
    sp_free(bytes);
    step_fini(&s);
}

TEST(two_pipelines_on_one_nic)
{
    const int64_t work_ns = 2 * (F_NS + B_NS);
    for (int detail = 0; detail < 3; detail++) {
        int times = detail == SP_NETWORK_CLOSED ? 1 : 2;
        sp_network_detail of = (sp_network_detail)detail;
        const char *order = "tp-cp-dp-pp";
        assert_int_equal(makespan_ns(order, 1, 10e9, of), work_ns + 2 * 4000);
        assert_int_equal(makespan_ns(order, 2, 10e9, of), work_ns + 2 * times * 4000);
        assert_int_equal(makespan_ns(order, 2, 20e9, of), work_ns + 2 * times * 2000);
        assert_int_equal(makespan_ns(order, 4, 20e9, of), work_ns + 2 * times * times * 2000);
        // Each pipeline in a node of its own.
        assert_int_equal(makespan_ns("pp-tp-cp-dp", 2, 10e9, of), work_ns + 2 * 4000);
    }
}

// Two pipeline ranks of each node reduce over its one NIC, 40,000 bytes in 2000 ns alone, by rings
// that carry half of them. The last stage begins as much earlier as the first takes to run its
// backward and to get what it needs for that; from then on each has half of the NIC.
static void run_reductions(int64_t b_ns, sp_network_detail detail, sp_timeline *timeline)
{
    step s = {.layout = {.tp = 1, .cp = 1, .pp = 2, .dp = 2, .chunks = 1, .zero = 1}};
    assert_true(sp_rank_order_read("tp-pp-cp-dp", &s.layout.order));
    must_succeed(uniform_packing(&s.packing, 2, 1, ERR));
    must_succeed(sp_i_step_costs_init(&s.costs, &s.layout, &s.packing, 1, false, ERR));
    set_bytes(&s.costs, 0.0, 0.0);
    for (int k = 0; k < 2; k++) {
        s.costs.f[k].compute_ns = F_NS;
        s.costs.b[k].compute_ns = b_ns;
        s.costs.epilogue[k].grad_reduce_ns = 2000;
        s.costs.epilogue[k].reduce_bytes = 40000.0;
    }
    must_succeed(plan_by_schedule(&s.plan, &s.layout, &s.packing, SP_SCHEDULE_1F1B, ERR));
    set_cluster(&s, detail);
    s.network.rates.nic_latency_s = 0.0;
    run(&s, &s.network, timeline);
    step_fini(&s);
}

TEST(two_stages_reduce_over_one_nic)
{
    enum { ALONE_NS = 2000 };
    for (int64_t b_ns = 500; b_ns <= 2500; b_ns += 500) {
        int64_t last_ns = 2 * F_NS + b_ns;
        int64_t first_ns = last_ns + b_ns;
        int64_t left_ns = b_ns < ALONE_NS ? ALONE_NS - b_ns : 0;
        for (int detail = 0; detail < 3; detail++) {
            bool shared = detail != SP_NETWORK_CLOSED;
            sp_timeline timeline;
            run_reductions(b_ns, (sp_network_detail)detail, &timeline);
            for (size_t r = 0; r < timeline.rank_count; r++) {
                int64_t alone_ns = (timeline.ranks[r].pp == 0 ? first_ns : last_ns) + ALONE_NS;
                assert_int_equal(timeline.ranks[r].reduce_end_ns,
                                 alone_ns + (shared ? left_ns : 0));
            }
            sp_timeline_fini(&timeline);
        }
    }
}

// One forward on each of two data-parallel ranks, whose context-parallel ranks lie in two nodes:
// both groups exchange over the same NICs, by rings that carry half of the bytes. Of whole_ns in
// all, shown_ns come after 10,000 ns of computation.
static int64_t exchange_ns(double bytes, int64_t whole_ns, int64_t shown_ns,
                           sp_network_detail detail)
{
    step s = {.layout = {.tp = 1, .cp = 2, .pp = 1, .dp = 2, .chunks = 1}};
    sp_timeline timeline;
    assert_true(sp_rank_order_read("dp-tp-cp-pp", &s.layout.order));
    must_succeed(uniform_packing(&s.packing, 2, 1, ERR));
    must_succeed(sp_i_step_costs_init(&s.costs, &s.layout, &s.packing, 1, false, ERR));
    set_bytes(&s.costs, 0.0, 0.0);
    set_exchanges(&s, 0.5 * bytes);
    for (int k = 0; k < 2; k++) {
        s.costs.cp_f[k].s = (double)whole_ns / 2.0 * 1e-9;
        s.costs.cp_i[k].s = 0.0;
        s.costs.f[k] = (sp_action_cost){.compute_ns = F_NS, .cp_ns = shown_ns};
    }
    must_succeed(plan_by_schedule(&s.plan, &s.layout, &s.packing, SP_SCHEDULE_1F1B, ERR));
    set_cluster(&s, detail);
    s.network.rates.nic_latency_s = 0.0;
    run(&s, &s.network, &timeline);
    const sp_span *span = &timeline.ranks[1].spans[0];
    int64_t ns = span->end_ns - span->start_ns;
    assert_int_equal(span->cp_ns, ns - F_NS);
    sp_timeline_fini(&timeline);
    step_fini(&s);
    return ns;
}

TEST(two_groups_exchange_over_one_nic)
{
    for (int detail = 0; detail < 3; detail++) {
        sp_network_detail of = (sp_network_detail)detail;
        bool shared = detail != SP_NETWORK_CLOSED;
        // In the open, with a NIC of 10 bytes a nanosecond full.
        assert_int_equal(exchange_ns(20000.0, 1000, 1000, of), F_NS + (shared ? 2000 : 1000));
        // Behind the computation, at a tenth of the NIC each, and at three quarters.
        assert_int_equal(exchange_ns(20000.0, 1000, 0, of), F_NS);
        assert_int_equal(exchange_ns(150000.0, 7500, 0, of), shared ? 15000 : F_NS);
        // Four fifths behind it, where both fit, and the rest in the open.
        assert_int_equal(exchange_ns(50000.0, 2500, 500, of), F_NS + (shared ? 1000 : 500));
    }
}

static void add_actions(step *s, int dp, int pp, const char *actions)
{
    for (const char *c = actions; *c != '\0'; c += 2) {
        sp_action_kind kind = *c == 'F' ? SP_ACTION_F : SP_ACTION_B;
        assert_true(sp_stage_plan_add(sp_plan_stage(&s->plan, dp, pp), kind, 0, c[1] - '0'));
    }
}

// On GPUs that differ, alone on the network and not.
static void run_apart(const step *s, int seed)
{
    for (int shared = 0; shared < 2; shared++) {
        const sp_engine_options options = {.verify = true,
                                           .jitter = {0.1, (uint64_t)seed},
                                           .network = shared == 0 ? NULL : &s->network};
        sp_timeline timeline;
        sp_memory_timeline memory;
        sp_engine_counts counts;
        must_succeed(sp_simulate(&s->plan, &s->costs, &options, &timeline, &memory, &counts, ERR));
        sp_memory_timeline_fini(&memory);
        sp_timeline_fini(&timeline);
    }
}

// Pack 0 is on both data-parallel ranks, pack 1 on the first, pack 2 on the second.
TEST(merged_packs)
{
    static const int ranks[3][2] = {{0, 2}, {0, 1}, {1, 1}};
    sp_prng prng = prng_seeded(8);
    for (int round = 0; round < 20; round++) {
        step s = {.layout = {.tp = 1, .cp = 1, .pp = 2, .dp = 2, .chunks = 1}};
        sp_packing_init(&s.packing, NULL, 2);
        for (int k = 0; k < 3; k++) {
            assert_true(sp_pack_list_begin(&s.packing.forward, ranks[k][0], ranks[k][1]));
        }
        random_costs(&prng, &s.layout, &s.packing, 0, &s.costs);
        lengthen(&s.costs);
        set_bytes(&s.costs, round % 2 == 0 ? 20.0 : 20000.0, 20.0);
        set_exchanges(&s, round % 2 == 0 ? 2.0 : 2000.0);
        must_succeed(sp_plan_init(&s.plan, &s.layout, &s.packing, ERR));
        add_actions(&s, 0, 0, "F0F1B0B1");
        add_actions(&s, 0, 1, "F0B0F1B1");
        add_actions(&s, 1, 0, "F2F0B2B0");
        add_actions(&s, 1, 1, "F2B2F0B0");
        must_succeed(sp_plan_check(&s.plan, "test", ERR));
        set_cluster(&s, SP_NETWORK_FLOWS);
        sp_network quick = s.network;
        quick.detail = SP_NETWORK_AUTO;
        compare(&s, &quick, &s.network);
        if (round % 2 == 0) {
            compare(&s, NULL, &s.network);
        }
        run_apart(&s, round);
        step_fini(&s);
    }
}

// ---- refusals ----

TEST(allocations_that_fail)
{
    sp_prng prng = prng_seeded(9);
    step s;
    draw(&prng, &s, true);
    for (int detail = 1; detail < 3; detail++) {
        const sp_engine_options options = {.network = &s.network};
        s.network.detail = (sp_network_detail)detail;
        for (memory_failures failing = {0}; memory_fails(&failing);) {
            sp_timeline timeline;
            sp_memory_timeline memory;
            sp_engine_counts counts;
            sp_error_clear(ERR);
            memory_try(&failing,
                       sp_simulate(&s.plan, &s.costs, &options, &timeline, &memory, &counts, ERR),
                       ERR);
            sp_timeline_fini(&timeline);
            sp_memory_timeline_fini(&memory);
        }
    }
    step_fini(&s);
}

TEST(what_flows_do_not_go_with)
{
    sp_prng prng = prng_seeded(6);
    step s;
    sp_timeline timeline;
    sp_memory_timeline memory;
    sp_engine_counts counts;
    draw(&prng, &s, true);
    const sp_engine_options options = {.network = &s.network};
    s.plan.layout.vocab_parallel = true;
    must_fail(sp_simulate(&s.plan, &s.costs, &options, &timeline, &memory, &counts, ERR),
              SP_ERR_CONTENT, "network.detail: flows do not go with parallel.vocab_parallel");
    s.plan.layout.vocab_parallel = false;
    sp_free(s.costs.p2p_f_bytes);
    s.costs.p2p_f_bytes = NULL;
    must_fail(sp_simulate(&s.plan, &s.costs, &options, &timeline, &memory, &counts, ERR),
              SP_ERR_CONTENT, "network.detail: uniform costs have no bytes");
    step_fini(&s);
}
