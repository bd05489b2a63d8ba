// Remapping (Zeppelin, arXiv 2509.21841): moves against the transport problem in GLPK, their time
// in closed form, and what packs with zones take beside packs without.
#include "sim/cost/cost_private.h"
#include "solver/mip.h"
#include "solver/rows.h"
#include "tests/support/scenario_run.h"
#include "tests/support/test_main.h"

enum { MOST_RANKS = 12 };

// Whole tokens that add up to none.
static void random_surplus(sp_prng *prng, int ranks, double *surplus)
{
    double sum = 0.0;
    for (int r = 0; r + 1 < ranks; r++) {
        surplus[r] = sp_prng_below(prng, 4) == 0 ? 0.0 : (double)sp_prng_below(prng, 200) - 100.0;
        sum += surplus[r];
    }
    surplus[ranks - 1] = -sum;
}

static double cost_of(int from, int to, int node_ranks, double inside, double outside)
{
    return from / node_ranks == to / node_ranks ? inside : outside;
}

// The least cost by linear programming.
static double least_cost(const double *surplus, int ranks, int node_ranks, double inside,
                         double outside)
{
    static const sp_i_mip_options unlimited = {.time_limit_ms = 30000};
    AUTO(sp_i_mip) mip;
    sp_i_mip_result result;
    double value[MOST_RANKS * MOST_RANKS];
    sp_i_mip_init(&mip);
    for (int from = 0; from < ranks; from++) {
        for (int to = 0; to < ranks; to++) {
            sp_i_mip_add_column(&mip, 0.0, HUGE_VAL, cost_of(from, to, node_ranks, inside, outside),
                                false);
        }
    }
    for (int r = 0; r < ranks; r++) {
        sp_i_mip_add_row(&mip, surplus[r], surplus[r]);
        for (int other = 0; other < ranks; other++) {
            if (other != r) {
                sp_i_mip_add_term(&mip, r * ranks + other, 1.0);
                sp_i_mip_add_term(&mip, other * ranks + r, -1.0);
            }
        }
    }
    must_succeed(sp_i_mip_solve(&mip, &unlimited, &result, value, ERR));
    assert_int_equal(result.outcome, SP_I_MIP_OPTIMAL);
    return result.objective;
}

// No plan is cheaper, and every rank ends with none too many.
TEST_ROUNDS(greedy_is_optimal, 23, test_draws(60))
{
    double surplus[MOST_RANKS], left[MOST_RANKS];
    sp_i_move moves[MOST_RANKS];
    int ranks = 2 + prng_below(prng, MOST_RANKS - 1);
    int node_ranks = 1 + prng_below(prng, ranks);
    double inside = (double)sp_prng_below(prng, 5);
    double outside = inside + (double)sp_prng_below(prng, 10);
    random_surplus(prng, ranks, surplus);
    memcpy(left, surplus, sizeof left);
    int count = sp_i_remap(left, ranks, node_ranks, moves);
    assert_in_range(count, 0, ranks);
    double cost = 0.0;
    memcpy(left, surplus, sizeof left);
    for (int i = 0; i < count; i++) {
        assert_true(moves[i].tokens > 0.0);
        assert_true(surplus[moves[i].from] > 0.0 && surplus[moves[i].to] < 0.0);
        left[moves[i].from] -= moves[i].tokens;
        left[moves[i].to] += moves[i].tokens;
        cost += moves[i].tokens * cost_of(moves[i].from, moves[i].to, node_ranks, inside, outside);
    }
    for (int r = 0; r < ranks; r++) {
        assert_true(fabs(left[r]) < 1e-9);
    }
    assert_close(cost, least_cost(surplus, ranks, node_ranks, inside, outside), 1e-9);
}

// Two nodes of four ranks with two NICs of 100 bytes/s: a GPU has half of one.
static const sp_cluster slow_cluster = {
    .gpus_per_node = 4, .nics_per_node = 2, .nic_bytes_per_s = 100.0, .nodes = 2};
static const sp_profile slow_profile = {.nvlink_bytes_per_s = 1000.0,
                                        .nic_efficiency = 1.0,
                                        .nic_latency_s = 0.5,
                                        .p2p_latency_s = 0.25};
