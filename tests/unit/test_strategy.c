// Strategies: every sample once and whole, rows within the context, and the counts that bin packing
// theory allows.
#include "solver/rows.h"
#include "solver/strategy.h"
#include "tests/support/scenario_run.h"
#include "tests/support/test_main.h"

enum { MOST_SAMPLES = 400 };

static void random_batch(sp_prng *prng, int64_t context, sp_batch *batch, int64_t *ids,
                         int64_t *tokens)
{
    *batch = (sp_batch){.ids = ids, .tokens = tokens};
    batch->count = 1 + (size_t)sp_prng_below(prng, MOST_SAMPLES);
    for (size_t i = 0; i < batch->count; i++) {
        // Mostly short, some as long as the context.
        int64_t most = sp_prng_below(prng, 8) == 0 ? context : context / 6 + 1;
        ids[i] = (int64_t)i;
        tokens[i] = 1 + (int64_t)sp_prng_below(prng, (uint64_t)most);
        batch->total_tokens += tokens[i];
    }
}

static const char *const row_strategies[] = {"padded", "packed", "sorted",      "ffd",
                                             "bfd",    "lpfhp",  "dp-balanced", NULL};

// Row strategies ask for no costs.
static sp_status try_pack(const char *kind, int64_t microbatch_samples, sp_pad_to pad_to,
                          const sp_batch *batch, int64_t context, int dp, sp_packing *packing,
                          sp_error *err)
{
    static sp_scenario scenario;
    scenario.strategy =
        (sp_strategy_spec){.microbatch_samples = microbatch_samples, .pad_to = pad_to};
    scenario.layout = (sp_layout){.tp = 1, .cp = 1, .pp = 1, .dp = dp, .chunks = 1};
    must_succeed(sp_model_builtin("llama-7b", &scenario.model, err));
    sp_strategy_input input = {.scenario = &scenario, .batch = batch, .context = context};
    return sp_strategy_pack(sp_strategy_find(kind), &input, packing, err);
}

static void pack(const char *kind, int64_t microbatch_samples, const sp_batch *batch,
                 int64_t context, int dp, sp_packing *packing)
{
    must_succeed(
        try_pack(kind, microbatch_samples, SP_PAD_CONTEXT, batch, context, dp, packing, ERR));
}

// Each sample in exactly one slice that covers it; packs hold at most rows * context tokens and are
// dealt to the ranks in turn.
static void assert_lossless(const sp_packing *packing, const sp_batch *batch, int64_t limit)
{
    unsigned char seen[MOST_SAMPLES] = {0};
    for (size_t k = 0; k < packing->forward.count; k++) {
        const sp_pack *p = &packing->forward.packs[k];
        assert_int_equal(p->dp_first, (int)(k % (size_t)packing->dp));
        assert_int_equal(p->dp_count, 1);
        assert_true(p->slice_count > 0);
        assert_true(p->computed <= limit);
        for (size_t s = p->first_slice; s < p->first_slice + p->slice_count; s++) {
            const sp_slice *slice = &packing->forward.slices[s];
            assert_int_equal(slice->begin, 0);
            assert_int_equal(slice->tokens, batch->tokens[slice->sample]);
            assert_true(slice->computed_tokens >= slice->tokens);
            int64_t multiple =
                batch->padding.each > 0 ? batch->padding.cp * batch->padding.each : 1;
            assert_int_equal(slice->computed_tokens % multiple, 0);
            assert_int_equal(seen[slice->sample]++, 0);
        }
    }
    assert_int_equal(packing->forward.slice_count, batch->count);
    assert_int_equal(packing->backward.count, 0);
}

TEST_ROUNDS(every_strategy_is_lossless, 17, 100)
{
    int64_t ids[MOST_SAMPLES], tokens[MOST_SAMPLES];
    int64_t context = 100 + (int64_t)sp_prng_below(prng, 3000);
    int64_t rows = 1 + (int64_t)sp_prng_below(prng, 4);
    int dp = 1 + prng_below(prng, 5);
    sp_batch batch;
    random_batch(prng, context, &batch, ids, tokens);
    for (int i = 0; row_strategies[i] != NULL; i++) {
        AUTO(sp_packing) packing;
        pack(row_strategies[i], rows, &batch, context, dp, &packing);
        assert_lossless(&packing, &batch, rows * context);
        sp_packing_fini(&packing);
        // A stack that pads counts padded samples into rows of a multiple that holds the
        // context.
        const sp_padding padding = {.cp = 2 + prng_below(prng, 7),
                                    .each = 2 * (1 + prng_below(prng, 2))};
        const sp_batch padded = sp_batch_view(&batch, padding);
        int64_t multiple = padding.cp * padding.each;
        pack(row_strategies[i], rows, &padded, context, dp, &packing);
        assert_lossless(&packing, &padded, rows * ((context + multiple - 1) / multiple * multiple));
    }
}

