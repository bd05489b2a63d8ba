// Whole scenarios, from their text to the result: properties that hold for every scenario, plans,
// and what is refused. Every simulation is checked against the longest path in igraph (verify).

#include "sim/base/parallel.h"
#include "sim/plan/plan_json.h"
#include "solver/strategy.h"
#include "tests/support/scenario_run.h"
#include "tests/support/test_main.h"
#include "tests/support/uniform_packing.h"

static int pick(sp_prng *prng, const int *values, int count)
{
    return values[sp_prng_below(prng, (uint64_t)count)];
}

static const char *flip(sp_prng *prng)
{
    return sp_prng_below(prng, 2) == 0 ? "false" : "true";
}

// A small model on a random layout, with random lengths, memory options, strategy and schedule.
static void random_text(sp_prng *prng, char text[RUN_TEXT])
{
    static const char *const runtimes[][2] = {
        {"h800-8", "h800"}, {"a100-8", "a100"}, {"h100-8", "h100"}, {"h200-8", "h200"}};
    static const char *const recompute[] = {"none", "activation", "partial-fc1", "attention",
                                            "full"};
    static const char *const schedules[] = {"gpipe", "1f1b", "interleaved"};
    static const int degrees[] = {1, 2, 4};
    static const int kv_heads[] = {1, 2, 8};
    static const int sizes[] = {1, 2, 3};
    const char *const *runtime = runtimes[sp_prng_below(prng, 4)];
    int pp = pick(prng, degrees, 3);
    const char *schedule = schedules[sp_prng_below(prng, 3)];
    bool interleaved = pp > 1 && strcmp(schedule, "interleaved") == 0;
    if (!interleaved && strcmp(schedule, "interleaved") == 0) {
        schedule = "1f1b";
    }
    int chunks = interleaved ? pick(prng, sizes, 3) : 1;
    bool llama = sp_prng_below(prng, 2) == 0;
    text[0] = '\0';
    put_json(text, "{'model': {'layers': %d, 'hidden': %d, 'ffn': %d, 'heads': 8, 'kv_heads': %d, ",
             pp * chunks * pick(prng, sizes, 3), 512 * pick(prng, degrees, 3),
             1024 * pick(prng, degrees, 3), pick(prng, kv_heads, 3));
    if (sp_prng_below(prng, 4) == 0) {
        put_json(text, "'experts': 4, 'experts_per_token': 2, ");
    }
    put_json(text, "'vocab': %d, 'tied_embeddings': %s, 'activation': '%s', 'norm': '%s'}, ",
             1000 * pick(prng, sizes, 3), flip(prng), llama ? "swiglu" : "gelu",
             llama ? "rmsnorm" : "layernorm");
    put_json(text, "'cluster': '%s', 'profile': '%s', ", runtime[0], runtime[1]);
    int tp = pick(prng, degrees, 3);
    put_json(text,
             "'parallel': {'tp': %d, 'cp': %d, 'pp': %d, 'dp': %d, 'zero': %d, "
             "'chunks_per_rank': %d%s}, ",
             tp, pick(prng, degrees, 3), pp, pick(prng, sizes, 3), prng_below(prng, 4), chunks,
             tp > 1 && sp_prng_below(prng, 2) == 0 ? ", 'sequence_parallel': false" : "");
    put_json(text, "'schedule': {'kind': '%s', 'group': 'even', 'microbatch_samples': %d}, ",
             schedule, pick(prng, sizes, 3));
    double ratio = 0.25 * (double)sp_prng_below(prng, 3);
    const char *attention = sp_prng_below(prng, 3) == 0 ? "unfused" : "flash";
    const char *mode = recompute[sp_prng_below(prng, 5)];
    bool idle = pp == 1 && strcmp(mode, "full") == 0; // a copy is refused
    put_json(text, "'memory': {'recompute': '%s', 'attention': '%s', 'offload_ratio': %g}, ", mode,
             attention, idle ? 0.0 : ratio);
    put_json(text, "'strategy': {'kind': '%s'}, 'workload': {'lengths': [",
             sp_strategy_names[sp_prng_below(prng, 4)]);
    int samples = 2 + prng_below(prng, 30);
    for (int i = 0; i < samples; i++) {
        put_json(text, "%s%d", i > 0 ? ", " : "", (int)exp(9.0 * sp_prng_uniform(prng)));
    }
    put_json(text, "], 'context': %d, 'over_length': 'truncate', 'samples_per_batch': %d, ",
             256 << sp_prng_below(prng, 6), 1 + prng_below(prng, samples));
    put_json(text, "'batches': %d, 'seed': %d}}", pick(prng, sizes, 3), 1 + prng_below(prng, 1000));
}

