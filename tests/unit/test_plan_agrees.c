// A scenario, the document that it is resolved to and the plan that is made from it come to one
// result: every key but the times of this machine.
#include "sim/base/json.h"
#include "sim/network/topology.h"
#include "sim/plan/plan_json.h"
#include "solver/strategy.h"
#include "tests/support/scenario_run.h"
#include "tests/support/test_main.h"

static sp_status write_batch(void *context, const sp_step_view *view, sp_error *err)
{
    const sp_plan_predictions predictions = {.lower_bound_ms = view->lower_bound_ms,
                                             .predicted_ms = -1.0};
    return sp_plan_json_batch(context, view->batch, view->plan, predictions, err);
}

static json_t *result_keys(const sp_result *result)
{
    json_t *object = sp_result_json(result, true);
    size_t b;
    json_t *batch;
    assert_non_null(object);
    json_object_del(object, "solver_ms");
    json_object_del(object, "simulate_ms");
    json_array_foreach (json_object_get(object, "batches"), b, batch) {
        json_object_del(batch, "solver_ms");
        json_object_del(batch, "simulate_ms");
    }
    return object;
}

// Every key of the two that differs fails the test case by its name.
static void assert_same_keys(const char *text, const char *other_name, const json_t *a, json_t *b)
{
    const char *key;
    json_t *value;
    json_object_foreach (b, key, value) {
        must_hold(json_object_get(a, key) != NULL, "%s\n%s: of the %s alone", text, key,
                  other_name);
    }
    json_object_foreach ((json_t *)a, key, value) {
        json_t *other = json_object_get(b, key); // NULL: it has none
        if (!json_equal(value, other)) {
            char *of_scenario = json_dumps(value, JSON_ENCODE_ANY);
            char *of_plan = json_dumps(other, JSON_ENCODE_ANY);
            fail_msg("%s\n%s: %.900s, of the %s %.900s", text, key, of_scenario, other_name,
                     of_plan);
        }
    }
}

static json_t *result_of_plan(const char *text, FILE *file)
{
    AUTO(sp_scenario) scenario;
    AUTO(sp_plan_file) plans;
    AUTO(sp_result) result;
    rewind(file);
    json_auto_t *root = json_loadf(file, JSON_REJECT_DUPLICATES, NULL);
    assert_non_null(root);
    must_succeed_for(text, sp_scenario_from_json(json_object_get(root, "scenario"), "plan", NULL, 0,
                                                 &scenario, ERR));
    must_succeed_for(text, sp_plan_json_read(root, "plan", &scenario.layout, &plans, ERR));
    const sp_evaluate_options options = {.allocator_peak = true};
    must_succeed_for(text, sp_evaluate_plans(&scenario, &plans, &options, &result, ERR));
    return result_keys(&result);
}

static const sp_evaluate_options searched = {
    .engine = {.verify = true}, .allocator_peak = true, .effort_percent = 20};

static json_t *result_of_resolved(const char *text, const json_t *resolved)
{
    AUTO(sp_scenario) scenario;
    AUTO(sp_batches) batches;
    AUTO(sp_result) result;
    json_auto_t *document = json_deep_copy(resolved);
    assert_non_null(document);
    must_succeed_for(text, sp_scenario_from_json(document, "resolved", NULL, 0, &scenario, ERR));
    must_succeed_for(text, sp_strategy_resolve(&scenario, false, ERR));
    must_succeed_for(text, sp_evaluate_batches(&scenario, &batches, ERR));
    must_succeed_for(text, sp_evaluate(&scenario, &batches, &searched, &result, ERR));
    return result_keys(&result);
}

// In the resolved document choices stand, as in a plan's: it does not say that a bound of work
// ended what made them, which a plan does beside its scenario.
static void drop_bound_warning(json_t *result)
{
    json_t *warnings = json_object_get(result, "warnings");
    for (size_t w = json_array_size(warnings); w-- > 0;) {
        const char *text = json_string_value(json_array_get(warnings, w));
        if (strstr(text, "came to the bound of its work") != NULL) {
            json_array_remove(warnings, w);
        }
    }
}

