// The unfused attention: batched GEMMs over runs of equal segments, the traffic of the scores with
// its growth, the softmax that a fused kernel does not serve, and the loss by bytes per logit.

#include "tests/support/flat_profile.h"
#include "tests/support/initializers.h"
#include "tests/support/pack_times.h"

#define TILE_MODEL                                                                              \
    "gemm_model={\"tflops\":273,\"half_rate_k\":64,\"fixed_us\":5,\"sms\":108,\"tiles\":[[128," \
    "128,"                                                                                      \
    "1],[64,64,0.7]],\"level\":\"fitted\",\"source\":\"s\"}"

static sp_profile profile;

static const sp_model gpt = {.name = "gpt", GPT_SHAPE(2, 1024, 4096, 16, 51200)};

static const sp_cluster one_node = {
    .gpus_per_node = 8, .nodes = 1, .nics_per_node = 4, .nic_bytes_per_s = 25e9};

// Megatron-LM's fused kernels: forward the softmax reads and writes 2 bytes and dropout reads,
// writes and keeps a mask (9 B a score), backward 11 B. As separate kernels in fp32: 24 and 18
// more.
static const double fused_bytes[2] = {9, 11};
static const double unfused_more_bytes[2] = {24, 18};

static pack_times_case case_of(int tp)
{
    return (pack_times_case){.model = &gpt,
                             .cluster = &one_node,
                             .profile = &profile,
                             .layout = {.tp = tp, .cp = 1, .pp = 1, .dp = 1, .chunks = 1},
                             .memory = {.attention = SP_ATTENTION_UNFUSED,
                                        .recompute = SP_RECOMPUTE_FULL,
                                        .stack = {.fused_softmax_limited = true}}};
}

// Forward QK^T and PV; backward dP and dQ of the same shapes, dV and dK over the keys.
static double batch_s(bool backward, double matrices, double l, double keys)
{
    sp_op_timer timer = {.cluster = &one_node, .profile = &profile};
    double forward_s = sp_time_batched_gemm(&timer, matrices, l, keys, 64, 64) +
                       sp_time_batched_gemm(&timer, matrices, l, 64, keys, 64);
    return backward ? forward_s + 2 * sp_time_batched_gemm(&timer, matrices, keys, 64, l, 64)
                    : forward_s;
}

// Samples of one length in a row are one batch of GEMMs; another length between them, or another
// context, makes a run of its own.
TEST(runs_of_equal_segments)
{
    flat_profile_load((const char *[]){TILE_MODEL, NULL}, &profile);
    pack_times_case of = case_of(2); // 8 heads on a rank
    const sp_slice slices[] = {{0, 0, 0, 512, 512},    {1, 0, 0, 512, 512}, {2, 0, 0, 512, 512},
                               {3, 0, 0, 300, 300},    {4, 0, 0, 512, 512}, {5, 0, 1000, 512, 512},
                               {6, 0, 1000, 512, 512}, {7, 0, 0, 400, 400}, {7, 0, 400, 600, 600}};
    const struct {
        double count, length, keys;
    } runs[] = {{3, 512, 512}, {1, 300, 300}, {1, 512, 512}, {2, 512, 1512}, {1, 1000, 1000}};
    sp_i_pack_time time;
    pack_times(&of, slices, 9, 1, &time);
    double expected[2] = {0.0, 0.0};
    for (int backward = 0; backward < 2; backward++) {
        for (size_t i = 0; i < sizeof runs / sizeof runs[0]; i++) {
            expected[backward] +=
                batch_s(backward == 1, runs[i].count * 8, runs[i].length, runs[i].keys);
        }
    }
    assert_near(time.of[SP_PART_LAYER][SP_PASS_F].attention_s, expected[0], 1e-9, 1e-15);
    assert_near(time.of[SP_PART_LAYER][SP_PASS_RECOMPUTE].attention_s, expected[0], 1e-9, 1e-15);
    assert_near(time.of[SP_PART_LAYER][SP_PASS_I].attention_s, expected[1], 1e-9, 1e-15);
    assert_true(time.of[SP_PART_LAYER][SP_PASS_W].attention_s == 0.0);
    // In one batch never slower than one by one, and never better than the whole rate.
    sp_i_pack_time alone, together;
    pack_times_of_samples(&of, 1, 700, &alone);
    pack_times_of_samples(&of, 5, 700, &together);
    double one_s = alone.of[SP_PART_LAYER][SP_PASS_F].attention_s;
    double five_s = together.of[SP_PART_LAYER][SP_PASS_F].attention_s;
    assert_true(five_s < 5 * one_s);
    assert_true(five_s > 5 * 2 * 2 * 8 * 700.0 * 700 * 64 / 273e12);
    sp_profile_fini(&profile);
}

