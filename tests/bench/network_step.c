// A step of a large cluster with all its data-, context- and pipeline-parallel traffic as flows:
// what the network alone costs, each tensor-parallel rank by itself and the actions at the times of
// a plain 1F1B schedule; and what the whole simulation of such a step costs, in which the walk
// waits for the flows. One JSON line for each cluster and kind on stdout.
#include <stdlib.h>
#include <sys/resource.h>

#include "sim/base/alloc.h"
#include "sim/base/prng.h"
#include "sim/model/layout.h"
#include "sim/network/route.h"
#include "sim/simulate/engine.h"
#include "tests/bench/bench.h"
#include "tests/support/uniform_packing.h"

enum { BUCKETS = 4 };

static const sp_link_rates rates = {360e9, 3e-6, 0.9, 10e-6};

#define FORWARD_NS INT64_C(20000000)
#define BACKWARD_NS INT64_C(40000000)
#define UNEVEN_NS INT64_C(5000000)
#define STAGE_BYTES 8.4e6 // 8,192 tokens of 4,096 features in bf16, over 8 tensor-parallel ranks
#define RING_BYTES 67e6   // keys and values of a rank's layers
#define GRADIENT_BYTES 2.2e9
#define GATHER_S 12e-3 // parameters of a stage, of which a forward hides all but 1 ms
#define GATHER_BYTES 0.5e9
#define BUSY_BYTES 20e9 // what a ring carries in a quarter of the step, of which half is others'

typedef struct send {
    int64_t start_ns;
    const sp_route *route;
    double bytes;
} send;

typedef struct step {
    sp_layout layout;
    int microbatches;
    bool uneven;
    sp_prng prng;
    sp_topology *topology;
    sp_route *routes;
    int route_count;
    send *sends;
    int send_count;
} step;

static int64_t rank_of(const sp_layout *l, int tp, int cp, int dp, int pp)
{
    return ((int64_t)(pp * l->dp + dp) * l->cp + cp) * l->tp + tp;
}

static int64_t forward_ns(int pp, int microbatch)
{
    return pp * FORWARD_NS + microbatch * (FORWARD_NS + BACKWARD_NS);
}

static int64_t backward_ns(const step *s, int pp, int microbatch)
{
    return s->layout.pp * FORWARD_NS + (s->layout.pp - 1 - pp) * BACKWARD_NS +
           microbatch * (FORWARD_NS + BACKWARD_NS);
}

static void add_send(step *s, int64_t start_ns, double bytes)
{
    start_ns += s->uneven ? (int64_t)sp_prng_below(&s->prng, (uint64_t)UNEVEN_NS) : 0;
    s->sends[s->send_count++] = (send){start_ns, &s->routes[s->route_count - 1], bytes};
}

static void add_stage(step *s, int64_t from, int64_t to, int pp, bool backward)
{
    sp_route_pairs(s->topology, &from, &to, 1, &s->routes[s->route_count++]);
    for (int m = 0; m < s->microbatches; m++) {
        add_send(s, backward ? backward_ns(s, pp, m) + BACKWARD_NS : forward_ns(pp, m) + FORWARD_NS,
                 STAGE_BYTES);
    }
}

static void add_group(step *s, const int64_t *gpus, int count, int pp, bool is_cp)
{
    sp_route_rings(s->topology, gpus, 1, count, &s->routes[s->route_count++]);
    for (int m = 0; is_cp && m < s->microbatches; m++) {
        add_send(s, forward_ns(pp, m), RING_BYTES);
        add_send(s, backward_ns(s, pp, m), 2.0 * RING_BYTES);
    }
    int64_t last_ns = backward_ns(s, pp, s->microbatches - 1);
    for (int b = 0; !is_cp && b < BUCKETS; b++) {
        int64_t part_ns = b * BACKWARD_NS / BUCKETS;
        int64_t reduce_ns = s->uneven ? b * last_ns / BUCKETS : last_ns + part_ns;
        double bytes = s->uneven ? BUSY_BYTES : GRADIENT_BYTES / BUCKETS;
        add_send(s, reduce_ns, bytes);
        add_send(s, last_ns + BACKWARD_NS + part_ns, 0.5 * GRADIENT_BYTES / BUCKETS);
    }
}

static void add_stage_of(step *s, int pp, int tp)
{
    const sp_layout *l = &s->layout;
    int64_t *gpus = sp_calloc((size_t)(l->dp * l->cp), sizeof *gpus);
    int count = 0;
    for (int dp = 0; dp < l->dp; dp++) {
        int first = count;
        for (int cp = 0; cp < l->cp; cp++) {
            int64_t here = rank_of(l, tp, cp, dp, pp);
            gpus[count++] = here;
            if (pp + 1 < l->pp) {
                add_stage(s, here, rank_of(l, tp, cp, dp, pp + 1), pp, false);
            }
            if (pp > 0) {
                add_stage(s, here, rank_of(l, tp, cp, dp, pp - 1), pp, true);
            }
        }
        if (l->cp > 1) {
            add_group(s, &gpus[first], l->cp, pp, true);
        }
    }
    add_group(s, gpus, count, pp, false);
    free(gpus);
}

