#include "experiments/cli/cli.h"
#include "experiments/report/report.h"
#include "sim/base/json.h"

typedef struct report_args {
    cli_common common;
    const char *output;
} report_args;

static sp_status write_page(FILE *file, const void *what, sp_error *err)
{
    return report_page_write(file, what, err);
}

static int tell(const report_args *args, const report_page *page)
{
    char answer[REPORT_ANSWER];
    report_answer(page, answer);
    if (args->common.json) {
        return cli_print_json(
            sp_json_object(SP_JSON("schema", "slimpack/report/1"), SP_JSON("page", args->output),
                           SP_JSON("answer", answer), SP_JSON("documents", page->inputs->count),
                           SP_JSON("actions", page->action_count)));
    }
    printf("%s\npage in %s\n", answer, args->output);
    return 0;
}

static int make_page(const report_args *args, const cli_operands *operands)
{
    sp_error err = {0};
    report_inputs inputs = {0};
    report_page page = {0};
    sp_status status = report_inputs_read(operands->items, operands->count, &inputs, &err);
    if (status == SP_OK) {
        status = report_page_init(&page, &inputs, &err);
    }
    if (status == SP_OK) {
        status = cli_write_file(args->output, write_page, &page, &err);
    }
    int exit_status = status == SP_OK ? tell(args, &page) : cli_fail(&err);
    report_page_fini(&page);
    report_inputs_fini(&inputs);
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
    CLI_COMMON_OPTIONS(report_args),
    {0},
};

static const char *const examples[] = {
    "slimpack simulate experiments/demo.json --json --trace trace.json --plan plan.json > "
    "result.json && slimpack report result.json trace.json plan.json -o page.html",
    "slimpack compare experiments/demo.json --json > rows.json; slimpack report rows.json -o "
    "page.html",
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
        "with its error, memory) and shows rows as a table, time against peak memory with the "
        "front, where the time goes, what fills the memory at its peak, what was predicted beside "
        "what was executed, a timeline and memory over time that zoom, and what is not modelled."
        "\n\nDocuments are what --json of simulate, compare, tune, sweep, run, validate, prefill "
        "and decode prints (of compare also with --memory-curve), the results file of a sweep, the "
        "trace as JSON that 'simulate --trace' and 'run --trace' write, the timeline of 'run -o', "
        "and the plan of 'simulate --plan', from which the page takes the samples of each pack. "
        "The first document that has an answer gives the page's.",
    CLI_RUNS(run, report_args, options, examples),
};