static const sp_op_timer slow_timer = {.cluster = &slow_cluster, .profile = &slow_profile};

// Rank 0 sends 30 tokens to rank 1 and 20 over the network, rank 5 gets these.
TEST(time_of_moves)
{
    static const sp_i_move moves[] = {{0, 1, 30.0}, {0, 5, 20.0}};
    double traffic[32];
    sp_i_remap_links links = {.ranks = 8, .node_ranks = 4, .traffic = traffic};
    assert_close(sp_i_remap_s(&slow_timer, &links, moves, 1, 10.0), 0.3 + 0.25, 1e-12);
    assert_close(sp_i_remap_s(&slow_timer, &links, moves, 2, 10.0), 200.0 / 200.0 + 0.5, 1e-12);
    links.one_nic = true;
    assert_close(sp_i_remap_s(&slow_timer, &links, moves, 2, 10.0), 200.0 / 50.0 + 0.5, 1e-12);
    assert_true(sp_i_remap_s(&slow_timer, &links, moves, 0, 10.0) <= 0.0);
}

static sp_i_zone_part zone_part(int first, int ranks, double tokens, double attention_s,
                                double ring_s)
{
    int blocks = 2 * ranks; // two context-parallel ranks each
    double exposed_s = fmax(0.0, ring_s - attention_s * (blocks - 1) / blocks);
    return (sp_i_zone_part){
        .first = first,
        .ranks = ranks,
        .blocks = blocks,
        .tokens = tokens,
        .crosses = ranks > 2,
        .of[SP_PASS_F] = {.compute_s = attention_s, .cp_s = exposed_s, .attention_s = attention_s},
        .ring_s[SP_PASS_F] = ring_s};
}

// Two nodes of two ranks. Ranks 0 and 1 attend for 13.6 s, longer than the others, and are busy
// until the rings between nodes have brought the last block: 23 s, and an eighth of 1.6 s. Rings
// that hide behind their own zone alone show 1 s, 16.5 s and 1.6 s.
TEST(time_of_zones)
{
    sp_i_zone_part part[] = {zone_part(0, 4, 0.0, 4.0, 20.0), zone_part(0, 4, 0.0, 1.6, 3.0),
                             zone_part(0, 2, 2.0, 8.0, 7.0), zone_part(2, 1, 1.0, 5.0, 0.0),
                             zone_part(3, 1, 1.0, 2.0, 0.0)};
    sp_i_zone_rank rank[4];
    double work[16];
    sp_i_move move[4];
    sp_i_zones zones = {.part = part,
                        .count = 5,
                        .rank = rank,
                        .work = work,
                        .move = move,
                        .ranks = 4,
                        .dp = 4,
                        .node_ranks = 2};
    sp_i_time time = sp_i_zones_time(&zones, &slow_timer, SP_PASS_F, 40.0);
    assert_close(time.compute_s, 13.6, 1e-12);
    assert_close(time.compute_s + time.cp_s, 23.0 + 1.6 / 8, 1e-12);
    // Rank 2 gives a token to its neighbour and two to the other node, half of the bytes each way.
    part[3].tokens = 5.0;
    time = sp_i_zones_time(&zones, &slow_timer, SP_PASS_F, 40.0);
    assert_close(time.compute_s + time.cp_s, 23.2 + 2.0 * (40.0 / 100.0 + 0.5), 1e-12);
    part[3].tokens = 1.0;
    zones.lone_rings = true;
    time = sp_i_zones_time(&zones, &slow_timer, SP_PASS_F, 40.0);
    assert_close(time.compute_s + time.cp_s, 13.6 + 1.0 + 16.5 + 1.6, 1e-12);
}

// ---- packs with zones ----

typedef struct bench {
    sp_scenario scenario;
    sp_cost_model cost;
    int64_t ids[16], tokens[16];
    sp_batch batch;
} bench;

static void bench_cost(bench *b)
{
    must_succeed(sp_scenario_cost_model(&b->scenario, &b->cost, ERR));
}

