// DynaPipe's micro-batches against every other cut of the sorted samples, the memory they keep to,
// and the sharing out of micro-batches to ranks against every other sharing.
#include "solver/rows.h"
#include "solver/slicing.h"
#include "solver/strategy.h"
#include "tests/support/scenario_run.h"
#include "tests/support/test_main.h"

enum { MOST_SAMPLES = 10 };

typedef struct fixture {
    sp_scenario scenario;
    sp_cost_model cost;
    int64_t ids[MOST_SAMPLES], tokens[MOST_SAMPLES];
    sp_batch batch;
    sp_strategy_input input;
} fixture;

static void fixture_init(fixture *f, sp_prng *prng)
{
    const char *text = json_text(
        "{'model': {'layers': 8, 'hidden': 512, 'ffn': 1024, 'heads': 8, 'vocab': 1000}, "
        "'cluster': 'h800-8', 'parallel': {'pp': %d, 'dp': %d}, 'workload': {'uniform': 64}}",
        1 << sp_prng_below(prng, 4), 1 + prng_below(prng, 4));
    must_succeed(run_read(text, &f->scenario, ERR));
    must_succeed(sp_scenario_cost_model(&f->scenario, &f->cost, ERR));
    f->batch = (sp_batch){.ids = f->ids, .tokens = f->tokens};
    f->batch.count = 1 + (size_t)sp_prng_below(prng, 8);
    for (size_t i = 0; i < f->batch.count; i++) {
        f->ids[i] = (int64_t)i;
        // From fixed costs alone to attention above all.
        f->tokens[i] = 1 + (int64_t)sp_prng_below(prng, (uint64_t)64 << sp_prng_below(prng, 10));
        f->batch.total_tokens += f->tokens[i];
    }
    f->input = (sp_strategy_input){
        .scenario = &f->scenario, .batch = &f->batch, .context = 65536, .cost = &f->cost};
}

static void fixture_fini(fixture *f)
{
    sp_cost_model_fini(&f->cost);
    sp_scenario_fini(&f->scenario);
}

static void sort_descending(const fixture *f, int64_t *tokens)
{
    memcpy(tokens, f->tokens, f->batch.count * sizeof *tokens);
    for (size_t i = 1; i < f->batch.count; i++) {
        for (size_t k = i; k > 0 && tokens[k] > tokens[k - 1]; k--) {
            int64_t other = tokens[k];
            tokens[k] = tokens[k - 1];
            tokens[k - 1] = other;
        }
    }
}

// Of `count` samples padded to `tokens`.
static double microbatch_s(fixture *f, int64_t tokens, size_t count)
{
    AUTO(sp_packing) packing;
    sp_packing_init(&packing, &f->batch, 1);
    sp_pack_list_begin(&packing.forward, 0, 1);
    for (size_t i = 0; i < count; i++) {
        sp_slice slice = {.sample = (int32_t)i, .tokens = tokens, .computed_tokens = tokens};
        sp_pack_list_add(&packing.forward, slice, true);
    }
    return sp_cost_model_pack_s(&f->cost, &packing.forward, &packing.forward.packs[0]);
}

// (c-1) max t + sum t / D.
static double objective_s(const fixture *f, double sum_s, double longest_s)
{
    const sp_layout *layout = &f->scenario.layout;
    return (layout->pp - 1) * longest_s + sum_s / layout->dp;
}

static double best_cut_s(fixture *f)
{
    int64_t tokens[MOST_SAMPLES];
    size_t n = f->batch.count;
    double best_s = (double)INFINITY;
    sort_descending(f, tokens);
    for (unsigned mask = 0; mask < 1u << (n - 1); mask++) {
        double sum_s = 0.0, longest_s = 0.0;
        size_t first = 0;
        for (size_t i = 1; i <= n; i++) {
            if (i == n || (mask >> (i - 1) & 1) != 0) {
                double s = microbatch_s(f, tokens[first], i - first);
                sum_s += s;
                longest_s = fmax(longest_s, s);
                first = i;
            }
        }
        best_s = fmin(best_s, objective_s(f, sum_s, longest_s));
    }
    return best_s;
}

