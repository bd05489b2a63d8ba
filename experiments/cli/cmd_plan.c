#include <errno.h>
#include <math.h>
#include <string.h>
#include <unistd.h>

#include "experiments/cli/cli.h"
#include "experiments/stream/plan_stream.h"
#include "sim/base/json.h"
#include "sim/base/units.h"
#include "sim/scenario/scenario.h"
#include "solver/strategy.h"

enum { DEFAULT_AHEAD = 16 }; // batches of a stream that are read and not yet answered

typedef struct plan_args {
    cli_common common;
    cli_list set;
    int64_t jobs, ahead;
    const char *output, *check, *lengths;
    bool stream;
} plan_args;

// ---- the plan of a scenario's own batches ----

// `again`: the list of lengths was shorter than the batches.
static sp_status make_plans(const plan_args *args, const sp_scenario *scenario, sp_result *result,
                            bool *again, sp_error *err)
{
    sp_batches batches = {0};
    SP_TRY(cli_form_batches(args->common.quiet, scenario, &batches, err));
    *again = batches.wrapped;
    // No batch but the plan itself is shown.
    cli_exports exports = {.batch = -1,
                           .plan = args->output,
                           .scenario = scenario->resolved,
                           .formed = &batches,
                           .result = result};
    sp_evaluate_options evaluate = {.allocator_peak = true,
                                    .threads = cli_threads(args->jobs),
                                    .observer = cli_exports_observe,
                                    .observer_context = &exports};
    sp_status status = cli_exports_begin(&exports, scenario->layout.pp, err);
    if (status == SP_OK) {
        status = sp_evaluate(scenario, &batches, &evaluate, result, err);
    }
    if (status == SP_OK) {
        sp_warn_of_uneven_rows(scenario, result, &result->warnings);
    }
    sp_status closed = cli_exports_end(&exports, err);
    sp_batches_fini(&batches);
    return status != SP_OK ? status : closed;
}

// A name that is not UTF-8 has no place in JSON: its key is left out.
static int print_plans_json(const plan_args *args, const sp_result *result)
{
    json_t *batches = json_array();
    for (size_t b = 0; b < result->batch_count; b++) {
        const sp_batch_result *batch = &result->batches[b];
        json_array_append_new(
            batches,
            sp_json_object(SP_JSON("samples", batch->facts.samples),
                           SP_JSON("tokens", batch->facts.tokens),
                           SP_JSON("microbatches", batch->facts.microbatches),
                           SP_JSON("predicted_ms", sp_ms_from_ns(batch->iteration_ns)),
                           SP_JSON("lower_bound_ms", batch->facts.lower_bound_ns / SP_NS_PER_MS),
                           SP_JSON("solver_ms", batch->facts.solver_ms)));
    }
    json_t *object =
        sp_json_object(SP_JSON("schema", "slimpack/plan-summary/1"), SP_JSON("plan", args->output),
                       SP_JSON("strategy", result->strategy), SP_JSON("schedule", result->schedule),
                       SP_JSON("lossless", result->lossless),
                       SP_JSON("oom", sp_result_is_oom(result)), SP_JSON("batches", batches));
    sp_result_put_notes(result, object);
    return cli_print_json(object);
}

enum { BATCHES_SHOWN = 24 };

// What PyTorch would reserve is known of the batch with the largest peak.
static sp_fits fits_of(const sp_result *result, const sp_batch_result *batch)
{
    const sp_result alone = {.parameters = result->parameters,
                             .memory_limit_bytes = result->memory_limit_bytes,
                             .peak_bytes = batch->peak_bytes};
    return sp_result_fits(batch->peak_bytes < result->peak_bytes ? &alone : result);
}

static int print_plans(const plan_args *args, const sp_result *result, bool again)
{
    if (args->common.json) {
        return print_plans_json(args, result);
    }
    static const char columns[] =
        "5 batch|7 samples|12 tokens|6 packs|12 predicted ms|14 lower bound ms|8 peak GiB|5 fits";
    cli_table table;
    cli_table_begin(&table, columns, NULL, BATCHES_SHOWN);
    for (size_t b = 0; b < result->batch_count; b++) {
        const sp_batch_result *batch = &result->batches[b];
        cli_row_begin(&table);
        cli_cell(&table, "%zu", b);
        cli_cell(&table, "%lld", (long long)batch->facts.samples);
        cli_count_cell(&table, batch->facts.tokens);
        cli_cell(&table, "%lld", (long long)batch->facts.microbatches);
        cli_number_cell(&table, "%.1f", sp_ms_from_ns(batch->iteration_ns));
        cli_number_cell(&table, "%.1f", batch->facts.lower_bound_ns / SP_NS_PER_MS);
        bool sized = result->parameters != 0;
        cli_number_cell(&table, "%.2f", sized ? sp_gib_from_bytes(batch->peak_bytes) : (double)NAN);
        sp_fits fits = fits_of(result, batch);
        cli_cell(&table, "%s", fits == SP_FITS_NONE ? "-" : sp_fits_names[fits]);
        cli_row_end(&table);
    }
    cli_table_end(&table);
    printf("plan in %s%s%s\n", args->output,
           again ? ", its batches are more than the list of lengths, which begins again" : "",
           sp_result_is_oom(result) ? ", OUT OF MEMORY" : "");
    return 0;
}

