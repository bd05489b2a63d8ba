#include "tests/support/flat_profile.h"
#include "tests/support/initializers.h"
#include "tests/support/test_main.h"

#include "sim/cost/cost_model.h"
#include "sim/cost/op_time.h"

// A profile without memory traffic, latencies or launch floors leaves FLOPs / rate.
static const char *const arithmetic_only[] = {"memory.gb_per_s=1e15", "links.nvlink_latency_us=0",
                                              "links.nic_latency_us=0", NULL};

static const sp_model llama = {.name = "small", LLAMA_SHAPE(8, 1024, 2816, 8, 4, 32000)};

// Linear FLOPs of a token in one layer: 2 per weight of Q and O (h*h), K and V (h*512), gate, up
// and down (h*f).
static const double layer_flops = 2.0 * (2 * 1024.0 * 1024 + 2 * 1024.0 * 512 + 3 * 1024.0 * 2816);
static const double head_flops = 2.0 * 1024 * 32000;

static const sp_layout single = {.tp = 1, .cp = 1, .pp = 1, .dp = 1, .chunks = 1, .zero = 1};

typedef struct fixture {
    sp_layout layout;
    sp_cluster cluster;
    sp_profile profile;
    sp_cost_model cost;
    sp_packing packing;
    sp_step_costs costs;
} fixture;

static void begin(fixture *f, const sp_model *model, sp_layout layout, const char *const *overrides,
                  sp_memory_options memory)
{
    sp_error_clear(ERR);
    *f = (fixture){.layout = layout};
    f->cluster = (sp_cluster){
        .gpus_per_node = 8, .nics_per_node = 8, .nic_bytes_per_s = 50e9, .peak_flops_per_s = 1e15};
    must_succeed(sp_cluster_fit(&f->cluster, sp_layout_ranks(&layout), "test", ERR));
    must_succeed(flat_profile(overrides, &f->profile, ERR));
    must_succeed(sp_cost_model_init(&f->cost, model, &f->layout, &f->cluster, &f->profile, memory,
                                    "test", ERR));
    sp_packing_init(&f->packing, NULL, layout.dp);
}

static void add_pack(fixture *f, int dp_count)
{
    sp_pack_list_begin(&f->packing.forward, 0, dp_count);
}

static void add_slice(fixture *f, int sample, int64_t begin_at, int64_t tokens, bool last)
{
    sp_slice slice = {sample, 0, begin_at, tokens, tokens};
    sp_pack_list_add(&f->packing.forward, slice, last);
}

static void build(fixture *f)
{
    must_succeed(sp_cost_model_build(&f->cost, &f->packing, &f->costs, ERR));
}

static void fixture_fini(fixture *f)
{
    sp_step_costs_fini(&f->costs);
    sp_packing_fini(&f->packing);
    sp_cost_model_fini(&f->cost);
    sp_profile_fini(&f->profile);
}

static double total_ns(sp_action_cost cost)
{
    return (double)cost.compute_ns + (double)cost.tp_ns + (double)cost.cp_ns;
}

TEST(closed_form)
{
    AUTO(fixture) f;
    begin(&f, &llama, single, arithmetic_only, (sp_memory_options){0});
    add_pack(&f, 1);
    add_slice(&f, 0, 0, 3000, true);
    add_slice(&f, 1, 4000, 1000, true);
    build(&f);
    double pairs = 3000.0 * 3000 / 2 + 1000.0 * 1000 / 2 + 1000.0 * 4000;
    double linear_s = 4000 * (8 * layer_flops + head_flops) / FLAT_GEMM_FLOPS_PER_S;
    double forward_s = 8 * 4 * pairs * 1024 / FLAT_FORWARD_FLOPS_PER_S;
    double backward_s = 8 * 10 * pairs * 1024 / FLAT_BACKWARD_FLOPS_PER_S;
    assert_int_equal(f.costs.classes, 1);
    assert_int_equal(f.costs.side[1].count, 1);
    assert_within((double)f.costs.action[SP_ACTION_F][0].compute_ns, 1e9 * (linear_s + forward_s),
                  2);
    assert_within((double)f.costs.action[SP_ACTION_I][0].compute_ns, 1e9 * (linear_s + backward_s),
                  2);
    assert_within((double)f.costs.action[SP_ACTION_W][0].compute_ns, 1e9 * linear_s, 2);
    assert_int_equal(f.costs.action[SP_ACTION_B][0].compute_ns,
                     f.costs.action[SP_ACTION_I][0].compute_ns +
                         f.costs.action[SP_ACTION_W][0].compute_ns);
    assert_int_equal(f.costs.action[SP_ACTION_R][0].compute_ns, 0);
    assert_int_equal(f.costs.action[SP_ACTION_F][0].tp_ns, 0);
    assert_int_equal(f.costs.action[SP_ACTION_F][0].cp_ns, 0);
    // One rank: nothing to reduce.
    assert_int_equal(f.costs.ranks[0].epilogue.grad_reduce_ns, 0);
    assert_int_equal(f.costs.ranks[0].epilogue.param_gather_ns, 0);
    assert_true(f.costs.unit_b < 0.0 && f.costs.unit_w == 0.0);
    assert_true(f.costs.split_unit_b == 0.0 && f.costs.split_unit_w < 0.0);
}

