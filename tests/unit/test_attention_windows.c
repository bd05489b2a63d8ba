// Attention that sees a window or a chunk: its pairs against sums over rows, its times in closed
// form on rates that do not depend on length and by their properties on the shipped profiles, and
// whole steps.
#include "solver/evaluate/evaluate.h"
#include "solver/rows.h"
#include "tests/support/flat_profile.h"
#include "tests/support/initializers.h"
#include "tests/support/pack_times.h"
#include "tests/support/scenario_run.h"

enum { HIDDEN = 1024, LAYERS = 8 };

static const sp_model shape = {.name = "m", LLAMA_SHAPE(LAYERS, HIDDEN, 2816, 8, 8, 32000)};

static sp_profile profile;

static const sp_cluster cluster = {
    .gpus_per_node = 8, .nodes = 8, .nics_per_node = 8, .nic_bytes_per_s = 50e9};

static sp_model with_window(int64_t tokens)
{
    sp_model model = shape;
    model.window_tokens = tokens;
    return model;
}

static sp_model with_chunk(int64_t tokens)
{
    sp_model model = shape;
    model.chunk_tokens = tokens;
    return model;
}

// Runs of layers with a window and of layers that see all.
static sp_model with_kinds(int64_t window, int local, int global)
{
    sp_model model = shape;
    model.kinds = model.runs = 2;
    model.kind[0] = (sp_layer_mlp){.ffn = model.ffn, .window_tokens = window};
    model.kind[1] = (sp_layer_mlp){.ffn = model.ffn};
    model.run[0] = (sp_layer_run){local, 0};
    model.run[1] = (sp_layer_run){global, 1};
    return model;
}

// ---- pairs ----

// Row i of a window of w tokens sees min(i + 1, w), itself among them; of a chunk of c those from
// its chunk's first on. A row that sees all up to its own counts half of its own.
static double counted_pairs2(const sp_model *model, int64_t begin, int64_t tokens)
{
    int64_t pairs = 0;
    int64_t halves = 0;
    for (int64_t i = begin; i < begin + tokens; i++) {
        int64_t first = 0;
        if (model->window_tokens > 0 && i + 1 > model->window_tokens) {
            first = i + 1 - model->window_tokens;
        }
        if (model->chunk_tokens > 0) {
            first = i / model->chunk_tokens * model->chunk_tokens;
        }
        pairs += i + 1 - first;
        halves += first == 0 || model->chunk_tokens > 0;
    }
    return (double)(2 * pairs - halves);
}

TEST_ROUNDS(pairs_are_those_of_the_rows, 31, test_draws(3000))
{
    int64_t size = 1 + (int64_t)sp_prng_below(prng, 300);
    sp_model model = round % 2 == 0 ? with_window(size) : with_chunk(size);
    int64_t begin = (int64_t)sp_prng_below(prng, 1000);
    int64_t tokens = (int64_t)sp_prng_below(prng, 1000);
    double pairs2 = sp_model_pairs2(&model, (double)begin, (double)tokens);
    assert_true(pairs2 == counted_pairs2(&model, begin, tokens));
    // Slices add up, and none has more than it would see of all tokens.
    int64_t first = tokens / 3;
    assert_true(pairs2 ==
                sp_model_pairs2(&model, (double)begin, (double)first) +
                    sp_model_pairs2(&model, (double)(begin + first), (double)(tokens - first)));
    assert_true(pairs2 <= sp_model_pairs2(&shape, (double)begin, (double)tokens));
}

// Ten tokens behind a window of 4: 10*4 - 4*4/2 = 32 pairs. In chunks of 4: 8 + 8 + 2. All: 50.
TEST(pairs_by_hand)
{
    sp_model window = with_window(4);
    sp_model chunk = with_chunk(4);
    sp_model kinds = with_kinds(4, 1, 1);
    assert_true(sp_model_pairs2(&window, 0, 10) == 64.0);
    assert_true(sp_model_pairs2(&chunk, 0, 10) == 36.0);
    assert_true(sp_model_pairs2(&shape, 0, 10) == 100.0);
    assert_true(sp_model_pairs2(&window, 6, 4) == 32.0);
    // Tokens 6 and 7 see two and three of their chunk before them, halved as rows: 2.5 and 3.5.
    assert_true(sp_model_pairs2(&chunk, 6, 2) == 12.0);
    assert_true(sp_model_pairs2(&kinds, 0, 10) == 82.0);
    // Five of six layers have the window: eight layers are 5, 1 and 2 of the second round.
    kinds = with_kinds(4, 5, 1);
    assert_true(sp_model_pairs2(&kinds, 0, 10) == (7 * 64.0 + 100.0) / 8);
    assert_int_equal(sp_model_least_seen(&kinds), 4);
    assert_int_equal(sp_model_least_seen(&shape), 0);
    // A forward: 4 h FLOPs for each pair and layer, beside 2 for each weight.
    double linear = sp_model_forward_flops(&kinds, 10, 0);
    assert_close(sp_model_forward_flops(&kinds, 10, sp_model_pairs2(&kinds, 0, 10)) - linear,
                 4.0 * HIDDEN * (7 * 32.0 + 50.0), 1e-12);
}