// The samples once each, longest first, padded to the first of their micro-batch.
static void assert_sorted_groups(const fixture *f, const sp_packing *packing)
{
    int64_t tokens[MOST_SAMPLES];
    size_t i = 0;
    sort_descending(f, tokens);
    for (size_t k = 0; k < packing->forward.count; k++) {
        const sp_pack *pack = &packing->forward.packs[k];
        int64_t padded = tokens[i];
        assert_true(pack->dp_first >= 0 && pack->dp_first < f->scenario.layout.dp);
        for (size_t s = 0; s < pack->slice_count; s++, i++) {
            const sp_slice *slice = &packing->forward.slices[pack->first_slice + s];
            assert_true(i < f->batch.count);
            assert_int_equal(slice->begin, 0);
            assert_int_equal(slice->tokens, tokens[i]);
            assert_int_equal(f->tokens[slice->sample], tokens[i]);
            assert_int_equal(slice->computed_tokens, padded);
        }
    }
    assert_int_equal(i, f->batch.count);
}

// Up to eight samples every size of a micro-batch has a price of its own; the search may stop
// (c-1)/250 of the longest sample's time short of the optimum.
TEST_ROUNDS(no_cut_is_better, 5, 60)
{
    AUTO(fixture) f;
    AUTO(sp_packing) packing;
    fixture_init(&f, prng);
    must_succeed(sp_strategy_pack(sp_strategy_find("dynapipe"), &f.input, &packing, ERR));
    assert_sorted_groups(&f, &packing);
    double sum_s = 0.0, longest_s = 0.0;
    for (size_t k = 0; k < packing.forward.count; k++) {
        double s = sp_cost_model_pack_s(&f.cost, &packing.forward, &packing.forward.packs[k]);
        sum_s += s;
        longest_s = fmax(longest_s, s);
    }
    double best_s = best_cut_s(&f);
    int64_t longest_first[MOST_SAMPLES];
    sort_descending(&f, longest_first);
    double slack_s = (f.scenario.layout.pp - 1) * microbatch_s(&f, longest_first[0], 1) / 250.0;
    // Times are rounded to ns.
    double found_s = objective_s(&f, sum_s, longest_s);
    assert_true(found_s >= best_s * (1.0 - 1e-12));
    assert_true(found_s <= best_s + slack_s + 1e-7);
}

static void put_scenario(char *text, const char *limit, const char *lengths)
{
    put_json(text,
             "{'model': {'layers': 8, 'hidden': 512, 'ffn': 1024, 'heads': 8, 'vocab': 1000}, "
             "'cluster': 'h800-8', 'parallel': {'pp': 4, 'dp': 2}, 'memory': {%s}, "
             "'strategy': {'kind': 'dynapipe'}, 'workload': {'lengths': %s, "
             "'samples_per_batch': 64}}",
             limit, lengths);
}

// 1F1B keeps at most c micro-batches: what fits c-fold, as each of these samples does, stays within
// the limit when it runs. Less memory, smaller micro-batches; less than a sample needs alone, none.
TEST(microbatches_fit_memory)
{
    double last_mean = (double)INFINITY;
    const double limits_gib[] = {0.6, 0.4, 0.3, 0.26};
    for (size_t i = 0; i < sizeof limits_gib / sizeof limits_gib[0]; i++) {
        char text[RUN_TEXT] = "";
        const char *limit = json_text("'limit_gib': %g", limits_gib[i]);
        put_scenario(text, limit, "[700, 650, 30, 80, 90, 100, 500, 20, 60, 400]");
        SCENARIO_RUN(r, text, &run_verified);
        assert_string_equal(r.result.strategy, "dynapipe");
        assert_string_equal(r.result.schedule, "1f1b");
        assert_true(r.result.lossless);
        assert_true((double)r.result.peak_bytes <= limits_gib[i] * 1073741824.0);
        double mean = 64.0 / (double)r.result.batches[0].facts.microbatches;
        assert_true(mean <= last_mean);
        last_mean = mean;
    }
    assert_true(last_mean < 64.0 / 3.0);
    char text[RUN_TEXT] = "";
    AUTO(scenario_run) r;
    put_scenario(text, "'limit_gib': 0.25", "[40000, 650, 30]");
    must_fail_with(run_text(text, &run_verified, &r, ERR), SP_ERR_INFEASIBLE,
                   "sample 0 of 40000 tokens alone needs");
}

// One length: nothing is padded, and every sample costs the same wherever it is.
TEST(equal_samples_need_no_padding)
{
    char text[RUN_TEXT] = "";
    put_scenario(text, "'recompute': 'full'", "[256]");
    SCENARIO_RUN(r, text, &run_verified);
    assert_int_equal(r.result.batches[0].facts.tokens, 64 * 256);
    assert_int_equal(r.result.batches[0].facts.computed_tokens, 64 * 256);
}