// Two ranks halve the arithmetic. With sequence parallelism a layer's forward gathers and scatters
// the hidden states twice each (Korthikanti et al., arXiv 2205.05198, section 4.2.2).
TEST(tensor_parallel)
{
    AUTO(fixture) whole, split;
    sp_layout layout = single;
    layout.tp = 2;
    layout.pp = 8;
    layout.sequence_parallel = true;
    begin(&split, &llama, layout, arithmetic_only, (sp_memory_options){0});
    layout.tp = 1;
    begin(&whole, &llama, layout, arithmetic_only, (sp_memory_options){0});
    fixture *both[] = {&whole, &split};
    for (int i = 0; i < 2; i++) {
        add_pack(both[i], 1);
        add_slice(both[i], 0, 0, 4096, true);
        build(both[i]);
    }
    int inner = split.costs.stages[3].cost_class;
    assert_within((double)(2 * split.costs.action[SP_ACTION_F][inner].compute_ns),
                  (double)whole.costs.action[SP_ACTION_F][inner].compute_ns, 3);
    assert_within((double)(2 * split.costs.action[SP_ACTION_B][inner].compute_ns),
                  (double)whole.costs.action[SP_ACTION_B][inner].compute_ns, 5);
    double bytes = 4096.0 * 1024 * 2;
    assert_within((double)split.costs.action[SP_ACTION_F][inner].tp_ns,
                  1e9 * (4 * 0.5 * bytes / FLAT_NVLINK_BYTES_PER_S), 1);
    assert_int_equal(whole.costs.action[SP_ACTION_F][inner].tp_ns, 0);
    // Boundary: half the hidden states each. Four stages fill a node, so the middle boundary of the
    // eight crosses nodes, and so does the way back from the last to the first.
    assert_within((double)split.costs.side[0].p2p[0].ns,
                  1e9 * (bytes / 2 / FLAT_NVLINK_BYTES_PER_S), 1);
    assert_within((double)split.costs.side[1].p2p[0].internode_ns,
                  1e9 * (bytes / 2 / (50e9 * FLAT_NIC_EFFICIENCY)), 1);
    for (int r = 0; r < 8; r++) {
        assert_int_equal(split.costs.crosses_nodes[r], r == 3 || r == 7);
    }
}

