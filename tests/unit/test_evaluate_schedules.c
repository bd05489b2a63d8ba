// Every schedule through the whole path: scenario, packs, slices, costs, plan, simulation under
// --verify, result; and the plan written, read and simulated again.
#include "sim/plan/plan_json.h"
#include "solver/evaluate/evaluate.h"
#include "tests/support/scenario_run.h"
#include "tests/support/test_main.h"

enum { TEXT = 2048 };

// Writes each batch's plan.
static sp_status write_plan(void *context, const sp_step_view *view, sp_error *err)
{
    sp_plan_predictions none = {.lower_bound_ms = -1.0, .predicted_ms = -1.0};
    return sp_plan_json_batch(context, view->batch, view->plan, none, err);
}

static json_t *read_back(FILE *file)
{
    long bytes = ftell(file);
    assert_true(bytes > 0);
    AUTO_FREE char *text = sp_malloc((size_t)bytes);
    json_t *root = NULL;
    rewind(file);
    assert_int_equal(fread(text, 1, (size_t)bytes, file), bytes);
    must_succeed(sp_json_read_text(text, (size_t)bytes, "plan.json", &root, ERR));
    return root;
}

static void evaluate(const char *text, sp_result *result, bool round_trip)
{
    AUTO(sp_batches) batches;
    FILE *file = tmpfile();
    assert_non_null(file);
    SCENARIO_READ(scenario, text);
    sp_evaluate_options options = {
        .engine = {.verify = true}, .observer = write_plan, .observer_context = file};
    must_succeed(sp_plan_json_begin(file, scenario.resolved, ERR));
    must_succeed(sp_evaluate_batches(&scenario, &batches, ERR));
    must_succeed_for(text, sp_evaluate(&scenario, &batches, &options, result, ERR));
    must_succeed(sp_plan_json_end(file, NULL, NULL, ERR));
    if (round_trip) {
        AUTO(sp_plan_file) plans;
        AUTO(sp_result) again;
        sp_evaluate_options verified = {.engine = {.verify = true}};
        json_auto_t *root = read_back(file);
        must_succeed(sp_plan_json_read(root, "plan.json", &scenario.layout, &plans, ERR));
        must_succeed(sp_evaluate_plans(&scenario, &plans, &verified, &again, ERR));
        assert_true(sp_result_iteration_ms(&again) == sp_result_iteration_ms(result));
        assert_int_equal(again.peak_bytes, result->peak_bytes);
    }
    fclose(file);
}

static void model_scenario(const char *kind, const char *more, char text[TEXT])
{
    snprintf(text, TEXT,
             "{'model': {'layers': 16, 'hidden': 512, 'ffn': 1408, 'heads': 8, 'vocab': 2048, "
             "'activation': 'swiglu', 'norm': 'rmsnorm', 'positional': 'rope'}, "
             "'cluster': 'h100-8', 'parallel': {'pp': 4, 'dp': 2}, "
             "'schedule': {'kind': '%s', 'slices': 4%s}, 'workload': {'lengths': 'wikipedia', "
             "'context': 4096, 'tokens_per_batch': 80000, 'batches': 2}}",
             kind, more);
}

TEST(every_schedule_on_a_model)
{
    for (int i = 0; sp_schedule_names[i] != NULL; i++) {
        char text[TEXT];
        AUTO(sp_result) result;
        model_scenario(sp_schedule_names[i], "", text);
        evaluate(text, &result, true);
        assert_true(sp_result_iteration_ms(&result) >= sp_result_lower_bound_ms(&result));
        assert_true(sp_result_bubble_ratio(&result) >= 0.0);
        assert_true(result.peak_bytes > 0);
    }
}

TEST(every_schedule_on_uniform_costs)
{
    for (int i = 0; sp_schedule_names[i] != NULL; i++) {
        char text[TEXT];
        AUTO(sp_result) result;
        snprintf(text, sizeof text,
                 "{'uniform_costs': {'f_ms': 2, 'b_ms': 2, 'w_ms': 2, 'p2p_ms': 0.1}, "
                 "'parallel': {'pp': 4, 'dp': 2}, "
                 "'schedule': {'kind': '%s', 'microbatches': 8, 'slices': 4}}",
                 sp_schedule_names[i]);
        evaluate(text, &result, true);
        // 8 micro-batches of 6 ms on every rank; re-forwards come on top.
        assert_true(sp_result_iteration_ms(&result) >= 48.0);
        assert_true(sp_result_bubble_ratio(&result) < 0.35);
    }
}

