// `simulate` predicts steps; the files that commands write of a step stand before it.
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "experiments/cli/cli.h"
#include "sim/base/alloc.h"
#include "sim/base/units.h"
#include "sim/base/writer.h"
#include "sim/metrics/predecessors.h"
#include "sim/plan/plan_json.h"
#include "sim/verify/dependency_graph.h"
#include "solver/strategy.h"

enum {
    TRACE_RANKS = 4096,     // pipeline ranks a selection can name
    TRACE_EVENTS = 1000000, // viewers die above about this many (google/trace-viewer#298)
    CRITICAL_SHOWN = 12,    // actions with --wide
    CRITICAL_LINES = 6,     // without
    TIMELINE_ROWS = 4,
};

bool cli_exports_need_memory(const cli_exports *exports)
{
    return exports->trace != NULL || exports->plot != NULL || exports->snapshot != NULL;
}

// A plan that could not be written: the file's name before the cause.
static sp_status named(const cli_exports *exports, sp_status status, sp_error *err)
{
    return status == SP_ERR_IO ? cli_name_file(exports->plan, err) : status;
}

sp_status cli_exports_end(cli_exports *exports, sp_error *err)
{
    sp_free(exports->ranks);
    exports->ranks = NULL;
    sp_status status = err->status;
    if (status == SP_OK && exports->plan_file.file != NULL) {
        const sp_plan_notes notes = {.settings = exports->result->settings,
                                     .curtailed = exports->result->curtailed};
        status = named(
            exports, sp_plan_json_end(exports->plan_file.file, exports->formed, &notes, err), err);
    }
    return sp_output_close(&exports->plan_file, status, err);
}

// Reads "FROM-TO" (milliseconds) into the window.
static sp_status parse_window(const char *text, sp_export_window *window, sp_error *err)
{
    char *end = NULL;
    double from_ms = strtod(text, &end);
    double to_ms = *end == '-' && end != text ? strtod(end + 1, &end) : -1.0;
    if (*end != '\0' || !(from_ms >= 0.0) || !(to_ms > from_ms) || to_ms > 1e12) {
        return sp_error_set(err, SP_ERR_USAGE,
                            "--trace-window expects FROM-TO in milliseconds, got '%s'", text);
    }
    window->from_ns = sp_ns_from_ms(from_ms);
    window->to_ns = sp_ns_from_ms(to_ms);
    return SP_OK;
}

// A selection of nothing would have no effect.
static sp_status check_selection(const cli_exports *exports, sp_error *err)
{
    bool draws = exports->trace != NULL || exports->plot != NULL || exports->timeline;
    bool shows = draws || exports->snapshot != NULL || exports->graphml != NULL ||
                 exports->topology != NULL || exports->critical_path;
    if ((exports->trace_ranks != NULL || exports->trace_window != NULL) && !draws) {
        return sp_error_set(err, SP_ERR_USAGE,
                            "%s selects from --trace, --timeline or --plot, and none is asked for",
                            exports->trace_ranks != NULL ? "--trace-ranks" : "--trace-window");
    }
    if (exports->batch > 0 && !shows) {
        return sp_error_set(err, SP_ERR_USAGE,
                            "--batch %lld: nothing that shows one batch is asked for, such as "
                            "--trace or --timeline",
                            (long long)exports->batch);
    }
    return SP_OK;
}

static sp_status read_selection(cli_exports *exports, int pp, sp_error *err)
{
    sp_status status = check_selection(exports, err);
    if (status != SP_OK) {
        return status;
    }
    if (exports->trace_window != NULL) {
        status = parse_window(exports->trace_window, &exports->window, err);
    }
    if (status != SP_OK || exports->trace_ranks == NULL) {
        return status;
    }
    exports->ranks = sp_malloc(TRACE_RANKS * sizeof *exports->ranks);
    sp_error found = {0};
    int count =
        sp_export_parse_ranks(exports->trace_ranks, pp, exports->ranks, TRACE_RANKS, &found);
    if (count < 0) {
        return sp_error_set(err, SP_ERR_USAGE, "--trace-ranks: %s", found.message[0]);
    }
    exports->window.pp_ranks = exports->ranks;
    exports->window.pp_rank_count = count;
    return SP_OK;
}