// Without fixed costs a sample's slices cost in sum what the sample costs; in one pack they are
// again one segment.
TEST(slices_add_up)
{
    AUTO(fixture) f;
    sp_prng prng = prng_seeded(5);
    sp_memory_options memory = {.recompute = SP_RECOMPUTE_FULL};
    begin(&f, &llama, single, arithmetic_only, memory);
    int64_t tokens = 100000;
    add_pack(&f, 1);
    add_slice(&f, 0, 0, tokens, true);
    add_pack(&f, 1);
    for (int64_t at = 0; at < tokens; at += 10000) {
        add_slice(&f, 0, at, 10000, at + 10000 == tokens);
    }
    size_t first_cut = f.packing.forward.count;
    for (int64_t at = 0; at < tokens;) {
        int64_t cut = 1 + (int64_t)sp_prng_below(&prng, 9000);
        cut = cut < tokens - at ? cut : tokens - at;
        add_pack(&f, 1);
        add_slice(&f, 0, at, cut, at + cut == tokens);
        at += cut;
    }
    build(&f);
    double f_ns = 0.0, b_ns = 0.0;
    size_t packs = f.packing.forward.count;
    for (size_t k = first_cut; k < packs; k++) {
        f_ns += total_ns(f.costs.action[SP_ACTION_F][k]);
        b_ns += total_ns(f.costs.action[SP_ACTION_B][k]);
        // Full recompute runs the layers again, not the head.
        assert_true(f.costs.action[SP_ACTION_R][k].compute_ns <
                    f.costs.action[SP_ACTION_F][k].compute_ns);
    }
    assert_within(f_ns, total_ns(f.costs.action[SP_ACTION_F][0]), 2.0 * (double)packs);
    assert_within(b_ns, total_ns(f.costs.action[SP_ACTION_B][0]), 4.0 * (double)packs);
    assert_memory_equal(&f.costs.action[SP_ACTION_F][0], &f.costs.action[SP_ACTION_F][1],
                        sizeof f.costs.action[SP_ACTION_F][0]);
    assert_memory_equal(&f.costs.action[SP_ACTION_B][0], &f.costs.action[SP_ACTION_B][1],
                        sizeof f.costs.action[SP_ACTION_B][0]);
    double head_ns = 1e9 * (double)tokens * head_flops / FLAT_GEMM_FLOPS_PER_S;
    assert_within((double)f.costs.action[SP_ACTION_R][0].compute_ns,
                  ((double)f.costs.action[SP_ACTION_F][0].compute_ns - head_ns), 2);
}

TEST(is_linear_in_equal_samples)
{
    AUTO(fixture) f;
    sp_layout layout = single;
    layout.tp = 4;
    layout.sequence_parallel = true;
    begin(&f, &llama, layout, arithmetic_only, (sp_memory_options){0});
    for (int n = 1; n <= 8; n *= 2) {
        add_pack(&f, 1);
        for (int i = 0; i < n; i++) {
            add_slice(&f, i, 0, 5000, true);
        }
    }
    build(&f);
    for (int k = 0; k < 3; k++) {
        assert_within((double)f.costs.action[SP_ACTION_F][k + 1].compute_ns,
                      2 * (double)f.costs.action[SP_ACTION_F][k].compute_ns, 3);
        assert_within((double)f.costs.action[SP_ACTION_B][k + 1].compute_ns,
                      2 * (double)f.costs.action[SP_ACTION_B][k].compute_ns, 6);
        assert_within((double)f.costs.action[SP_ACTION_B][k + 1].tp_ns,
                      2 * (double)f.costs.action[SP_ACTION_B][k].tp_ns, 6);
        assert_within((double)f.costs.side[0].p2p[k + 1].ns, 2 * (double)f.costs.side[0].p2p[k].ns,
                      2);
    }
}

TEST(maps_classes)
{
    AUTO(fixture) f;
    sp_layout layout = single;
    layout.pp = 4;
    layout.chunks = 2;
    begin(&f, &llama, layout, arithmetic_only, (sp_memory_options){0});
    add_pack(&f, 1);
    add_slice(&f, 0, 0, 1000, true);
    build(&f);
    assert_int_equal(f.costs.classes, 3);
    for (int s = 1; s < 7; s++) {
        assert_int_equal(f.costs.stages[s].cost_class, f.costs.stages[1].cost_class);
    }
    assert_true(f.cost.class_stage[f.costs.stages[0].cost_class].embedding);
    assert_true(f.cost.class_stage[f.costs.stages[7].cost_class].head);
    int inner = f.costs.stages[1].cost_class;
    int last = f.costs.stages[7].cost_class;
    assert_within((double)(f.costs.action[SP_ACTION_F][last].compute_ns -
                           f.costs.action[SP_ACTION_F][inner].compute_ns),
                  1e9 * (1000 * head_flops / FLAT_GEMM_FLOPS_PER_S), 2);
    // Chunks of rank 3 are the virtual stages 3 and 7: the head's parameters are there.
    assert_true(f.costs.ranks[3].states.of[SP_MEM_PARAMETERS] >
                f.costs.ranks[1].states.of[SP_MEM_PARAMETERS]);
    fixture_fini(&f);
    layout.placement = SP_PLACE_V;
    begin(&f, &llama, layout, arithmetic_only, (sp_memory_options){0});
    add_pack(&f, 1);
    add_slice(&f, 0, 0, 1000, true);
    build(&f);
    // The V brings both ends to rank 0.
    assert_true(f.costs.ranks[0].states.of[SP_MEM_PARAMETERS] >
                f.costs.ranks[3].states.of[SP_MEM_PARAMETERS]);
    assert_true(f.costs.ranks[0].epilogue.optimizer_ns >= f.costs.ranks[3].epilogue.optimizer_ns);
}

