// What a software stack hides: TP collectives behind the GEMM next to them, by kind and direction,
// and the exchange of keys and values of context parallelism in its three modes.

#include "tests/support/flat_profile.h"
#include "tests/support/initializers.h"
#include "tests/support/pack_times.h"

#include "sim/base/units.h"

// Arithmetic and bandwidth alone: neither memory traffic nor latency.
#define BARE "memory.gb_per_s=1e12", "links.nvlink_latency_us=0", "links.nic_latency_us=0"

static sp_profile profile;

static const sp_model dense = {.name = "dense", LLAMA_SHAPE(4, 1024, 2816, 8, 8, 32000)};

static const sp_cluster one_node = {
    .gpus_per_node = 8, .nodes = 1, .nics_per_node = 8, .nic_bytes_per_s = 50e9};

enum { TOKENS = 4096 };

static double gemm_s(double m, double n, double k)
{
    return 2.0 * m * n * k / FLAT_GEMM_FLOPS_PER_S;
}

static double left(double comm_s, double gemm, bool hidden)
{
    return hidden ? fmax(0.0, comm_s - gemm) : comm_s;
}

// What shows of a layer's TP communication on two ranks, by the GEMM that each collective stands
// next to (Korthikanti et al., arXiv 2205.05198, section 4.2.2): forward a gather before QKV and
// fc1, a reduction after the output projection and fc2; backward gathers before the input gradients
// of fc2 and the output projection, reductions after those of fc1 and QKV, and gathers of the
// inputs again before the weight gradients of fc1 and QKV.
static double exposed_s(const sp_stack *stack, sp_pass pass, double gather_s, double reduce_s)
{
    const double h = 1024;
    const double f = 2816;
    double qkv = gemm_s(TOKENS, 3 * h / 2, h);
    double out = gemm_s(TOKENS, h, h / 2);
    double fc1 = gemm_s(TOKENS, f, h);
    double fc2 = gemm_s(TOKENS, h, f / 2);
    switch (pass) {
    case SP_PASS_F:
    case SP_PASS_RECOMPUTE:
        return left(gather_s, qkv, stack->hide_forward_gather) +
               left(gather_s, fc1, stack->hide_forward_gather) +
               left(reduce_s, out, stack->hide_forward_reduce) +
               left(reduce_s, fc2, stack->hide_forward_reduce);
    case SP_PASS_I:
        return left(gather_s, fc2, stack->hide_backward_gather) +
               left(gather_s, out, stack->hide_backward_gather) +
               left(reduce_s, fc1, stack->hide_backward_reduce) +
               left(reduce_s, qkv, stack->hide_backward_reduce);
    case SP_PASS_W:
        return left(gather_s, fc1, stack->hide_backward_gather) +
               left(gather_s, qkv, stack->hide_backward_gather);
    }
    return -1.0;
}

static sp_stack stack_of_bits(unsigned bits)
{
    return (sp_stack){.name = "ours",
                      .hide_forward_gather = (bits & 1u) != 0,
                      .hide_forward_reduce = (bits & 2u) != 0,
                      .hide_backward_gather = (bits & 4u) != 0,
                      .hide_backward_reduce = (bits & 8u) != 0};
}