// False: the scenario cannot be planned. `curtailed`: a bound of work ended what chose for it.
static bool agrees_noted(const char *text, bool curtailed)
{
    sp_error_clear(ERR);
    AUTO(scenario_run) r = {0};
    FILE *file = tmpfile();
    assert_non_null(file);
    sp_status status = run_read(text, &r.scenario, ERR);
    if (status == SP_OK) {
        status = sp_strategy_resolve(&r.scenario, false, ERR);
    }
    r.scenario.strategy.curtailed = r.scenario.strategy.curtailed || curtailed;
    const bool chose_to_bound = r.scenario.strategy.curtailed;
    if (status == SP_OK) {
        status = sp_evaluate_batches(&r.scenario, &r.batches, ERR);
    }
    if (status == SP_OK) {
        sp_evaluate_options options = searched;
        options.observer = write_batch;
        options.observer_context = file;
        must_succeed_for(text, sp_plan_json_begin(file, r.scenario.resolved, ERR));
        status = sp_evaluate(&r.scenario, &r.batches, &options, &r.result, ERR);
    }
    bool planned = status == SP_OK;
    if (planned) {
        const sp_plan_notes notes = {.settings = r.result.settings,
                                     .curtailed = r.result.curtailed};
        must_succeed_for(text, sp_plan_json_end(file, &r.batches, &notes, ERR));
        json_auto_t *of_scenario = result_keys(&r.result);
        assert_true(r.result.curtailed || !curtailed);
        json_auto_t *of_plan = result_of_plan(text, file);
        json_auto_t *of_resolved = result_of_resolved(text, r.scenario.resolved);
        assert_true(r.result.reserved_peak_bytes >= r.result.allocator_peak_bytes);
        assert_same_keys(text, "plan", of_scenario, of_plan);
        if (chose_to_bound) {
            drop_bound_warning(of_scenario);
            drop_bound_warning(of_resolved);
        }
        assert_same_keys(text, "resolved document", of_scenario, of_resolved);
    } else if (status != SP_ERR_CONTENT && status != SP_ERR_INFEASIBLE) {
        fail_msg("%s: %s", text, ERR->message[0]);
    }
    fclose(file);
    return planned;
}

static bool agrees(const char *text)
{
    return agrees_noted(text, false);
}

static int drawn(sp_prng *prng, const int *from, uint64_t count)
{
    return from[sp_prng_below(prng, count)];
}

static void put_lengths(sp_prng *prng, char *text)
{
    int count = 1 + prng_below(prng, 20);
    for (int i = 0; i < count; i++) {
        put_json(text, "%s%d", i > 0 ? ", " : "[", 1 + prng_below(prng, 9000));
    }
    put_json(text, "]");
}

static void put_stack(sp_prng *prng, char *text)
{
    int stacks = 0;
    while (sp_stack_builtin_name(stacks) != NULL) {
        stacks++;
    }
    if (sp_prng_below(prng, 2) == 0) {
        put_json(text, "'stack': '%s', ",
                 sp_stack_builtin_name(prng_below(prng, (uint64_t)stacks)));
    }
}

// In some the memory is short, or too little.
static void put_layout(sp_prng *prng, char *text)
{
    static const int widths[] = {1, 1, 2, 4};
    static const char *const limits[] = {"", "", "", "1.5", "0.4"};
    put_json(text,
             "{'model': {'layers': 8, 'hidden': 512, 'ffn': 1024, 'heads': 8, 'vocab': 1000}, "
             "'cluster': 'h800-8', 'parallel': {'tp': %d, 'pp': %d, 'dp': %d, 'cp': %d, 'zero': "
             "%d, 'vocab_parallel': %s}, 'memory': {'recompute': '%s', 'offload_ratio': %s",
             drawn(prng, widths, 4), 1 << sp_prng_below(prng, 3), drawn(prng, widths, 4),
             1 + prng_below(prng, 2), prng_below(prng, 4),
             sp_prng_below(prng, 3) == 0 ? "true" : "false",
             sp_prng_below(prng, 3) == 0 ? "full" : "none",
             sp_prng_below(prng, 4) == 0 ? "0.5" : "0");
    const char *limit = limits[sp_prng_below(prng, COUNT_OF(limits))];
    if (limit[0] != '\0') {
        put_json(text, ", 'limit_gib': %s", limit);
    }
    put_json(text, "}, ");
    put_stack(prng, text);
}

