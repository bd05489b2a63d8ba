// The balanced strategy: nobody lost or twice over a run of batches, packs under their cap, queues
// that give rounds in order, and the greedy against one with linear searches.
#include "solver/rows.h"
#include "solver/strategy.h"
#include "tests/support/scenario_run.h"
#include "tests/support/test_main.h"

enum { MOST_SAMPLES = 300, ROUNDS = 12, MOST_IDS = MOST_SAMPLES * ROUNDS };

typedef struct fixture {
    sp_scenario scenario;
    sp_cost_model cost;
} fixture;

static void fixture_init(fixture *f, int dp)
{
    const char *text = json_text(
        "%s'cluster': 'h800-8', 'parallel': {'dp': %d}, 'strategy': {'kind': 'balanced'}, "
        "'workload': {'uniform': 64}}",
        TINY_MODEL, dp);
    must_succeed(run_read(text, &f->scenario, ERR));
    must_succeed(sp_scenario_cost_model(&f->scenario, &f->cost, ERR));
}

static void fixture_fini(fixture *f)
{
    sp_cost_model_fini(&f->cost);
    sp_scenario_fini(&f->scenario);
}

static sp_status try_pack(fixture *f, const sp_batch *batch, size_t carried, int64_t context,
                          sp_packing *packing, sp_error *err)
{
    const sp_strategy_input input = {.scenario = &f->scenario,
                                     .batch = batch,
                                     .carried = carried,
                                     .context = context,
                                     .cost = &f->cost};
    return sp_strategy_pack(sp_strategy_find("balanced"), &input, packing, err);
}

static void pack(fixture *f, const sp_batch *batch, size_t carried, int64_t context,
                 sp_packing *packing)
{
    must_succeed(try_pack(f, batch, carried, context, packing, ERR));
}

// Mostly short, one in twelve of any length up to the context.
static void random_batch(sp_prng *prng, int64_t context, int64_t first_id, sp_batch *batch)
{
    batch->count = 1 + (size_t)sp_prng_below(prng, MOST_SAMPLES);
    batch->total_tokens = 0;
    for (size_t i = 0; i < batch->count; i++) {
        int64_t most = sp_prng_below(prng, 12) == 0 ? context : context / 20 + 1;
        batch->ids[i] = first_id + (int64_t)i;
        batch->tokens[i] = 1 + (int64_t)sp_prng_below(prng, (uint64_t)most);
        batch->total_tokens += batch->tokens[i];
    }
}

// Queues of equal width from outlier_tokens to the context.
static int queue_of(const sp_strategy_spec *spec, int64_t context, int64_t tokens)
{
    int64_t least = spec->outlier_tokens > 0 ? spec->outlier_tokens : (context + 7) / 8;
    if (tokens < least) {
        return -1;
    }
    for (int q = spec->outlier_queues - 1; q > 0; q--) {
        if ((tokens - least) * spec->outlier_queues >= q * (context - least)) {
            return q;
        }
    }
    return 0;
}

// Packs within the cap on ranks in turn, everybody trained whole or delayed, and of each queue the
// oldest trained.
static void check_packing(const fixture *f, const sp_batch *batch, int64_t context, int64_t cap,
                          const sp_packing *packing, unsigned char *trained)
{
    unsigned char in_step[MOST_IDS] = {0};
    for (size_t k = 0; k < packing->forward.count; k++) {
        const sp_pack *p = &packing->forward.packs[k];
        assert_int_equal(p->dp_first, (int)(k % (size_t)packing->dp));
        assert_true(p->slice_count > 0 && p->tokens <= cap);
        for (size_t s = p->first_slice; s < p->first_slice + p->slice_count; s++) {
            const sp_slice *slice = &packing->forward.slices[s];
            assert_int_equal(slice->begin, 0);
            assert_int_equal(slice->tokens, batch->tokens[slice->sample]);
            assert_int_equal(in_step[slice->sample]++, 0);
            assert_int_equal(trained[batch->ids[slice->sample]]++, 0);
        }
    }
    for (size_t d = 0; d < packing->delayed_count; d++) {
        assert_true(d == 0 || packing->delayed[d - 1] < packing->delayed[d]);
        assert_int_equal(in_step[packing->delayed[d]]++, 0);
    }
    assert_int_equal(packing->forward.slice_count + packing->delayed_count, batch->count);
    const sp_strategy_spec *spec = &f->scenario.strategy;
    for (size_t d = 0; cap >= batch->total_tokens && d < packing->delayed_count; d++) {
        // All fit, so that who waits does so in a queue, behind all that left it.
        int queue = queue_of(spec, context, batch->tokens[packing->delayed[d]]);
        assert_true(queue >= 0);
        for (size_t s = 0; s < packing->forward.slice_count; s++) {
            int32_t sample = packing->forward.slices[s].sample;
            assert_true(queue_of(spec, context, batch->tokens[sample]) != queue ||
                        sample < packing->delayed[d]);
        }
    }
}

