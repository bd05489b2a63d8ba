// `tune`: launch files that the answer is for. What they can ask for, and what to change in them.
#include <stdio.h>
#include <string.h>

#include "experiments/cli/cli.h"
#include "experiments/frameworks/frameworks.h"
#include "sim/base/json.h"
#include "sim/base/units.h"
#include "sim/base/writer.h"
#include "solver/step/step.h"
#include "solver/strategy.h"

void cli_launch_find(const cli_list *emit, const cli_list *current, cli_launch *launch)
{
    *launch = (cli_launch){.files = *emit};
    for (int i = 0; emit->count == 0 && i < current->count; i++) {
        bool is_script;
        const framework *of = framework_of_file(current->items[i], &is_script);
        if (of != NULL && launch->files.count < CLI_LAUNCHES) {
            launch->files.items = launch->names;
            launch->names[launch->files.count++] = of->name;
        }
    }
}

// The base with a strategy; without tokens a step has `rows`, on one replica.
static sp_status read_variant(const json_t *base, const char *strategy, int64_t rows,
                              sp_scenario *scenario, sp_error *err)
{
    json_t *document = json_deep_copy(base);
    framework_put_at(document, "strategy.kind", json_string(strategy));
    if (rows > 0) {
        json_t *workload = json_object_get(document, "workload");
        json_object_del(workload, "tokens_per_batch");
        json_object_del(workload, "samples_per_batch");
        sp_json_put(document, "parallel", json_object());
        sp_json_put(document, "schedule", sp_json_object(SP_JSON("microbatches", rows)));
    }
    const sp_status status = sp_scenario_from_json(document, "tune", NULL, 0, scenario, err);
    json_decref(document);
    return status;
}

json_t *cli_launch_own(const cli_launch *launch, const json_t *base, const char *strategy,
                       const char *key)
{
    sp_error err = {0};
    sp_scenario scenario = {0};
    json_t *own = read_variant(base, strategy, 0, &scenario, &err) == SP_OK
                      ? cli_emit_own(&launch->files, &scenario, key)
                      : NULL;
    sp_scenario_fini(&scenario);
    return own;
}

const char *cli_launch_strategies(cli_launch *launch, const json_t *base,
                                  const sp_scenario *scenario, const char *const *strategies,
                                  int count)
{
    const char *runs = sp_stack_abilities_of(&scenario->memory.stack).strategies;
    const char *first = NULL;
    for (int i = 0; i < count && launch->files.count > 0; i++) {
        json_t *own = cli_launch_own(launch, base, strategies[i], "strategy.kind");
        if (own != NULL) {
            sp_append(launch->unsaid, sizeof launch->unsaid, "%s ", strategies[i]);
        } else if (first == NULL && sp_stack_lists(runs, strategies[i])) {
            first = strategies[i];
        }
        json_decref(own);
    }
    if (first == NULL) { // the answer's warnings tell what becomes of it
        launch->unsaid[0] = '\0';
    }
    return first != NULL ? first : strategies[0];
}

// About as many rows, which replicas of as many layouts as can be divide.
static int64_t whole_rows(int64_t gpus, int64_t rows)
{
    int64_t each = gpus;
    while (each > rows && each % 2 == 0) {
        each /= 2;
    }
    return sp_larger((rows + each / 2) / each, 1) * each;
}

// One batch is what the rows hold, stated as its tokens, which other layouts can be searched with.
sp_status cli_launch_count(cli_launch *launch, const json_t *base, const sp_scenario *scenario,
                           const char *strategy, int64_t gpus, sp_error *err)
{
    const sp_workload_spec *workload = &scenario->workload;
    const int64_t context = workload->context;
    sp_scenario variant = {0};
    sp_batches batches = {0};
    if (launch->files.count == 0 || workload->uniform_tokens > 0 || workload->batches > 1 ||
        workload->tokens_per_batch == 0) {
        return SP_OK;
    }
    const bool pads = sp_strategy_find(strategy)->pads;
    sp_status status = pads ? sp_evaluate_batches(scenario, &batches, err) : SP_OK;
    const int64_t filled = (workload->tokens_per_batch + context / 2) / context;
    const int64_t rows =
        whole_rows(gpus, pads && status == SP_OK ? (int64_t)batches.batch[0].count : filled);
    sp_batches_fini(&batches);
    status = status == SP_OK ? read_variant(base, strategy, rows, &variant, err) : status;
    status = status == SP_OK ? sp_evaluate_batches(&variant, &batches, err) : status;
    if (status == SP_OK) {
        launch->rows = rows;
        launch->row_tokens = batches.batch[0].total_tokens;
        snprintf(launch->step, sizeof launch->step, "what %lld row%s of the launch file hold%s",
                 (long long)rows, sp_plural(rows), rows == 1 ? "s" : "");
    }
    sp_batches_fini(&batches);
    sp_scenario_fini(&variant);
    return status;
}

void cli_launch_answer(const cli_launch *launch, json_t *document)
{
    const int64_t each = framework_get_int(document, "parallel.dp", 1) *
                         framework_get_int(document, "schedule.microbatch_samples", 1);
    if (launch->rows > 0 && launch->rows % each == 0) {
        framework_put_at(document, "schedule.microbatches", json_integer(launch->rows / each));
        json_object_del(json_object_get(document, "workload"), "tokens_per_batch");
    }
}

void cli_launch_changes(const cli_list *files, const sp_scenario *current, bool imported,
                        cli_tuned *tuned)
{
    const framework *of = framework_find_stack(tuned->scenario->memory.stack.name);
    const bool same = of != NULL && strcmp(current->memory.stack.name, of->stack) == 0;
    json_t *changes;
    for (int i = 0; i < files->count; i++) {
        changes = framework_changes_of_file(files->items[i], current, tuned->scenario);
        if (changes != NULL) {
            json_array_append_new(tuned->changes, changes);
        }
    }
    if (imported && same && json_array_size(tuned->changes) == 0) {
        changes = framework_changes(of, current, tuned->scenario);
        json_array_append_new(tuned->changes, changes != NULL ? changes : json_null());
    }
}