static void put_workload(sp_prng *prng, char *text)
{
    put_json(text, "'workload': {'lengths': ");
    put_lengths(prng, text);
    static const char *const over_length[] = {"drop", "truncate", "split"};
    put_json(text,
             ", 'context': %d, 'samples_per_batch': %d, 'batches': %d, 'over_length': '%s', 'seed':"
             " %d}, ",
             2048 << sp_prng_below(prng, 4), 1 + prng_below(prng, 16), 1 + prng_below(prng, 3),
             over_length[sp_prng_below(prng, COUNT_OF(over_length))], 1 + prng_below(prng, 99));
}

TEST(plans_keep_that_a_bound_ended_their_search)
{
    assert_true(agrees_noted("{'model': {'layers': 8, 'hidden': 512, 'ffn': 1024, 'heads': 8, "
                             "'vocab': 1000}, 'cluster': 'h800-8', 'parallel': {'dp': 2}, "
                             "'strategy': {'kind': 'slimpack'}, 'workload': {'lengths': [4000, "
                             "300, 2000, 50]}}",
                             true));
}

// The choices of the job end at the bound, though packs are searched for with less effort.
TEST(documents_of_choices_that_a_bound_ended)
{
    assert_true(agrees(
        "{'model': {'layers': 8, 'hidden': 512, 'ffn': 1024, 'heads': 8, 'vocab': 1000}, "
        "'cluster': 'h800-8', 'parallel': {'pp': 2, 'dp': 2, 'cp': 2, 'zero': 0}, 'memory': "
        "{'limit_gib': 0.4, 'recompute': 'full'}, 'stack': 'hf-trainer', 'workload': {'lengths': "
        "[3119, 484, 222, 5022, 8047, 2241, 5730, 8575, 6518, 2114, 757, 8836, 191, 6053], "
        "'context': 8192, 'samples_per_batch': 4, 'seed': 12}, 'strategy': {'kind': "
        "'slimpack-zones'}}"));
}

// So many scenarios of each strategy, and of each schedule, must be planned for the property to say
// something of them.
enum { ROUNDS = 12, LEAST = 2 };

TEST(every_strategy)
{
    sp_prng prng = prng_seeded(83);
    sp_prng own = prng_seeded(97); // of later ones, so that those of others stay
    for (int i = 0; sp_strategy_names[i] != NULL; i++) {
        bool one_sided = sp_strategy_find(sp_strategy_names[i])->one_sided;
        bool blocks =
            strcmp(sp_strategy_names[i], "fcp") == 0 || strcmp(sp_strategy_names[i], "distca") == 0;
        int planned = 0;
        int draws = test_draws(ROUNDS);
        const int least = test_is_sanitized() ? 1 : LEAST;
        for (int round = 0; round < draws || (planned < least && round < ROUNDS); round++) {
            char text[RUN_TEXT] = "";
            sp_prng *draw = one_sided || blocks ? &own : &prng;
            if (one_sided) {
                put_json(
                    text,
                    "{'model': {'layers': 8, 'hidden': 512, 'ffn': 1024, 'heads': 8, 'vocab': "
                    "1000}, 'cluster': 'h800-8', 'parallel': {'tp': %d, 'dp': %d, 'zero': 3}, ",
                    1 + prng_below(draw, 2), 1 + prng_below(draw, 9));
            } else {
                put_layout(draw, text);
            }
            put_workload(draw, text);
            put_json(text, "'strategy': {'kind': '%s'%s}}", sp_strategy_names[i],
                     strcmp(sp_strategy_names[i], "balanced") == 0 ? ", 'outlier_tokens': 3000"
                                                                   : "");
            planned += agrees(text);
        }
        assert_in_range(planned, least, ROUNDS);
    }
}