// ---- the programme with slices that there must not be ----

typedef struct table {
    int64_t ns[16][16]; // [begin][end]
} table;

static int64_t table_ns(const void *context, int64_t tokens, int64_t prefix)
{
    const table *t = context;
    return t->ns[prefix][prefix + tokens];
}

// -1: no slices cover it.
static int64_t exhaustive(const table *t, int n, int most, int64_t stages)
{
    int64_t best = -1;
    for (unsigned mask = 0; mask < 1u << (n - 1); mask++) {
        int64_t sum = 0, longest = 0;
        bool may = true;
        int begin = 0;
        for (int i = 1; i <= n; i++) {
            if (i == n || (mask >> (i - 1) & 1) != 0) {
                may = may && i - begin <= most && t->ns[begin][i] >= 0;
                sum += t->ns[begin][i];
                longest = t->ns[begin][i] > longest ? t->ns[begin][i] : longest;
                begin = i;
            }
        }
        int64_t total = sum + (stages - 1) * longest;
        best = may && (best < 0 || total < best) ? total : best;
    }
    return best;
}

TEST(programme_with_forbidden_slices)
{
    sp_prng prng = prng_seeded(7);
    int without = 0;
    for (int round = 0; round < 300; round++) {
        table t;
        int n = 1 + prng_below(&prng, 10);
        int most = 1 + prng_below(&prng, 10);
        for (int i = 0; i < 16; i++) {
            for (int j = 0; j < 16; j++) {
                t.ns[i][j] = (int64_t)sp_prng_below(&prng, 1000);
                t.ns[i][j] = sp_prng_below(&prng, 3) == 0 ? -1 : t.ns[i][j];
            }
        }
        sp_terapipe_problem problem = {.tokens = n,
                                       .granularity = 1,
                                       .most_tokens = most,
                                       .stages = 1 + (int64_t)sp_prng_below(&prng, 12),
                                       .time = table_ns,
                                       .context = &t};
        AUTO(sp_terapipe_slices) slices;
        int64_t best = exhaustive(&t, n, most, problem.stages);
        sp_terapipe_slices_find(&problem, &slices);
        if (best < 0) {
            assert_int_equal(slices.count, 0);
            without++;
        } else {
            assert_true(slices.count > 0);
            assert_int_equal(slices.total_ns, best);
        }
    }
    assert_true(without > 10 && without < 290);
}

// ---- sharing out ----

static double heaviest(const double *weight, size_t n, const int *part)
{
    double sum[8] = {0.0};
    double most = 0.0;
    for (size_t i = 0; i < n; i++) {
        sum[part[i]] += weight[i];
        most = fmax(most, sum[part[i]]);
    }
    return most;
}

static double best_sharing(const double *weight, size_t n, int parts)
{
    int part[8] = {0};
    double best = (double)INFINITY;
    size_t i = 0;
    while (i < n) {
        best = fmin(best, heaviest(weight, n, part));
        for (i = 0; i < n && ++part[i] == parts; i++) {
            part[i] = 0;
        }
    }
    return best;
}

// Michiels, Korst, Aarts and van Leeuwen (Performance ratios for the Karmarkar-Karp differencing
// method, 2003): at most 4/3 - 1/(3m) of the optimum for m parts.
TEST_ROUNDS(sharing_within_its_bound, 11, 400)
{
    double weight[8];
    int part[8];
    size_t n = 1 + (size_t)sp_prng_below(prng, 7);
    int parts = 1 + prng_below(prng, 4);
    for (size_t i = 0; i < n; i++) {
        weight[i] = (double)sp_prng_below(prng, 100);
    }
    sp_i_karmarkar_karp(weight, n, parts, part);
    for (size_t i = 0; i < n; i++) {
        assert_true(part[i] >= 0 && part[i] < parts);
    }
    double bound = 4.0 / 3.0 - 1.0 / (3.0 * parts);
    assert_true(heaviest(weight, n, part) <=
                bound * best_sharing(weight, n, parts) * (1.0 + 1e-12));
}

// The example of Korf (A complete anytime algorithm for number partitioning, 1998, section 2.3):
// 8, 7, 6, 5, 4 are left with a difference of 2.
TEST(differencing_example)
{
    const double weight[] = {4.0, 5.0, 6.0, 7.0, 8.0};
    int part[5];
    sp_i_karmarkar_karp(weight, 5, 2, part);
    assert_true(heaviest(weight, 5, part) == 16.0);
}