// What every result must satisfy, whatever the scenario.
static void check_result(const char *text, const scenario_run *r)
{
    const sp_result *result = &r->result;
    assert_int_equal(result->batch_count, r->batches.count);
    for (size_t b = 0; b < result->batch_count; b++) {
        const sp_batch_result *batch = &result->batches[b];
        const sp_batch_facts *facts = &batch->facts;
        must_hold(facts->lower_bound_ns > 0.0 &&
                      facts->lower_bound_ns <= (double)batch->iteration_ns,
                  "bound %.3f above %lld ns: %s", facts->lower_bound_ns,
                  (long long)batch->iteration_ns, text);
        assert_true(facts->work_bound_ns > 0.0 && facts->work_bound_ns <= facts->lower_bound_ns);
        double parts_ns = facts->gap_packs_ns + facts->gap_uneven_ns + facts->gap_idle_ns;
        double gap_ns = (double)batch->iteration_ns - facts->work_bound_ns;
        assert_true(fabs(parts_ns - gap_ns) <= 1e-9 * (double)batch->iteration_ns + 1.0);
        assert_true(facts->gap_uneven_ns >= 0.0 && facts->gap_idle_ns >= -1.0);
        assert_true(facts->bound_memory_ns >= 0.0 &&
                    facts->bound_memory_ns <= facts->lower_bound_ns - facts->work_bound_ns + 1.0);
        assert_true(batch->makespan_ns <= batch->iteration_ns);
        assert_int_equal(facts->samples, r->batches.batch[b].count);
        assert_int_equal(facts->tokens, r->batches.batch[b].total_tokens);
        assert_true(facts->computed_tokens >= facts->tokens);
        bool padded = strcmp(r->scenario.strategy.kind, "padded") == 0;
        assert_true(padded || facts->computed_tokens == facts->tokens + facts->padding_tokens);
        assert_true(facts->full_flops >= facts->model_flops);
        assert_true(facts->hardware_flops >= facts->model_flops);
        bool rebuilds = r->scenario.memory.recompute != SP_RECOMPUTE_NONE &&
                        r->scenario.memory.recompute != SP_RECOMPUTE_ACTIVATION;
        assert_int_equal(facts->hardware_flops > facts->model_flops, rebuilds);
    }
    double bubble = sp_result_bubble_ratio(result);
    assert_true(bubble >= 0.0 && bubble < 1.0);
    assert_true(sp_result_mfu(result, SP_FLOPS_CAUSAL) > 0.0 &&
                sp_result_mfu(result, SP_FLOPS_CAUSAL) < 1.0);
    assert_true(sp_result_gap(result) >= 0.0);
    assert_true(result->peak_bytes > 0);
    limit_holds(text, result);
    json_auto_t *json = sp_result_json(result, true);
    const char *key;
    json_t *value;
    double sum = 0.0;
    json_object_foreach (json_object_get(json, "time_breakdown_ms"), key, value) {
        assert_true(json_number_value(value) >= 0.0);
        sum += strcmp(key, "launch") == 0 ? 0.0 : json_number_value(value); // part of compute
    }
    assert_within(sum / sp_result_iteration_ms(result), 1.0, 1e-9);
    // Whatever a step takes over its pure work has parts, also where no stage is idle.
    assert_true(sp_result_gap_work(result) < 1e-6 || json_object_get(json, "gap_parts_ms") != NULL);
}

