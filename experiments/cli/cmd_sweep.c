#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "experiments/cli/report.h"
#include "experiments/cli/sweep_report.h"
#include "experiments/sweep/point.h"
#include "experiments/sweep/run.h"
#include "sim/base/data_folder.h"
#include "sim/base/json.h"
#include "sim/base/launcher.h"
#include "sim/base/progress.h"

enum { FIRST_POINTS = 5 }; // that --dry-run shows

typedef struct sweep_args {
    cli_common common;
    int64_t jobs, top, sample, search, seed;
    const char *output, *by, *where, *pareto, *plot, *shard;
    bool resume, dry_run, csv;
    bool launched; // a launcher chooses the shard
} sweep_args;

_Static_assert((int)CLI_MOST_THREADS <= (int)SWEEP_MOST_THREADS, "threads");

// ---- what is asked ----

static sp_status summary_options(const sweep_args *args, sweep_summary_options *options,
                                 sp_error *err)
{
    *options = (sweep_summary_options){.top = args->top, .where = args->where};
    const char *unknown = NULL;
    char first[SP_ERROR_TEXT]; // of two figures
    if (args->by != NULL) {
        options->by_figure = true;
        unknown = sweep_figure_find(args->by, &options->by) ? NULL : args->by;
    }
    const char *pareto = args->pareto != NULL ? args->pareto
                         : args->plot != NULL ? "iteration_ms,peak_memory_gib"
                                              : NULL;
    if (pareto != NULL && unknown == NULL) {
        size_t length = strcspn(pareto, ",");
        options->front = true;
        if (pareto[length] != ',') {
            return sp_error_set(err, SP_ERR_USAGE,
                                "--pareto expects two figures with a comma, such as "
                                "iteration_ms,peak_memory_gib, got '%s'",
                                pareto);
        }
        snprintf(first, sizeof first, "%.*s", (int)length, pareto);
        const char *second = pareto + length + 1;
        unknown = !sweep_figure_find(first, &options->x)    ? first
                  : !sweep_figure_find(second, &options->y) ? second
                                                            : NULL;
    }
    if (unknown != NULL) {
        char hint[SP_NAME_HINT];
        return sp_error_set(err, SP_ERR_USAGE, "'%s' is not a figure of a sweep%s", unknown,
                            sp_name_hint(unknown, sweep_figure_names, SWEEP_FIGURE_COUNT, hint));
    }
    return args->plot != NULL ? cli_plot_check(args->plot, err) : SP_OK;
}

// "2/8"
static bool read_shard(const char *text, sweep_choice_options *choice)
{
    int used = 0;
    long long shard = 0;
    long long shards = 0;
    bool read = sscanf(text, "%6lld/%6lld%n", &shard, &shards, &used) == 2 && text[used] == '\0';
    choice->shard = shard;
    choice->shards = shards;
    return read && shard >= 1 && shard <= shards && shards <= SWEEP_MOST_SHARDS;
}

// Processes that a launcher started take a shard each, also without --shard: they would write one
// file otherwise.
static sp_status read_launcher(sweep_args *args, sweep_choice_options *choice, sp_error *err)
{
    bool asked = args->shard != NULL;
    sp_launcher_place place;
    sp_status status = sp_launcher_read(getenv, false, &place, err);
    if (status != SP_OK || (!asked && place.ranks == 1)) {
        return status;
    }
    if (place.variable == NULL) {
        return sp_error_set(err, SP_ERR_USAGE,
                            "--shard auto: no launcher started this process: %s are not set",
                            sp_launcher_variables);
    }
    choice->shard = place.rank + 1;
    choice->shards = place.ranks;
    if (args->jobs == 0 && place.local_ranks > 1) {
        // Ranks of one machine share its cores.
        args->jobs = cli_threads(0) / place.local_ranks;
        args->jobs = args->jobs > 0 ? args->jobs : 1;
    }
    if (!asked && place.rank == 0) {
        cli_warn(args->common.quiet || args->search > 0,
                 "%s says that %d processes share this sweep: each writes a file of its own, which "
                 "'slimpack merge' puts together (--shard auto)",
                 place.variable, place.ranks);
    }
    return SP_OK;
}