// Ring: each rank receives the (cp-1)/cp of the keys and values that others hold, while it works on
// the blocks it has; only what is left shows.
TEST(context_parallel)
{
    AUTO(fixture) f;
    sp_layout layout = single;
    layout.cp = 2;
    begin(&f, &llama, layout, arithmetic_only, (sp_memory_options){0});
    add_pack(&f, 1);
    add_slice(&f, 0, 0, 100, true);
    add_pack(&f, 1);
    add_slice(&f, 0, 0, 200000, true);
    add_pack(&f, 1);
    add_slice(&f, 0, 100000, 100, true);
    build(&f);
    double kv_bytes = 2 * 512 * 2; // K and V of 4 heads of 128, bf16
    double attention_s = 4 * 100.0 * 100 / 2 * 1024 / FLAT_FORWARD_FLOPS_PER_S / 2;
    assert_within((double)f.costs.action[SP_ACTION_F][0].cp_ns,
                  1e9 * (8 * (0.5 * 100 * kv_bytes / FLAT_NVLINK_BYTES_PER_S - attention_s / 2)),
                  1);
    assert_int_equal(f.costs.action[SP_ACTION_F][1].cp_ns, 0);
    // A short slice of a long sample: the ring moves all its context.
    attention_s = 4 * (100.0 * 100 / 2 + 100.0 * 100000) * 1024 / FLAT_FORWARD_FLOPS_PER_S / 2;
    assert_within((double)f.costs.action[SP_ACTION_F][2].cp_ns,
                  1e9 * (8 * (0.5 * 100100 * kv_bytes / FLAT_NVLINK_BYTES_PER_S - attention_s / 2)),
                  1);
    double linear_s = 200000.0 / 2 * (8 * layer_flops + head_flops) / FLAT_GEMM_FLOPS_PER_S;
    assert_within((double)f.costs.action[SP_ACTION_F][1].compute_ns,
                  1e9 * (linear_s + 8 * 4 * 2e5 * 2e5 / 2 * 1024 / FLAT_FORWARD_FLOPS_PER_S / 2),
                  2);
}

// Two merged data-parallel ranks run a pack as two context-parallel ranks do.
TEST(merged_ranks_are_context_parallel)
{
    AUTO(fixture) merged, cp;
    sp_layout layout = single;
    layout.dp = 2;
    begin(&merged, &llama, layout, NULL, (sp_memory_options){0});
    layout.dp = 1;
    layout.cp = 2;
    begin(&cp, &llama, layout, NULL, (sp_memory_options){0});
    add_pack(&merged, 2);
    add_pack(&cp, 1);
    add_slice(&merged, 0, 0, 3000, true);
    add_slice(&cp, 0, 0, 3000, true);
    build(&merged);
    build(&cp);
    assert_memory_equal(merged.costs.action[SP_ACTION_F], cp.costs.action[SP_ACTION_F],
                        sizeof *cp.costs.action[SP_ACTION_F]);
    assert_memory_equal(merged.costs.action[SP_ACTION_B], cp.costs.action[SP_ACTION_B],
                        sizeof *cp.costs.action[SP_ACTION_B]);
    assert_memory_equal(merged.costs.side[0].unit, cp.costs.side[0].unit,
                        sizeof *cp.costs.side[0].unit);
    assert_int_equal(merged.costs.side[0].p2p[0].ns, cp.costs.side[0].p2p[0].ns);
    assert_true(merged.costs.action[SP_ACTION_F][0].cp_ns > 0);
}