static void assert_same_result(const char *text, const sp_result *a, const sp_result *b)
{
    assert_int_equal(a->batch_count, b->batch_count);
    for (size_t i = 0; i < a->batch_count; i++) {
        const sp_batch_result *x = &a->batches[i];
        const sp_batch_result *y = &b->batches[i];
        must_hold(x->iteration_ns == y->iteration_ns && x->makespan_ns == y->makespan_ns &&
                      x->busy_ns == y->busy_ns && x->peak_bytes == y->peak_bytes,
                  "batch %d differs: %s", (int)i, text);
        assert_true(x->facts.lower_bound_ns == y->facts.lower_bound_ns);
        assert_true(x->facts.model_flops == y->facts.model_flops);
        assert_true(x->facts.full_flops == y->facts.full_flops);
        assert_int_equal(x->facts.computed_tokens, y->facts.computed_tokens);
        assert_int_equal(x->facts.microbatches, y->facts.microbatches);
    }
    assert_memory_equal(&a->peak, &b->peak, sizeof a->peak);
    assert_true(a->wait_p2p_ns == b->wait_p2p_ns);
    assert_within(a->forward_pack_cv, b->forward_pack_cv, 1e-12);
    size_t ranks = (size_t)a->layout.dp * (size_t)a->layout.pp;
    for (size_t i = 0; i < ranks; i++) {
        assert_int_equal(a->ranks[i].busy_ns, b->ranks[i].busy_ns);
        assert_int_equal(a->ranks[i].span_ns, b->ranks[i].span_ns);
        assert_int_equal(a->ranks[i].peak_bytes, b->ranks[i].peak_bytes);
    }
}

// No step is faster than its lower bound, and simulating alike ranks one by one changes nothing.
TEST_ROUNDS(bound_holds_everywhere, 23, test_rounds(120))
{
    const sp_evaluate_options unfolded = {.engine = {.verify = true, .unfold = true}};
    char text[RUN_TEXT];
    random_text(prng, text);
    SCENARIO_RUN(r, text, &run_verified);
    check_result(text, &r);
    AUTO(sp_result) other;
    must_succeed_for(text, sp_evaluate(&r.scenario, &r.batches, &unfolded, &other, ERR));
    assert_same_result(text, &r.result, &other);
}

// Alike data-parallel ranks are really folded, and the counts say so.
TEST(folding_saves_work)
{
    const char *text =
        "{'model': {'layers': 4, 'hidden': 512, 'ffn': 1024, 'heads': 8, 'vocab': 1000}, "
        "'cluster': 'h800-8', 'parallel': {'pp': 4, 'dp': 6}, "
        "'workload': {'uniform': 512, 'samples_per_batch': 48}}";
    SCENARIO_RUN(r, text, &run_verified);
    const sp_evaluate_options unfolded = {.engine = {.verify = true, .unfold = true}};
    AUTO(sp_result) other;
    must_succeed_for(text, sp_evaluate(&r.scenario, &r.batches, &unfolded, &other, ERR));
    assert_same_result(text, &r.result, &other);
    // 8 forwards and 8 backwards on each of 4 ranks.
    assert_int_equal(r.result.batches[0].facts.tasks, 64);
    assert_int_equal(other.batches[0].facts.tasks, 6 * 64);
}

