#include "experiments/cli/cli.h"
#include "experiments/report/report.h"
#include "sim/base/json.h"

typedef struct report_args {
    cli_common common;
    const char *output;
    const char *sliders; // a scenario; NULL: none
    int64_t points, seconds, jobs;
    cli_list set;
} report_args;

static sp_status write_page(FILE *file, const void *what, sp_error *err)
{
    return report_page_write(file, what, err);
}

static int tell(const report_args *args, const report_page *page)
{
    char answer[REPORT_ANSWER];
    int64_t without_answer = 0;
    int64_t positions =
        page->sliders != NULL ? report_sliders_count(page->sliders, &without_answer) : 0;
    report_answer(page, answer);
    if (args->common.json) {
        json_t *json =
            sp_json_object(SP_JSON("schema", "slimpack/report/1"), SP_JSON("page", args->output),
                           SP_JSON("answer", answer), SP_JSON("documents", page->inputs->count),
                           SP_JSON("actions", page->action_count));
        if (page->sliders != NULL) {
            sp_json_add(json, SP_JSON("positions", positions),
                        SP_JSON("without_answer", without_answer));
        }
        return cli_print_json(json);
    }
    printf("%s\npage in %s\n", answer, args->output);
    if (page->sliders != NULL) {
        printf("sliders of %lld positions\n", (long long)positions);
    }
    if (without_answer > 0) {
        cli_warn(args->common.quiet,
                 "%lld positions of the sliders have no answer: --slider-points and "
                 "--slider-seconds bound how many are evaluated",
                 (long long)without_answer);
    }
    return 0;
}

static sp_status make_sliders(const report_args *args, report_sliders **sliders, sp_error *err)
{
    if (args->sliders == NULL) {
        return args->set.count == 0
                   ? SP_OK
                   : sp_error_set(err, SP_ERR_USAGE,
                                  "--set changes the scenario of --sliders, which is not given");
    }
    const report_slider_options options = {.path = args->sliders,
                                           .overrides = args->set.items,
                                           .override_count = args->set.count,
                                           .threads = cli_threads(args->jobs),
                                           .points = args->points,
                                           .seconds = (double)args->seconds,
                                           .quiet = args->common.quiet};
    return report_sliders_new(&options, sliders, err);
}

static int make_page(const report_args *args, const cli_operands *operands)
{
    sp_error err = {0};
    report_inputs inputs = {0};
    report_page page = {0};
    report_sliders *sliders = NULL;
    sp_status status = report_inputs_read(operands->items, operands->count, &inputs, &err);
    if (status == SP_OK) {
        status = make_sliders(args, &sliders, &err);
    }
    if (status == SP_OK) {
        status = report_page_init(&page, &inputs, sliders, &err);
    }
    if (status == SP_OK) {
        status = cli_write_file(args->output, write_page, &page, &err);
    }
    int exit_status = status == SP_OK ? tell(args, &page) : cli_fail(&err);
    report_page_fini(&page);
    report_inputs_fini(&inputs);
    report_sliders_free(sliders);
    return exit_status;
}

static int run(const void *given, const cli_operands *operands)
{
    const report_args *args = given;
    return args->output == NULL ? cli_usage_error(&cli_cmd_report, "'report' needs -o FILE")
                                : make_page(args, operands);
}

// ---- the command ----

static const cli_option options[] = {
    CLI_TEXT_OPTION(CLI_OUTPUT, 'o', "output", "FILE", report_args, output,
                    "where the page is written (HTML)"),
    CLI_TEXT_OPTION(CLI_FILE, 0, "sliders", "SCENARIO", report_args, sliders,
                    "add sliders around the scenario that was simulated: GPUs, context, tensor and "
                    "pipeline ranks, recomputation"),
    CLI_SET_OPTION(report_args),
    CLI_INT_OPTION("slider-points", "N", report_args, points, 1, REPORT_MOST_POINTS,
                   "positions of the sliders that are evaluated at most, the nearest first "
                   "(default 4000)"),
    CLI_INT_OPTION("slider-seconds", "S", report_args, seconds, 0, 86400,
                   "seconds after which no further one is (default 60)"),
    CLI_JOBS_OPTION(report_args),
    CLI_COMMON_OPTIONS(report_args),
    {0},
};

static const char *const examples[] = {
    "slimpack simulate experiments/demo.json --json --trace trace.json --plan plan.json > "
    "result.json && slimpack report result.json trace.json plan.json -o page.html",
    "slimpack compare experiments/demo.json --json > rows.json; slimpack report rows.json -o "
    "page.html",
    "slimpack simulate experiments/demo.json --json > result.json && slimpack report result.json "
    "--sliders experiments/demo.json -o page.html",
    "slimpack report results.jsonl -o page.html",
    NULL,
};

const cli_command cli_cmd_report = {
    .name = "report",
    .summary = "make an HTML page of results, to look at and to hand on",
    CLI_TAKES("RESULT...", 1, -1),
    .description =
        "Reads what other commands have written and makes one HTML page of it that needs nothing "
        "else: no network, no other file. The page begins with the answer (strategy, layout, time "
        "with its error, memory) and what to run next, and shows the settings, rows as a table, "
        "time against peak memory with the front, where the time goes, what fills the memory at "
        "its peak, what was predicted beside what was executed, a timeline and memory over time "
        "that zoom, and what is not modelled."
        "\n\nDocuments are what --json of simulate, compare, tune, sweep, run, validate, prefill "
        "and decode prints (of compare also with --memory-curve), the results file of a sweep, the "
        "trace as JSON that 'simulate --trace' and 'run --trace' write, the timeline of 'run -o', "
        "the file of 'measure', "
        "and the plan of 'simulate --plan', from which the page takes the samples of each pack. "
        "The first document that has an answer gives the page's."
        "\n\nWith --sliders the step is evaluated beforehand for every position of the sliders, "
        "as simulate does it, and the page shows those answers: what does not run or does not fit "
        "is said with its reason, and each position has the command that gives the same. --set is "
        "for the scenario, as the result was simulated.",
    CLI_RUNS(run, report_args, options, examples),
    .defaults = &(const report_args){.points = REPORT_POINTS, .seconds = REPORT_SECONDS},
};