static void bench_init(bench *b, const char *stack)
{
    const char *text =
        json_text("{'model': 'llama-7b', 'cluster': 'a800-8', 'parallel': {'dp': 16}, 'workload': "
                  "{'lengths': [1]}, 'stack': {'cp_overlap': 'attention'%s}}",
                  stack);
    *b = (bench){.batch = {.count = 16}};
    must_succeed_for(text, run_read(text, &b->scenario, ERR));
    bench_cost(b);
    b->batch.ids = b->ids;
    b->batch.tokens = b->tokens;
}

static void bench_fini(bench *b)
{
    sp_cost_model_fini(&b->cost);
    sp_scenario_fini(&b->scenario);
}

// Forward and backward of one pack of all samples on all ranks, whose i-th has the i-th zone.
static double pack_s(bench *b, const int32_t *zones)
{
    AUTO(sp_packing) packing;
    sp_packing_init(&packing, &b->batch, 16);
    sp_pack_list_begin(&packing.forward, 0, 16);
    for (size_t i = 0; i < b->batch.count; i++) {
        sp_i_add_sample(&packing, (int32_t)i);
        packing.forward.slices[i].zone = zones[i];
    }
    return sp_cost_model_pack_s(&b->cost, &packing.forward, &packing.forward.packs[0]);
}

// Packs of equal samples that follow each other take as long as each does by itself.
TEST(packs_in_a_row)
{
    static bench b;
    sp_packing packing;
    sp_step_costs costs;
    bench_init(&b, "");
    sp_packing_init(&packing, &b.batch, 16);
    for (int i = 0; i < 16; i++) {
        b.tokens[i] = 4096;
        if (i % 4 == 0) {
            sp_pack_list_begin(&packing.forward, 0, 16);
        }
        sp_i_add_sample(&packing, i);
        packing.forward.slices[i].zone = i < 8 ? 0 : sp_zone_of(i % 4, 1);
    }
    packing.forward.packs[0].gathers = true;
    must_succeed(sp_cost_model_build(&b.cost, &packing, &costs, ERR));
    int64_t ns[4];
    for (int k = 0; k < 4; k++) {
        sp_cost_model_pack_ns(&b.cost, &packing.forward, &packing.forward.packs[k], false, &ns[k],
                              NULL, NULL);
        assert_int_equal(sp_action_cost_ns(&costs.action[SP_ACTION_F][k]), ns[k]);
    }
    assert_true(ns[0] != ns[1] && ns[1] != ns[2] && ns[2] == ns[3]);
    sp_step_costs_fini(&costs);
    sp_packing_fini(&packing);
    bench_fini(&b);
}

// With equal samples, each on a rank of its own, nothing moves and no ring runs: what is left is
// what the pack takes, less its ring and the calls for its blocks.
TEST(one_sample_for_each_rank)
{
    static bench b;
    int32_t own[16], all[16] = {0};
    bench_init(&b, "");
    for (int i = 0; i < 16; i++) {
        b.tokens[i] = 4096;
        own[i] = sp_zone_of(i, 1);
    }
    double own_s = pack_s(&b, own);
    double all_s = pack_s(&b, all);
    sp_pack_list alone = {0};
    sp_pack_list_begin(&alone, 0, 1);
    sp_pack_list_add(&alone, (sp_slice){.tokens = 4096, .computed_tokens = 4096}, true);
    assert_close(own_s, sp_cost_model_pack_s(&b.cost, &alone, &alone.packs[0]), 1e-9);
    assert_true(own_s < all_s);
    sp_free(alone.packs);
    sp_free(alone.slices);
    bench_fini(&b);
}

// A zone that two samples share takes their attention one after the other, and what its ranks hold
// too little of is sent: unequal zones are slower than equal ones, and rings that hide behind their
// own zone alone are no faster.
TEST(unequal_zones_take_longer)
{
    static bench b, lone;
    int32_t equal[16], unequal[16];
    bench_init(&b, ", 'cp_ring_nics': 4");
    bench_init(&lone, ", 'cp_ring_nics': 4, 'cp_lone_rings': true");
    for (int i = 0; i < 16; i++) {
        b.tokens[i] = i == 0 ? 40000 : 2000;
        lone.tokens[i] = b.tokens[i];
        equal[i] = i == 0 ? 0 : sp_zone_of(i, 1);
        unequal[i] = i == 0 ? 0 : sp_zone_of(i / 2, 1);
    }
    assert_true(pack_s(&b, equal) < pack_s(&b, unequal));
    assert_true(pack_s(&b, equal) <= pack_s(&lone, equal));
    assert_true(pack_s(&b, unequal) <= pack_s(&lone, unequal));
    bench_fini(&lone);
    bench_fini(&b);
}