// Without a tile model the curve's rate, as one GEMM of all rows.
TEST(flat_rate_counts_the_square)
{
    flat_profile_load((const char *[]){"memory.gb_per_s=1e12", NULL}, &profile);
    pack_times_case of = case_of(1);
    sp_i_pack_time time;
    pack_times_of_samples(&of, 3, 1000, &time);
    double matmul_s = 2 * 3 * 16 * 1000.0 * 1000 * 64 / FLAT_GEMM_FLOPS_PER_S;
    assert_near(time.of[SP_PART_LAYER][SP_PASS_F].attention_s, 2 * matmul_s, 1e-9, 1e-15);
    assert_near(time.of[SP_PART_LAYER][SP_PASS_I].attention_s, 4 * matmul_s, 1e-9, 1e-15);
    sp_profile_fini(&profile);
}

// Seconds that the score model adds to the passes of a layer for `count` samples of `tokens`.
static void added_by(const char *section, int count, int64_t tokens, double added_s[2])
{
    sp_i_pack_time time[2];
    for (int i = 0; i < 2; i++) {
        flat_profile_load((const char *[]){TILE_MODEL, i == 0 ? NULL : section, NULL}, &profile);
        pack_times_case of = case_of(2);
        of.memory.stack.fused_softmax_limited = false;
        pack_times_of_samples(&of, count, tokens, &time[i]);
        sp_profile_fini(&profile);
    }
    static const sp_pass passes[] = {SP_PASS_F, SP_PASS_I};
    for (int i = 0; i < 2; i++) {
        added_s[i] = time[1].of[SP_PART_LAYER][passes[i]].compute_s -
                     time[0].of[SP_PART_LAYER][passes[i]].compute_s;
    }
}

#define SCORES(constants) "unfused_attention={" constants ",\"level\":\"fitted\",\"source\":\"s\"}"

// Traffic per score is multiplied by factor * (keys / from)^growth, the keys held at `to` and at
// one at least.
TEST(score_traffic_grows_to_its_cap)
{
    const struct {
        const char *section;
        int64_t tokens;
        double weight;
    } cases[] = {
        {SCORES("\"traffic_factor\":3"), 640, 3.0},
        {SCORES("\"traffic_factor\":0.5"), 640, 0.5},
        {SCORES("\"traffic_factor\":0.56,\"traffic_growth\":1.7"), 1024, 0.56},
        {SCORES("\"traffic_factor\":0.56,\"traffic_growth\":1.7"), 2048, 0.56 * 3.2490095854249423},
        {SCORES("\"traffic_factor\":1,\"traffic_growth\":2"), 256, 1.0 / 16},
        // Held at 2048 keys, twice the 1024 that growth starts from, or as stated.
        {SCORES("\"traffic_factor\":1,\"traffic_growth\":2"), 3000, 4.0},
        {SCORES("\"traffic_factor\":1,\"traffic_growth\":2,\"growth_from_keys\":512,"
                "\"growth_to_keys\":1024"),
         2000, 4.0},
        {SCORES("\"traffic_factor\":1,\"traffic_growth\":2,\"growth_from_keys\":512,"
                "\"growth_to_keys\":1024"),
         1024, 4.0},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        double added_s[2];
        double scores = 3 * 8.0 * (double)cases[i].tokens * (double)cases[i].tokens;
        added_by(cases[i].section, 3, cases[i].tokens, added_s);
        for (int backward = 0; backward < 2; backward++) {
            double bytes = fused_bytes[backward] * scores * (cases[i].weight - 1.0);
            must_hold(fabs(added_s[backward] - bytes / FLAT_MEMORY_BYTES_PER_S) <= 1e-12,
                      "case %zu: %.17g is not %.17g", i, added_s[backward],
                      bytes / FLAT_MEMORY_BYTES_PER_S);
        }
    }
}

