#include "tests/support/flow_step.h"

#include "tests/support/random_step.h"
#include "tests/support/test_main.h"
#include "tests/support/uniform_packing.h"

void flow_step_set_bytes(sp_step_costs *costs, double f_bytes, double b_bytes)
{
    costs->has_bytes = true;
    for (size_t k = 0; k < costs->side[0].count; k++) {
        costs->side[0].pack[k].p2p_bytes = f_bytes;
    }
    for (size_t k = 0; k < costs->side[1].count; k++) {
        costs->side[1].pack[k].p2p_bytes = b_bytes;
    }
}

void flow_step_set_cluster(flow_step *s, sp_network_detail detail)
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

static void draw_layout(sp_prng *prng, flow_step *s, sp_schedule_kind kind)
{
    s->layout = (sp_layout){.tp = 1 + prng_below(prng, 2), .cp = 1 << prng_below(prng, 3)};
    s->layout.pp = 2 + prng_below(prng, 3);
    s->layout.dp = 1 + prng_below(prng, 3);
    if (prng_below(prng, 4) == 0) { // a pipeline alone
        s->layout.cp = s->layout.dp = 1;
        s->layout.pp = 2;
    }
    s->layout.chunks = kind == SP_SCHEDULE_INTERLEAVED || kind == SP_SCHEDULE_DUALPIPE_V ? 2 : 1;
    s->layout.placement = sp_schedule_placement(kind, s->layout.chunks);
    if (prng_below(prng, 2) == 0) {
        assert_true(sp_rank_order_read("pp-tp-dp-cp", &s->layout.order));
    }
}

void flow_step_lengthen(sp_step_costs *costs)
{
    for (size_t k = 0; k < costs->side[0].count; k++) {
        costs->side[0].p2p[k].ns += 1000;
        costs->side[0].p2p[k].internode_ns += 1000;
        costs->side[1].p2p[k].ns += 1000;
        costs->side[1].p2p[k].internode_ns += 1000;
    }
}

static int64_t below(sp_prng *prng, int bound)
{
    return prng_below(prng, bound);
}