// The shortest order of the kinds that repeats gives each layer its own.
TEST(kinds_are_those_of_the_layers)
{
    static const struct {
        const char *layers; // a letter for each kind
        int runs;           // 0: too many
    } cases[] = {{"aaaaaaaa", 1},          {"abababab", 2},         {"aaaaabaaaaabaa", 2},
                 {"abaabaabaaba", 3},      {"aaaabbbb", 2},         {"abcabcab", 3},
                 {"abcdabcdabcd", 4},      {"abcdeabc", 0},         {"aabaabaaab", 5},
                 {"abbabbbabbbbabbbb", 8}, {"ababbabbbabbbbab", 8}, {"ababbabbbabbbbabbbbb", 10}};
    for (size_t c = 0; c < sizeof cases / sizeof cases[0]; c++) {
        sp_layer_mlp of_layer[32] = {{0}};
        sp_model model = shape;
        model.layers = (int)strlen(cases[c].layers);
        for (int i = 0; i < model.layers; i++) {
            of_layer[i].window_tokens = cases[c].layers[i] - 'a';
        }
        assert_true(sp_model_set_kinds(&model, of_layer) == (cases[c].runs > 0));
        if (cases[c].runs == 0) {
            continue;
        }
        assert_int_equal(model.runs, cases[c].runs);
        int count[SP_LAYER_KINDS] = {0};
        for (int i = 0; i < model.layers; i++) {
            int kind = sp_model_kind_of(&model, i);
            int counted[SP_LAYER_KINDS];
            assert_int_equal(model.kind[kind].window_tokens, of_layer[i].window_tokens);
            count[kind]++;
            sp_model_count_kinds(&model, 0, i + 1, counted);
            assert_memory_equal(counted, count, sizeof count);
        }
    }
}

// ---- times ----

static pack_times_case case_of(const sp_model *model, sp_cp_sharding way, int cp)
{
    return (pack_times_case){
        .model = model,
        .cluster = &cluster,
        .profile = &profile,
        .layout = {.tp = 1, .cp = cp, .cp_sharding = way, .pp = 1, .dp = 1, .chunks = 1}};
}

static void is_time_of(const sp_i_pack_time *time, int kind, double pairs2)
{
    const int part = sp_i_part_of_kind(kind);
    assert_close(time->of[part][SP_PASS_F].attention_s,
                 2.0 * pairs2 * HIDDEN / FLAT_FORWARD_FLOPS_PER_S, 1e-12);
    assert_close(time->of[part][SP_PASS_I].attention_s,
                 5.0 * pairs2 * HIDDEN / FLAT_BACKWARD_FLOPS_PER_S, 1e-12);
}

// Where rates do not depend on length, each kind of layer takes the time of its own pairs, and CP
// ranks that share evenly an equal part of it.
TEST(each_kind_takes_the_time_of_its_pairs)
{
    static const sp_slice slices[] = {{0, 0, 0, 5000, 5000}, {1, 0, 700, 300, 300}};
    sp_model chunked = with_kinds(1000, 3, 1);
    chunked.kind[0].window_tokens = 0;
    chunked.kind[0].chunk_tokens = 1000;
    const sp_model models[] = {with_kinds(1000, 3, 1), chunked};
    flat_profile_load(NULL, &profile);
    for (int m = 0; m < 2; m++) {
        for (int cp = 1; cp <= 4; cp *= 2) {
            pack_times_case of = case_of(&models[m], SP_SHARD_EVEN, cp);
            sp_i_pack_time time;
            pack_times(&of, slices, 2, 1, &time);
            for (int k = 0; k < 2; k++) {
                sp_model space;
                const sp_model *alike = sp_model_of_kind(&models[m], k, &space);
                double pairs2 = counted_pairs2(alike, 0, 5000) + counted_pairs2(alike, 700, 300);
                is_time_of(&time, k, pairs2 / cp);
            }
        }
    }
    sp_profile_fini(&profile);
}