// NVLink at 140 GB/s: a collective of 30 us beside GEMMs of 9, 24, 26 and 47 us; at the other rates
// all of them are longer or shorter.
TEST(tensor_parallel_by_direction)
{
    static const char *const rates[] = {"links.nvlink_gb_per_s=10", "links.nvlink_gb_per_s=140",
                                        "links.nvlink_gb_per_s=1000"};
    for (int r = 0; r < 3; r++) {
        flat_profile_load((const char *[]){BARE, rates[r], NULL}, &profile);
        for (unsigned bits = 0; bits < 32; bits++) {
            bool sequence_parallel = (bits & 16u) != 0;
            pack_times_case of = {
                .model = &dense,
                .cluster = &one_node,
                .profile = &profile,
                .layout = {LAYOUT(2, 1, 1, 1, 1), .sequence_parallel = sequence_parallel},
                .memory = {.recompute = SP_RECOMPUTE_FULL, .stack = stack_of_bits(bits)}};
            sp_i_pack_time time;
            pack_times_of_samples(&of, 1, TOKENS, &time);
            // Half of the hidden states move for a gather or a scatter, all of them for an
            // all-reduce, which takes the place of the reductions (and of no gather).
            double half_s = 0.5 * TOKENS * 1024 * 2 / profile.nvlink_bytes_per_s;
            for (int pass = 0; pass < SP_I_PASSES; pass++) {
                assert_near(time.of[SP_PART_LAYER][pass].tp_s,
                            exposed_s(&of.memory.stack, (sp_pass)pass,
                                      sequence_parallel ? half_s : 0.0,
                                      sequence_parallel ? half_s : 2 * half_s),
                            1e-9, 1e-15);
            }
            // Gather and loss (three fp32 numbers a token) share what the logits' GEMM hides.
            double gather_s = sequence_parallel ? half_s : 0.0;
            double loss_s = TOKENS * 12 / profile.nvlink_bytes_per_s;
            double logits_s = gemm_s(TOKENS, 16000, 1024);
            const sp_stack *stack = &of.memory.stack;
            double taken_s = stack->hide_forward_gather ? fmin(gather_s, logits_s) : 0.0;
            assert_near(time.of[SP_PART_HEAD][SP_PASS_F].tp_s,
                        gather_s - taken_s +
                            left(loss_s, logits_s - taken_s, stack->hide_forward_reduce),
                        1e-9, 1e-15);
            // Nothing stands next to the lookup's reduction.
            assert_near(time.of[SP_PART_EMBEDDING][SP_PASS_F].tp_s,
                        sequence_parallel ? half_s : 2 * half_s, 1e-9, 1e-15);
        }
        sp_profile_fini(&profile);
    }
}

// The computation that hides a collective takes no longer for it.
TEST(hiding_costs_no_computation)
{
    flat_profile_load((const char *[]){BARE, NULL}, &profile);
    sp_i_pack_time time[2];
    for (unsigned i = 0; i < 2; i++) {
        pack_times_case of = {
            .model = &dense,
            .cluster = &one_node,
            .profile = &profile,
            .layout = {.tp = 2, .cp = 1, .pp = 1, .dp = 1, .chunks = 1, .sequence_parallel = true},
            .memory = {.stack = stack_of_bits(15 * i)}};
        pack_times_of_samples(&of, 1, TOKENS, &time[i]);
    }
    for (int part = 0; part < sp_i_parts(&dense); part++) {
        for (int pass = 0; pass < SP_I_PASSES; pass++) {
            assert_near(time[1].of[part][pass].compute_s, time[0].of[part][pass].compute_s, 1e-9,
                        1e-15);
        }
    }
    sp_profile_fini(&profile);
}

// Keys and values of the other ranks, bf16; backward they move again with their gradients.
static double kv_s(const sp_model *model, int cp, double keys, bool backward)
{
    double bytes = 2.0 * 2.0 * (double)(model->kv_heads * model->head_dim) * keys;
    return (backward ? 2.0 : 1.0) * (cp - 1.0) / cp * bytes / profile.nvlink_bytes_per_s;
}

// A ring behind the attention is made of sends; gathers before it are NCCL's.
TEST(algorithms_gather_keys_but_do_not_pass_them_on)
{
    static const sp_cp_overlap modes[] = {SP_CP_ATTENTION, SP_CP_BLOCKING};
    sp_cluster node = one_node;
    node.nvls = true;
    for (int m = 0; m < 2; m++) {
        double s[SP_ALGORITHMS];
        for (int a = 0; a < SP_ALGORITHMS; a++) {
            flat_profile_load((const char *[]){BARE, NULL}, &profile);
            profile.algorithm = (sp_collective_algorithm)a;
            pack_times_case of = {.model = &dense,
                                  .cluster = &node,
                                  .profile = &profile,
                                  .layout = {.tp = 1, .cp = 4, .pp = 1, .dp = 1, .chunks = 1},
                                  .memory = {.stack = {.cp_overlap = modes[m]}}};
            sp_i_pack_time time;
            pack_times_of_samples(&of, 1, TOKENS, &time);
            s[a] = time.cp[SP_PASS_F].s;
            assert_close(s[a], a == SP_ALGORITHM_NVLS && m == 1 ? s[0] / 0.75 / 0.85 : s[0], 1e-9);
            sp_profile_fini(&profile);
        }
    }
}