TEST(every_schedule)
{
    sp_prng prng = prng_seeded(89);
    for (int i = 0; sp_schedule_names[i] != NULL; i++) {
        int planned = 0;
        int draws = test_draws(ROUNDS);
        for (int round = 0; round < draws || (planned < LEAST && round < 4 * ROUNDS); round++) {
            char text[RUN_TEXT] = "";
            put_layout(&prng, text);
            put_workload(&prng, text);
            put_json(text,
                     "'schedule': {'kind': '%s', 'slices': %d, 'microbatch_samples': %d}, "
                     "'strategy': {'kind': 'packed'}}",
                     sp_schedule_names[i], 1 << sp_prng_below(&prng, 3), 1 + prng_below(&prng, 2));
            planned += agrees(text);
        }
        assert_in_range(planned, LEAST, ROUNDS);
    }
}

// Samples that both data-parallel ranks share and samples of one, in rows of one.
static void put_shared(sp_prng *prng, char *text, int detail)
{
    put_json(text,
             "{'model': {'layers': 8, 'hidden': 512, 'ffn': 1024, 'heads': 8, 'vocab': 1000}, "
             "'parallel': {'pp': %d, 'dp': 2, 'zero': %d}, 'network': {'detail': '%s'}, "
             "'workload': {'lengths': [",
             2 + 2 * prng_below(prng, 2), prng_below(prng, 4), sp_network_detail_names[detail]);
    for (int i = 0; i < 32; i++) {
        put_json(text, "%s%d", i > 0 ? ", " : "",
                 1 + prng_below(prng, i % 8 == 0 || detail == 0 ? 4096 : 2000));
    }
    put_json(text, "], 'context': 4096, 'samples_per_batch': 32}, ");
}

TEST(every_schedule_of_shared_packs)
{
    static const char *const strategies[] = {"hybrid-cp", "bytescale", "flexsp",  "te-cp",
                                             "llama-cp",  "hybrid-dp", "zeppelin"};
    sp_prng prng = prng_seeded(97);
    for (int i = 0; sp_schedule_names[i] != NULL; i++) {
        int planned = 0;
        for (int s = 0; s < COUNT_OF(strategies); s++) {
            char text[RUN_TEXT] = "";
            put_shared(&prng, text, (i + s) % 3);
            put_json(text,
                     "'schedule': {'kind': '%s'}, 'strategy': {'kind': '%s', 'rank_tokens': 2048}}",
                     sp_schedule_names[i], strategies[s]);
            planned += agrees(text);
        }
        assert_in_range(planned, LEAST, COUNT_OF(strategies));
    }
}

// Packs of all ranks, which the usual order of ranks does not keep off; backward packs that are the
// forward packs, so that alike ranks are folded; segments beside those of inputs that linger.
TEST(choices_and_folds)
{
    static const char *const cases[] = {
        "{'model': 'llama-7b', 'parallel': {'dp': 2, 'cp': 2}, 'strategy': {'kind': "
        "'slimpack-symmetric'}}",
        "{'model': 'llama-7b', 'cluster': 'h800-8', 'parallel': {'pp': 2, 'dp': 2, 'cp': 4}, "
        "'workload': {'lengths': [1, 2047, 2, 2, 2048, 1, 2, 1, 2, 1, 3, 1, 3, 2047, 1, 2, 2, 2, "
        "2048]}, 'strategy': {'kind': 'slimpack'}}",
        // forwards of single packs run again, of a sample alone, too
        "{'model': {'layers': 8, 'hidden': 512, 'ffn': 1024, 'heads': 8, 'vocab': 1000}, "
        "'cluster': "
        "'h800-8', 'memory': {'limit_gib': 0.55}, 'workload': {'lengths': [7603, 7038, 1205, 1899, "
        "4271, 5652], 'context': 2048, 'samples_per_batch': 12, 'over_length': 'truncate', 'seed': "
        "53}, 'strategy': {'kind': 'slimpack'}}",
        "{'model': 'llama-7b', 'parallel': {'tp': 2, 'pp': 4, 'cp': 4, 'stage_layers': [1, 10, 12, "
        "9]}, 'memory': {'recompute': 'partial-fc1'}, 'workload': {'context': 2048, "
        "'samples_per_batch': 37}, 'schedule': {'kind': 'gpipe'}, 'stack': {'name': "
        "'nanotron-2025'}}",
        // The exchange of another strategy, and settings that would be faster.
        "{'model': 'llama-7b', 'cluster': 'a100-8', 'nodes': 1, 'parallel': {'pp': 2, 'cp': 2}, "
        "'memory': {'limit_gib': 40}, 'workload': {'lengths': [60000, 3000, 8000, 1000], "
        "'context': 65536}, 'strategy': {'kind': 'slimpack-zones'}}",
        // Settings at as many data-parallel ranks, which follow from the nodes.
        "{'model': 'llama-13b', 'cluster': 'a100-8', 'nodes': 1, 'parallel': {'pp': 2, 'cp': 2}, "
        "'memory': {'limit_gib': 60}, 'workload': {'lengths': [60000, 3000, 8000, 1000], "
        "'context': 65536}, 'strategy': {'kind': 'zeppelin'}}",
        // Packed as slimpack does, for lack of memory.
        "{'model': 'llama-13b', 'cluster': 'a100-8', 'parallel': {'pp': 2, 'zero': 0}, 'workload': "
        "{'lengths': [20000, 2000, 20000, 8, 511], 'context': 8192, 'over_length': 'split'}, "
        "'strategy': {'kind': 'slimpack-zb'}}",
        // A seed of which nothing is drawn, with the warning of that.
        "{'model': {'layers': 2, 'hidden': 512, 'ffn': 1024, 'heads': 8, 'vocab': 1000, 'experts': "
        "4, 'experts_per_token': 2, 'expert_imbalance_seed': 7}, 'parallel': {'dp': 2, 'ep': 2}, "
        "'workload': {'uniform': 2048}}"};
    for (int i = 0; i < test_rounds(COUNT_OF(cases)); i++) {
        assert_true(agrees(json_text("%s", cases[i])));
    }
}