static int write_plan(const plan_args *args, const sp_scenario *scenario)
{
    sp_error err = {0};
    sp_result result = {0};
    bool again = false;
    int exit_status = 0;
    if (make_plans(args, scenario, &result, &again, &err) == SP_OK) {
        exit_status = print_plans(args, &result, again);
        cli_print_notes(args->common.quiet || args->common.json, NULL, &result);
        exit_status = cli_answer(exit_status, !sp_result_is_oom(&result));
    } else {
        json_t *nothing = sp_json_object(
            SP_JSON("plan", json_null()), SP_JSON("strategy", scenario->strategy.kind),
            SP_JSON("schedule", json_null()), SP_JSON("lossless", json_null()),
            SP_JSON("oom", json_null()), SP_JSON("batches", json_array()),
            SP_JSON("warnings", json_array()), SP_JSON("uncalibrated", json_array()));
        exit_status = cli_fail_json(args->common.json, "slimpack/plan-summary/1", nothing, 0, &err);
    }
    sp_result_fini(&result);
    return exit_status;
}

// ---- --check ----

typedef struct checked {
    sp_plan_input in;
    sp_result result;
} checked;

// The rules look at one rank at a time: whether the ranks wait for each other in a circle, and what
// they hold together, shows in the step.
static sp_status check_plan(checked *c, sp_error *err)
{
    const sp_evaluate_options how = {.engine = {.verify = true}, .allocator_peak = true};
    return sp_evaluate_plans(&c->in.scenario, &c->in.plans, &how, &c->result, err);
}

static int64_t actions_of(const checked *c)
{
    int64_t actions = 0;
    int64_t stages = (int64_t)c->in.scenario.layout.dp * c->in.scenario.layout.pp;
    for (int b = 0; b < c->in.plans.count; b++) {
        for (int64_t s = 0; s < stages; s++) {
            actions += (int64_t)c->in.plans.plans[b].stages[s].count;
        }
    }
    return actions;
}

static int print_check(const char *path, const checked *c, bool json)
{
    bool oom = sp_result_is_oom(&c->result);
    if (json) {
        json_t *object = sp_json_object(
            SP_JSON("schema", "slimpack/plan-check/1"), SP_JSON("plan", path),
            SP_JSON("batches", c->in.plans.count), SP_JSON("actions", actions_of(c)),
            SP_JSON("iteration_ms", sp_result_iteration_ms(&c->result)), SP_JSON("oom", oom));
        sp_result_put_notes(&c->result, object);
        return cli_print_json(object);
    }
    char actions[CLI_GROUPED];
    printf("%s: %d batch%s, %s actions, all rules kept, %.1f ms a step%s\n", path,
           c->in.plans.count, c->in.plans.count == 1 ? "" : "es",
           cli_grouped(actions_of(c), actions), sp_result_iteration_ms(&c->result),
           oom ? ", OUT OF MEMORY" : "");
    return 0;
}

static int check(const char *path, bool json, bool quiet)
{
    checked c = {0};
    sp_error err = {0};
    int exit_status = 0;
    sp_status status = sp_plan_input_read(path, &c.in, &err);
    if (status == SP_OK) {
        status = check_plan(&c, &err);
    }
    if (status == SP_OK) {
        exit_status = print_check(path, &c, json);
        cli_print_notes(quiet || json, NULL, &c.result);
        exit_status = cli_answer(exit_status, !sp_result_is_oom(&c.result));
    } else {
        json_t *nothing = sp_json_object(
            SP_JSON("plan", path), SP_JSON("batches", json_null()), SP_JSON("actions", json_null()),
            SP_JSON("iteration_ms", json_null()), SP_JSON("oom", json_null()),
            SP_JSON("warnings", json_array()), SP_JSON("uncalibrated", json_array()));
        exit_status = cli_fail_json(json, "slimpack/plan-check/1", nothing, 0, &err);
    }
    sp_result_fini(&c.result);
    sp_plan_input_fini(&c.in);
    return exit_status;
}

// ---- --stream ----

typedef struct answers {
    bool quiet;
    int64_t count, invalid, infeasible, oom, dropped, truncated, split;
    sp_warnings seen;
} answers;