// An evaluation goes on from the step that its strategy had judged, unless it is to be verified:
// then it finds that step anew.
TEST_ROUNDS(judged_steps_are_found_anew, 31, test_rounds(test_draws(40)))
{
    static const char *const kinds[] = {"slimpack", "slimpack-zb", "slimpack-symmetric"};
    static const char *const recompute[] = {"none", "full"};
    static const sp_evaluate_options plain = {.no_causes = true, .effort_percent = 10};
    static const sp_evaluate_options anew = {.engine = {.verify = true}, .effort_percent = 10};
    static const int degrees[] = {1, 2, 4};
    char text[RUN_TEXT] = "";
    int pp = pick(prng, degrees, 3);
    int dp = pick(prng, degrees, 3);
    put_json(text,
             "{'model': {'layers': %d, 'hidden': 1024, 'ffn': 2048, 'heads': 8, 'vocab': 1000}, "
             "'cluster': 'h800-8', 'parallel': {'pp': %d, 'dp': %d}, "
             "'memory': {'recompute': '%s', 'limit_gib': %g}, 'strategy': {'kind': '%s'}, "
             "'workload': {'lengths': [",
             4 * pp, pp, dp, recompute[sp_prng_below(prng, 2)],
             sp_prng_below(prng, 2) == 0 ? 2.0 + 2.0 * sp_prng_uniform(prng) : 80.0,
             kinds[sp_prng_below(prng, 3)]);
    int samples = dp + prng_below(prng, 20);
    for (int i = 0; i < samples; i++) {
        put_json(text, "%s%d", i > 0 ? ", " : "", (int)exp(11.0 * sp_prng_uniform(prng)));
    }
    put_json(text, "], 'samples_per_batch': %d, 'batches': 2, 'seed': 1}}", samples);
    SCENARIO_RUN(r, text, &anew);
    AUTO(sp_result) other;
    must_succeed_for(text, sp_evaluate(&r.scenario, &r.batches, &plain, &other, ERR));
    assert_same_result(text, &r.result, &other);
}

// ---- plans ----

typedef struct plan_writer {
    FILE *file;
    int batches;
} plan_writer;

static sp_status write_batch(void *context, const sp_step_view *view, sp_error *err)
{
    plan_writer *writer = context;
    assert_int_equal(view->batch, writer->batches++);
    sp_plan_predictions predictions = {
        .lower_bound_ms = view->lower_bound_ms,
        .predicted_ms = (double)view->timeline->iteration_ns / 1e6,
    };
    return sp_plan_json_batch(writer->file, view->batch, view->plan, predictions, err);
}

static void round_trip(const char *text)
{
    plan_writer writer = {.file = tmpfile()};
    assert_non_null(writer.file);
    sp_evaluate_options options = run_verified;
    options.observer = write_batch;
    options.observer_context = &writer;
    AUTO(scenario_run) r;
    must_succeed_for(text, run_read(text, &r.scenario, ERR));
    must_succeed_for(text, sp_plan_json_begin(writer.file, r.scenario.resolved, ERR));
    must_succeed_for(text, sp_evaluate_batches(&r.scenario, &r.batches, ERR));
    must_succeed_for(text, sp_evaluate(&r.scenario, &r.batches, &options, &r.result, ERR));
    must_succeed_for(text, sp_plan_json_end(writer.file, NULL, NULL, ERR));
    assert_int_equal(writer.batches, r.result.batch_count);

    rewind(writer.file);
    json_auto_t *root = json_loadf(writer.file, JSON_REJECT_DUPLICATES, NULL);
    assert_non_null(root);
    assert_true(sp_plan_json_is_plan(root));
    AUTO(sp_scenario) stored;
    json_auto_t *copy = json_deep_copy(json_object_get(root, "scenario"));
    must_succeed_for(text, sp_scenario_from_json(copy, "stored", NULL, 0, &stored, ERR));
    AUTO(sp_plan_file) plans;
    must_succeed_for(text, sp_plan_json_read(root, "plan.json", &stored.layout, &plans, ERR));
    assert_int_equal(plans.count, writer.batches);
    AUTO(sp_result) again;
    must_succeed_for(text, sp_evaluate_plans(&stored, &plans, &run_verified, &again, ERR));
    assert_same_result(text, &r.result, &again);
    assert_true(again.lossless);
    fclose(writer.file);
}

// A plan that is written and read again is simulated to the same nanosecond and byte.
TEST_ROUNDS(plans_round_trip, 31, test_rounds(25))
{
    char text[RUN_TEXT];
    random_text(prng, text);
    round_trip(text);
}

