#include "experiments/cli/report.h"
#include "experiments/cli/sweep_report.h"
#include "experiments/sweep/run.h"

typedef struct merge_args {
    cli_common common;
    int64_t sample, seed;
    const char *output;
} merge_args;

static int print_answer(const merge_args *args, const sweep_summary *summary)
{
    int exit_status = 0;
    if (args->common.json) {
        exit_status = cli_print_json(cli_sweep_json(summary));
    } else {
        cli_print_sweep(summary, args->output);
    }
    return cli_answer(exit_status, summary->best_count > 0);
}

static int run(const void *given, const cli_operands *operands)
{
    const merge_args *args = given;
    sp_error err = {0};
    sweep_spec spec;
    sweep_summary summary;
    const sweep_choice_options choice = {.sample = args->sample, .seed = args->seed};
    if (args->output == NULL) {
        return cli_usage_error(&cli_cmd_merge, "'merge' needs -o FILE");
    }
    if (sweep_spec_read(operands->items[0], &spec, &err) != SP_OK) {
        return cli_fail(&err);
    }
    sp_status status = sweep_summary_begin(&summary, &spec, NULL, &err);
    if (status == SP_OK) {
        status = sweep_merge(&spec, &choice, (const char *const *)operands->items + 1,
                             operands->count - 1, args->output, &summary, &err);
    }
    int exit_status = status == SP_OK ? print_answer(args, &summary) : cli_fail(&err);
    sweep_summary_fini(&summary);
    sweep_spec_fini(&spec);
    return exit_status;
}

static const cli_option options[] = {
    CLI_TEXT_OPTION(CLI_KEPT, 'o', "output", "FILE", merge_args, output, "results file"),
    CLI_SAMPLE_OPTIONS(merge_args),
    CLI_COMMON_OPTIONS(merge_args),
    {0},
};

static const char *const examples[] = {
    "slimpack sweep experiments/sweep_layouts.json --shard 1/2 -o layouts-1.jsonl",
    "slimpack sweep experiments/sweep_layouts.json --shard 2/2 -o layouts-2.jsonl",
    "slimpack merge experiments/sweep_layouts.json layouts-1.jsonl layouts-2.jsonl -o "
    "layouts.jsonl",
    "mpirun -n 4 slimpack sweep experiments/sweep_layouts.json --shard auto -o layouts.jsonl",
    "slimpack merge experiments/sweep_layouts.json layouts-*-of-4.jsonl -o layouts.jsonl",
    NULL,
};

const cli_command cli_cmd_merge = {
    .name = "merge",
    .summary = "put the results files of a sweep's shards together",
    .operands = "SPEC FILE...",
    .min_operands = 2,
    .max_operands = -1,
    .description =
        "Makes one results file of those that 'slimpack sweep SPEC --shard I/N' (or auto) wrote, "
        "in any order, one for each of the N shards: the file that one sweep of all points would "
        "have written. Each line is compared with its point, so a missing, unfinished or foreign "
        "file is an error. --sample and --seed are those of the shards.",
    .examples = examples,
    .options = options,
    .args_bytes = sizeof(merge_args),
    .run = run,
};