// ZeRO 1 over 16 ranks in two nodes (8 NICs of 50 GB/s at 0.8 for 8 GPUs each): reduce-scatter of 4
// bytes a parameter, a sixteenth of the update, all-gather of 2 bytes. ZeRO 0: all-reduce.
TEST(epilogue_of_the_step)
{
    AUTO(fixture) f;
    sp_layout layout = single;
    const char *const overrides[] = {"links.nvlink_latency_us=0", "links.nic_latency_us=0", NULL};
    layout.dp = 16;
    double parameters = (double)sp_model_parameters(&llama);
    double ring_s = 15.0 / 16.0 * parameters / 200e9; // NVLink is the slower, per byte
    begin(&f, &llama, layout, overrides, (sp_memory_options){0});
    build(&f);
    assert_within((double)f.costs.ranks[0].epilogue.grad_reduce_ns, 1e9 * (4 * ring_s), 1);
    assert_within((double)f.costs.ranks[0].epilogue.param_gather_ns, 1e9 * (2 * ring_s), 1);
    assert_within((double)f.costs.ranks[0].epilogue.optimizer_ns,
                  1e9 * (parameters / 16 * FLAT_OPTIMIZER_BYTES / FLAT_MEMORY_BYTES_PER_S), 1);
    fixture_fini(&f);
    layout.zero = 0;
    begin(&f, &llama, layout, overrides, (sp_memory_options){0});
    build(&f);
    assert_within((double)f.costs.ranks[0].epilogue.grad_reduce_ns, 1e9 * (8 * ring_s), 1);
    assert_int_equal(f.costs.ranks[0].epilogue.param_gather_ns, 0);
    assert_within((double)f.costs.ranks[0].epilogue.optimizer_ns,
                  1e9 * (parameters * FLAT_OPTIMIZER_BYTES / FLAT_MEMORY_BYTES_PER_S), 1);
}

// The unfused attention computes the whole square: 2 matmuls forward, 4 backward, at GEMM rate.
TEST(unfused_attention)
{
    AUTO(fixture) f;
    sp_memory_options memory = {.attention = SP_ATTENTION_UNFUSED};
    begin(&f, &llama, single, arithmetic_only, memory);
    add_pack(&f, 1);
    add_slice(&f, 0, 0, 2048, true);
    build(&f);
    double linear_s = 2048 * (8 * layer_flops + head_flops) / FLAT_GEMM_FLOPS_PER_S;
    double matmul_s = 8 * 2 * 2048.0 * 2048 * 1024 / FLAT_GEMM_FLOPS_PER_S;
    assert_within((double)f.costs.action[SP_ACTION_F][0].compute_ns,
                  1e9 * (linear_s + 2 * matmul_s), 2);
    assert_within((double)f.costs.action[SP_ACTION_I][0].compute_ns,
                  1e9 * (linear_s + 4 * matmul_s), 2);
}

// On the flat profile, without memory traffic and latency, the least work is all the work. Unfused,
// it is that of the finest slices, which compute half of the square.
TEST(least_work_is_exact_without_overheads)
{
    double n = 12345;
    double linear_s = 3 * n * (8 * layer_flops + head_flops) / FLAT_GEMM_FLOPS_PER_S;
    double pairs = n * n / 2;
    double square_s[2] = {8 * pairs * 1024 *
                              (2 * 4 / FLAT_FORWARD_FLOPS_PER_S + 10 / FLAT_BACKWARD_FLOPS_PER_S),
                          8 * pairs * 1024 * 2 * (2 + 2 + 4) / FLAT_GEMM_FLOPS_PER_S};
    for (int unfused = 0; unfused < 2; unfused++) {
        AUTO(fixture) f;
        sp_memory_options memory = {.recompute = SP_RECOMPUTE_ATTENTION,
                                    .attention =
                                        unfused ? SP_ATTENTION_UNFUSED : SP_ATTENTION_FLASH};
        begin(&f, &llama, single, arithmetic_only, memory);
        double work_s = sp_cost_model_sample_work_s(&f.cost, 12345);
        assert_within(work_s / (linear_s + square_s[unfused]), 1.0, 1e-6);
    }
}

#define FITTED ",\"level\":\"fitted\",\"source\":\"s\"}"

static const char *const models[] = {
    "gemm_model={\"tflops\":273,\"half_rate_k\":64,\"sms\":108,\"tiles\":[[128,128,1],[64,64,0.7],"
    "[128,256,1.04]]" FITTED,
    "unfused_attention={\"traffic_factor\":0.1,\"traffic_growth\":2" FITTED,
    "loss={\"bytes_per_logit\":1" FITTED,
    "node_collectives={\"gb_per_s\":[[2,194],[4,221],[8,230]]" FITTED,
    "host={\"layer_us\":100,\"overlap_power\":4" FITTED,
    NULL};