// A plan may leave samples out: they count for no bound, no throughput and no FLOPs, and the step
// is not lossless.
TEST(dropped_samples_count_for_nothing)
{
    static int64_t ids[] = {0, 1};
    static int64_t tokens[] = {1000000, 100};
    sp_batch batch = {.ids = ids, .tokens = tokens, .count = 2, .total_tokens = 1000100};
    AUTO(sp_scenario) scenario;
    must_succeed(run_read("{'model': {'layers': 1, 'hidden': 512, 'ffn': 1024, 'heads': 8, "
                          "'vocab': 1000}, 'workload': {'lengths': [1000000, 100]}, "
                          "'strategy': {'kind': 'balanced'}}",
                          &scenario, ERR));
    AUTO(sp_packing) packing;
    sp_packing_init(&packing, &batch, 1);
    packing.dropped = sp_calloc(1, sizeof *packing.dropped);
    packing.dropped[packing.dropped_count++] = 0;
    pack_sample(&packing.forward, 0, 1, 1, 100);
    AUTO(sp_plan) plan;
    sp_plan_init(&plan, &scenario.layout, &packing);
    must_succeed(sp_schedule_generate(&scenario.schedule, NULL, "test", &plan, ERR));
    must_succeed(sp_plan_check(&plan, "test", ERR));
    AUTO(sp_result) result;
    must_succeed(sp_evaluate_plans(&scenario, &(sp_plan_file){.plans = &plan, .count = 1},
                                   &run_verified, &result, ERR));
    const sp_batch_result *b = &result.batches[0];
    assert_true(b->facts.lower_bound_ns > 0.0);
    assert_true(b->facts.lower_bound_ns <= (double)b->iteration_ns);
    assert_int_equal(b->facts.samples, 1);
    assert_int_equal(b->facts.tokens, 100);
    // Forward and backward of all 100^2 pairs instead of the causal half: 3 * 4*a*d * 100^2 / 2.
    double difference = b->facts.full_flops - b->facts.model_flops;
    assert_within(difference, 3.0 * 4.0 * 512.0 * 5000.0, 1.0);
    assert_false(result.lossless);
}

// ---- what is refused ----

// Micro-batches without a batch beside them are filled: of rows that documents fill in order, of
// documents that are padded, and of rows of joined documents, which are full but the last. Their
// number refuses no strategy that makes others, and the resolved scenario is read as the same step.
TEST(microbatches_say_the_batch)
{
    static const char *const kinds[] = {"packed", "padded",   "concat",    "sorted",
                                        "bfd",    "slimpack", "hybrid-cp", "balanced"};
    enum { PACKED, PADDED, CONCAT, REPLICAS = 2, EACH = 3, ROWS = 2, CONTEXT = 1024 };
    for (int i = 0; i < COUNT_OF(kinds); i++) {
        const char *text =
            json_text(TINY_MODEL "'parallel': {'dp': %d}, 'schedule': {'microbatches': %d, "
                                 "'microbatch_samples': %d}, 'strategy': {'kind': '%s'}, "
                                 "'workload': {'lengths': 'wikipedia', 'context': %d}}",
                      REPLICAS, EACH, ROWS, kinds[i], CONTEXT);
        SCENARIO_RUN(r, text, &run_verified);
        const int64_t made = r.result.batches[0].facts.microbatches;
        const sp_batch *batch = &r.batches.batch[0];
        if (i == PACKED || i == PADDED || i == CONCAT) {
            assert_int_equal(made, REPLICAS * EACH);
        }
        if (i == PADDED) {
            assert_int_equal(batch->count, REPLICAS * EACH * ROWS);
        }
        assert_true(batch->total_tokens <= REPLICAS * EACH * ROWS * CONTEXT);
        const int64_t tokens = batch->total_tokens;
        json_auto_t *resolved = json_deep_copy(r.scenario.resolved);
        json_object_del(json_object_get(resolved, "schedule"), "kind"); // slimpack has its own
        scenario_run_fini(&r);
        must_succeed(sp_scenario_from_json(resolved, "resolved", NULL, 0, &r.scenario, ERR));
        must_succeed(sp_evaluate_batches(&r.scenario, &r.batches, ERR));
        must_succeed(sp_evaluate(&r.scenario, &r.batches, &run_verified, &r.result, ERR));
        assert_int_equal(r.batches.batch[0].total_tokens, tokens);
        assert_int_equal(r.result.batches[0].facts.microbatches, made);
    }
}

