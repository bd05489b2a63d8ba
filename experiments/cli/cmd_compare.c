#include <math.h>
#include <string.h>

#include "experiments/cli/options.h"
#include "experiments/cli/report.h"
#include "experiments/cli/run_report.h"
#include "sim/base/alloc.h"
#include "sim/base/progress.h"
#include "sim/base/units.h"
#include "solver/evaluate.h"
#include "solver/strategy.h"

enum { MOST_ROWS = 64 };

typedef struct compare_args {
    cli_common common;
    cli_list set;
    const char *strategies;
} compare_args;

static const cli_option options[] = {
    CLI_SET_OPTION(compare_args),
    {.kind = CLI_STRING,
     .name = "strategies",
     .value = "LIST",
     .at = offsetof(compare_args, strategies),
     .help = "packing strategies to compare, the first is the baseline (default: all)"},
    CLI_COMMON_OPTIONS(compare_args),
    {0},
};

static const char *const examples[] = {
    "slimpack compare experiments/demo.json --strategies packed,sorted,ffd",
    "slimpack compare experiments/demo.json --set workload.context=65536 --json",
    NULL,
};

static int run(int argc, char **argv);

const cli_command cli_cmd_compare = {
    .name = "compare",
    .summary = "compare packing strategies on the same batches",
    .operands = "SCENARIO",
    .min_operands = 1,
    .max_operands = 1,
    .description =
        "Evaluates a scenario with several packing strategies, all on the same batches, and prints "
        "a row for each: iteration time, speed-up over the first, bubble ratio, peak memory, MFU, "
        "imbalance over data-parallel ranks (busiest over mean), gap to the lower bound of the "
        "batch's work, micro-batches and solver time."
        "\n\nA strategy that runs out of memory is marked oom. The exit status is 1 when no "
        "strategy can be trained.",
    .examples = examples,
    .options = options,
    .run = run,
};

typedef struct row {
    char strategy[SP_STRATEGY_NAME];
    sp_status status;
    char reason[SP_ERROR_TEXT];
    sp_result result;
} row;

typedef struct comparison {
    sp_scenario scenario;
    sp_batches batches;
    row *rows;
    int count;
} comparison;

static sp_status add_row(comparison *cmp, const char *name, size_t length, sp_error *err)
{
    if (cmp->count == MOST_ROWS || length >= SP_STRATEGY_NAME) {
        return sp_error_set(err, SP_ERR_USAGE, "--strategies: cannot use '%.*s'", (int)length,
                            name);
    }
    row *r = &cmp->rows[cmp->count];
    memcpy(r->strategy, name, length);
    r->strategy[length] = '\0';
    for (int i = 0; i < cmp->count; i++) {
        if (strcmp(cmp->rows[i].strategy, r->strategy) == 0) {
            return sp_error_set(err, SP_ERR_USAGE, "--strategies names '%s' twice", r->strategy);
        }
    }
    cmp->count++;
    return sp_strategy_check(r->strategy, "--strategies", err);
}

static sp_status choose_rows(const char *list, comparison *cmp, sp_error *err)
{
    cmp->rows = sp_i_calloc(MOST_ROWS, sizeof *cmp->rows);
    sp_status status = cmp->rows == NULL ? sp_error_no_memory(err, "a comparison") : SP_OK;
    for (int i = 0; status == SP_OK && list == NULL && sp_strategy_names[i] != NULL; i++) {
        status = add_row(cmp, sp_strategy_names[i], strlen(sp_strategy_names[i]), err);
    }
    while (status == SP_OK && list != NULL) {
        size_t length = strcspn(list, ",");
        status = add_row(cmp, list, length, err);
        list = list[length] == ',' ? list + length + 1 : NULL;
    }
    return status;
}

// A strategy that cannot serve the scenario is a row with its reason; any other failure ends the
// command.
static sp_status evaluate_row(comparison *cmp, row *r, sp_error *err)
{
    static const sp_evaluate_options plain;
    snprintf(cmp->scenario.strategy.kind, sizeof cmp->scenario.strategy.kind, "%s", r->strategy);
    r->status = sp_evaluate(&cmp->scenario, &cmp->batches, &plain, &r->result, err);
    if (r->status == SP_ERR_INFEASIBLE || r->status == SP_ERR_CONTENT) {
        snprintf(r->reason, sizeof r->reason, "%s", err->message[0]);
        sp_error_clear(err);
        return SP_OK;
    }
    return r->status;
}

static sp_status evaluate_all(const compare_args *args, const char *path, comparison *cmp,
                              sp_error *err)
{
    sp_status status =
        sp_scenario_read(path, args->set.items, args->set.count, &cmp->scenario, err);
    if (status == SP_OK && cmp->scenario.uniform) {
        status = sp_error_in(err, SP_ERR_CONTENT, path, "uniform_costs",
                             "strategies need a model and a workload to be compared on");
    }
    if (status == SP_OK) {
        status = sp_evaluate_batches(&cmp->scenario, &cmp->batches, err);
    }
    sp_progress progress;
    sp_progress_begin(&progress, "comparing", cmp->count, args->common.quiet);
    for (int i = 0; status == SP_OK && i < cmp->count; i++) {
        sp_progress_update(&progress, i);
        status = evaluate_row(cmp, &cmp->rows[i], err);
    }
    sp_progress_end(&progress);
    return status;
}

static const char *status_word(const row *r)
{
    if (r->status != SP_OK) {
        return "infeasible";
    }
    return sp_result_is_oom(&r->result) ? "oom" : "ok";
}