// The rank with the most pairs sets the time, each counting those of its two chunks of the row.
TEST(uneven_shares_take_the_time_of_the_fullest_rank)
{
    static const sp_slice slice = {0, 0, 0, 4096, 4096};
    flat_profile_load(NULL, &profile);
    for (int cp = 2; cp <= 8; cp *= 2) {
        for (int64_t size = 100; size <= 4096; size += 666) {
            const sp_model models[] = {with_window(size), with_chunk(size)};
            for (int m = 0; m < 2; m++) {
                int64_t chunk = 4096 / (2 * cp);
                double most = 0.0;
                for (int r = 0; r < cp; r++) {
                    double own = counted_pairs2(&models[m], r * chunk, chunk) +
                                 counted_pairs2(&models[m], (2 * cp - 1 - r) * chunk, chunk);
                    most = fmax(most, own);
                }
                pack_times_case of = case_of(&models[m], SP_SHARD_SEQUENCE, cp);
                sp_i_pack_time time;
                pack_times(&of, &slice, 1, 1, &time);
                is_time_of(&time, 0, most);
            }
        }
    }
    sp_profile_fini(&profile);
}

// Blocks that exchange keys slice by slice: with a window of all tokens they are those of none, and
// a run that is longer than its window sees one block before its own.
TEST(blocks_follow_the_window)
{
    static const sp_slice slice = {0, 0, 8192, 4096, 4096};
    const sp_model models[] = {shape, with_window(12288), with_window(1 << 20), with_window(100)};
    double forward_s[4];
    flat_profile_load(NULL, &profile);
    for (int m = 0; m < 4; m++) {
        pack_times_case of = case_of(&models[m], SP_SHARD_EVEN, 2);
        of.memory.stack.cp_overlap = SP_CP_SLICES;
        sp_i_pack_time time;
        pack_times(&of, &slice, 1, 1, &time);
        forward_s[m] = time.of[SP_PART_LAYER][SP_PASS_F].attention_s;
    }
    assert_true(forward_s[1] == forward_s[0] && forward_s[2] == forward_s[0]);
    // Four runs of 1024 on two ranks, each with a whole block and 100 keys for each of its rows.
    double pairs = 4 * (1024.0 * 1024.0 + 1024.0 * 100 - 100 * 100 / 2) / 2;
    assert_close(forward_s[3], 4.0 * pairs * HIDDEN / FLAT_FORWARD_FLOPS_PER_S, 1e-12);
    sp_profile_fini(&profile);
}

static const char *const shipped[] = {"a100", "h100", "h800", "h200", "host"};

// A larger window never takes less, nor more than all tokens, which it takes from the whole sample
// on; nor does a longer slice take less. No rate is above the best.
TEST(times_grow_with_the_window)
{
    sp_prng prng = prng_seeded(37);
    for (size_t p = 0; p < sizeof shipped / sizeof shipped[0]; p++) {
        must_succeed(sp_profile_load(shipped[p], &profile, ERR));
        const sp_op_timer timer = {.cluster = &cluster, .profile = &profile};
        for (int i = 0; i < test_draws(2000); i++) {
            int backward = i % 2;
            double l = 1.0 + floor(exp(12.0 * sp_prng_uniform(&prng)));
            double o = i % 3 == 0 ? 0.0 : floor(exp(12.0 * sp_prng_uniform(&prng)));
            double w = 1.0 + floor(exp(12.0 * sp_prng_uniform(&prng)));
            double wider = w * (1.0 + sp_prng_uniform(&prng));
            double all_s = sp_time_attention_slice(&timer, backward, l, o, HUGE_VAL, 8, 128);
            double time_s = sp_time_attention_slice(&timer, backward, l, o, w, 8, 128);
            assert_true(time_s <= all_s && (w < l + o || time_s == all_s));
            // The shortest length that is measured on any of them is 512.
            double rounding = l < 512.0 ? 0.1 : 1e-5;
            assert_true(sp_time_attention_slice(&timer, backward, l, o, wider, 8, 128) >=
                        time_s * (1.0 - rounding));
            assert_true(sp_time_attention_slice(&timer, backward, l + 1, o, w, 8, 128) >=
                        time_s * (1.0 - 1e-3));
            double piece_s = sp_time_attention_piece(&timer, backward, l, o, w, 8, 128);
            double whole_s = sp_time_attention_piece(&timer, backward, l, o, HUGE_VAL, 8, 128);
            assert_true(piece_s <= whole_s && (w < l + o || piece_s == whole_s));
            sp_model model = with_window((int64_t)w);
            double most = sp_i_curve_most(backward ? &profile.attention[1][SP_PAIRS_CAUSAL]
                                                   : &profile.attention[0][SP_PAIRS_CAUSAL]);
            double flops = (backward ? 5.0 : 2.0) * 8 * 128 * sp_model_pairs2(&model, o, l);
            assert_true(time_s >= flops / most * (1.0 - 1e-9));
            assert_true(piece_s >= flops / most * (1.0 - 1e-9));
        }
        sp_profile_fini(&profile);
    }
}