static int compare_sends(const void *a, const void *b)
{
    const send *x = a;
    const send *y = b;
    return x->start_ns != y->start_ns ? (x->start_ns > y->start_ns) - (x->start_ns < y->start_ns)
                                      : (x > y) - (x < y);
}

static int64_t run(const step *s, sp_flows_counts *counts)
{
    sp_error err = {0};
    sp_flows *flows;
    int64_t now_ns = 0;
    require(sp_flows_new(sp_topology_bytes_per_s(s->topology), sp_topology_links(s->topology),
                         &flows, &err),
            &err);
    for (int i = 0; i < s->send_count || sp_flows_left(flows) > 0;) {
        now_ns = sp_flows_advance(flows, i < s->send_count ? s->sends[i].start_ns : INT64_MAX);
        for (; i < s->send_count && s->sends[i].start_ns <= now_ns; i++) {
            sp_flow flow = sp_route_flow(s->sends[i].route, now_ns, s->sends[i].bytes, 1);
            require(sp_flows_start(flows, &flow, NULL, &err), &err);
        }
    }
    *counts = sp_flows_count(flows);
    sp_flows_free(flows);
    return now_ns;
}

static sp_cluster cluster_for(const sp_layout *layout)
{
    sp_error err = {0};
    sp_cluster cluster;
    require(sp_cluster_builtin("h100-8", &cluster, &err), &err);
    require(sp_cluster_fit(&cluster, sp_layout_ranks(layout), "bench", &err), &err);
    return cluster;
}

static double peak_mib(void)
{
    struct rusage usage;
    getrusage(RUSAGE_SELF, &usage);
    return (double)usage.ru_maxrss / 1024.0;
}

static void measure(sp_layout layout, int microbatches, bool uneven)
{
    sp_error err = {0};
    const sp_cluster cluster = cluster_for(&layout);
    step s = {.layout = layout, .microbatches = microbatches, .uneven = uneven};
    sp_prng_seed(&s.prng, 1);
    size_t ranks = (size_t)(layout.tp * layout.cp * layout.dp * layout.pp);
    double started = thread_clock_s();
    require(sp_topology_new(&cluster, &rates, &s.topology, &err), &err);
    s.routes = sp_calloc(4 * ranks, sizeof *s.routes);
    s.sends = sp_calloc(4 * ranks * (size_t)(microbatches + BUCKETS), sizeof *s.sends);
    for (int pp = 0; pp < layout.pp; pp++) {
        for (int tp = 0; tp < layout.tp; tp++) {
            add_stage_of(&s, pp, tp);
        }
    }
    qsort(s.sends, (size_t)s.send_count, sizeof *s.sends, compare_sends);
    double built_s = thread_clock_s() - started;
    started = thread_clock_s();
    sp_flows_counts counts;
    int64_t end_ns = run(&s, &counts);
    double seconds = thread_clock_s() - started;
    printf("{\"bench\": \"network_step\", \"version\": \"%s\", \"compiler\": \"%s\", "
           "\"gpus\": %zu, \"uneven\": %s, \"links\": %d, \"flows\": %d, \"events\": %lld, "
           "\"hops_per_event\": %.1f, \"build_s\": %.3f, \"flows_s\": %.3f, "
           "\"events_per_s\": %.4g, \"peak_mib\": %.0f, \"step_ms\": %.3f}\n",
           SP_VERSION, __VERSION__, ranks, uneven ? "true" : "false",
           (int)sp_topology_links(s.topology), s.send_count, (long long)counts.events,
           (double)counts.hops / (double)counts.events, built_s, seconds,
           (double)counts.events / seconds, peak_mib(), (double)end_ns * 1e-6);
    fflush(stdout);
    for (int i = 0; i < s.route_count; i++) {
        sp_route_fini(&s.routes[i]);
    }
    free(s.routes);
    free(s.sends);
    sp_topology_free(s.topology);
}

// ---- the whole simulation ----

static void fill_packs(sp_pack_costs *packs, size_t count, double ring_bytes)
{
    for (size_t k = 0; k < count; k++) {
        packs[k].p2p_bytes = STAGE_BYTES;
        packs[k].cp = (sp_cp_exchange){.s = 2e-3, .bytes = ring_bytes};
        packs[k].cp_again = (sp_cp_exchange){.s = 2e-3};
    }
}