TEST(uniform_costs)
{
    int planned = 0;
    for (int i = 0; sp_schedule_names[i] != NULL; i++) {
        for (int slices = 1; slices <= 4; slices *= 4) {
            const char *text = json_text(
                "{'uniform_costs': {'f_ms': 2, 'b_ms': 3, 'w_ms': 1, 'p2p_ms': 0.25}, "
                "'parallel': {'pp': 4, 'dp': 2}, 'schedule': {'kind': '%s', 'microbatches': 8,"
                " 'slices': %d}}",
                sp_schedule_names[i], slices);
            planned += agrees(text);
        }
    }
    assert_in_range(planned, SP_SCHEDULE_KINDS, 2 * SP_SCHEDULE_KINDS);
}

// Three ranks with pieces of the states of their own, which over links that transfers share run
// each for itself.
TEST(what_is_reserved_depends_on_no_links)
{
    int64_t reserved_bytes[3];
    for (int detail = 0; detail < 3; detail++) {
        const sp_evaluate_options options = {.allocator_peak = true};
        const char *text = json_text(
            "{'model': {'layers': 2, 'hidden': 1024, 'ffn': 2048, 'heads': 8, 'vocab': 1000}, "
            "'parallel': {'dp': 3}, 'network': {'detail': '%s'}, 'workload': {'lengths': [512, "
            "512, 512], 'context': 512, 'samples_per_batch': 3}}",
            sp_network_detail_names[detail]);
        SCENARIO_RUN(r, text, &options);
        reserved_bytes[detail] = r.result.reserved_peak_bytes;
        assert_true(agrees(text));
    }
    assert_true(reserved_bytes[SP_NETWORK_CLOSED] > 0);
    assert_int_equal(reserved_bytes[SP_NETWORK_AUTO], reserved_bytes[SP_NETWORK_CLOSED]);
    assert_int_equal(reserved_bytes[SP_NETWORK_FLOWS], reserved_bytes[SP_NETWORK_CLOSED]);
}

// A plan may come from elsewhere, with a strategy of another name.
TEST(plan_of_an_unknown_strategy)
{
    AUTO(scenario_run) r = {0};
    must_succeed(run_read(TINY_MODEL "'workload': {'lengths': [5]}, 'strategy': {'kind': 'mine'}}",
                          &r.scenario, ERR));
    must_fail_with(sp_evaluate_plans(&r.scenario, &(sp_plan_file){0}, &(sp_evaluate_options){0},
                                     &r.result, ERR),
                   SP_ERR_CONTENT, "unknown strategy \"mine\"");
}