static size_t rows_of(const char *kind, const sp_batch *batch, int64_t context)
{
    AUTO(sp_packing) packing;
    pack(kind, 1, batch, context, 1, &packing);
    return packing.forward.count;
}

// First-fit decreasing: at most 11/9 OPT + 6/9 (Dosa 2007) with OPT >= tokens / context; next-fit:
// fewer than 2 OPT; padded: one row a sample.
TEST_ROUNDS(row_counts_within_bounds, 23, 200)
{
    int64_t ids[MOST_SAMPLES], tokens[MOST_SAMPLES];
    int64_t context = 100 + (int64_t)sp_prng_below(prng, 3000);
    sp_batch batch;
    random_batch(prng, context, &batch, ids, tokens);
    size_t least = (size_t)((batch.total_tokens + context - 1) / context);
    size_t packed = rows_of("packed", &batch, context);
    size_t ffd = rows_of("ffd", &batch, context);
    assert_true(packed >= least && packed <= 2 * least);
    assert_true(ffd >= least && ffd <= packed);
    assert_int_equal(rows_of("padded", &batch, context), batch.count);
}

static size_t exhaustive_rows(const int64_t *tokens, size_t n, int64_t context, int64_t *room,
                              size_t rows, size_t best)
{
    if (rows >= best) {
        return best;
    }
    if (n == 0) {
        return rows;
    }
    for (size_t r = 0; r <= rows; r++) {
        if (r == rows) {
            room[r] = context;
        }
        if (room[r] >= tokens[0]) {
            room[r] -= tokens[0];
            best = exhaustive_rows(tokens + 1, n - 1, context, room, r == rows ? rows + 1 : rows,
                                   best);
            room[r] += tokens[0];
        }
    }
    return best;
}

// Tiny cases against the optimum by exhaustive search.
TEST_ROUNDS(ffd_against_optimum, 29, 60)
{
    int64_t ids[7], tokens[7], room[8];
    sp_batch batch = {.ids = ids, .tokens = tokens, .count = 7};
    for (size_t i = 0; i < 7; i++) {
        ids[i] = (int64_t)i;
        tokens[i] = 1 + (int64_t)sp_prng_below(prng, 60);
    }
    size_t optimum = exhaustive_rows(tokens, 7, 100, room, 0, 8);
    size_t rows = rows_of("ffd", &batch, 100);
    assert_true(rows >= optimum && 9 * rows <= 11 * optimum + 6);
}

// Longest first, and the padding of a padded row: to the context, or to the micro-batch's longest.
TEST(order_and_padding)
{
    int64_t ids[] = {0, 1, 2, 3};
    int64_t tokens[] = {10, 40, 20, 30};
    sp_batch batch = {.ids = ids, .tokens = tokens, .count = 4, .total_tokens = 100};
    AUTO(sp_packing) packing;
    pack("sorted", 1, &batch, 50, 1, &packing);
    // 40 | 30 20 | 10: a new row when the next does not fit.
    assert_int_equal(packing.forward.count, 3);
    assert_int_equal(packing.forward.slices[0].sample, 1);
    assert_int_equal(packing.forward.slices[1].sample, 3);
    assert_int_equal(packing.forward.slices[2].sample, 2);
    assert_int_equal(packing.forward.slices[3].sample, 0);
    sp_packing_fini(&packing);
    pack("ffd", 1, &batch, 50, 1, &packing);
    // 40 10 | 30 20.
    assert_int_equal(packing.forward.count, 2);
    assert_int_equal(packing.forward.packs[0].tokens, 50);
    sp_packing_fini(&packing);
    pack("padded", 2, &batch, 50, 1, &packing);
    assert_int_equal(packing.forward.packs[0].computed, 100);
    assert_int_equal(packing.forward.packs[0].tokens, 50);
    sp_packing_fini(&packing);
    must_succeed(try_pack("padded", 2, SP_PAD_LONGEST, &batch, 50, 1, &packing, ERR));
    assert_int_equal(packing.forward.packs[0].computed, 80);
    assert_int_equal(packing.forward.packs[1].computed, 60);
}

// Every sample stands there once, the longest first, equal ones in the order of the batch.
TEST(samples_by_descending_length)
{
    sp_prng prng;
    sp_prng_seed(&prng, 5);
    for (int bits = 1; bits < 31; bits++) {
        static int64_t ids[MOST_SAMPLES], tokens[MOST_SAMPLES];
        sp_batch batch;
        random_batch(&prng, INT64_C(1) << bits, &batch, ids, tokens);
        AUTO_FREE int32_t *order = sp_i_order_descending(&batch);
        unsigned char seen[MOST_SAMPLES] = {0};
        for (size_t i = 0; i < batch.count; i++) {
            assert_in_range(order[i], 0, batch.count - 1);
            assert_false(seen[order[i]]);
            seen[order[i]] = 1;
            int64_t before = i > 0 ? tokens[order[i - 1]] : INT64_MAX;
            assert_true(before > tokens[order[i]] ||
                        (before == tokens[order[i]] && order[i - 1] < order[i]));
        }
    }
}