// Files of this ending were protocol buffers once.
static sp_status check_trace_name(const char *path, sp_error *err)
{
    static const char ending[] = ".pftrace";
    return !cli_ends_in(path, ending)
               ? SP_OK
               : sp_error_set(err, SP_ERR_USAGE,
                              "--trace: '%s': a trace is JSON, which Perfetto opens as well: "
                              "'%.*s.json.gz' is written compressed",
                              path, (int)(strlen(path) - strlen(ending)), path);
}

// A picture of another kind would not open under its name.
static sp_status check_topology_name(const char *path, sp_error *err)
{
    return cli_ends_in(path, ".svg") || cli_is_stream(path)
               ? SP_OK
               : sp_error_set(err, SP_ERR_USAGE, "--topology expects a .svg file, got '%s'", path);
}

sp_status cli_exports_begin(cli_exports *exports, int pp, sp_error *err)
{
    sp_status status = read_selection(exports, pp, err);
    if (status == SP_OK && exports->topology != NULL) {
        status = check_topology_name(exports->topology, err);
    }
    if (status == SP_OK && exports->trace != NULL) {
        status = check_trace_name(exports->trace, err);
    }
    if (status == SP_OK && exports->plot != NULL) {
        status = cli_plot_check(exports->plot, err);
    }
    if (status != SP_OK || exports->plan == NULL) {
        return status;
    }
    status = sp_output_open(&exports->plan_file, exports->plan, err);
    if (status != SP_OK) {
        return status;
    }
    json_t *scenario = json_deep_copy(exports->scenario);
    status = sp_scenario_place_in(scenario, exports->plan, err);
    status = status == SP_OK ? sp_plan_json_begin(exports->plan_file.file, scenario, err) : status;
    json_decref(scenario);
    return named(exports, status, err);
}

// Every writer of a file takes this.
typedef struct exported {
    const cli_exports *exports;
    const sp_step_view *view;
    sp_structure *structure;
    sp_predecessors *predecessors;
    sp_topology *topology;
    double *link_bytes;
    size_t rank;
} exported;

// There is no memory to show where uniform costs hold no bytes, or a planner's formulas say a
// figure that the tensors of the step do not add up to.
static const sp_memory_timeline *memory_of(const exported *s)
{
    bool known = s->view->costs->side[0].unit != NULL && !s->exports->planner_memory;
    return known ? s->view->memory : NULL;
}

static sp_status write_trace(FILE *file, const void *what, sp_error *err)
{
    const exported *s = what;
    return sp_export_trace(file, s->view->timeline, memory_of(s), &s->exports->window,
                           s->predecessors, cli_ends_in(s->exports->trace, ".gz"), NULL, err);
}

// Viewers read a trace whole.
static void warn_of_events(const exported *s)
{
    int64_t events =
        sp_export_trace_events(s->view->timeline, &s->exports->window, memory_of(s) != NULL);
    if (events > TRACE_EVENTS) {
        char grouped[CLI_GROUPED];
        sp_warnings_add(s->exports->warnings,
                        "%s: %s events may be more than a trace viewer can open; --trace-ranks and "
                        "--trace-window select a part",
                        s->exports->trace, cli_grouped(events, grouped));
    }
}

static sp_status show_trace(exported *s, sp_error *err)
{
    warn_of_events(s);
    s->predecessors = sp_predecessors_new(s->view->timeline, s->view->costs);
    sp_status status = cli_write_file(s->exports->trace, write_trace, s, err);
    sp_predecessors_free(s->predecessors);
    return status;
}