// What the separate softmax adds over the same pack with a kernel that serves all.
static void softmax_of(pack_times_case of, const sp_slice *slices, int count, double added_s[2],
                       double *share)
{
    sp_i_pack_time limited, served;
    pack_times(&of, slices, count, 1, &limited);
    of.memory.stack.fused_softmax_limited = false;
    pack_times(&of, slices, count, 1, &served);
    static const sp_pass passes[] = {SP_PASS_F, SP_PASS_I};
    for (int i = 0; i < 2; i++) {
        added_s[i] = limited.of[SP_PART_LAYER][passes[i]].compute_s -
                     served.of[SP_PART_LAYER][passes[i]].compute_s;
    }
    *share = limited.unfused_softmax;
    assert_true(served.unfused_softmax == 0.0);
}

// Megatron-LM's fused softmax serves where heads * samples are a multiple of 4 and at most 2048
// keys are attended to.
TEST(softmax_falls_back)
{
    flat_profile_load((const char *[]){TILE_MODEL, SCORES("\"traffic_factor\":2"), NULL}, &profile);
    const struct {
        int tp, count;
        int64_t tokens;
        bool falls_back;
    } cases[] = {{1, 1, 512, false},  {4, 1, 512, false}, {8, 1, 512, true},
                 {8, 2, 512, false},  {8, 3, 512, true},  {8, 4, 512, false},
                 {4, 1, 2048, false}, {4, 1, 2049, true}, {8, 1, 2049, true}};
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        sp_slice slices[4];
        double added_s[2], share;
        for (int j = 0; j < cases[i].count; j++) {
            slices[j] = (sp_slice){j, 0, 0, cases[i].tokens, cases[i].tokens};
        }
        softmax_of(case_of(cases[i].tp), slices, cases[i].count, added_s, &share);
        assert_true(share == (cases[i].falls_back ? 1.0 : 0.0));
        double scores =
            cases[i].count * 16.0 / cases[i].tp * (double)cases[i].tokens * (double)cases[i].tokens;
        for (int backward = 0; backward < 2; backward++) {
            double bytes = share * 2.0 * unfused_more_bytes[backward] * scores;
            assert_within(added_s[backward], bytes / FLAT_MEMORY_BYTES_PER_S, 1e-12);
        }
    }
    sp_profile_fini(&profile);
}

// Two heads on a rank: a pair of samples is served, the single one and the one with much context
// are not: two of three calls.
TEST(share_counts_calls)
{
    flat_profile_load((const char *[]){TILE_MODEL, NULL}, &profile);
    const sp_slice slices[] = {{0, 0, 0, 512, 512},
                               {1, 0, 0, 512, 512},
                               {2, 0, 0, 300, 300},
                               {3, 0, 2000, 100, 100},
                               {4, 0, 2000, 100, 100}};
    double added_s[2], share;
    softmax_of(case_of(8), slices, 5, added_s, &share);
    assert_near(share, 2.0 / 3.0, 1e-9, 1e-15);
    double scores = 2 * (300.0 * 300 + 2 * 100.0 * 2100);
    for (int backward = 0; backward < 2; backward++) {
        assert_true(fabs(added_s[backward] -
                         unfused_more_bytes[backward] * scores / FLAT_MEMORY_BYTES_PER_S) <= 1e-12);
    }
    sp_profile_fini(&profile);
}