TEST(context_parallel_modes)
{
    static const char *const rates[] = {"links.nvlink_gb_per_s=20", "links.nvlink_gb_per_s=200",
                                        "links.nvlink_gb_per_s=2000"};
    sp_model grouped = dense;
    grouped.kv_heads = 2;
    const sp_model *models[] = {&dense, &grouped};
    const double h = 1024;
    const int cp = 4;
    for (int i = 0; i < 18; i++) {
        flat_profile_load((const char *[]){BARE, rates[i % 3], NULL}, &profile);
        sp_cp_overlap mode = (sp_cp_overlap)(i / 3 % 3);
        const sp_model *model = models[i / 9];
        pack_times_case of = {
            .model = model,
            .cluster = &one_node,
            .profile = &profile,
            .layout = {.tp = 1, .cp = cp, .pp = 1, .dp = 1, .chunks = 1},
            .memory = {.recompute = SP_RECOMPUTE_FULL, .stack = {.cp_overlap = mode}}};
        sp_i_pack_time time;
        pack_times_of_samples(&of, 1, TOKENS, &time);
        double pairs = 0.5 * TOKENS * TOKENS / cp;
        double attention_s[] = {4 * pairs * h / FLAT_FORWARD_FLOPS_PER_S,
                                10 * pairs * h / FLAT_BACKWARD_FLOPS_PER_S};
        double qkv =
            gemm_s((double)TOKENS / cp, h + 2.0 * (double)(model->kv_heads * model->head_dim), h);
        static const sp_pass passes[] = {SP_PASS_F, SP_PASS_I, SP_PASS_RECOMPUTE};
        for (int j = 0; j < 3; j++) {
            bool backward = passes[j] == SP_PASS_I;
            double comm_s = kv_s(model, cp, TOKENS, backward);
            double expected = comm_s;
            if (mode == SP_CP_ATTENTION) {
                // All blocks but the first are on their way while the ones before are worked on.
                expected = fmax(0.0, comm_s - attention_s[backward] * (cp - 1) / cp);
            } else if (mode == SP_CP_QKV && model == &dense) {
                expected = fmax(0.0, comm_s - qkv);
            }
            const sp_i_time *layer = &time.of[SP_PART_LAYER][passes[j]];
            assert_near(layer->cp_s, expected, 1e-9, 1e-15);
            assert_near(layer->attention_s, attention_s[backward], 1e-9, 1e-15);
        }
        assert_true(time.of[SP_PART_LAYER][SP_PASS_W].cp_s == 0.0);
        sp_profile_fini(&profile);
    }
}

// The attention alone runs again: its exchange has no QKV projection beside it.
TEST(recomputed_attention_has_no_projection)
{
    flat_profile_load((const char *[]){BARE, NULL}, &profile);
    pack_times_case of = {
        .model = &dense,
        .cluster = &one_node,
        .profile = &profile,
        .layout = {.tp = 1, .cp = 2, .pp = 1, .dp = 1, .chunks = 1},
        .memory = {.recompute = SP_RECOMPUTE_ATTENTION, .stack = {.cp_overlap = SP_CP_QKV}}};
    sp_i_pack_time time;
    pack_times_of_samples(&of, 1, TOKENS, &time);
    assert_near(time.of[SP_PART_LAYER][SP_PASS_RECOMPUTE].cp_s, kv_s(&dense, 2, TOKENS, false),
                1e-9, 1e-15);
    assert_true(time.of[SP_PART_LAYER][SP_PASS_F].cp_s < kv_s(&dense, 2, TOKENS, false));
    sp_profile_fini(&profile);
}

// A ring calls the attention for each of the cp blocks, a gather for the two halves of a zig-zag
// share; forward one kernel, backward three.
TEST(attention_calls_of_the_modes)
{
    flat_profile_load((const char *[]){BARE, "kernel.us=3", NULL}, &profile);
    sp_i_pack_time time[2];
    for (int i = 0; i < 2; i++) {
        pack_times_case of = {
            .model = &dense,
            .cluster = &one_node,
            .profile = &profile,
            .layout = {.tp = 1, .cp = 8, .pp = 1, .dp = 1, .chunks = 1},
            .memory = {.stack = {.cp_overlap = i == 0 ? SP_CP_ATTENTION : SP_CP_BLOCKING}}};
        pack_times_of_samples(&of, 1, TOKENS, &time[i]);
    }
    assert_near(time[0].of[SP_PART_LAYER][SP_PASS_F].compute_s -
                    time[1].of[SP_PART_LAYER][SP_PASS_F].compute_s,
                (8 - 2) * 3e-6, 1e-9, 1e-15);
    assert_near(time[0].of[SP_PART_LAYER][SP_PASS_I].compute_s -
                    time[1].of[SP_PART_LAYER][SP_PASS_I].compute_s,
                3 * (8 - 2) * 3e-6, 1e-9, 1e-15);
    sp_profile_fini(&profile);
}