TEST(unknown_strategy_gets_a_hint)
{
    must_fail_with(sp_strategy_check("pakced", "s.json", ERR), SP_ERR_CONTENT,
                   "did you mean \"packed\"?");
    assert_int_equal(sp_strategy_check("ffd", "s.json", NULL), SP_OK);
}

// Packs are packed's, in front, less samples at their ends; those behind hold one sample each, and
// there are as many for every rank unless all hold one.
TEST_ROUNDS(dp_balanced_gives_ranks_as_many_packs, 71, test_draws(64))
{
    int64_t ids[MOST_SAMPLES], tokens[MOST_SAMPLES];
    sp_batch batch;
    AUTO(sp_packing) rows, packing;
    int dp = 1 + prng_below(prng, 9);
    random_batch(prng, 1000, &batch, ids, tokens);
    pack("packed", 1, &batch, 1000, dp, &rows);
    pack("dp-balanced", 1, &batch, 1000, dp, &packing);
    assert_lossless(&packing, &batch, 1000);
    size_t alone = 0;
    for (size_t k = 0; k < packing.forward.count; k++) {
        const sp_pack *p = &packing.forward.packs[k];
        alone += p->slice_count == 1;
        assert_true(k < rows.forward.count || p->slice_count == 1);
        assert_true(k >= rows.forward.count ||
                    packing.forward.slices[p->first_slice].sample ==
                        rows.forward.slices[rows.forward.packs[k].first_slice].sample);
    }
    assert_true(packing.forward.count % (size_t)dp == 0 || alone == packing.forward.count);
    assert_true(packing.forward.count < rows.forward.count + (size_t)dp);
}

static int64_t pack_tokens(const sp_packing *packing, size_t pack)
{
    return packing->forward.packs[pack].computed;
}

// The example of Karmarkar and Karp (1982, in Stanford's STAN-CS-81-889): 8, 7, 6, 5 and 4 in two
// parts of 16 and 14, over two ranks and over two packs of one rank.
TEST(kk_flops_takes_differences)
{
    int64_t ids[] = {0, 1, 2, 3, 4};
    int64_t tokens[] = {8, 7, 6, 5, 4};
    sp_batch batch = {.ids = ids, .tokens = tokens, .count = 5, .total_tokens = 30};
    for (int dp = 1; dp <= 2; dp++) {
        AUTO(sp_packing) packing;
        pack("kk-flops", 1, &batch, dp == 1 ? 15 : 30, dp, &packing);
        assert_int_equal(packing.forward.count, 2);
        assert_int_equal(pack_tokens(&packing, 0), 16);
        assert_int_equal(pack_tokens(&packing, 1), 14);
    }
}

static double flops_of(const sp_model *model, int64_t tokens)
{
    double n = (double)tokens;
    return sp_model_forward_flops(model, n, n * n);
}

// Ranks have as many samples, but for one, and as many packs; they differ by no more FLOPs than the
// largest sample has, and so do the packs of a rank.
TEST_ROUNDS(kk_flops_levels_ranks_and_packs, 72, test_draws(64))
{
    sp_model model;
    must_succeed(sp_model_builtin("llama-7b", &model, ERR));
    int64_t ids[MOST_SAMPLES], tokens[MOST_SAMPLES];
    double rank_flops[9] = {0.0}, least[9], most[9] = {0.0};
    int samples[9] = {0};
    sp_batch batch;
    AUTO(sp_packing) packing;
    int dp = 1 + prng_below(prng, 9);
    random_batch(prng, 1000, &batch, ids, tokens);
    pack("kk-flops", 1, &batch, 1000, dp, &packing);
    assert_lossless(&packing, &batch, INT64_MAX);
    int ranks = (int)batch.count < dp ? (int)batch.count : dp;
    assert_int_equal(packing.forward.count % (size_t)ranks, 0);
    double largest = flops_of(&model, sp_batch_longest(&batch));
    for (size_t k = 0; k < packing.forward.count; k++) {
        const sp_pack *p = &packing.forward.packs[k];
        double flops = 0.0;
        for (size_t i = 0; i < p->slice_count; i++) {
            flops += flops_of(&model, packing.forward.slices[p->first_slice + i].tokens);
        }
        least[p->dp_first] = k < (size_t)dp ? flops : fmin(least[p->dp_first], flops);
        most[p->dp_first] = fmax(most[p->dp_first], flops);
        rank_flops[p->dp_first] += flops;
        samples[p->dp_first] += (int)p->slice_count;
    }
    for (int r = 0; r < ranks; r++) {
        assert_true(samples[r] == (int)batch.count / ranks ||
                    samples[r] == (int)batch.count / ranks + 1);
        assert_true(most[r] - least[r] <= largest * (1.0 + 1e-12));
        for (int s = 0; s < ranks; s++) {
            assert_true(rank_flops[r] - rank_flops[s] <= largest * (1.0 + 1e-12));
        }
    }
}