// Flash attention has no score traffic, whatever profile and stack say of it.
TEST(flash_has_no_scores)
{
    sp_i_pack_time time[2];
    for (int i = 0; i < 2; i++) {
        flat_profile_load((const char *[]){i == 0 ? NULL : SCORES("\"traffic_factor\":9"), NULL},
                          &profile);
        pack_times_case of = case_of(8);
        of.memory.attention = SP_ATTENTION_FLASH;
        of.memory.stack.fused_softmax_limited = i == 1;
        pack_times_of_samples(&of, 1, 4000, &time[i]);
        assert_true(time[i].unfused_softmax == 0.0);
        sp_profile_fini(&profile);
    }
    assert_near(time[1].of[SP_PART_LAYER][SP_PASS_F].compute_s,
                time[0].of[SP_PART_LAYER][SP_PASS_F].compute_s, 1e-9, 1e-15);
}

// Stated bytes per logit take the place of the counted ones (38 B forward, 14 B backward: Megatron-
// LM's vocabulary-parallel cross entropy), half of them each way.
TEST(loss_by_bytes_per_logit)
{
    sp_i_pack_time time[2];
    for (int i = 0; i < 2; i++) {
        flat_profile_load(
            (const char *[]){
                i == 0 ? NULL
                       : "loss={\"bytes_per_logit\":123,\"level\":\"fitted\",\"source\":\"s\"}",
                NULL},
            &profile);
        pack_times_case of = case_of(4);
        pack_times_of_samples(&of, 2, 1000, &time[i]);
        sp_profile_fini(&profile);
    }
    double logits_s = 2000.0 * 51200 / 4 / FLAT_MEMORY_BYTES_PER_S;
    const sp_i_time *counted = time[0].of[SP_PART_HEAD];
    const sp_i_time *stated = time[1].of[SP_PART_HEAD];
    assert_near(stated[SP_PASS_F].compute_s - counted[SP_PASS_F].compute_s, (61.5 - 38) * logits_s,
                1e-9, 1e-15);
    assert_near(stated[SP_PASS_I].compute_s - counted[SP_PASS_I].compute_s, (61.5 - 14) * logits_s,
                1e-9, 1e-15);
    assert_near(stated[SP_PASS_W].compute_s, counted[SP_PASS_W].compute_s, 1e-9, 1e-15);
}

// What a profile states is of the kind of loss that its stack runs. Of the other kind 10 bytes are
// counted, of one kernel that writes the gradient over the logits (three accesses and two of bf16),
// or the 52 of eager kernels; so they are where a profile states nothing. Launches are free here.
TEST(loss_of_the_other_kind)
{
    static const char stated[] =
        "loss={\"bytes_per_logit\":123,\"level\":\"fitted\",\"source\":\"s\"}";
    static const char in_place[] = "stack={\"name\":\"ours\",\"fused_cross_entropy\":true}";
    const struct {
        const char *loss, *stack;
        bool fused;
        double bytes;
    } cases[] = {{NULL, NULL, false, 52},       {NULL, NULL, true, 10},
                 {stated, NULL, false, 123},    {stated, NULL, true, 10},
                 {stated, in_place, false, 52}, {stated, in_place, true, 123}};
    double first_s = 0.0;
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        const char *overrides[] = {cases[i].loss, cases[i].loss != NULL ? cases[i].stack : NULL,
                                   NULL};
        sp_i_pack_time time;
        flat_profile_load(overrides, &profile);
        pack_times_case of = case_of(4);
        of.memory.stack.fused_cross_entropy = cases[i].fused;
        pack_times_of_samples(&of, 2, 1000, &time);
        sp_profile_fini(&profile);
        const sp_i_time *head = time.of[SP_PART_HEAD];
        double head_s = head[SP_PASS_F].compute_s + head[SP_PASS_I].compute_s;
        first_s = i == 0 ? head_s : first_s;
        assert_near(head_s - first_s,
                    (cases[i].bytes - 52) * 2000.0 * 51200 / 4 / FLAT_MEMORY_BYTES_PER_S, 1e-9,
                    1e-12);
    }
}