static sp_status write_plot_data(FILE *file, const void *what, sp_error *err)
{
    const exported *s = what;
    sp_status status =
        sp_export_gnuplot(file, s->view->timeline, memory_of(s), &s->exports->window, err);
    if (status == SP_OK && memory_of(s) != NULL && s->exports->memory_limit_bytes > 0) {
        fprintf(file, "\n\n# index 3: limit of a rank's memory, GiB\n%.6f\n",
                sp_gib_from_bytes(s->exports->memory_limit_bytes));
    }
    return status;
}

static sp_status write_memory_snapshot(FILE *file, const void *what, sp_error *err)
{
    const exported *s = what;
    return sp_export_memory_snapshot(file, s->view->timeline, s->view->memory, s->rank, err);
}

// The rank whose peak is the largest.
static sp_status write_snapshot(exported *s, sp_error *err)
{
    const sp_memory_timeline *memory = memory_of(s);
    if (memory == NULL) {
        return sp_error_set(
            err, SP_ERR_USAGE, "--memory-snapshot: %s",
            s->exports->planner_memory
                ? "memory.model \"slimpipe-planner\" knows no tensors to show; \"tensors\" does"
                : "uniform costs have no memory to show");
    }
    for (size_t r = 1; r < memory->rank_count; r++) {
        if (sp_bytes_total(&memory->ranks[r].peak) > sp_bytes_total(&memory->ranks[s->rank].peak)) {
            s->rank = r;
        }
    }
    return cli_write_file(s->exports->snapshot, write_memory_snapshot, s, err);
}

static sp_status print_critical_path(const cli_exports *exports, const sp_step_view *view,
                                     sp_structure *structure, sp_error *err)
{
    sp_critical_step *steps = NULL;
    size_t count = 0;
    sp_status status = sp_structure_critical_path(structure, &steps, &count, err);
    if (status != SP_OK) {
        return status;
    }
    const size_t shown = cli_is_wide() ? CRITICAL_SHOWN : CRITICAL_LINES;
    int64_t busy_ns = 0;
    for (size_t i = 0; i < count; i++) {
        busy_ns += steps[i].end_ns - steps[i].start_ns;
    }
    fprintf(exports->text, "\ncritical path: %zu actions, %.3f ms of work, %.3f ms in transfers\n",
            count, sp_ms_from_ns(busy_ns),
            sp_ms_from_ns((count > 0 ? steps[count - 1].end_ns : 0) - busy_ns));
    for (size_t i = 0; i < count; i++) {
        if (i == shown / 2 && count > shown) {
            fprintf(exports->text, "  ... %zu more\n", count - shown);
            i = count - shown / 2;
        }
        char name[32];
        sp_action_name(steps[i].action, view->plan->layout.chunks, name);
        fprintf(exports->text, "  %12.3f ms  dp %d pp %d  %s\n", sp_ms_from_ns(steps[i].start_ns),
                steps[i].dp, steps[i].pp, name);
    }
    sp_free(steps);
    return SP_OK;
}

static sp_status write_graphml(FILE *file, const void *what, sp_error *err)
{
    const exported *s = what;
    return sp_structure_graphml(s->structure, file, err);
}

static sp_status show_structure(exported *s, sp_error *err)
{
    sp_status status =
        sp_structure_new(s->view->plan, s->view->costs, s->view->timeline, &s->structure, err);
    if (status == SP_OK && s->exports->critical_path) {
        status = print_critical_path(s->exports, s->view, s->structure, err);
    }
    if (status == SP_OK && s->exports->graphml != NULL) {
        status = cli_write_file(s->exports->graphml, write_graphml, s, err);
    }
    sp_structure_free(s->structure);
    return status;
}

static sp_status write_topology(FILE *file, const void *what, sp_error *err)
{
    const exported *s = what;
    return sp_export_topology(file, s->topology, s->link_bytes, s->view->timeline->iteration_ns,
                              err);
}