// The processes of a launcher have one command line: "layouts.jsonl" is "layouts-2-of-3.jsonl" of
// the second. A path that is NULL stays so.
static sp_status name_shard_file(const char **path, char named[SP_DATA_PATH],
                                 const sweep_choice_options *choice, sp_error *err)
{
    if (*path == NULL) {
        return SP_OK;
    }
    const char *slash = strrchr(*path, '/');
    const char *name = slash != NULL ? slash + 1 : *path;
    const char *dot = strrchr(name, '.');
    size_t stem = dot != NULL && dot > name ? (size_t)(dot - *path) : strlen(*path);
    int length = snprintf(named, SP_DATA_PATH, "%.*s-%lld-of-%lld%s", (int)stem, *path,
                          (long long)choice->shard, (long long)choice->shards, *path + stem);
    if (length >= SP_DATA_PATH) {
        return sp_error_system(err, *path, ENAMETOOLONG);
    }
    *path = named;
    return SP_OK;
}

// Where a launcher chooses the shard, its files get names of their own: in names[0] and names[1].
static sp_status choice_options(sweep_args *args, sweep_choice_options *choice,
                                char names[2][SP_DATA_PATH], sp_error *err)
{
    *choice =
        (sweep_choice_options){.sample = args->sample, .search = args->search, .seed = args->seed};
    bool launcher = args->shard == NULL || strcmp(args->shard, "auto") == 0;
    if (!launcher && !read_shard(args->shard, choice)) {
        return sp_error_set(err, SP_ERR_USAGE,
                            "--shard expects I/N, 1 to N, such as 2/8, or auto, got '%s'",
                            args->shard);
    }
    sp_status status = launcher ? read_launcher(args, choice, err) : SP_OK;
    if (status != SP_OK) {
        return status;
    }
    if (args->seed > 0 && args->sample == 0 && args->search == 0) {
        return sp_error_set(err, SP_ERR_USAGE, "--seed is for --sample and --search");
    }
    if (args->search > 0 && (args->sample > 0 || choice->shards > 0)) {
        return sp_error_set(err, SP_ERR_USAGE, "--search chooses its own points: no --%s with it%s",
                            args->sample > 0 ? "sample" : "shard",
                            args->sample == 0 && args->shard == NULL
                                ? ", which several processes of one launcher need"
                                : "");
    }
    args->launched = launcher && choice->shards > 0;
    if (args->launched) {
        status = name_shard_file(&args->output, names[0], choice, err);
        status = status == SP_OK ? name_shard_file(&args->plot, names[1], choice, err) : status;
    }
    return status;
}

// ---- --dry-run ----

static int print_points(const sweep_spec *spec, const sweep_choice *choice, json_t *first)
{
    char combinations[CLI_GROUPED];
    char kept[CLI_GROUPED];
    printf("%s combinations, %s points", cli_grouped(spec->combinations, combinations),
           cli_grouped(choice->in_grid, kept));
    if (choice->points < choice->in_grid) {
        printf(", %s to evaluate", cli_grouped(choice->points, kept));
    }
    putchar('\n');
    size_t shown = json_array_size(first);
    for (size_t i = 0; i < shown; i++) {
        char *text = sweep_point_text(json_array_get(first, i));
        printf("  %s\n", text != NULL ? text : "?");
        free(text);
    }
    if ((int64_t)shown < choice->points) {
        puts("  ...");
    }
    json_decref(first);
    return 0;
}

static sp_status first_points(const sweep_spec *spec, sweep_choice *choice, json_t *first,
                              sp_error *err)
{
    bool found = true;
    sp_status status = SP_OK;
    while (status == SP_OK && found && json_array_size(first) < FIRST_POINTS) {
        int64_t combination = 0;
        int64_t digit[SWEEP_AXES];
        status = sweep_choice_next(choice, &combination, &found, err);
        if (status == SP_OK && found) {
            sweep_spec_digits(spec, combination, digit);
            json_array_append_new(first, sweep_spec_point(spec, digit));
        }
    }
    return status;
}

