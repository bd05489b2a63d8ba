#include <math.h>
#include <signal.h>
#include <stdlib.h>
#include <unistd.h>

#include "experiments/cli/report.h"
#include "experiments/cli/run_report.h"
#include "experiments/sweep/run.h"
#include "sim/base/json.h"
#include "sim/base/progress.h"

enum {
    FIRST_POINTS = 5,     // that --dry-run shows
    REASON_SHOWN = 200,   // characters
    EXIT_BY_SIGNAL = 128, // plus the signal's number, as a shell reports it
};

typedef struct sweep_args {
    cli_common common;
    int64_t jobs;
    const char *output;
    bool resume, dry_run;
} sweep_args;

_Static_assert((int)CLI_MOST_THREADS <= (int)SWEEP_MOST_THREADS, "threads");

static volatile sig_atomic_t stop_signal;

// The second signal ends the program at once.
static void on_stop(int signal_number)
{
    stop_signal = signal_number;
}

// What the parent ignores, as a shell does for a job in the background, stays ignored.
static void catch_signal(int signal_number)
{
    struct sigaction action = {.sa_handler = on_stop, .sa_flags = (int)SA_RESETHAND};
    struct sigaction before;
    sigemptyset(&action.sa_mask);
    if (sigaction(signal_number, NULL, &before) == 0 && before.sa_handler != SIG_IGN) {
        sigaction(signal_number, &action, NULL);
    }
}

// ---- --dry-run ----

static int print_points(const sweep_spec *spec, int64_t points, json_t *first)
{
    char combinations[CLI_GROUPED];
    char kept[CLI_GROUPED];
    printf("%s combinations, %s points\n", cli_grouped(spec->combinations, combinations),
           cli_grouped(points, kept));
    size_t shown = json_array_size(first);
    for (size_t i = 0; i < shown; i++) {
        char *text = sweep_point_text(json_array_get(first, i));
        printf("  %s\n", text != NULL ? text : "?");
        free(text);
    }
    if ((int64_t)shown < points) {
        puts("  ...");
    }
    json_decref(first);
    return 0;
}

static int dry_run(const sweep_args *args, const sweep_spec *spec)
{
    sp_error err = {0};
    sweep_cursor cursor;
    int64_t points = 0;
    bool found = true;
    sp_status status = sweep_spec_count(spec, &points, &err);
    json_t *first = json_array();
    sweep_cursor_begin(&cursor, spec);
    while (status == SP_OK && found && json_array_size(first) < FIRST_POINTS) {
        status = sweep_cursor_next(&cursor, &found, &err);
        if (status == SP_OK && found &&
            json_array_append_new(first, sweep_spec_point(spec, cursor.digit)) != 0) {
            status = sp_error_no_memory(&err, "a point");
        }
    }
    if (status != SP_OK) {
        json_decref(first);
        return cli_fail(&err);
    }
    return args->common.json
               ? cli_print_json(json_pack(
                     "{s:s, s:I, s:I, s:o}", "schema", "slimpack/sweep-points/1", "combinations",
                     (json_int_t)spec->combinations, "points", (json_int_t)points, "first", first))
               : print_points(spec, points, first);
}

// ---- the summary ----

static json_t *best_point(const sweep_spec *spec, const sweep_best *best)
{
    int64_t digit[SWEEP_AXES];
    sweep_spec_digits(spec, best->combination, digit);
    return sweep_spec_point(spec, digit);
}

static json_t *best_json(const sweep_spec *spec, const sweep_best *best)
{
    const sweep_digest *digest = &best->digest;
    const char *fits = digest->fits != SP_FITS_NONE ? sp_fits_names[digest->fits] : NULL;
    const char *not_validated = digest->not_validated[0] != '\0' ? digest->not_validated : NULL;
    return json_pack("{s:o, s:o, s:o, s:o, s:o, s:o, s:o, s:o, s:o, s:s?, s:o, s:s?}", "point",
                     best_point(spec, best), "iteration_ms", sp_json_figure(digest->iteration_ms),
                     "tokens_per_s", sp_json_figure(digest->tokens_per_s), "tokens_per_gpu_s",
                     sp_json_figure(digest->tokens_per_gpu_s), "tflops_per_gpu",
                     sp_json_figure(digest->tflops_per_gpu), "mfu_full_attention",
                     sp_json_figure(digest->mfu_full_attention), "mfu", sp_json_figure(digest->mfu),
                     "peak_memory_gib", sp_json_figure(digest->peak_memory_gib),
                     "memory_margin_gib", sp_json_figure(digest->memory_margin_gib), "fits", fits,
                     "median_error", sp_json_figure(digest->median_error), "not_validated",
                     not_validated);
}