static sp_status show_topology(exported *s, sp_error *err)
{
    if (s->exports->network.cluster == NULL) {
        return sp_error_set(err, SP_ERR_USAGE, "--topology: uniform costs have no cluster to show");
    }
    sp_status status = sp_step_traffic(s->view->plan, s->view->costs, &s->exports->network,
                                       &s->topology, &s->link_bytes, err);
    if (status == SP_OK) {
        status = cli_write_file(s->exports->topology, write_topology, s, err);
    }
    sp_topology_free(s->topology);
    sp_free(s->link_bytes);
    return status;
}

// Colours take no place: their line is no wider than the screen.
static void put_row(FILE *out, const char *line)
{
    if (strchr(line, '\033') == NULL) {
        fprintf(out, "%s\n", line);
    } else {
        (fputs)(line, out);
        (fputc)('\n', out);
    }
}

// Without --wide the head, the first ranks and the legend.
static void print_short(FILE *out, char *text)
{
    int rows = -2; // lines but for the head and the legend
    int row = 0;
    for (const char *c = text; *c != '\0'; c++) {
        rows += *c == '\n';
    }
    for (char *end; (end = strchr(text, '\n')) != NULL; text = end + 1, row++) {
        *end = '\0';
        if (row <= TIMELINE_ROWS || row > rows) {
            put_row(out, text);
        } else if (row == rows) {
            fprintf(out, "... %d more rank%s with --wide\n", rows - TIMELINE_ROWS,
                    sp_plural(rows - TIMELINE_ROWS));
        }
    }
}

static sp_status print_timeline(const cli_exports *exports, const sp_step_view *view, sp_error *err)
{
    sp_text memory;
    sp_status status =
        sp_export_text(sp_text_begin(&memory), view->timeline, &exports->window,
                       cli_columns(exports->text), isatty(fileno(exports->text)) == 1, err);
    char *text = sp_text_end(&memory);
    fputc('\n', exports->text);
    if (cli_is_wide()) {
        fputs(text, exports->text);
    } else {
        print_short(exports->text, text);
    }
    fputc('\n', exports->text);
    sp_free(text);
    return status;
}

static sp_status observe_one(const cli_exports *exports, const sp_step_view *view, sp_error *err)
{
    exported s = {.exports = exports, .view = view};
    sp_status status = SP_OK;
    if (exports->window.from_ns > 0 && exports->window.from_ns >= view->timeline->iteration_ns) {
        sp_warnings_add(exports->warnings,
                        "--trace-window %s shows nothing: the step ends at %.3f ms",
                        exports->trace_window, sp_ms_from_ns(view->timeline->iteration_ns));
    }
    if (exports->timeline) {
        status = print_timeline(exports, view, err);
    }
    if (status == SP_OK && exports->trace != NULL) {
        status = show_trace(&s, err);
    }
    if (status == SP_OK && exports->plot != NULL) {
        status = cli_plot("timeline.gp", exports->plot, write_plot_data, &s, err);
    }
    if (status == SP_OK && exports->snapshot != NULL) {
        status = write_snapshot(&s, err);
    }
    if (status == SP_OK && exports->topology != NULL) {
        status = show_topology(&s, err);
    }
    if (status == SP_OK && (exports->graphml != NULL || exports->critical_path)) {
        status = show_structure(&s, err);
    }
    return status;
}

sp_status cli_exports_observe(void *context, const sp_step_view *view, sp_error *err)
{
    cli_exports *exports = context;
    sp_status status = SP_OK;
    if (exports->plan_file.file != NULL) {
        sp_plan_predictions predictions = {.lower_bound_ms = view->lower_bound_ms,
                                           .predicted_ms =
                                               sp_ms_from_ns(view->timeline->iteration_ns)};
        status = named(
            exports,
            sp_plan_json_batch(exports->plan_file.file, view->batch, view->plan, predictions, err),
            err);
    }
    if (status != SP_OK || view->batch != exports->batch) {
        return status;
    }
    return observe_one(exports, view, err);
}

// ---- simulating ----