// Baseline time over this row's; NAN where one of the two is missing.
static double speedup(const comparison *cmp, const row *r)
{
    const row *base = &cmp->rows[0];
    return base->status == SP_OK && r->status == SP_OK
               ? sp_result_iteration_ms(&base->result) / sp_result_iteration_ms(&r->result)
               : (double)NAN;
}

static json_t *row_json(const comparison *cmp, const row *r)
{
    json_t *object = r->status == SP_OK ? sp_result_json(&r->result, true) : sp_result_json_empty();
    double factor = speedup(cmp, r);
    if (object != NULL) {
        sp_json_put(object, "strategy", json_string(r->strategy));
        sp_json_put(object, "status", json_string(status_word(r)));
        sp_json_put(object, "reason", r->reason[0] != '\0' ? json_string(r->reason) : json_null());
        sp_json_put(object, "speedup", isfinite(factor) ? json_real(factor) : json_null());
        sp_json_put(object, "lossless", json_boolean(sp_strategy_is_lossless(r->strategy)));
    }
    return object;
}

static json_t *comparison_json(const comparison *cmp)
{
    json_t *root = json_object();
    json_t *rows = json_array();
    sp_json_put(root, "schema", json_string("slimpack/comparison/1"));
    sp_json_put(root, "baseline", json_string(cmp->rows[0].strategy));
    sp_json_put(
        root, "baseline_oom",
        json_boolean(cmp->rows[0].status == SP_OK && sp_result_is_oom(&cmp->rows[0].result)));
    for (int i = 0; i < cmp->count; i++) {
        json_array_append_new(rows, row_json(cmp, &cmp->rows[i]));
    }
    sp_json_put(root, "rows", rows);
    return root;
}

static void print_row(const comparison *cmp, const row *r)
{
    if (r->status != SP_OK) {
        printf("%-12s infeasible: %s\n", r->strategy, r->reason);
        return;
    }
    const sp_result *result = &r->result;
    double n = (double)result->batch_count;
    double solver_ms = 0.0;
    for (size_t b = 0; b < result->batch_count; b++) {
        solver_ms += result->batches[b].facts.solver_ms;
    }
    printf("%-12s %14.1f %8.2fx %8.2f %% %9.2f %7.2f %% %9.3f %8.1f %% %8.1f %9.2f  %s\n",
           r->strategy, sp_result_iteration_ms(result), speedup(cmp, r),
           100.0 * sp_result_bubble_ratio(result), sp_gib_from_bytes(result->peak_bytes),
           100.0 * sp_result_mfu(result), sp_result_dp_max_over_mean(result),
           100.0 * sp_result_gap(result), sp_result_microbatches(result), solver_ms / n,
           status_word(r));
}

static void print_table(const comparison *cmp)
{
    char tokens[CLI_SHORT_NUMBER];
    double sum = 0.0;
    for (int b = 0; b < cmp->batches.count; b++) {
        sum += (double)cmp->batches.batch[b].total_tokens;
    }
    cli_print_headline(stdout, &cmp->scenario);
    printf("%d batch%s, %s tokens each (mean), context %lld, seed %llu, profile %s (%s)\n\n",
           cmp->batches.count, cmp->batches.count == 1 ? "" : "es",
           cli_short_number(sum / cmp->batches.count, tokens), (long long)cmp->batches.context,
           (unsigned long long)cmp->scenario.workload.seed, cmp->scenario.profile.name,
           sp_level_names[sp_profile_level(&cmp->scenario.profile)]);
    printf("%-12s %14s %9s %10s %9s %9s %9s %10s %8s %9s  %s\n", "strategy", "iteration ms",
           "speed-up", "bubble", "peak GiB", "MFU", "imbalance", "gap", "packs", "solver ms",
           "status");
    for (int i = 0; i < cmp->count; i++) {
        print_row(cmp, &cmp->rows[i]);
    }
}

static int run(int argc, char **argv)
{
    compare_args args = {0};
    cli_operands operands;
    int exit_status = cli_parse(&cli_cmd_compare, argc, argv, &args, &operands);
    if (exit_status != CLI_PROCEED) {
        return exit_status;
    }
    comparison cmp = {0};
    sp_error err = {0};
    sp_status status = choose_rows(args.strategies, &cmp, &err);
    if (status == SP_OK) {
        status = evaluate_all(&args, operands.items[0], &cmp, &err);
    }
    if (status == SP_OK) {
        exit_status = 0;
        if (args.common.json) {
            exit_status = cli_print_json(comparison_json(&cmp));
        } else {
            print_table(&cmp);
        }
        bool any = false;
        for (int i = 0; i < cmp.count; i++) {
            any = any || strcmp(status_word(&cmp.rows[i]), "ok") == 0;
        }
        cli_print_notes(args.common.quiet || args.common.json, &cmp.rows[0].result);
        if (exit_status == 0 && !any) {
            exit_status = sp_status_exit(SP_ERR_INFEASIBLE);
        }
    } else {
        exit_status = cli_fail(&err);
    }
    for (int i = 0; cmp.rows != NULL && i < cmp.count; i++) {
        sp_result_fini(&cmp.rows[i].result);
    }
    sp_i_free(cmp.rows);
    sp_batches_fini(&cmp.batches);
    sp_scenario_fini(&cmp.scenario);
    cli_list_fini(&args.set);
    return exit_status;
}
