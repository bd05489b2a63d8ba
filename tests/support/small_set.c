#include "tests/support/small_set.h"

#include "sim/base/json.h"
#include "tests/support/test_main.h"

#define SET SP_TEST_SOURCE_DIR "/../experiments/validate_gpu.json"

static void divide(json_t *object, const char *key, int64_t by)
{
    const json_t *value = json_object_get(object, key);
    if (value != NULL) {
        json_object_set_new(object, key, json_integer(json_integer_value(value) / by));
    }
}

static void shrink_lengths(json_t *lengths, const small_sizes *by)
{
    for (size_t i = 0; i < json_array_size(lengths); i++) {
        const int64_t step = by->tokens * by->step;
        int64_t steps = (json_integer_value(json_array_get(lengths, i)) + step - 1) / step;
        json_array_set_new(lengths, i, json_integer(steps * by->step));
    }
}

static void shrink_model(json_t *model, const small_sizes *by)
{
    divide(model, "hidden", by->features);
    divide(model, "ffn", by->features);
    divide(model, "vocab", by->features);
    divide(model, "heads", by->heads);
    divide(model, "kv_heads", by->heads);
}

// The base, whose keys are nested, or what a group sets.
static void shrink(json_t *settings, const small_sizes *by)
{
    json_t *workload = json_object_get(settings, "workload");
    shrink_lengths(json_object_get(workload, "lengths"), by);
    divide(workload, "context", by->tokens);
    shrink_lengths(json_object_get(settings, "workload.lengths"), by);
    divide(settings, "workload.context", by->tokens);
    shrink_model(json_object_get(settings, "model"), by);
    // Times do not matter, and of partitions none were measured yet.
    json_object_del(settings, "profile");
}

static void read_set(const small_sizes *by, sp_scenario_set *set)
{
    json_t *document;
    const char *const overrides[] = {"profile=h200", "stack.name=cuda"};
    must_succeed_for(SET, sp_json_read_file(SET, 1 << 20, &document, ERR));
    json_t *base = json_object_get(document, "base");
    json_t *groups = json_object_get(document, "groups");
    assert_string_equal(json_string_value(json_object_get(base, "stack")), "cuda");
    json_object_del(base, "stack");
    shrink(base, by);
    for (size_t g = 0; g < json_array_size(groups); g++) {
        shrink(json_object_get(json_array_get(groups, g), "set"), by);
    }
    must_succeed_for(SET, sp_scenario_set_from_json(document, SET, overrides, 2, set, ERR));
}

int small_set_each(const small_sizes *by, const char *group, int most,
                   void (*run)(const sp_scenario_case *c, int number))
{
    AUTO(sp_scenario_set) set;
    int cases = 0;
    read_set(by, &set);
    for (size_t c = 0; c < set.count && cases < most; c++) {
        if (strcmp(set.cases[c].group, group) == 0) {
            run(&set.cases[c], cases++);
        }
    }
    return cases;
}

void small_case_evaluate(const sp_scenario_case *c, sp_step_observer see, void *context)
{
    const sp_evaluate_options options = {
        .no_bounds = true, .observer = see, .observer_context = context};
    AUTO(sp_batches) batches;
    AUTO(sp_result) result;
    must_succeed_for(c->name, sp_evaluate_batches(&c->scenario, &batches, ERR));
    must_succeed_for(c->name, sp_evaluate(&c->scenario, &batches, &options, &result, ERR));
}