typedef struct simulate_args {
    cli_common common;
    cli_list set;
    cli_exports exports;
    const char *lengths, *train_tokens;
    bool explain, verify;
    cli_list emit;
    int64_t jobs;
} simulate_args;

// A scenario, or a plan with the scenario it was made for.
typedef struct input {
    json_t *root;
    sp_scenario scenario;
    bool is_plan;
    sp_plan_file plans;
    sp_batches batches;
} input;

// A plan has been packed and scheduled: only what it is run on can still be changed.
static sp_status check_plan_overrides(const cli_list *set, const char *lengths, sp_error *err)
{
    static const char *const fixed[] = {"schedule", "strategy", "workload", "parallel"};
    if (lengths != NULL) {
        return sp_error_set(err, SP_ERR_USAGE,
                            "--lengths: the plan fixes workload; change the scenario and plan "
                            "anew");
    }
    for (int i = 0; i < set->count; i++) {
        size_t length = strcspn(set->items[i], ".=");
        for (size_t f = 0; f < sizeof fixed / sizeof fixed[0]; f++) {
            if (strlen(fixed[f]) == length && strncmp(fixed[f], set->items[i], length) == 0) {
                return sp_error_set(
                    err, SP_ERR_USAGE,
                    "--set %s: the plan fixes %s; change the scenario and plan anew", set->items[i],
                    fixed[f]);
            }
        }
    }
    return SP_OK;
}

static sp_status read_input(const char *path, const simulate_args *args, input *in, sp_error *err)
{
    sp_status status = cli_read_root(path, &in->root, err);
    if (status != SP_OK) {
        return status;
    }
    in->is_plan = sp_plan_json_is_plan(in->root);
    json_t *scenario = in->root;
    if (in->is_plan) {
        scenario = json_object_get(in->root, "scenario");
        if (scenario == NULL) {
            return sp_error_in(err, SP_ERR_CONTENT, path, "", "key 'scenario' is missing");
        }
        status = check_plan_overrides(&args->set, args->lengths, err);
        if (status != SP_OK) {
            return status;
        }
    }
    status = in->is_plan ? sp_scenario_place_paths(scenario, path, err)
                         : sp_scenario_place(scenario, path, err);
    if (status == SP_OK) {
        status = cli_change_document(scenario, &args->set, args->lengths, err);
    }
    if (status == SP_OK) {
        status = sp_scenario_from_json(scenario, path, NULL, 0, &in->scenario, err);
    }
    if (status != SP_OK) {
        return status;
    }
    if (in->is_plan) {
        status = sp_plan_json_read(in->root, path, &in->scenario.layout, &in->plans, err);
        if (args->set.count > 0) { // which the settings that were tried for it do not know
            json_decref(in->plans.settings);
            in->plans.settings = NULL;
        }
        return status;
    }
    status = sp_strategy_resolve(&in->scenario, false, err);
    return status == SP_OK ? cli_form_batches(args->common.quiet, &in->scenario, &in->batches, err)
                           : status;
}

static void input_fini(input *in)
{
    sp_batches_fini(&in->batches);
    sp_plan_file_fini(&in->plans);
    sp_scenario_fini(&in->scenario);
    json_decref(in->root);
}