static json_t *summary_json(const sweep_spec *spec, const sweep_summary *summary)
{
    json_t *statuses = json_object();
    json_t *best = json_array();
    for (int s = 0; s < SWEEP_STATUSES; s++) {
        sp_json_put(statuses, sweep_status_names[s], json_integer(summary->of_status[s]));
    }
    for (int i = 0; i < summary->best_count; i++) {
        json_array_append_new(best, best_json(spec, &summary->best[i]));
    }
    return json_pack("{s:s, s:I, s:I, s:I, s:I, s:o, s:o}", "schema", "slimpack/sweep-summary/1",
                     "combinations", (json_int_t)spec->combinations, "points",
                     (json_int_t)summary->points, "resumed", (json_int_t)summary->resumed,
                     "written", (json_int_t)summary->written, "status", statuses, "best", best);
}

// Points that fit tightly are ranked last, so where the first is one, all are.
static void print_tight_pick(const sweep_digest *first)
{
    if (first->fits == SP_FITS_TIGHT) {
        int column = printf("no point fits well: ");
        char text[160];
        snprintf(text, sizeof text,
                 "the first fits TIGHTLY, with a margin of %.2f GiB; tight steps may run several "
                 "times slower than predicted",
                 first->memory_margin_gib);
        cli_print_wrapped(stdout, text, column, 2);
    }
}

// The reason of the fastest point that has no error.
static void print_not_validated(const sweep_summary *summary)
{
    for (int i = 0; i < summary->best_count; i++) {
        const sweep_digest *digest = &summary->best[i].digest;
        if (!isfinite(digest->median_error) && isfinite(digest->tokens_per_s)) {
            int column = printf("times not validated: ");
            cli_print_wrapped(stdout, digest->not_validated, column, 2);
            return;
        }
    }
}

static void print_best_row(const sweep_digest *digest, const char *point)
{
    char tokens[CLI_SHORT_NUMBER];
    printf("%14.1f", digest->iteration_ms);
    if (isfinite(digest->median_error)) {
        printf(" %6.1f %%", 100.0 * digest->median_error);
    } else {
        printf(" %8s", "-");
    }
    printf(" %12s", cli_short_number(digest->tokens_per_gpu_s, tokens));
    printf(" %10s", cli_short_number(digest->tokens_per_s, tokens));
    if (isfinite(digest->mfu)) {
        printf(" %11.1f %7.2f %% %8.2f %% %9.2f %9.2f %5s", digest->tflops_per_gpu,
               100.0 * digest->mfu_full_attention, 100.0 * digest->mfu, digest->peak_memory_gib,
               digest->memory_margin_gib,
               digest->fits == SP_FITS_NONE ? "-" : sp_fits_names[digest->fits]);
    } else {
        printf(" %11s %9s %10s %9s %9s %5s", "-", "-", "-", "-", "-", "-");
    }
    printf("  %s\n", point);
}

static void print_best(const sweep_spec *spec, const sweep_summary *summary)
{
    if (summary->best_count == 0) {
        return;
    }
    printf("\n%14s %8s %12s %10s %11s %9s %10s %9s %9s %5s  %s\n", "iteration ms", "error",
           "tokens/s/GPU", "tokens/s", "TFLOP/s/GPU", "MFU full", "MFU causal", "peak GiB",
           "margin", "fits", "fastest points that fit");
    for (int i = 0; i < summary->best_count; i++) {
        json_t *point = best_point(spec, &summary->best[i]);
        char *text = point != NULL ? sweep_point_text(point) : NULL;
        print_best_row(&summary->best[i].digest, text != NULL ? text : "?");
        free(text);
        json_decref(point);
    }
    print_tight_pick(&summary->best[0].digest);
    print_not_validated(summary);
}

static void print_summary(const sweep_spec *spec, const sweep_summary *summary, const char *output)
{
    char number[CLI_GROUPED];
    printf("%s points", cli_grouped(summary->written, number));
    if (summary->written < summary->points) {
        printf(" of %s", cli_grouped(summary->points, number));
    }
    printf(" in %s", output);
    if (summary->resumed > 0) {
        printf(", %s from before", cli_grouped(summary->resumed, number));
    }
    putchar('\n');
    for (int s = 0; s < SWEEP_STATUSES; s++) {
        if (summary->of_status[s] == 0) {
            continue;
        }
        printf("  %-10s %10s", sweep_status_names[s], cli_grouped(summary->of_status[s], number));
        if (summary->reason[s][0] != '\0') {
            printf("  first: %.*s", (int)REASON_SHOWN, summary->reason[s]);
        }
        putchar('\n');
    }
    print_best(spec, summary);
}