// Nothing hides an exchange that is no ring, in whichever zones.
TEST(blocking_exchanges_of_zones)
{
    static const sp_cp_overlap blocking[] = {SP_CP_BLOCKING, SP_CP_SLICES, SP_CP_GATHERED,
                                             SP_CP_A2A};
    static bench b;
    int32_t halves[16];
    bench_init(&b, "");
    for (int i = 0; i < 16; i++) {
        b.tokens[i] = 4096;
        halves[i] = sp_zone_of(i % 2 * 8, 8);
    }
    for (size_t k = 0; k < sizeof blocking / sizeof blocking[0]; k++) {
        double s[2];
        for (int lone = 0; lone < 2; lone++) {
            sp_stack *stack = &b.scenario.memory.stack;
            sp_cost_model_fini(&b.cost);
            stack->cp_overlap = blocking[k];
            stack->cp_lone_rings = lone != 0;
            bench_cost(&b);
            s[lone] = pack_s(&b, halves);
        }
        assert_close(s[0], s[1], 1e-12);
    }
    bench_fini(&b);
}

// Longer by this when a rate is halved, so this is what it took.
static double taken_s(bench *b, const int32_t *zones, double *bytes_per_s)
{
    double before_s = pack_s(b, zones);
    *bytes_per_s /= 2.0;
    sp_cost_model_fini(&b->cost);
    bench_cost(b);
    double after_s = pack_s(b, zones);
    *bytes_per_s *= 2.0;
    sp_cost_model_fini(&b->cost);
    bench_cost(b);
    return after_s - before_s;
}

// Of 16 equal samples one has the rank of another: its tokens move in each layer's forward and
// backward, with queries, keys, values and results of 4096 bf16 numbers each.
TEST(bytes_of_remapping)
{
    enum { TOKENS = 4096, LAYERS = 32, NODE_RANKS = 8 };
    const double bytes = 2.0 * LAYERS * TOKENS * 4 * 4096 * 2;
    for (int nics = 1; nics <= 4; nics += 3) {
        static bench b;
        int32_t near[16], far[16];
        const char *stack = json_text(", 'cp_ring_nics': %d", nics);
        bench_init(&b, stack);
        assert_int_equal(b.scenario.memory.recompute, SP_RECOMPUTE_NONE);
        for (int i = 0; i < 16; i++) {
            b.tokens[i] = TOKENS;
            near[i] = sp_zone_of(i == 1 ? 0 : i, 1);
            far[i] = sp_zone_of(i == NODE_RANKS ? 0 : i, 1);
        }
        sp_cluster *cluster = &b.scenario.cluster;
        double nvlink = b.scenario.profile.nvlink_bytes_per_s;
        double share = cluster->nic_bytes_per_s * cluster->nics_per_node / cluster->gpus_per_node *
                       b.scenario.profile.nic_efficiency;
        assert_close(taken_s(&b, near, &b.scenario.profile.nvlink_bytes_per_s), bytes / nvlink,
                     1e-6);
        assert_close(taken_s(&b, far, &cluster->nic_bytes_per_s),
                     bytes / (nics == 1 ? share : share * NODE_RANKS), 1e-6);
        bench_fini(&b);
    }
}

TEST(zones_are_their_ranks)
{
    for (int ranks = 1; ranks <= 1 << 19; ranks *= 2) {
        for (int i = 0; i < 3; i++) {
            int32_t zone = sp_zone_of(i * ranks, ranks);
            assert_int_equal(sp_zone_ranks(zone), ranks);
            assert_int_equal(sp_zone_first(zone), i * ranks);
            assert_true(zone > 0);
        }
    }
}