static int dry_run(const sweep_args *args, const sweep_spec *spec,
                   const sweep_choice_options *options)
{
    sp_error err = {0};
    sweep_choice choice;
    json_t *first = json_array();
    sp_status status = sweep_choice_begin(&choice, spec, options, &err);
    if (status == SP_OK) {
        status = first_points(spec, &choice, first, &err);
    }
    int exit_status = 0;
    if (status != SP_OK) {
        json_decref(first);
        exit_status = cli_fail(&err);
    } else if (args->common.json) {
        exit_status = cli_print_json(json_pack(
            "{s:s, s:I, s:I, s:o}", "schema", "slimpack/sweep-points/1", "combinations",
            (json_int_t)spec->combinations, "points", (json_int_t)choice.points, "first", first));
    } else {
        exit_status = print_points(spec, &choice, first);
    }
    sweep_choice_end(&choice);
    return exit_status;
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

// Rows are printed as their lines come where all are asked for.
static void print_row(void *context, int64_t combination, const sweep_digest *digest, bool listed)
{
    const sweep_summary *summary = context;
    if (listed || summary->options.where == NULL) {
        cli_sweep_csv_row(stdout, summary->spec, combination, digest);
    }
}

static void print_chosen_rows(const sweep_args *args, const sweep_summary *summary)
{
    bool front = args->pareto != NULL;
    int64_t count = front ? summary->front_count : args->top > 0 ? summary->best_count : 0;
    const sweep_best *points = front ? summary->front : summary->best;
    for (int64_t i = 0; i < count; i++) {
        cli_sweep_csv_row(stdout, summary->spec, points[i].combination, &points[i].digest);
    }
}

static int print_answer(const sweep_args *args, const sweep_summary *summary)
{
    sp_error err = {0};
    int exit_status = 0;
    if (args->csv) {
        print_chosen_rows(args, summary);
    } else if (args->common.json) {
        exit_status = cli_print_json(cli_sweep_json(summary));
    } else {
        cli_print_sweep(summary, args->output);
    }
    // Where nothing is listed that is the answer.
    if (exit_status == 0 && args->plot != NULL && summary->best_count > 0 &&
        cli_sweep_plot(summary, args->output, args->plot, &err) != SP_OK) {
        exit_status = cli_fail(&err);
    }
    if (exit_status == 0 && summary->stopped) {
        cli_warn(args->common.quiet, "stopped by a signal; --resume goes on from here");
        return cli_exit_of_stop();
    }
    // Of a launcher's processes one that fails ends all; the answer is that of the merged file.
    return cli_answer(exit_status, args->launched || summary->best_count > 0);
}

static int sweep(const sweep_args *args, sweep_summary *summary, const sweep_choice_options *choice)
{
    sp_error err = {0};
    sweep_run_options how = {.threads = cli_threads(args->jobs),
                             .resume = args->resume,
                             .quiet = args->common.quiet,
                             .choice = *choice};
    if (args->csv) {
        cli_sweep_csv_head(stdout, summary->spec);
        bool every = args->top == 0 && args->pareto == NULL;
        summary->options.each = every ? print_row : NULL;
        summary->options.context = summary;
    }
    cli_catch_stop();
    double started_s = sp_clock_s();
    if (sweep_run(summary->spec, args->output, &how, summary, &err) != SP_OK) {
        return cli_fail(&err);
    }
    print_speed(args->common.quiet, summary->written - summary->resumed, sp_clock_s() - started_s);
    return print_answer(args, summary);
}

static int run_spec(const sweep_args *args, const sweep_spec *spec,
                    const sweep_summary_options *options, const sweep_choice_options *choice)
{
    sp_error err = {0};
    sweep_summary summary;
    if (args->dry_run) {
        return dry_run(args, spec, choice);
    }
    int exit_status = sweep_summary_begin(&summary, spec, options, &err) == SP_OK
                          ? sweep(args, &summary, choice)
                          : cli_fail(&err);
    sweep_summary_fini(&summary);
    return exit_status;
}

static int run(const void *given, const cli_operands *operands)
{
    sweep_args args = *(const sweep_args *)given;
    sp_error err = {0};
    sweep_spec spec;
    sweep_summary_options options;
    sweep_choice_options choice;
    char names[2][SP_DATA_PATH];
    if (args.output == NULL && !args.dry_run) {
        return cli_usage_error(&cli_cmd_sweep, "'sweep' needs -o FILE (or --dry-run)");
    }
    if (args.csv && args.common.json) {
        return cli_usage_error(&cli_cmd_sweep, "--csv and --json exclude each other");
    }
    if (summary_options(&args, &options, &err) != SP_OK ||
        choice_options(&args, &choice, names, &err) != SP_OK ||
        sweep_spec_read(operands->items[0], &spec, &err) != SP_OK) {
        return cli_fail(&err);
    }
    int exit_status = run_spec(&args, &spec, &options, &choice);
    sweep_spec_fini(&spec);
    return exit_status;
}

// ---- the command ----

static const cli_option options[] = {
    CLI_TEXT_OPTION(CLI_KEPT, 'o', "output", "FILE", sweep_args, output,
                    "results file, one JSON object per line in the order of the points"),
    CLI_FLAG_OPTION("resume", sweep_args, resume,
                    "go on with the results file of a sweep that was stopped; of a finished one "
                    "only the answer is printed again"),
    CLI_FLAG_OPTION("dry-run", sweep_args, dry_run,
                    "count the points and show the first ones, nothing else"),
    CLI_INT_OPTION("top", "N", sweep_args, top, 1, SWEEP_MOST_TOP,
                   "points that are listed of each workload and model of the grid (default 5)"),
    {.kind = CLI_STRING,
     .name = "by",
     .value = "FIGURE",
     .at = offsetof(sweep_args, by),
     .names = sweep_figure_names,
     .help = "list the points with the best of a figure, such as peak_memory_gib"},
    CLI_TEXT_OPTION(CLI_STRING, 0, "where", "CONDITION", sweep_args, where,
                    "list points for which a condition on settings and figures holds, such as "
                    "\"tp <= 4 && peak_memory_gib < 60\"; all are evaluated"),
    {.kind = CLI_STRING,
     .name = "pareto",
     .value = "X,Y",
     .at = offsetof(sweep_args, pareto),
     .names = sweep_figure_names,
     .help = "list the Pareto front of two figures, too"},
    CLI_FLAG_OPTION("csv", sweep_args, csv,
                    "print CSV on standard output in place of the summary: every point, or those "
                    "of --where, --top or --pareto"),
    CLI_TEXT_OPTION(CLI_KEPT, 0, "plot", "FILE", sweep_args, plot,
                    "draw the points and the Pareto front (default iteration_ms,peak_memory_gib) "
                    "with gnuplot (.png or .svg), or keep the data for that (.dat)"),
    CLI_SAMPLE_OPTIONS(sweep_args),
    CLI_INT_OPTION("search", "N", sweep_args, search, 1, 1000000,
                   "evaluate N points that a search looks for along the Pareto front (default "
                   "tokens_per_s,peak_memory_gib)"),
    CLI_TEXT_OPTION(CLI_STRING, 0, "shard", "I/N|auto", sweep_args, shard,
                    "evaluate every Nth point from number I on, into a file of its own; 'slimpack "
                    "merge' puts the files together. auto: I and N are what mpirun or srun says"),
    CLI_JOBS_OPTION(sweep_args),
    CLI_COMMON_OPTIONS(sweep_args),
    {0},
};

static const char *const examples[] = {
    "slimpack sweep experiments/sweep_layouts.json --dry-run",
    "slimpack sweep experiments/sweep_layouts.json -o layouts.jsonl",
    "slimpack sweep experiments/sweep_layouts.json -o layouts.jsonl --resume --csv --top 100",
    "mpirun -n 4 slimpack sweep experiments/sweep_layouts.json -o layouts.jsonl --shard auto",
    "slimpack sweep experiments/sweep_layouts.json -o few.jsonl --search 500 --plot front.png",
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
        "condition that chooses among the combinations (\"tp*pp*dp == 512 && zero != 3\"). A path "
        "may lead into a model, cluster or stack that the base has as a name "
        "(\"cluster.nics_per_node\"), as with --set."
        "\n\nEach point becomes a line of the results file: its settings, a status (ok; oom, it "
        "needs more memory than there is; infeasible, strategy or schedule cannot; invalid, the "
        "settings make no scenario), the reason, its degrees (tp, cp, pp, dp), also those that the "
        "grid does not name, and figures of the result; 'slimpack simulate' "
        "tells all of one point. The reason of a point out of memory names the sample that needs "
        "the most alone, or the bytes of the plan, but no settings that would fit: those are "
        "mostly other points, and trying them takes simulate up to 19 steps. left_out_share and "
        "cut_share are the tokens that the strategy leaves out, or trains without the beginning of "
        "their document, over_length_share those that workload.over_length drops or truncates "
        "before batches are formed; the list of the fastest says them behind the row. The order of "
        "the lines is that of the points, the last setting "
        "turning fastest, whatever the number of threads. The file is kept whole through a kill, "
        "and --resume goes on with it; after Ctrl-C what is known is listed as well (exit status "
        "130). A line that was changed is refused."
        "\n\nAt the end the fastest points that fit are listed, by tokens trained a second, each "
        "with the median error of its "
        "profile on logged steps like it. TFLOP/s/GPU and MFU full are by Megatron's formula, "
        "with all pairs of attention, MFU causal counts those that a causal mask keeps. Points "
        "that fit tightly come last, whatever they are listed by: such steps ran several times "
        "slower "
        "than predicted. They are "
        "those whose peak is within a tenth of the memory limit and for which PyTorch's allocator, "
        "whose blocks are counted then, would reserve more than 97 % of it. memory_margin_gib is "
        "the limit less what it would reserve (peak_memory_reserved_gib) where blocks are counted, "
        "else less the peak; simulate counts them of every step. Where no point fits well, a line "
        "says so, with the margin "
        "of the first."
        "\n\nWhere the grid changes model or workload (workload.context, say), "
        "steps do not do the same work: the fastest points "
        "and the front are those of each workload and model. A condition may write numbers of "
        "tokens as settings do (\"context > 8K\")."
        "\n\nA grid may have more combinations than could ever be evaluated: --sample draws some, "
        "and --search begins with a sample and goes on with points near its Pareto front."
        "\n\nWith --shard auto the processes that a launcher starts on any number of machines "
        "share a sweep: I and N are the rank and the count in the environment, the first that is "
        "set of OMPI_COMM_WORLD_RANK and OMPI_COMM_WORLD_SIZE (Open MPI), PMI_RANK and PMI_SIZE "
        "(MPICH, PMI), SLURM_PROCID and SLURM_NTASKS (srun). Of -o layouts.jsonl the second of "
        "three writes layouts-2-of-3.jsonl, and 'slimpack merge SPEC layouts-*-of-3.jsonl -o "
        "layouts.jsonl' puts all together; --resume goes on with each. The exit status of such a "
        "shard is 0 also where none of its points is ok: mpirun ends all processes where one "
        "fails. auto is assumed where a launcher started several processes. -j is the number of "
        "threads of each (default: the cores of its machine over the processes there; on large "
        "machines also give mpirun --bind-to none)."
        "\n\nThe exit status is 1 when no point is ok, or none that is has what --where asks.",
    .examples = examples,
    .options = options,
    .args_bytes = sizeof(sweep_args),
    .run = run,
};