// The first size that a pack of so many tokens fits.
static const sp_least_size *size_of(fixture *f, int stage, double tokens)
{
    const sp_least_size *sizes = sp_cost_model_least_sizes(&f->cost, stage);
    for (int i = 0; i < SP_LEAST_SIZES; i++) {
        if (tokens <= sizes[i].tokens) {
            return &sizes[i];
        }
    }
    fail_msg("no size for %.0f tokens", tokens);
    return NULL;
}

static void check_size(fixture *f, int stage, double tokens, double squares, size_t at)
{
    const sp_least_work *l = sp_cost_model_least_work(&f->cost, stage, 1);
    const sp_least_size *size = size_of(f, stage, tokens);
    double f_s = size->f_pack_s + tokens * l->f_token_s + squares * l->f_square_s;
    double b_s = size->b_pack_s + tokens * l->b_token_s + squares * l->b_square_s;
    double i_s = size->i_pack_s + tokens * l->i_token_s + squares * l->i_square_s;
    assert_true(total_ns(f->costs.action[SP_ACTION_F][at]) >= 1e9 * f_s * (1.0 - 1e-9) - 100.0);
    assert_true(total_ns(f->costs.action[SP_ACTION_B][at]) >= 1e9 * b_s * (1.0 - 1e-9) - 100.0);
    assert_true(total_ns(f->costs.action[SP_ACTION_I][at]) >= 1e9 * i_s * (1.0 - 1e-9) - 100.0);
    assert_true(size->f_pack_s >= l->f_pack_s && size->b_pack_s >= l->b_pack_s);
}

// Every pack of one slice costs what the lines of all slopes and its size say, at least, and 100 ns
// of rounding.
static void check_lines(fixture *f)
{
    for (size_t k = 0; k < f->packing.forward.count; k++) {
        const sp_pack *pack = &f->packing.forward.packs[k];
        double tokens = (double)pack->tokens / pack->dp_count;
        double squares = (double)pack->pairs2 / pack->dp_count;
        for (int s = 0; s < f->layout.pp; s++) {
            size_t at = k * (size_t)f->costs.classes + (size_t)f->costs.stages[s].cost_class;
            check_size(f, s, tokens, squares, at);
            for (int slope = 0; slope < SP_LEAST_SLOPES; slope++) {
                const sp_least_work *l = sp_cost_model_least_work(&f->cost, s, slope);
                double f_s = l->f_pack_s + tokens * l->f_token_s + squares * l->f_square_s;
                double b_s = l->b_pack_s + tokens * l->b_token_s + squares * l->b_square_s;
                double i_s = l->i_pack_s + tokens * l->i_token_s + squares * l->i_square_s;
                assert_true(total_ns(f->costs.action[SP_ACTION_F][at]) >=
                            1e9 * f_s * (1.0 - 1e-9) - 100.0);
                assert_true(total_ns(f->costs.action[SP_ACTION_B][at]) >=
                            1e9 * b_s * (1.0 - 1e-9) - 100.0);
                assert_true(total_ns(f->costs.action[SP_ACTION_I][at]) >=
                            1e9 * i_s * (1.0 - 1e-9) - 100.0);
            }
        }
    }
}