// Each text once: what holds for one batch mostly holds for all.
static void warn_of(answers *a, const stream_answer *answer)
{
    long long line = (long long)answer->line;
    if (answer->invalid && a->invalid++ < SP_ERROR_MESSAGES) {
        sp_error err = {0};
        sp_error_set(&err, SP_ERR_CONTENT, "%s", answer->reason);
        cli_fail(&err);
    }
    if (answer->infeasible && a->infeasible++ == 0) {
        cli_warn(a->quiet, "line %lld: no plan: %s", line, answer->reason);
    }
    if (answer->oom && a->oom++ == 0) {
        cli_warn(a->quiet, "line %lld: the plan needs %.2f GiB, a rank has %.2f", line,
                 sp_gib_from_bytes(answer->peak_bytes),
                 sp_gib_from_bytes(answer->memory_limit_bytes));
        if (answer->settings[0] != '\0') {
            cli_warn(a->quiet, "line %lld: %s", line, answer->settings);
        }
    }
    for (int i = 0; i < answer->warnings.count; i++) {
        int before = a->seen.count;
        sp_warnings_add(&a->seen, "%s", answer->warnings.text[i]);
        if (a->seen.count > before) {
            cli_warn(a->quiet, "line %lld: %s", line, answer->warnings.text[i]);
        }
    }
    a->dropped += answer->dropped;
    a->truncated += answer->truncated;
    a->split += answer->split;
}

// An answer is on its way before the next one is waited for.
static sp_status put_answer(void *context, const stream_answer *answer, sp_error *err)
{
    answers *a = context;
    errno = 0;
    fwrite(answer->text, 1, answer->bytes, stdout);
    (putchar)('\n');
    if (fflush(stdout) != 0 || ferror(stdout) != 0) {
        return sp_error_set(err, SP_ERR_IO, "cannot write to standard output: %s", strerror(errno));
    }
    a->count++;
    warn_of(a, answer);
    return SP_OK;
}

static void print_totals(const answers *a)
{
    long long count = (long long)a->count;
    if (a->dropped > 0) {
        cli_warn(a->quiet, "samples longer than the context, dropped: %lld", (long long)a->dropped);
    }
    if (a->truncated > 0) {
        cli_warn(a->quiet, "samples longer than the context, truncated: %lld",
                 (long long)a->truncated);
    }
    if (a->split > 0) {
        cli_warn(a->quiet, "samples longer than the context, split: %lld", (long long)a->split);
    }
    if (a->oom > 0) {
        cli_warn(a->quiet, "out of memory: %lld of %lld plans", (long long)a->oom,
                 count - (long long)(a->invalid + a->infeasible));
    }
    if (a->invalid > 0) {
        cli_warn(a->quiet, "no batch: %lld of %lld lines%s", (long long)a->invalid, count,
                 a->invalid > SP_ERROR_MESSAGES ? ", of which the first are told of" : "");
    }
    if (a->infeasible > 0) {
        cli_warn(a->quiet, "without a plan: %lld of %lld batches", (long long)a->infeasible,
                 count - (long long)a->invalid);
    }
}

static int stream(const sp_scenario *scenario, int64_t jobs, int64_t ahead, bool quiet)
{
    answers a = {.quiet = quiet};
    sp_error err = {0};
    const stream_options how = {.threads = cli_threads(jobs),
                                .ahead = ahead > 0 ? (int)ahead : DEFAULT_AHEAD,
                                .name = "standard input"};
    sp_status status = stream_plans(scenario, STDIN_FILENO, &how, put_answer, &a, &err);
    print_totals(&a);
    if (status != SP_OK) {
        return cli_fail(&err);
    }
    return a.invalid > 0 ? sp_status_exit(SP_ERR_CONTENT)
                         : cli_answer(0, a.oom + a.infeasible == 0);
}

// ---- what was asked for ----

// Options that have no use in it.
static int check_usage(const plan_args *args, const cli_operands *operands)
{
    int modes = (args->output != NULL) + (args->check != NULL) + args->stream;
    if (modes != 1) {
        return cli_usage_error(
            &cli_cmd_plan,
            modes > 0 ? "-o, --stream and --check exclude each other"
            : args->common.json
                ? "'plan' needs -o FILE, --stream or --check PLAN: the plan itself is JSON, which "
                  "-o - prints; --json beside -o FILE prints what the plan is"
                : "'plan' needs -o FILE (-o - is standard output), --stream or --check PLAN");
    }
    if (args->check != NULL && operands->count > 0) {
        return cli_usage_error(&cli_cmd_plan, "--check has no use for the argument '%s'",
                               operands->items[0]);
    }
    if (args->check != NULL && args->set.count > 0) {
        return cli_usage_error(&cli_cmd_plan, "--check has no use for --set");
    }
    if (args->output == NULL && args->lengths != NULL) {
        return cli_usage_error(&cli_cmd_plan, "--lengths has no use with --%s, which has its own",
                               args->stream ? "stream" : "check");
    }
    if (args->check == NULL && operands->count == 0) {
        return cli_usage_error(&cli_cmd_plan, "'plan' needs SCENARIO");
    }
    if (args->output == NULL && (args->common.csv || args->common.markdown)) {
        return cli_usage_error(&cli_cmd_plan, "--csv and --markdown are of the table of -o");
    }
    if (!args->stream && args->ahead > 0) {
        return cli_usage_error(&cli_cmd_plan, "--ahead needs --stream");
    }
    return CLI_PROCEED;
}