// Slices even out what whole rows cannot: SlimPipe's balanced bubble is (p-1)/(nvm+p-1), and with
// causal costs the exchange brings it down again.
TEST(slimpipe_exchange_helps)
{
    double bubble[2];
    for (int exchange = 0; exchange < 2; exchange++) {
        char text[TEXT];
        AUTO(sp_result) result;
        snprintf(text, sizeof text,
                 "{'uniform_costs': {'f_ms': 80, 'b_ms': 160, 'attention_share': 0.6}, "
                 "'parallel': {'pp': 4}, 'schedule': {'kind': 'slimpipe', 'microbatches': 4, "
                 "'slices': 8, 'exchange': %s}}",
                 exchange ? "true" : "false");
        evaluate(text, &result, true);
        bubble[exchange] = sp_result_bubble_ratio(&result);
        assert_int_equal(result.has_exchange, exchange);
        if (exchange) {
            assert_true(result.exchange_after < result.exchange_before);
        }
    }
    // p=4, n=8, m=4, attention share .6 without exchange.
    assert_within(bubble[0], 0.1546, 0.5e-4);
    assert_true(bubble[1] < bubble[0]);
    assert_true(bubble[1] >= 3.0 / 35.0 - 1e-9);
}

// Rows of SlimPipe's planner (Cuiym715/Megatron-LM, examples/sc25slimpipe): 13B, 256K, c8 p8 d2 v5.
TEST(planner_memory_in_a_scenario)
{
    static const struct {
        int slices;
        double activations, kv_gradients;
    } rows[] = {{16, 29.56, 2.42}, {32, 27.36, 3.09}};
    for (size_t i = 0; i < 2; i++) {
        char text[TEXT];
        AUTO(sp_result) result;
        snprintf(text, sizeof text,
                 "{'model': {'layers': 40, 'hidden': 5120, 'ffn': 13824, 'heads': 40, "
                 "'vocab': 128256, 'activation': 'swiglu', 'norm': 'rmsnorm', "
                 "'positional': 'rope'}, 'cluster': 'h100-8', "
                 "'parallel': {'cp': 8, 'pp': 8, 'dp': 2, 'chunks_per_rank': 5}, "
                 "'schedule': {'kind': 'slimpipe', 'slices': %d}, "
                 "'memory': {'model': 'slimpipe-planner'}, "
                 "'workload': {'uniform': 262144, 'context': 262144, 'samples_per_batch': 16}}",
                 rows[i].slices);
        evaluate(text, &result, false);
        double gib = 1024.0 * 1024.0 * 1024.0;
        const sp_bytes *peak = &result.peak;
        double states = (double)(peak->of[SP_MEM_PARAMETERS] + peak->of[SP_MEM_GRADIENTS]) / gib;
        assert_within(states, 12.53, 0.02);
        assert_within((double)peak->of[SP_MEM_OPTIMIZER] / gib, 1.57, 0.02);
        assert_within((double)peak->of[SP_MEM_ACTIVATIONS] / gib, rows[i].activations, 0.02);
        assert_within((double)peak->of[SP_MEM_LOGITS] / gib, 1.96, 0.02);
        assert_true(fabs((double)peak->of[SP_MEM_KV_GRADIENTS] / gib - rows[i].kv_gradients) <
                    0.02);
    }
}

// A row that is shorter than its slices is refused with the reason.
TEST(too_short_a_row)
{
    AUTO(sp_batches) batches;
    sp_result result;
    sp_evaluate_options plain = {0};
    SCENARIO_READ(scenario,
                  "{'model': 'llama-7b', 'cluster': 'h100-8', 'parallel': {'pp': 2}, "
                  "'schedule': {'kind': 'seq1f1b', 'slices': 16}, 'workload': {'lengths': [8, 8], "
                  "'context': 8}}");
    must_succeed(sp_evaluate_batches(&scenario, &batches, ERR));
    must_fail_with(sp_evaluate(&scenario, &batches, &plain, &result, ERR), SP_ERR_INFEASIBLE,
                   "schedule.slices");
}