// Samples that are all as long fill rows of the context, several to a row.
TEST(microbatches_say_how_many_short_samples)
{
    SCENARIO_RUN(r,
                 TINY_MODEL "'parallel': {'dp': 2}, 'schedule': {'microbatches': 3}, "
                            "'workload': {'uniform': 100, 'context': 450}}",
                 &run_verified);
    assert_int_equal(r.batches.batch[0].count, 2 * 3 * 4);
    assert_int_equal(r.result.batches[0].facts.microbatches, 6);
}

TEST(microbatches_must_agree)
{
    AUTO(scenario_run) r;
    const char *wrong = TINY_MODEL "'parallel': {'dp': 2}, 'schedule': {'microbatches': 3}, "
                                   "'workload': {'uniform': 100, 'context': 100, "
                                   "'samples_per_batch': 8}}";
    must_fail_with(run_text(wrong, &run_verified, &r, ERR), SP_ERR_CONTENT,
                   "schedule.microbatches");
    assert_non_null(strstr(ERR->message[0], "is 3 for each of 2"));
    assert_non_null(strstr(ERR->message[0], "makes 8 micro-batches"));
    assert_null(r.result.batches);
    scenario_run_fini(&r);
    run_good(TINY_MODEL "'parallel': {'dp': 2}, 'schedule': {'microbatches': 4}, "
                        "'workload': {'uniform': 100, 'context': 100, 'samples_per_batch': 8}}",
             &run_verified, &r);
    assert_int_equal(r.result.batches[0].facts.microbatches, 8);
}

// Megatron-LM's rule (schedules.py, forward_backward_pipelining_with_interleaving): a group has at
// least as many micro-batches as there are pipeline ranks, at most all, and so has the last one.
// Where no group is stated it is that of the documentation, parallel.pp.
TEST(groups_of_microbatches_as_megatron_asks)
{
    const int pp = 4;
    for (int m = 1; m <= 13; m++) {
        for (int group = 0; group <= 14; group++) {
            char text[512], stated[64] = "";
            AUTO(scenario_run) r;
            if (group > 0) {
                snprintf(stated, sizeof stated, ", 'group': %d", group);
            }
            snprintf(text, sizeof text,
                     "{'uniform_costs': {'f_ms': 1, 'b_ms': 2}, 'parallel': {'pp': %d, "
                     "'chunks_per_rank': 2}, 'schedule': {'kind': 'interleaved', 'microbatches': "
                     "%d%s}}",
                     pp, m, stated);
            int size = group > 0 ? group : pp;
            if (size >= pp && size <= m && (m % size == 0 || m % size >= pp)) {
                run_good(text, &run_verified, &r);
            } else {
                must_fail_with(run_text(text, &run_verified, &r, ERR), SP_ERR_CONTENT,
                               "schedule.group");
            }
        }
    }
}

TEST(unknown_strategy)
{
    AUTO(scenario_run) r;
    must_fail_with(run_text(TINY_MODEL "'strategy': {'kind': 'pakced'}, "
                                       "'workload': {'lengths': [3, 4]}}",
                            &run_verified, &r, ERR),
                   SP_ERR_CONTENT, "did you mean \"packed\"?");
}

// An error of the observer ends the evaluation.
static sp_status refuse(void *context, const sp_step_view *view, sp_error *err)
{
    (*(int *)context)++;
    return sp_error_set(err, SP_ERR_IO, "the disk is full");
}

TEST(observer_can_stop)
{
    AUTO(scenario_run) r;
    int calls = 0;
    sp_evaluate_options options = run_verified;
    options.observer = refuse;
    options.observer_context = &calls;
    assert_int_equal(run_text(TINY_MODEL
                              "'workload': {'lengths': [10, 20], 'samples_per_batch': 1, "
                              "'batches': 2}}",
                              &options, &r, ERR),
                     SP_ERR_IO);
    assert_int_equal(calls, 1);
}