TEST_ROUNDS(everybody_once_over_a_run, 41, 60)
{
    static int64_t ids[MOST_SAMPLES], tokens[MOST_SAMPLES];
    AUTO(fixture) f;
    fixture_init(&f, 1 << sp_prng_below(prng, 3));
    sp_strategy_spec *spec = &f.scenario.strategy;
    int64_t context = 100 + (int64_t)sp_prng_below(prng, 5000);
    int64_t cap = round % 2 == 0 ? context + (int64_t)sp_prng_below(prng, (uint64_t)context)
                                 : MOST_IDS * context;
    spec->pack_tokens = cap;
    spec->outlier_queues = prng_below(prng, 4);
    unsigned char trained[MOST_IDS] = {0};
    int64_t used = 0;
    sp_batch carried = {0};
    for (int b = 0; b < ROUNDS; b++) {
        sp_batch own = {.ids = ids, .tokens = tokens};
        AUTO(sp_batch) batch;
        AUTO(sp_packing) packing;
        random_batch(prng, context, used, &own);
        used += (int64_t)own.count;
        sp_batch_join(&carried, &own, &batch);
        assert_int_equal(batch.total_tokens, carried.total_tokens + own.total_tokens);
        if (b == ROUNDS - 1) {
            spec->outlier_queues = 0; // the last step lets nobody wait
        }
        pack(&f, &batch, carried.count, context, &packing);
        assert_true(packing.forward.count > 0);
        check_packing(&f, &batch, context, cap, &packing, trained);
        assert_true(spec->outlier_queues > 0 || packing.delayed_count == 0);
        sp_batch_fini(&carried);
        sp_batch_pick(&batch, packing.delayed, packing.delayed_count, &carried);
    }
    for (int64_t i = 0; i < used; i++) {
        assert_int_equal(trained[i], 1);
    }
    assert_int_equal(carried.count, 0);
}

// Algorithm 1 of the paper with linear searches.
TEST_ROUNDS(greedy_against_linear_search, 43, test_rounds(40))
{
    static int64_t ids[MOST_SAMPLES], tokens[MOST_SAMPLES];
    AUTO(fixture) f;
    fixture_init(&f, 2);
    f.scenario.strategy.outlier_queues = 0;
    int64_t context = 2000;
    sp_batch batch = {.ids = ids, .tokens = tokens};
    AUTO(sp_packing) packing;
    random_batch(prng, context, 0, &batch);
    pack(&f, &batch, 0, context, &packing);
    sp_i_work costs;
    assert_int_equal(sp_i_work_measure(&f.cost, context, &costs, NULL), SP_OK);
    double work[MOST_SAMPLES] = {0};
    int64_t length[MOST_SAMPLES] = {0};
    size_t packs = packing.forward.count;
    size_t of[MOST_SAMPLES];
    unsigned char done[MOST_SAMPLES] = {0};
    for (size_t n = 0; n < batch.count; n++) {
        size_t next = SIZE_MAX;
        for (size_t i = 0; i < batch.count; i++) {
            if (!done[i] && (next == SIZE_MAX || tokens[i] > tokens[next])) {
                next = i;
            }
        }
        size_t idle = 0, shortest = 0;
        for (size_t p = 1; p < packs; p++) {
            idle = work[p] < work[idle] ? p : idle;
            shortest = length[p] < length[shortest] ? p : shortest;
        }
        size_t into = length[idle] + tokens[next] <= 2500 ? idle : shortest;
        assert_true(length[into] + tokens[next] <= 2500);
        work[into] += sp_i_slice_work_s(&costs, 0, tokens[next]);
        length[into] += tokens[next];
        of[next] = into;
        done[next] = 1;
    }
    for (size_t k = 0; k < packs; k++) {
        const sp_pack *p = &packing.forward.packs[k];
        for (size_t s = p->first_slice; s < p->first_slice + p->slice_count; s++) {
            assert_int_equal(of[packing.forward.slices[s].sample], k);
        }
    }
}