static sp_status simulate(const simulate_args *args, input *in, FILE *text, sp_result *result,
                          sp_error *err)
{
    cli_exports exports = args->exports;
    exports.text = text;
    exports.scenario = in->scenario.resolved;
    exports.memory_limit_bytes = in->scenario.memory_limit_bytes;
    exports.planner_memory = in->scenario.memory_model != SP_MEMORY_TENSORS;
    exports.formed = in->is_plan ? &in->plans.formed : &in->batches;
    exports.result = result;
    sp_warnings shown = {.count = 0};
    exports.warnings = &shown;
    if (!in->scenario.uniform) {
        exports.network = sp_scenario_network(&in->scenario);
    }
    sp_evaluate_options evaluate = {
        .engine = {.memory_points = cli_exports_need_memory(&exports), .verify = args->verify},
        .allocator_peak = true,
        .threads = cli_threads(args->jobs),
        .observer = cli_exports_observe,
        .observer_context = &exports};
    int batches = in->is_plan ? in->plans.count : in->scenario.uniform ? 1 : in->batches.count;
    if (exports.planner_memory && (exports.trace != NULL || exports.plot != NULL)) {
        sp_warnings_add(&shown, "memory.model \"slimpipe-planner\" knows one figure alone: trace "
                                "and plot show no memory");
    }
    if (exports.batch >= batches) {
        return sp_error_set(err, SP_ERR_USAGE, "--batch %lld: the last of %d is %d",
                            (long long)exports.batch, batches, batches - 1);
    }
    sp_status status = cli_exports_begin(&exports, in->scenario.layout.pp, err);
    if (status == SP_OK) {
        status = in->is_plan ? sp_evaluate_plans(&in->scenario, &in->plans, &evaluate, result, err)
                             : sp_evaluate(&in->scenario, &in->batches, &evaluate, result, err);
    }
    sp_status closed = cli_exports_end(&exports, err);
    sp_warnings_add_all(&result->warnings, &shown, NULL);
    return status != SP_OK ? status : closed;
}

static int print(const simulate_args *args, const input *in, const sp_result *result,
                 double train_tokens)
{
    sp_error err = {0};
    bool quiet = args->common.quiet || args->common.json;
    if (args->common.json) {
        json_t *object = sp_result_json(result, true);
        if (cli_emit(&args->emit, &in->scenario, object, quiet, &err) != SP_OK) {
            json_decref(object);
            return cli_fail(&err);
        }
        if (args->explain) {
            sp_json_add(object, SP_JSON("scenario", json_incref(in->scenario.resolved)),
                        SP_JSON("derived", sp_scenario_derived(&in->scenario)));
        }
        json_t *training = cli_training_json(train_tokens, result);
        if (training != NULL) {
            sp_json_put(object, "training", training);
        }
        return cli_print_json(object);
    }
    if (cli_prints_tables_alone()) {
        json_t *training = cli_training_json(train_tokens, result);
        cli_print_figures(
            NULL, sp_json_add(sp_result_json(result, false), SP_JSON("training", training)));
    }
    bool other = args->exports.timeline || args->exports.critical_path;
    int ranks = result->layout.dp * result->layout.pp;
    cli_print_result(stdout, &in->scenario, result,
                     !other || ranks <= TIMELINE_ROWS || cli_is_wide());
    if (train_tokens > 0.0) {
        char training[CLI_TRAINING];
        puts(cli_training_text(train_tokens, result, training));
    }
    if (args->verify) {
        puts("verified against an independent longest path");
    }
    return cli_emit(&args->emit, &in->scenario, NULL, quiet, &err) == SP_OK ? 0 : cli_fail(&err);
}

static int run(const void *given, const cli_operands *operands)
{
    const simulate_args *args = given;
    int exit_status = 0;
    input in = {0};
    sp_result result = {0};
    sp_error err = {0};
    double train_tokens = 0.0;
    sp_status status = cli_emit_check(&args->emit, &err);
    if (status == SP_OK) {
        status = cli_read_train_tokens(args->train_tokens, &train_tokens, &err);
    }
    if (status == SP_OK) {
        status = read_input(operands->items[0], args, &in, &err);
    }
    if (status == SP_OK && args->explain && !args->common.json) {
        cli_print_json(json_incref(in.scenario.resolved));
        cli_print_json(sp_scenario_derived(&in.scenario));
        putchar('\n');
    }
    if (status == SP_OK) {
        // With --json standard output belongs to the result alone.
        status = simulate(args, &in, args->common.json ? stderr : stdout, &result, &err);
    }
    if (status == SP_OK) {
        cli_leave_place(result.oom_diagnosis);
        exit_status = print(args, &in, &result, train_tokens);
        cli_print_notes(args->common.quiet || args->common.json, &in.scenario, &result);
        exit_status = cli_answer(exit_status, !sp_result_is_oom(&result));
    } else {
        exit_status =
            cli_fail_json(args->common.json, "slimpack/result/1", sp_result_json_empty(), 0, &err);
    }
    sp_result_fini(&result);
    input_fini(&in);
    return exit_status;
}