// A machine so slow that the step would outlast the clock is refused, not wrapped around.
TEST(endless_step_is_refused)
{
    AUTO(sp_scenario) scenario;
    AUTO(sp_batches) batches;
    AUTO(sp_result) result;
    must_succeed(run_read(TINY_MODEL
                          "'parallel': {'pp': 2}, 'workload': {'uniform': 100, 'context': 100, "
                          "'samples_per_batch': 100}}",
                          &scenario, ERR));
    must_succeed(sp_evaluate_batches(&scenario, &batches, ERR));
    // From single actions that are too long, over a step that is, to one that is not.
    bool long_pack = false, long_step = false;
    sp_status status = SP_ERR_LIMIT;
    for (double rate = 1e-6; status == SP_ERR_LIMIT; rate *= 1.5) {
        assert_true(rate < 1e12);
        sp_error_clear(ERR);
        scenario.profile.memory_bytes_per_s = rate;
        status = sp_evaluate(&scenario, &batches, &run_verified, &result, ERR);
        long_pack = long_pack || (status != SP_OK && strstr(ERR->message[0], "a pack of") != NULL);
        long_step = long_step || (status != SP_OK && strstr(ERR->message[0], "years") != NULL);
    }
    assert_int_equal(status, SP_OK);
    assert_true(long_pack && long_step);
}

static int idle_ranks_told(int rank_tokens)
{
    int idle = 0;
    const char *text = json_text(
        TINY_MODEL "'parallel': {'dp': 4}, 'workload': {'lengths': [4000], 'order': 'file'}, "
                   "'strategy': {'kind': 'bytescale', 'rank_tokens': %d}}",
        rank_tokens);
    SCENARIO_RUN(r, text, &run_verified);
    for (int w = 0; w < r.result.warnings.count; w++) {
        sscanf(r.result.warnings.text[w], "1 micro-batch leaves %d of 4 data-parallel ranks idle",
               &idle);
    }
    return idle;
}

// Four thousand tokens in one pack, over as many ranks as hold them.
TEST(ranks_of_merged_packs_are_not_idle)
{
    assert_int_equal(idle_ranks_told(1000), 0);
    assert_int_equal(idle_ranks_told(2000), 2);
    assert_int_equal(idle_ranks_told(4000), 3);
}

// A profile of another GPU than the cluster's is said to be one; a longer name of its own is none.
TEST(other_gpus_are_told)
{
    static const struct {
        const char *cluster, *profile;
        bool other;
    } cases[] = {
        {"h100-8", "h100", false},          {"h100-8", "h100-burst", false},
        {"h100-8", "h100-nanotron", false}, {"h800-8", "h800-burst", false},
        {"a800-8", "a100", false}, // what the cluster names
        {"h100-8", "h200", true},           {"a100-8", "h800", true},
        {"a800-8", "a100-burst", true},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        bool told = false;
        const char *text =
            json_text(TINY_MODEL "'cluster': '%s', 'profile': '%s', 'workload': {'uniform': 64}}",
                      cases[i].cluster, cases[i].profile);
        SCENARIO_RUN(r, text, &run_verified);
        for (int w = 0; w < r.result.warnings.count; w++) {
            told = told || strstr(r.result.warnings.text[w], " describes the ") != NULL;
        }
        must_hold(told == cases[i].other, "%s on %s: told %d", cases[i].profile, cases[i].cluster,
                  told);
    }
}

// ---- several threads ----

static sp_status verify_one(void *context, int worker, int job, sp_error *err)
{
    AUTO(scenario_run) r;
    const char *text =
        json_text("{'model': 'llama-7b', 'cluster': 'h800-8', 'parallel': {'tp': 8, 'pp': 4}, "
                  "'workload': {'lengths': [900, 400, %d, 70]}, 'strategy': {'kind': 'packed'}, "
                  "'schedule': {'kind': '1f1b', 'microbatch_samples': 1}}",
                  1 + job);
    return run_text(text, &run_verified, &r, err);
}

// igraph keeps one list of what to free for all threads.
TEST(verified_by_many_threads)
{
    must_succeed(sp_parallel_for(8, test_rounds(1500), verify_one, NULL, ERR));
}