// ---- ODC ----

// Whatever the lengths: every sample once and whole, packs within the budget, no rank with more
// work than another by more than the largest sample, and as few packs as first fit leaves (no two
// packs of a rank would fit one).
TEST_ROUNDS(odc_levels_ranks, 73, test_draws(64))
{
    static const char scenario[] =
        "{'model': {'layers': 4, 'hidden': 512, 'ffn': 1024, 'heads': 8, 'vocab': 1000}, "
        "'cluster': 'h100-8', 'parallel': {'dp': %d, 'zero': 3}, 'strategy': {'kind': 'odc', "
        "'rank_tokens': %d}, 'workload': {'lengths': [100], 'context': 1000}}";
    int64_t ids[MOST_SAMPLES], tokens[MOST_SAMPLES];
    double work_s[9] = {0.0}, largest_s = 0.0;
    int64_t last_two[9][2] = {{0}};
    sp_batch batch;
    AUTO(sp_scenario) read;
    AUTO(sp_packing) packing;
    AUTO(sp_cost_model) cost;
    int dp = 1 + prng_below(prng, 9);
    int budget = 1000 + prng_below(prng, 2000);
    random_batch(prng, 1000, &batch, ids, tokens);
    must_succeed(run_read(json_text(scenario, dp, budget), &read, ERR));
    must_succeed(sp_strategy_resolve(&read, false, ERR));
    // One rank has nothing to read from others.
    assert_true(read.memory.stack.one_sided == (dp > 1));
    assert_true(dp == 1 || read.layout.lone_gathers);
    must_succeed(sp_scenario_cost_model(&read, &cost, ERR));
    sp_strategy_input input = {.scenario = &read, .batch = &batch, .context = 1000, .cost = &cost};
    must_succeed(sp_strategy_pack(sp_strategy_find("odc"), &input, &packing, ERR));
    unsigned char seen[MOST_SAMPLES] = {0};
    for (size_t k = 0; k < packing.forward.count; k++) {
        const sp_pack *p = &packing.forward.packs[k];
        assert_true(p->computed <= budget && p->dp_count == 1);
        last_two[p->dp_first][0] = last_two[p->dp_first][1];
        last_two[p->dp_first][1] = p->computed;
        assert_true(last_two[p->dp_first][0] == 0 ||
                    last_two[p->dp_first][0] + p->computed > budget);
        for (size_t s = p->first_slice; s < p->first_slice + p->slice_count; s++) {
            int32_t sample = packing.forward.slices[s].sample;
            double sample_s = sp_cost_model_sample_work_s(&cost, tokens[sample]);
            assert_int_equal(seen[sample]++, 0);
            assert_int_equal(packing.forward.slices[s].tokens, tokens[sample]);
            work_s[p->dp_first] += sample_s;
            largest_s = sample_s > largest_s ? sample_s : largest_s;
        }
    }
    assert_int_equal(packing.forward.slice_count, batch.count);
    for (int a = 0; a < dp; a++) {
        for (int b = 0; b < dp; b++) {
            assert_true(work_s[a] - work_s[b] <= largest_s * (1.0 + 1e-9));
        }
    }
}

// What it does not go with is refused, and said in the words of the setting.
TEST(odc_refuses)
{
    static const struct {
        const char *parallel, *more, *part;
    } cases[] = {{"'dp': 2", "", "parallel.zero 3"},
                 {"'dp': 2, 'pp': 2, 'zero': 3", "", "parallel.pp 1"},
                 {"'dp': 2, 'cp': 2, 'zero': 3", "", "parallel.cp 1"},
                 {"'dp': 4, 'zero': 3, 'zero_group': 2", "", "parallel.zero_group"},
                 {"'dp': 2, 'zero': 3", ", 'network': {'detail': 'auto'}", "network.detail"}};
    for (int i = 0; i < COUNT_OF(cases); i++) {
        AUTO(scenario_run) r;
        const char *text = json_text(
            "{'model': {'layers': 4, 'hidden': 512, 'ffn': 1024, 'heads': 8, 'vocab': 1000}, "
            "'cluster': 'h100-8', 'parallel': {%s}, 'strategy': {'kind': 'odc'}, 'workload': "
            "{'lengths': [100, 200]}%s}",
            cases[i].parallel, cases[i].more);
        must_fail_with(run_text(text, &run_verified, &r, ERR), SP_ERR_INFEASIBLE, cases[i].part);
    }
}