// ---- the command ----

static const cli_option options[] = {
    CLI_SET_OPTION(simulate_args),
    CLI_LENGTHS_OPTION(simulate_args, "as the scenario says"),
    CLI_STEP_OPTIONS(simulate_args),
    CLI_TEXT_OPTION(CLI_OUTPUT, 0, "plan", "FILE", simulate_args, exports.plan,
                    "write the plan of all batches"),
    CLI_TEXT_OPTION(CLI_OUTPUT, 0, "memory-snapshot", "FILE", simulate_args, exports.snapshot,
                    "write the memory of the fullest rank for PyTorch's memory viewer"),
    CLI_TEXT_OPTION(CLI_OUTPUT, 0, "graphml", "FILE", simulate_args, exports.graphml,
                    "write the dependency graph, with durations and slack"),
    CLI_TEXT_OPTION(CLI_OUTPUT, 0, "topology", "FILE", simulate_args, exports.topology,
                    "draw the cluster as SVG, with the bytes of the step on its links, but tensor "
                    "parallelism's"),
    CLI_FLAG_OPTION("critical-path", simulate_args, exports.critical_path,
                    "print the actions that decide the makespan"),
    CLI_BATCH_OPTION(simulate_args, "trace, timeline, plot and graph"),
    CLI_FLAG_OPTION("explain", simulate_args, explain,
                    "print all settings as resolved, and what follows from them"),
    CLI_EMIT_OPTION(simulate_args, "the scenario as resolved"),
    CLI_FLAG_OPTION("verify", simulate_args, verify,
                    "check the result against an independent longest path"),
    CLI_TRAIN_TOKENS_OPTION(simulate_args),
    CLI_JOBS_OPTION(simulate_args),
    CLI_TABLE_OPTIONS(simulate_args),
    CLI_COMMON_OPTIONS(simulate_args),
    {0},
};

static const char *const examples[] = {
    "slimpack simulate experiments/demo.json --timeline",
    "slimpack simulate experiments/demo.json --set parallel.pp=4 --set nodes=8 --json",
    "slimpack simulate experiments/demo.json --plan plan.json && slimpack simulate plan.json",
    NULL,
};

const cli_command cli_cmd_simulate = {
    .name = "simulate",
    .summary = "predict time, bubbles and memory of a training step",
    CLI_TAKES("SCENARIO|PLAN", 1, 1),
    .description =
        "Packs the workload of a scenario, schedules it and simulates one training step per batch, "
        "or simulates the steps of a plan. Prints iteration time with the error of the profile on "
        "logged steps like this one (or why that is not known), bubble ratios, tokens/s/GPU, "
        "TFLOP/s/GPU and MFU (with all pairs of attention, as Megatron-LM counted before January "
        "2026, and with the causal pairs alone, as it counts since), and the memory of each "
        "pipeline rank. The margin is what the "
        "limit leaves of what PyTorch's allocator would reserve, whose blocks are counted, or of "
        "the peak where they cannot be; a step fits tightly where less than 3 % of the limit (of "
        "the peak: a tenth) is left. With which probability it runs, by logged steps that filled "
        "as much of their memory, is told where that is below 0.95.\n\nIn a trace a flow "
        "connects the actions of the critical "
        "path, and an action that waited for another rank tells for what (waited_for).\n\nThe exit "
        "status is 1 when a rank needs more memory than its limit; the result is printed all the "
        "same, with a warning that says which sample needs how much.",
    CLI_RUNS(run, simulate_args, options, examples),
};