static int plan_scenario(const plan_args *args, const char *path)
{
    sp_error err = {0};
    sp_scenario scenario = {0};
    json_t *document = NULL;
    int exit_status = 0;
    sp_status status = cli_read_document(path, &args->set, args->lengths, &document, &err);
    if (status == SP_OK) {
        status = sp_scenario_from_json(document, path, NULL, 0, &scenario, &err);
    }
    if (status == SP_OK) {
        status = sp_strategy_resolve(&scenario, false, &err);
    }
    if (status != SP_OK) {
        exit_status = cli_fail(&err);
    } else if (args->stream) {
        exit_status = stream(&scenario, args->jobs, args->ahead, args->common.quiet);
    } else {
        exit_status = write_plan(args, &scenario);
    }
    sp_scenario_fini(&scenario);
    json_decref(document);
    return exit_status;
}

static int run(const void *given, const cli_operands *operands)
{
    const plan_args *args = given;
    int exit_status = check_usage(args, operands);
    if (exit_status != CLI_PROCEED) {
        return exit_status;
    }
    return args->check != NULL ? check(args->check, args->common.json, args->common.quiet)
                               : plan_scenario(args, operands->items[0]);
}

// ---- the command ----

static const cli_option options[] = {
    CLI_TEXT_OPTION(CLI_OUTPUT, 'o', "output", "FILE", plan_args, output,
                    "write the plan of all batches of the scenario's workload"),
    CLI_TEXT_OPTION(CLI_FILE, 0, "check", "PLAN", plan_args, check,
                    "check a plan, in place of making one"),
    CLI_FLAG_OPTION("stream", plan_args, stream,
                    "plan the batches on standard input, one JSON array of lengths per line, and "
                    "answer one plan per line"),
    CLI_INT_OPTION("ahead", "K", plan_args, ahead, 1, STREAM_MOST_AHEAD,
                   "batches of a stream that are read and not yet answered, at most (default 16)"),
    CLI_SET_OPTION(plan_args),
    CLI_LENGTHS_OPTION(plan_args, "as the scenario says"),
    CLI_JOBS_OPTION(plan_args),
    CLI_TABLE_OPTIONS(plan_args),
    CLI_COMMON_OPTIONS(plan_args),
    {0},
};

static const char *const examples[] = {
    "slimpack plan experiments/demo.json -o plan.json",
    "slimpack plan --check plan.json",
    "echo '[5321, 812, 40960]' | slimpack plan experiments/demo.json --stream",
    NULL,
};

const cli_command cli_cmd_plan = {
    .name = "plan",
    .summary = "write the plan of a step, or one for every batch of a stream",
    CLI_TAKES("SCENARIO|--check PLAN", 0, 1),
    .description =
        "Packs the workload of a scenario and schedules it, and writes the plan for a training "
        "job's loader: samples, forward and backward packs, the actions of each pipeline rank, the "
        "predicted time and a lower bound under it. The \"sample\" of a slice is a position in "
        "the batch's \"samples\", where \"id\" is the sample's place among the lengths.\n\nWith "
        "--stream the batches come from "
        "standard input: a line holds the lengths of one batch as a JSON array, and its plan is "
        "answered as one line, a plan document of its own. A sample's id is its position in the "
        "array; samples over the context are treated as workload.over_length says. Samples that a "
        "plan lists as delayed are to be sent again, in a later batch. The answers come in the "
        "order of the lines while the next batches are planned on other threads. A batch for which "
        "there is no plan is answered by a document without batches that holds the reason; a plan "
        "that needs more memory than there is holds its reason, too, and of the first line that "
        "lacks memory the settings are tried and named in its reason that would make it fit. A "
        "line that is no batch is answered by such a document, too, with the status \"invalid\" "
        "and the reason, which is also told as an error, and makes the exit status 3 at the "
        "end.\n\nWith --check a plan is read and every rule of plans is checked, independently of "
        "what made it: each slice in one forward and one backward pack, the order of slices and "
        "actions, lengths within the context. It is then simulated, which finds ranks that wait "
        "for each other without end and memory that does not suffice.\n\nThe exit status is 1 when "
        "a rank needs more memory than its limit, or a batch of a stream has no plan; the plans "
        "are written all the same.",
    CLI_RUNS(run, plan_args, options, examples),
};