static sp_layout random_layout(sp_prng *prng)
{
    return (sp_layout){.tp = 1 << sp_prng_below(prng, 4),
                       .cp = 1 << sp_prng_below(prng, 3),
                       .pp = 1,
                       .dp = 1,
                       .chunks = 1,
                       .sequence_parallel = sp_prng_below(prng, 2) == 1};
}

// Random layouts, links and lengths: a hidden collective never makes any part of any pass slower,
// and hides no more than itself.
TEST_ROUNDS(hiding_never_slows, 53, 300)
{
    char rate[64];
    snprintf(rate, sizeof rate, "links.nvlink_gb_per_s=%.6g", exp(8.0 * sp_prng_uniform(prng)));
    flat_profile_load((const char *[]){rate, "kernel.us=2", NULL}, &profile);
    sp_cluster cluster = one_node;
    pack_times_case of = {
        .model = &dense,
        .cluster = &cluster,
        .profile = &profile,
        .layout = random_layout(prng),
        .memory = {.recompute = (sp_recompute)sp_prng_below(prng, SP_RECOMPUTE_MODES)}};
    cluster.nodes = (int)sp_ceil_div(sp_layout_ranks(&of.layout), 8);
    int64_t tokens = 1 + (int64_t)exp(10.0 * sp_prng_uniform(prng));
    unsigned bits = (unsigned)sp_prng_below(prng, 16);
    sp_i_pack_time fewer, more;
    of.memory.stack = stack_of_bits(bits);
    pack_times_of_samples(&of, 2, tokens, &fewer);
    of.memory.stack = stack_of_bits(bits | 1u << sp_prng_below(prng, 4));
    pack_times_of_samples(&of, 2, tokens, &more);
    for (int part = 0; part < sp_i_parts(of.model); part++) {
        for (int pass = 0; pass < SP_I_PASSES; pass++) {
            const sp_i_time *a = &fewer.of[part][pass];
            const sp_i_time *b = &more.of[part][pass];
            assert_true(b->tp_s <= a->tp_s);
            assert_true(b->tp_s >= 0.0);
            assert_true(b->compute_s + b->tp_s >= a->tp_s * (1 - 1e-12));
            assert_near(b->compute_s, a->compute_s, 1e-9, 1e-15);
            assert_near(b->cp_s, a->cp_s, 1e-9, 1e-15);
        }
    }
    sp_profile_fini(&profile);
}

// Of the three modes blocking shows the most.
TEST_ROUNDS(blocking_shows_the_most, 59, 200)
{
    char rate[64];
    snprintf(rate, sizeof rate, "links.nvlink_gb_per_s=%.6g", exp(8.0 * sp_prng_uniform(prng)));
    flat_profile_load((const char *[]){rate, NULL}, &profile);
    sp_cluster cluster = one_node;
    pack_times_case of = {
        .model = &dense, .cluster = &cluster, .profile = &profile, .layout = random_layout(prng)};
    cluster.nodes = (int)sp_ceil_div(sp_layout_ranks(&of.layout), 8);
    int64_t tokens = 1 + (int64_t)exp(10.0 * sp_prng_uniform(prng));
    sp_i_pack_time time[3];
    for (int mode = 0; mode < 3; mode++) {
        of.memory.stack.cp_overlap = (sp_cp_overlap)mode;
        pack_times_of_samples(&of, 1, tokens, &time[mode]);
    }
    for (int pass = 0; pass < SP_I_PASSES; pass++) {
        double most_s = time[SP_CP_BLOCKING].of[SP_PART_LAYER][pass].cp_s;
        assert_true(time[SP_CP_ATTENTION].of[SP_PART_LAYER][pass].cp_s <= most_s);
        assert_true(time[SP_CP_QKV].of[SP_PART_LAYER][pass].cp_s <= most_s);
    }
    sp_profile_fini(&profile);
}