// Equal samples as long as the context: as many packs as samples, which are a round.
TEST(nobody_waits_where_all_are_equal)
{
    int64_t ids[8] = {0, 1, 2, 3, 4, 5, 6, 7};
    int64_t tokens[8] = {50, 50, 50, 50, 50, 50, 50, 50};
    sp_batch batch = {.ids = ids, .tokens = tokens, .count = 8, .total_tokens = 400};
    AUTO(fixture) f;
    AUTO(sp_packing) packing;
    fixture_init(&f, 2);
    assert_int_equal(f.scenario.strategy.outlier_queues, 2);
    pack(&f, &batch, 0, 50, &packing);
    assert_int_equal(packing.forward.count, 8);
    assert_int_equal(packing.delayed_count, 0);
}

// 90 and 20 and 30 of a context of 100 are two queues short of a round of two packs; the fullest
// queue gives what it has, so that both ranks work.
TEST(no_step_without_work)
{
    int64_t ids[3] = {0, 1, 2};
    int64_t tokens[3] = {90, 20, 30};
    sp_batch batch = {.ids = ids, .tokens = tokens, .count = 3, .total_tokens = 140};
    AUTO(fixture) f;
    AUTO(sp_packing) packing;
    fixture_init(&f, 2);
    f.scenario.microbatches = 2;
    pack(&f, &batch, 0, 100, &packing);
    assert_int_equal(packing.forward.count, 2);
    assert_int_equal(packing.forward.slices[0].sample, 2);
    assert_int_equal(packing.forward.slices[1].sample, 1);
    assert_int_equal(packing.delayed_count, 1);
    assert_int_equal(packing.delayed[0], 0);
}

// The list 800, 100, 100, 100 three times on two packs: the first long sample waits for the second,
// the third for one that does not come.
TEST(delayed_samples_train_later)
{
    const char *text = "%s'cluster': 'h800-8', 'schedule': {'microbatches': 2}, 'strategy': {"
                       "'kind': 'balanced', 'outlier_queues': %d, 'outlier_tokens': 500}, "
                       "'workload': {'lengths': [800, 100, 100, 100], 'context': 800, 'order': "
                       "'file', 'samples_per_batch': 4, 'batches': 3}}";
    static const int64_t tokens[2][3] = {{1100, 1100, 1100}, {300, 1900, 300}};
    static const int64_t samples[2][3] = {{4, 4, 4}, {3, 5, 3}};
    for (int queues = 0; queues < 2; queues++) {
        const char *with = json_text(text, TINY_MODEL, queues);
        SCENARIO_RUN(r, with, &run_verified);
        for (int b = 0; b < 3; b++) {
            const sp_batch_facts *facts = &r.result.batches[b].facts;
            assert_int_equal(facts->tokens, tokens[queues][b]);
            assert_int_equal(facts->samples, samples[queues][b]);
            assert_int_equal(facts->microbatches, 2);
        }
        assert_int_equal(r.result.lossless, queues == 0);
        assert_int_equal(run_warned(&r.result.warnings,
                                    "samples still delayed after the last batch: 1 (800 tokens)"),
                         queues == 1);
    }
}

// Keys that the scenario keeps, and where they end.
TEST(keys_are_read_and_resolved)
{
    sp_scenario scenario;
    const char *text = json_text(
        "%s'cluster': 'h800-8', 'workload': {'uniform': 64}, 'strategy': {'kind': 'balanced', "
        "'outlier_queues': 3, 'outlier_tokens': 17, 'pack_tokens': 1000}}",
        TINY_MODEL);
    must_succeed(run_read(text, &scenario, ERR));
    assert_int_equal(scenario.strategy.outlier_queues, 3);
    assert_int_equal(scenario.strategy.outlier_tokens, 17);
    assert_int_equal(scenario.strategy.pack_tokens, 1000);
    const json_t *resolved = json_object_get(scenario.resolved, "strategy");
    assert_int_equal(json_integer_value(json_object_get(resolved, "outlier_queues")), 3);
    assert_int_equal(json_integer_value(json_object_get(resolved, "outlier_tokens")), 17);
    assert_int_equal(json_integer_value(json_object_get(resolved, "pack_tokens")), 1000);
    sp_scenario_fini(&scenario);
    static const char *const wrong[] = {"'outlier_queues': 17", "'outlier_queues': -1",
                                        "'outlier_tokens': 0", "'pack_tokens': 0"};
    for (size_t i = 0; i < sizeof wrong / sizeof wrong[0]; i++) {
        const char *bad =
            json_text("%s'cluster': 'h800-8', 'workload': {'uniform': 64}, 'strategy': {'kind': "
                      "'balanced', %s}}",
                      TINY_MODEL, wrong[i]);
        assert_int_equal(run_read(bad, &scenario, ERR), SP_ERR_CONTENT);
    }
}