// Random samples, cut at random, on the shipped profiles: what the packs of a sample cost on all
// stages is never below its least work. The same with the models that a profile may hold, and with
// what a stack hides.
TEST_ROUNDS(least_work_is_a_bound, 17, test_draws(60))
{
    static const char *const names[] = {"a100", "h100", "h800", "h200", "host", NULL};
    AUTO(fixture) f;
    sp_layout layout = single;
    layout.tp = 1 << sp_prng_below(prng, 3);
    layout.cp = 1 << sp_prng_below(prng, 3);
    layout.pp = 1 << sp_prng_below(prng, 3);
    layout.dp = 2;
    layout.sequence_parallel = round % 2 == 0;
    sp_memory_options memory = {.recompute = (sp_recompute)sp_prng_below(prng, SP_RECOMPUTE_MODES),
                                .attention = sp_prng_below(prng, 3) == 0 ? SP_ATTENTION_UNFUSED
                                                                         : SP_ATTENTION_FLASH,
                                .stack = {.hide_forward_gather = round % 3 == 0,
                                          .hide_forward_reduce = round % 4 == 0,
                                          .hide_backward_gather = round % 5 == 0,
                                          .hide_backward_reduce = round % 7 == 0,
                                          .cp_overlap = (sp_cp_overlap)sp_prng_below(prng, 4)}};
    sp_model drawn = llama;
    if (round % 2 == 1) { // layers that see a window, a chunk or all
        drawn.runs = drawn.kinds = 3;
        for (int k = 0; k < 3; k++) {
            drawn.run[k] = (sp_layer_run){1, k};
            drawn.kind[k] = (sp_layer_mlp){.ffn = llama.ffn};
        }
        drawn.kind[0].window_tokens = 1 + (int64_t)exp(10.0 * sp_prng_uniform(prng));
        drawn.kind[1].chunk_tokens = 1 + (int64_t)exp(10.0 * sp_prng_uniform(prng));
    }
    begin(&f, &drawn, layout, models, memory);
    sp_cost_model_fini(&f.cost);
    if (names[round % 6] != NULL) {
        sp_profile_fini(&f.profile);
        must_succeed(sp_profile_load(names[round % 6], &f.profile, ERR));
    }
    must_succeed(sp_cost_model_init(&f.cost, &drawn, &f.layout, &f.cluster, &f.profile, memory,
                                    "test", ERR));
    int64_t tokens = 1 + (int64_t)exp(12.0 * sp_prng_uniform(prng));
    for (int64_t at = 0; at < tokens;) {
        int64_t cut = 1 + (int64_t)exp(12.0 * sp_prng_uniform(prng));
        cut = cut < tokens - at ? cut : tokens - at;
        add_pack(&f, 1 + (int)(sp_prng_u64(prng) % 2));
        add_slice(&f, 0, at, cut, at + cut == tokens);
        at += cut;
    }
    build(&f);
    check_lines(&f);
    double paid_ns = 0.0;
    for (size_t k = 0; k < f.packing.forward.count; k++) {
        for (int s = 0; s < layout.pp; s++) {
            size_t at = k * (size_t)f.costs.classes + (size_t)f.costs.stages[s].cost_class;
            paid_ns +=
                f.packing.forward.packs[k].dp_count * (total_ns(f.costs.action[SP_ACTION_F][at]) +
                                                       total_ns(f.costs.action[SP_ACTION_B][at]));
        }
    }
    double work_s = sp_cost_model_sample_work_s(&f.cost, tokens);
    assert_true(work_s > 0.0);
    assert_true(paid_ns >= 1e9 * work_s * (1.0 - 1e-9) - 100.0 * (double)f.costs.side[0].count);
}

// Model FLOPs utilisation of a layer's forward: printed for a person, bounded by what is possible.
TEST(layer_efficiency)
{
    static const int64_t lengths[] = {4096, 32768, 262144};
    sp_layout layout = single;
    sp_model model;
    sp_cluster cluster;
    AUTO(sp_profile) profile;
    AUTO(sp_cost_model) cost;
    layout.tp = 8;
    layout.pp = 40;
    layout.sequence_parallel = true;
    must_succeed(sp_model_builtin("llama-13b", &model, ERR));
    must_succeed(sp_cluster_builtin("h800-8", &cluster, ERR));
    must_succeed(sp_cluster_fit(&cluster, sp_layout_ranks(&layout), "test", ERR));
    must_succeed(sp_profile_load("h800", &profile, ERR));
    must_succeed(sp_cost_model_init(&cost, &model, &layout, &cluster, &profile,
                                    (sp_memory_options){0}, "test", ERR));
    for (size_t i = 0; i < sizeof lengths / sizeof lengths[0]; i++) {
        AUTO(sp_packing) packing;
        AUTO(sp_step_costs) costs;
        double n = (double)lengths[i];
        sp_packing_init(&packing, NULL, 1);
        sp_pack_list_begin(&packing.forward, 0, 1);
        sp_pack_list_add(&packing.forward, (sp_slice){0, 0, 0, lengths[i], lengths[i]}, true);
        must_succeed(sp_cost_model_build(&cost, &packing, &costs, ERR));
        int inner = costs.stages[1].cost_class;
        double flops = n * sp_model_layer_linear_flops_per_token(&model) +
                       n * n / 2 * sp_model_attention_flops_per_pair(&model);
        double peak = flops / 8 / cluster.peak_flops_per_s;
        double f_mfu = peak / (1e-9 * total_ns(costs.action[SP_ACTION_F][inner]));
        double b_mfu = 2 * peak / (1e-9 * total_ns(costs.action[SP_ACTION_B][inner]));
        print_message("llama-13b, tp 8, h800, %lld tokens: layer MFU forward %.3f (%.3f without "
                      "communication), backward %.3f (%.3f)\n",
                      (long long)lengths[i], f_mfu,
                      peak / (1e-9 * (double)costs.action[SP_ACTION_F][inner].compute_ns), b_mfu,
                      2 * peak / (1e-9 * (double)costs.action[SP_ACTION_B][inner].compute_ns));
        assert_true(f_mfu > 0.1 && f_mfu < 0.9);
        assert_true(b_mfu > 0.1 && b_mfu < 0.9);
    }
}