// The kernels' probabilities are masked, not left out: unfused attention takes and keeps what it
// does without a window.
TEST(unfused_attention_masks)
{
    static const sp_slice slice = {0, 0, 0, 4096, 4096};
    const sp_model models[] = {shape, with_window(64)};
    double forward_s[2];
    flat_profile_load(NULL, &profile);
    for (int m = 0; m < 2; m++) {
        pack_times_case of = case_of(&models[m], SP_SHARD_EVEN, 1);
        of.memory.attention = SP_ATTENTION_UNFUSED;
        sp_i_pack_time time;
        pack_times(&of, &slice, 1, 1, &time);
        forward_s[m] = time.of[SP_PART_LAYER][SP_PASS_F].attention_s;
    }
    assert_true(forward_s[0] == forward_s[1]);
    sp_profile_fini(&profile);
}

// ---- the planner's weights ----

// The most tokens from `begin` on whose work fits, and no token more.
TEST_ROUNDS(slices_of_a_work_are_the_longest, 41, test_draws(500))
{
    sp_model model = round % 2 == 0 ? with_kinds(1 + (int64_t)sp_prng_below(prng, 5000), 1, 1)
                                    : with_chunk(1 + (int64_t)sp_prng_below(prng, 5000));
    const sp_i_work work = {{1e-3, 1e-6, 1e-10}, {2e-3, 2e-6, 2.5e-10}, &model};
    int64_t begin = (int64_t)sp_prng_below(prng, 100000);
    double work_s = exp(-8.0 * sp_prng_uniform(prng));
    int64_t tokens = sp_i_slice_tokens(&work, begin, work_s);
    assert_true(sp_i_slice_work_s(&work, begin, tokens) <= work_s);
    assert_true(sp_i_slice_work_s(&work, begin, tokens + 1) > work_s);
    double both_s = sp_i_slice_pass_s(&work, false, begin, tokens) +
                    sp_i_slice_pass_s(&work, true, begin, tokens);
    assert_close(both_s, sp_i_slice_work_s(&work, begin, tokens), 1e-12);
}

// ---- whole steps ----

static sp_result step_of(const char *strategy, const char *seen)
{
    char text[2048];
    AUTO(sp_scenario) scenario;
    AUTO(sp_batches) batches;
    sp_result result;
    const sp_evaluate_options options = {.engine = {.verify = true}, .effort_percent = 10};
    snprintf(
        text, sizeof text,
        "{'model': {'layers': 8, 'hidden': 1024, 'ffn': 2816, 'heads': 16, 'vocab': 32000%s},"
        " 'cluster': 'h100-8', 'profile': 'h100-burst', 'parallel': {'tp': 2, 'pp': 2, 'dp': 2},"
        " 'strategy': {'kind': '%s'},"
        " 'workload': {'lengths': [32768, 512, 700, 4096, 100, 2048, 6000, 333, 1024, 256,"
        " 5000, 64], 'context': 32768, 'samples_per_batch': 12}}",
        seen, strategy);
    json_auto_t *root = json_document(text);
    must_succeed_for(text, sp_scenario_from_json(root, "test", NULL, 0, &scenario, ERR));
    must_succeed_for(text, sp_evaluate_batches(&scenario, &batches, ERR));
    must_succeed_for(text, sp_evaluate(&scenario, &batches, &options, &result, ERR));
    return result;
}

static double ms_of(const char *strategy, const char *seen, double *bound_ms)
{
    AUTO(sp_result) result = step_of(strategy, seen);
    double ms = (double)result.batches[0].iteration_ns / 1e6;
    *bound_ms = result.batches[0].facts.lower_bound_ns / 1e6;
    return ms;
}

// A window that no sample fills is none; shorter ones take less, down to the bound of each.
TEST_OF_VALUES(steps_follow_the_window)
{
    static const char *const strategies[] = {"packed", "slimpack", "slimpipe", "zeppelin"};
    static const char *const seen[] = {
        "", ", 'window_tokens': 32768",
        ", 'layer_kinds': [{'layers': 1, 'window_tokens': 32768}, {'chunk_tokens': 40000}]",
        ", 'layer_kinds': [{'layers': 1, 'window_tokens': 1024}, {}]", ", 'window_tokens': 1024"};
    for (size_t s = 0; s < sizeof strategies / sizeof strategies[0]; s++) {
        double ms[5];
        for (int i = 0; i < 5; i++) {
            double bound_ms;
            ms[i] = ms_of(strategies[s], seen[i], &bound_ms);
            assert_true(bound_ms > 0.0 && bound_ms <= ms[i]);
        }
        assert_true(ms[1] == ms[0] && ms[2] == ms[0]);
        assert_true(ms[3] < 0.99 * ms[0] && ms[4] < 0.99 * ms[3]);
    }
}