TEST(lossless_without_queues)
{
    const sp_strategy *balanced = sp_strategy_find("balanced");
    sp_strategy_spec spec = {0};
    assert_true(sp_strategy_is_lossless(balanced, &spec));
    spec.outlier_queues = 1;
    assert_false(sp_strategy_is_lossless(balanced, &spec));
    assert_true(sp_strategy_is_lossless(sp_strategy_find("packed"), &spec));
}

TEST(says_what_does_not_fit)
{
    static const char *const wrong[][2] = {
        {"'strategy': {'kind': 'balanced', 'pack_tokens': 90}",
         "strategy.pack_tokens: a pack of 90 tokens does not hold a sample of 100, the context"},
        {"'strategy': {'kind': 'balanced', 'outlier_queues': 0}, 'schedule': {'microbatches': 2}",
         "schedule.microbatches: 2 packs of at most 125 tokens do not hold the 300 tokens of a "
         "batch (strategy.pack_tokens; 1 samples are left)"}};
    for (int i = 0; i < 2; i++) {
        const char *text = json_text(
            "%s'cluster': 'h800-8', %s, 'workload': {'lengths': [100, 100, 100], 'context': "
            "100}}",
            TINY_MODEL, wrong[i][0]);
        AUTO(scenario_run) r;
        assert_int_equal(run_text(text, &run_verified, &r, ERR),
                         i == 0 ? SP_ERR_CONTENT : SP_ERR_INFEASIBLE);
        assert_non_null(strstr(ERR->message[0], wrong[i][1]));
    }
}

// Largest over mean time of the packs of a step.
static double imbalance(fixture *f, const sp_packing *packing)
{
    AUTO(sp_step_costs) costs;
    must_succeed(sp_cost_model_build(&f->cost, packing, &costs, ERR));
    double most = 0.0, sum = 0.0;
    for (size_t k = 0; k < packing->forward.count; k++) {
        double ns =
            (double)(sp_action_cost_ns(&costs.action[SP_ACTION_F][k * (size_t)costs.classes]) +
                     sp_action_cost_ns(&costs.action[SP_ACTION_B][k * (size_t)costs.classes]));
        most = fmax(most, ns);
        sum += ns;
    }
    return most * (double)packing->forward.count / sum;
}

static double mean_imbalance(fixture *f, int queues, uint64_t seed, int64_t context)
{
    static int64_t ids[MOST_SAMPLES], tokens[MOST_SAMPLES];
    sp_prng prng = prng_seeded(seed);
    AUTO(sp_batch) carried = {0};
    double sum = 0.0;
    f->scenario.strategy.outlier_queues = queues;
    f->scenario.microbatches = 4;
    for (int b = 0; b < 40; b++) {
        sp_batch own = {.ids = ids, .tokens = tokens};
        AUTO(sp_batch) batch;
        AUTO(sp_packing) packing;
        do {
            random_batch(&prng, context, 0, &own);
        } while (own.count < MOST_SAMPLES / 4 || own.total_tokens > 8 * context);
        sp_batch_join(&carried, &own, &batch);
        pack(f, &batch, carried.count, context, &packing);
        sum += imbalance(f, &packing);
        sp_batch_fini(&carried);
        sp_batch_pick(&batch, packing.delayed, packing.delayed_count, &carried);
    }
    return sum / 40.0;
}

// Samples in which attention is most of the work.
TEST(queues_never_worsen_the_mean)
{
    for (uint64_t seed = 1; seed <= 8; seed++) {
        AUTO(fixture) f;
        fixture_init(&f, 2);
        int64_t context = 16384 << (seed % 3);
        f.scenario.strategy.pack_tokens = 2 * context;
        double without = mean_imbalance(&f, 0, seed, context);
        for (int queues = 1; queues <= 3; queues++) {
            assert_true(mean_imbalance(&f, queues, seed, context) <= without);
        }
    }
}