// Parameters gathered in every action, gradients scattered in backwards.
static void fill_sharded(const sp_layout *layout, sp_step_costs *costs)
{
    costs->shards = true;
    for (int p = 0; p < layout->pp; p++) {
        costs->sharded[p] =
            (sp_sharded_stage){.gather = {.s = GATHER_S, .bytes = GATHER_BYTES},
                               .layers_gather = {.s = GATHER_S, .bytes = GATHER_BYTES},
                               .scatter = {.s = 2.0 * GATHER_S, .bytes = 2.0 * GATHER_BYTES}};
        costs->ranks[p].epilogue = (sp_epilogue_cost){.optimizer_ns = 0};
    }
    for (size_t k = 0; k < costs->side[0].count; k++) {
        costs->action[SP_ACTION_F][k].dp_ns = 1000000;
        costs->action[SP_ACTION_B][k].dp_ns = 3000000;
    }
}

// Of actions that differ by rank and micro-batch where `uneven`.
static void fill_costs(const sp_layout *layout, bool uneven, sp_step_costs *costs)
{
    sp_prng prng;
    sp_prng_seed(&prng, 1);
    costs->has_bytes = true;
    fill_packs(costs->side[0].pack, costs->side[0].count, RING_BYTES);
    fill_packs(costs->side[1].pack, costs->side[1].count, 2.0 * RING_BYTES);
    for (size_t k = 0; k < costs->side[0].count; k++) {
        int64_t more_ns = uneven ? (int64_t)sp_prng_below(&prng, (uint64_t)UNEVEN_NS) : 0;
        costs->action[SP_ACTION_F][k] =
            (sp_action_cost){.compute_ns = FORWARD_NS + more_ns, .cp_ns = 500000};
        costs->action[SP_ACTION_B][k] =
            (sp_action_cost){.compute_ns = BACKWARD_NS + more_ns, .cp_ns = 500000};
        costs->side[0].p2p[k].internode_ns = costs->side[1].p2p[k].internode_ns = 200000;
    }
    for (int p = 0; p < layout->pp; p++) {
        costs->stages[p].layers = 1;
        costs->crosses_nodes[p] = 1;
        costs->ranks[p].epilogue = (sp_epilogue_cost){.grad_reduce_ns = 50000000,
                                                      .param_gather_ns = 25000000,
                                                      .reduce_bytes = GRADIENT_BYTES,
                                                      .gather_bytes = 0.5 * GRADIENT_BYTES};
    }
    if (layout->zero >= 3) {
        fill_sharded(layout, costs);
    }
}

static void measure_simulation(sp_layout layout, int microbatches, bool uneven)
{
    sp_error err = {0};
    const sp_cluster cluster = cluster_for(&layout);
    sp_packing packing;
    sp_plan plan;
    sp_step_costs costs;
    sp_timeline timeline;
    sp_memory_timeline memory;
    sp_engine_counts counts;
    layout.chunks = 1;
    uniform_packing(&packing, layout.dp, microbatches);
    require(plan_by_schedule(&plan, &layout, &packing, SP_SCHEDULE_1F1B, &err), &err);
    sp_i_step_costs_init(&costs, &layout, &packing, 1, false);
    fill_costs(&layout, uneven, &costs);
    const sp_network network = {.detail = SP_NETWORK_FLOWS, .cluster = &cluster, .rates = rates};
    const sp_engine_options options = {.network = &network};
    double started = thread_clock_s();
    require(sp_simulate(&plan, &costs, &options, &timeline, &memory, &counts, &err), &err);
    double seconds = thread_clock_s() - started;
    printf("{\"bench\": \"network_step_simulated\", \"version\": \"%s\", \"compiler\": \"%s\", "
           "\"gpus\": %lld, \"uneven\": %s, \"zero\": %d, \"tasks\": %zu, \"simulate_s\": %.3f, "
           "\"peak_mib\": %.0f, \"step_ms\": %.3f}\n",
           SP_VERSION, __VERSION__, (long long)sp_layout_ranks(&layout), uneven ? "true" : "false",
           layout.zero, counts.tasks, seconds, peak_mib(), (double)timeline.iteration_ns * 1e-6);
    fflush(stdout);
    sp_memory_timeline_fini(&memory);
    sp_timeline_fini(&timeline);
    sp_step_costs_fini(&costs);
    sp_plan_fini(&plan);
    sp_packing_fini(&packing);
}

int main(void)
{
    sp_layout small = {.tp = 8, .cp = 2, .pp = 8, .dp = 8};
    sp_layout large = {.tp = 8, .cp = 4, .pp = 16, .dp = 32};
    // First, since what is printed is the most memory so far.
    for (int i = 0; i < 4; i++) {
        small.zero = large.zero = i < 2 ? 1 : 3;
        measure_simulation(small, 32, i % 2 != 0);
        measure_simulation(large, 32, i % 2 != 0);
    }
    // Data-parallel ranks alone.
    for (int ranks = 1024; ranks <= 16384; ranks *= 16) {
        const sp_layout flat = {.tp = 1, .cp = 1, .pp = 1, .dp = ranks, .zero = 3};
        measure_simulation(flat, 4, true);
    }
    for (int uneven = 0; uneven < 2; uneven++) {
        measure(small, 32, uneven != 0);
        measure(large, 32, uneven != 0);
    }
    return 0;
}