// Reductions in buckets or at once, and gathers, of `bytes` or less.
static void draw_epilogue(sp_prng *prng, flow_step *s, double bytes)
{
    sp_step_costs *costs = &s->costs;
    bool buckets = prng_below(prng, 2) == 0;
    s->layout.zero = prng_below(prng, 2);
    for (int r = 0; r < s->layout.pp; r++) {
        sp_epilogue_cost *epilogue = &costs->ranks[r].epilogue;
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
    for (int v = 0; v < sp_layout_vstages(&s->layout); v++) {
        sp_bucket_cost *bucket = &costs->buckets[v];
        *bucket = (sp_bucket_cost){.count = 1 + below(prng, 5), .bucket_ns = 5000, .bytes = bytes};
        bucket->total_ns = bucket->count * 5000 + (bucket->count > 1 ? below(prng, 3) - 1 : 0);
    }
}

void flow_step_set_exchanges(flow_step *s, double bytes)
{
    sp_step_costs *costs = &s->costs;
    size_t vstages = (size_t)sp_layout_vstages(&s->layout);
    for (size_t v = 0; v < vstages; v++) {
        costs->stages[v].layers = 2 + (int)v % 2;
    }
    for (size_t k = 0; k < costs->side[0].count; k++) {
        costs->side[0].pack[k].cp = (sp_cp_exchange){.s = 1e-6, .bytes = bytes};
        costs->side[1].pack[k].cp = (sp_cp_exchange){.s = 1e-6, .bytes = 2.0 * bytes};
        costs->side[1].pack[k].cp_again = (sp_cp_exchange){.s = 0.5e-6, .bytes = bytes};
    }
}

// Half of the groups exchange heads, among all ranks or two neighbours each of four.
static void draw_heads(sp_prng *prng, flow_step *s, double bytes)
{
    sp_step_costs *costs = &s->costs;
    int ranks = 1 << prng_below(prng, 3);
    size_t packs[] = {costs->side[0].count, costs->side[1].count, costs->side[1].count};
    ranks = ranks < s->layout.cp ? ranks : s->layout.cp;
    for (int t = 0; t < 3; t++) {
        for (size_t k = 0; k < packs[t]; k++) {
            sp_cp_exchange *exchange = t == 0   ? &costs->side[0].pack[k].cp
                                       : t == 1 ? &costs->side[1].pack[k].cp
                                                : &costs->side[1].pack[k].cp_again;
            exchange->head_ranks = ranks;
            exchange->heads_s = ranks > 1 ? 0.2e-6 : 0.0;
            exchange->heads_bytes = ranks > 1 ? bytes : 0.0;
            if (ranks == s->layout.cp && ranks > 1) {
                exchange->s = exchange->bytes = 0.0;
            }
        }
    }
}

// A class of actions shows something of what it exchanges.
static void set_shown(sp_prng *prng, sp_action_cost *costs, size_t count, bool exchanges)
{
    for (size_t i = 0; i < count; i++) {
        costs[i].dp_ns = exchanges ? below(prng, 2000) : 0;
    }
}

void flow_step_draw_sharded(sp_prng *prng, flow_step *s, double bytes)
{
    sp_step_costs *costs = &s->costs;
    int zero = 2 * prng_below(prng, 2) + prng_below(prng, 2);
    int vstages = sp_layout_vstages(&s->layout);
    size_t classes = (size_t)costs->classes;
    size_t backward = costs->side[1].count * classes;
    set_shown(prng, costs->action[SP_ACTION_F], costs->side[0].count * classes, zero == 3);
    set_shown(prng, costs->action[SP_ACTION_I], backward, zero == 3);
    set_shown(prng, costs->action[SP_ACTION_W], backward, zero >= 2);
    set_shown(prng, costs->action[SP_ACTION_R], backward, false);
    for (size_t i = 0; i < backward; i++) {
        costs->action[SP_ACTION_B][i].dp_ns =
            costs->action[SP_ACTION_I][i].dp_ns + costs->action[SP_ACTION_W][i].dp_ns;
    }
    if (zero < 2) {
        return;
    }
    s->layout.zero = zero;
    s->layout.lone_gathers = true; // what ranks wait for is drawn with their times
    sp_free(costs->buckets);
    costs->buckets = NULL;
    costs->shards = true;
    for (int v = 0; v < vstages; v++) {
        sp_sharded_stage *of = &costs->sharded[v];
        of->scatter = (sp_exchanged){.s = 1e-6 + 2e-6 * sp_prng_uniform(prng), .bytes = bytes};
        if (zero == 3) {
            of->gather =
                (sp_exchanged){.s = 1e-6 + 2e-6 * sp_prng_uniform(prng), .bytes = 0.5 * bytes};
            of->layers_gather = of->gather;
        }
    }
}

void flow_step_draw(sp_prng *prng, flow_step *s, bool busy)
{
    static const sp_schedule_kind kinds[] = {SP_SCHEDULE_GPIPE, SP_SCHEDULE_1F1B,
                                             SP_SCHEDULE_INTERLEAVED, SP_SCHEDULE_ZB_H1,
                                             SP_SCHEDULE_DUALPIPE_V};
    sp_schedule_kind kind = kinds[prng_below(prng, 5)];
    draw_layout(prng, s, kind);
    uniform_packing(&s->packing, s->layout.dp, 2 * s->layout.pp);
    random_costs(prng, &s->layout, &s->packing, 0, &s->costs);
    s->costs.blocking_transfers = prng_below(prng, 2) == 0;
    double part = busy ? 1.0 : 0.001;
    flow_step_lengthen(&s->costs);
    flow_step_set_bytes(&s->costs, 20000.0 * part, 30000.0 * part);
    draw_epilogue(prng, s, 100000.0 * part);
    flow_step_draw_sharded(prng, s, 30000.0 * part);
    flow_step_set_exchanges(s, 2000.0 * part);
    draw_heads(prng, s, 1000.0 * part);
    must_succeed(plan_by_schedule(&s->plan, &s->layout, &s->packing, kind, ERR));
    flow_step_set_cluster(s, SP_NETWORK_FLOWS);
    s->cluster.nics_per_node = busy ? 1 : 2;
}

void flow_step_fini(flow_step *s)
{
    sp_plan_fini(&s->plan);
    sp_step_costs_fini(&s->costs);
    sp_packing_fini(&s->packing);
}

void flow_step_draw_spine(sp_prng *prng, flow_step *s)
{
    if (prng_below(prng, 2) == 0) {
        s->cluster.fabric.nodes_per_leaf = 1;
        s->cluster.fabric.oversubscription = 1.0 + sp_prng_uniform(prng);
        s->cluster.fabric.spine_latency_s = prng_below(prng, 2) * 1e-6;
    }
}

void flow_step_draw_algorithms(sp_prng *prng, flow_step *s)
{
    for (int p = 0; p < s->layout.pp; p++) {
        sp_epilogue_cost *epilogue = &s->costs.ranks[p].epilogue;
        epilogue->reduces_by = (sp_collective_algorithm)prng_below(prng, SP_ALGORITHM_AUTO);
        epilogue->gathers_by = (sp_collective_algorithm)prng_below(prng, SP_ALGORITHM_AUTO);
    }
    for (int v = 0; s->costs.buckets != NULL && v < sp_layout_vstages(&s->layout); v++) {
        s->costs.buckets[v].reduces_by =
            (sp_collective_algorithm)prng_below(prng, SP_ALGORITHM_AUTO);
    }
    for (int v = 0; s->costs.shards && v < sp_layout_vstages(&s->layout); v++) {
        sp_sharded_stage *of = &s->costs.sharded[v];
        of->gathers_by = (sp_collective_algorithm)prng_below(prng, SP_ALGORITHM_AUTO);
        of->scatters_by = (sp_collective_algorithm)prng_below(prng, SP_ALGORITHM_AUTO);
    }
}
