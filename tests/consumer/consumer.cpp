// The installed header in C++: a scenario read, two strategies compared, a batch planned.
#include <slimpack/slimpack.h>

#include <cstdio>
#include <cstring>
#include <memory>
#include <vector>

static const char text[] =
    "{\"model\": \"llama-7b\", \"cluster\": \"h100-8\", \"parallel\": {\"tp\": 2, \"pp\": 4},"
    " \"workload\": {\"lengths\": [900, 700, 600, 500, 300, 200], \"context\": 1024}}";

// Do the two rows train the same tokens, padding in longer time?
static bool compares(const sp_scenario *scenario, sp_error *err)
{
    const char *const strategies[] = {"padded", "ffd"};
    std::vector<sp_comparison_row> rows(2);
    sp_evaluate_options options = {};
    sp_batches batches = {};
    if (sp_evaluate_batches(scenario, &batches, err) != SP_OK ||
        sp_compare(scenario, &batches, strategies, 2, &options, rows.data(), err) != SP_OK) {
        sp_batches_fini(&batches);
        return false;
    }
    bool good = rows[0].status == SP_OK && rows[1].status == SP_OK &&
                sp_result_iteration_ms(&rows[1].result) < sp_result_iteration_ms(&rows[0].result);
    sp_compare_fini(rows.data(), 2);
    sp_batches_fini(&batches);
    return good;
}

// Does the plan hold every sample, and can it be written?
static bool plans(const sp_scenario *scenario, sp_error *err)
{
    const int64_t tokens[] = {900, 100, 500};
    sp_planner *planner = nullptr;
    sp_batch_plan *plan = nullptr;
    char *line = nullptr;
    size_t bytes = 0;
    bool good = sp_planner_new(scenario, &planner, err) == SP_OK &&
                sp_plan_batch(planner, tokens, 3, &plan, err) == SP_OK &&
                sp_batch_plan_text(planner, plan, &line, &bytes, err) == SP_OK &&
                plan->batch.count == 3 && std::strlen(line) == bytes;
    sp_batch_plan_text_free(line);
    sp_batch_plan_free(plan);
    sp_planner_free(planner);
    return good;
}

int main()
{
    std::unique_ptr<sp_scenario> scenario(new sp_scenario());
    sp_error err;
    sp_error_clear(&err);
    json_t *root = nullptr;
    bool good = sp_json_read_text(text, sizeof text - 1, "text", &root, &err) == SP_OK &&
                sp_scenario_from_json(root, "text", nullptr, 0, scenario.get(), &err) == SP_OK &&
                sp_strategy_find(scenario->strategy.kind) != nullptr &&
                std::strcmp(sp_status_text(SP_OK), "ok") == 0 && compares(scenario.get(), &err) &&
                plans(scenario.get(), &err);
    std::puts(good ? "consumer works" : err.count > 0 ? err.message[0] : "consumer fails");
    sp_scenario_fini(scenario.get());
    json_decref(root);
    return 0;
}