// With flash attention packs of as many tokens hold the same, whatever their samples are, and share
// one row of bytes wherever they stand. Scores that are kept grow with pairs of tokens.
TEST(packs_that_hold_the_same_share_a_row)
{
    static const int64_t samples[][2] = {{500, 500}, {400, 500}, {900, 100}, {1000, 0}, {100, 800}};
    static const int32_t expected[2][5] = {{0, 1, 0, 0, 1}, {0, 1, 2, 3, 4}};
    for (int unfused = 0; unfused < 2; unfused++) {
        AUTO(fixture) f;
        sp_memory_options options = {.attention =
                                         unfused ? SP_ATTENTION_UNFUSED : SP_ATTENTION_FLASH};
        begin(&f, &llama, single, NULL, options);
        for (int k = 0; k < 5; k++) {
            add_pack(&f, 1);
            add_slice(&f, 2 * k, 0, samples[k][0], true);
            if (samples[k][1] > 0) {
                add_slice(&f, 2 * k + 1, 0, samples[k][1], true);
            }
        }
        build(&f);
        for (size_t k = 0; k < 5; k++) {
            assert_int_equal(f.costs.side[0].unit_row[k], expected[unfused][k]);
        }
    }
}

TEST(rejects_uneven_stages)
{
    sp_layout layout = single;
    sp_cluster cluster = {.gpus_per_node = 8, .nodes = 1};
    AUTO(sp_profile) profile;
    sp_cost_model cost;
    layout.pp = 3;
    must_succeed(flat_profile(NULL, &profile, ERR));
    must_fail_with(sp_cost_model_init(&cost, &llama, &layout, &cluster, &profile,
                                      (sp_memory_options){0}, "scenario.json", ERR),
                   SP_ERR_CONTENT, "scenario.json: parallel.pp");
}

// With the vocabulary over the pipeline ranks, the head's forward gathers the hidden states over
// them and its backward gives their gradients back; without TP nothing else counts as such.
TEST(vocabulary_exchange)
{
    sp_layout layout = single;
    layout.pp = 4;
    layout.vocab_parallel = true;
    AUTO(fixture) f;
    begin(&f, &llama, layout, arithmetic_only, (sp_memory_options){0});
    add_pack(&f, 1);
    add_slice(&f, 0, 0, 4096, true);
    build(&f);
    sp_op_timer timer = {.cluster = &f.cluster, .profile = &f.profile};
    sp_group ranks = sp_cluster_group(&f.cluster, &layout, SP_DIM_PP);
    double bytes = 4096.0 * 1024.0 * 2.0;
    double gather_s = sp_time_collective(&timer, SP_ALL_GATHER, ranks, bytes);
    double scatter_s = sp_time_collective(&timer, SP_REDUCE_SCATTER, ranks, bytes);
    assert_true(gather_s > 0.0 && scatter_s > 0.0);
    for (int s = 0; s < 4; s++) {
        int class = f.costs.stages[s].cost_class;
        assert_within((double)f.costs.action[SP_ACTION_F][class].tp_ns, 1e9 * gather_s, 1.0);
        assert_within((double)f.costs.action[SP_ACTION_I][class].tp_ns, 1e9 * scatter_s, 1.0);
        assert_within((double)f.costs.action[SP_ACTION_B][class].tp_ns, 1e9 * scatter_s, 1.0);
    }
}