// ---- the run ----

// Speed, which no two runs have in common, goes to standard error.
static void print_speed(bool quiet, int64_t points, double seconds)
{
    if (!quiet && isatty(STDERR_FILENO) == 1 && seconds > 0.0) {
        fprintf(stderr, "%lld points in %.1f s (%.0f/s)\n", (long long)points, seconds,
                (double)points / seconds);
    }
}

static int sweep(const sweep_args *args, const sweep_spec *spec)
{
    sp_error err = {0};
    sweep_summary summary;
    sweep_run_options how = {.threads = cli_threads(args->jobs),
                             .resume = args->resume,
                             .quiet = args->common.quiet,
                             .stop = &stop_signal};
    catch_signal(SIGINT);
    catch_signal(SIGTERM);
    double started_s = sp_clock_s();
    sp_status status = sweep_run(spec, args->output, &how, &summary, &err);
    if (status != SP_OK) {
        return cli_fail(&err);
    }
    print_speed(args->common.quiet, summary.written - summary.resumed, sp_clock_s() - started_s);
    int exit_status = 0;
    if (args->common.json) {
        exit_status = cli_print_json(summary_json(spec, &summary));
    } else {
        print_summary(spec, &summary, args->output);
    }
    if (exit_status == 0 && summary.stopped) {
        cli_warn(args->common.quiet, "stopped by a signal; --resume goes on from here");
        return EXIT_BY_SIGNAL + (int)stop_signal;
    }
    return cli_answer(exit_status, summary.of_status[SWEEP_OK] > 0);
}

static int run(const void *given, const cli_operands *operands)
{
    const sweep_args *args = given;
    if (args->output == NULL && !args->dry_run) {
        return cli_usage_error(&cli_cmd_sweep, "'sweep' needs -o FILE (or --dry-run)");
    }
    sp_error err = {0};
    sweep_spec spec;
    if (sweep_spec_read(operands->items[0], &spec, &err) != SP_OK) {
        return cli_fail(&err);
    }
    int exit_status = args->dry_run ? dry_run(args, &spec) : sweep(args, &spec);
    sweep_spec_fini(&spec);
    return exit_status;
}

// ---- the command ----

static const cli_option options[] = {
    CLI_TEXT_OPTION(CLI_FILE, 'o', "output", "FILE", sweep_args, output,
                    "results file, one JSON object per line in the order of the points"),
    CLI_FLAG_OPTION("resume", sweep_args, resume,
                    "go on with the results file of a sweep that was stopped"),
    CLI_FLAG_OPTION("dry-run", sweep_args, dry_run,
                    "count the points and show the first ones, nothing else"),
    CLI_JOBS_OPTION(sweep_args),
    CLI_COMMON_OPTIONS(sweep_args),
    {0},
};

static const char *const examples[] = {
    "slimpack sweep experiments/sweep_layouts.json --dry-run",
    "slimpack sweep experiments/sweep_layouts.json -o layouts.jsonl",
    "slimpack sweep experiments/sweep_layouts.json -o layouts.jsonl --resume",
    NULL,
};

const cli_command cli_cmd_sweep = {
    .name = "sweep",
    .summary = "evaluate every combination of a grid of settings",
    .operands = "SPEC",
    .min_operands = 1,
    .max_operands = 1,
    .description =
        "Evaluates a base scenario at every point of a grid, such as all layouts of a model on a "
        "cluster. SPEC is a JSON object: \"base\" is a scenario, \"grid\" names settings by their "
        "dotted path (\"parallel.tp\") and gives each an array of values, \"where\" is a "
        "condition that chooses among the combinations (\"tp*pp*dp == 512 && zero != 3\")."
        "\n\nEach point becomes a line of the results file: its settings, a status (ok; oom, it "
        "needs more memory than there is; infeasible, strategy or schedule cannot; invalid, the "
        "settings make no scenario), the reason, and the keys of a result. The order of the lines "
        "is that of the points, the last setting turning fastest, whatever the number of threads. "
        "The file is kept whole through a kill, and --resume goes on with it."
        "\n\nAt the end the fastest points that fit are listed, each with the median error of its "
        "profile on logged steps like it. TFLOP/s/GPU and MFU full are by Megatron's formula, "
        "with all pairs of attention, MFU causal counts those that a causal mask keeps. Points "
        "that fit tightly, within a tenth of the memory limit, come last: such steps ran several "
        "times slower than predicted. Where no point fits well, a line says so, with the margin "
        "of the first."
        "\n\nThe exit status is 1 when no point is ok.",
    .examples = examples,
    .options = options,
    .args_bytes = sizeof(sweep_args),
    .run = run,
};
