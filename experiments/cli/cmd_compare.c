#include <string.h>

#include "experiments/cli/comparison.h"
#include "experiments/cli/memory_curve.h"
#include "experiments/cli/report.h"
#include "experiments/cli/run_report.h"
#include "solver/setting_uses.h"

static void list_strategies(FILE *out)
{
    static const char *const kinds[] = {"rows", "budgets", "search"};
    fputs("\nstrategies (rows of whole samples, packs up to a budget, packs by a search), and the\n"
          "settings of strategy.* that each reads:\n",
          out);
    for (int i = 0; sp_strategy_names[i] != NULL; i++) {
        const sp_strategy *strategy = sp_strategy_find(sp_strategy_names[i]);
        int used = fprintf(out, "  %-18s  %-7s  ", strategy->name, kinds[strategy->kind]);
        cli_print_wrapped(out, strategy->summary, used, used);
        if (strategy->options[0] != '\0') {
            fprintf(out, "%*s", used, "");
            cli_print_wrapped(out, strategy->options, used, used);
        }
    }
}

static sp_status show_memory_curve(const cli_compare_args *args, const char *path,
                                   cli_comparison *cmp, int *exit_status, sp_error *err)
{
    const char *names[CLI_MOST_COMPARED];
    json_t *curve = NULL;
    for (int i = 0; i < cmp->count; i++) {
        names[i] = cmp->rows[i].name;
    }
    sp_status status = cli_comparison_read(args, path, cmp, err);
    if (status == SP_OK) {
        status = cli_memory_curve(&cmp->scenario, &cmp->batches, names, cmp->count,
                                  cli_threads(args->jobs), &curve, err);
    }
    *exit_status = json_object_get(curve, "stopped") != NULL ? cli_exit_of_stop() : 0;
    if (status == SP_OK && args->common.json) {
        int printed = cli_print_json(curve);
        *exit_status = printed != 0 ? printed : *exit_status;
        return SP_OK;
    }
    if (status == SP_OK) {
        cli_print_headline(stdout, &cmp->scenario);
        cli_print_memory_curve(curve);
    }
    json_decref(curve);
    return status;
}

// A setting that one row reads is of use in the comparison.
static void keep_shared_warnings(cli_comparison *cmp)
{
    sp_warnings *warnings[CLI_MOST_COMPARED];
    int count = 0;
    for (int i = 0; i < cmp->count; i++) {
        if (cmp->rows[i].status == SP_OK) {
            warnings[count++] = &cmp->rows[i].result.warnings;
        }
    }
    sp_keep_unused_of_all(warnings, count);
}

static int run(const void *given, const cli_operands *operands)
{
    const cli_compare_args *args = given;
    int exit_status = 0;
    cli_comparison cmp = {0};
    sp_error err = {0};
    sp_status status = cli_comparison_choose(args, &cmp, &err);
    cli_catch_stop();
    if (status == SP_OK && args->memory_curve) {
        status = show_memory_curve(args, operands->items[0], &cmp, &exit_status, &err);
    } else if (status == SP_OK) {
        status = cli_comparison_evaluate(args, operands->items[0], &cmp, &err);
    }
    if (status == SP_OK && !args->memory_curve) {
        keep_shared_warnings(&cmp);
        if (args->common.json) {
            exit_status = cli_print_json(cli_comparison_json(&cmp));
        } else {
            cli_print_comparison(&cmp);
        }
        bool any = false;
        for (int i = 0; i < cmp.count; i++) {
            any = any || strcmp(cli_compared_status(&cmp.rows[i]), "ok") == 0;
        }
        cli_print_notes(args->common.quiet || args->common.json, &cmp.rows[0].result);
        for (int i = 1; i < cmp.count; i++) {
            if (cmp.rows[i].status == SP_OK && cmp.rows[i].reason[0] != '\0') {
                cli_warn(args->common.quiet || args->common.json, "%s: %s", cmp.rows[i].name,
                         cmp.rows[i].reason);
            }
        }
        exit_status =
            exit_status == 0 && cmp.stopped ? cli_exit_of_stop() : cli_answer(exit_status, any);
    } else if (status != SP_OK) {
        exit_status = cli_fail(&err);
    }
    cli_comparison_fini(&cmp);
    return exit_status;
}

// ---- the command ----

static const cli_option options[] = {
    CLI_SET_OPTION(cli_compare_args),
    {.kind = CLI_STRING,
     .name = "strategies",
     .value = "LIST",
     .at = offsetof(cli_compare_args, strategies),
     .help = "packing strategies to compare, the first is the baseline (default: all, over packed)",
     .names = sp_strategy_names},
    {.kind = CLI_STRING,
     .name = "schedules",
     .value = "LIST",
     .at = offsetof(cli_compare_args, schedules),
     .help = "pipeline schedules to compare instead, with the scenario's strategy",
     .names = sp_schedule_names},
    CLI_FLAG_OPTION("best-layout", cli_compare_args, best_layout,
                    "every strategy at its own best layout, schedule and recomputation on as many "
                    "GPUs"),
    CLI_FLAG_OPTION("memory-curve", cli_compare_args, memory_curve,
                    "the strategies with ever less memory, until none of them fits"),
    CLI_JOBS_OPTION(cli_compare_args),
    CLI_COMMON_OPTIONS(cli_compare_args),
    {0},
};

static const char *const examples[] = {
    "slimpack compare experiments/demo.json --strategies packed,sorted,ffd,bfd,lpfhp",
    "slimpack compare experiments/demo.json --set workload.context=65536 --json",
    "slimpack compare experiments/zoo.json --schedules 1f1b,zb-h1,zb-v,slimpipe",
    "slimpack compare experiments/demo.json --best-layout --set workload.batches=1",
    "slimpack compare experiments/demo.json --memory-curve --strategies slimpack,slimpack-zb",
    NULL,
};

const cli_command cli_cmd_compare = {
    .name = "compare",
    .summary = "compare packing strategies, or schedules, on the same batches",
    .operands = "SCENARIO",
    .min_operands = 1,
    .max_operands = 1,
    .description =
        "Evaluates a scenario with several packing strategies, all on the same batches, and "
        "prints a row for each: iteration time, speed-up over the first, tokens/s/GPU, "
        "TFLOP/s/GPU and MFU full (by Megatron's formula, with all pairs of attention), MFU "
        "causal (with the pairs that a causal mask keeps), bubble ratio, peak memory, imbalance "
        "over data-parallel ranks (busiest over mean), gap, micro-batches and solver time. The gap "
        "is that to the best bound proved for plans of the row's own kind (whole samples or "
        "slices, backward split or not, ranks merged or not) in its own schedule: another "
        "strategy may be faster than that."
        "\n\nWith --schedules it compares pipeline schedules: iteration time, both bubble ratios, "
        "and the activation units that the fullest and the last pipeline rank hold. A schedule "
        "that runs a given number of chunks per rank gets that number. A row that cannot be "
        "planned or simulated says why."
        "\n\nWith --best-layout every strategy is evaluated at all layouts of the scenario's GPUs "
        "(tensor parallelism inside a node, context parallelism up to 16, pipeline and data "
        "parallelism), with recomputation none, attention or full, the schedules 1f1b, "
        "interleaved, "
        "zb-h1 and zb-v unless it brings its own, and several budgets of tokens; layouts whose "
        "pure work alone takes longer than the fastest are left out. Around the six fastest all "
        "numbers of chunks, budgets in eighths between half and twice as many tokens, zb-h2 and "
        "v-half, numbers of slices with and without exchange of attention, and for strategies that "
        "neither bring nor choose one the exchange of keys and values in rings and in all-to-alls "
        "with rings are tried, too. Its row is the fastest that fits well by PyTorch's blocks, "
        "which are counted of every layout that would "
        "be the fastest, and where another one that fits tightly would be faster, a line below "
        "says so; beside it stands what the strategy takes in the scenario's own layout, so that "
        "the factor of the strategy and that of the layout are told apart. This may take minutes."
        "\n\nWith --memory-curve the strategies are evaluated with the scenario's memory, then "
        "with four fifths of that and so on, until none of them fits: the trade of time against "
        "memory. A plan for less memory that is faster or fits better stands for more memory, too, "
        "with a star "
        "(--json: the limit that it was made for), and a step that fits tightly is marked; blocks "
        "of PyTorch's allocator are counted within a tenth of the limit alone."
        "\n\nAbove the rows stands how far the profile was off on logged steps like these, or why "
        "that is not known. The margin is the memory limit less what PyTorch's allocator would "
        "reserve, whose blocks are counted of every row, as simulate counts them, or less the peak "
        "where they cannot be counted (simulate says why). A row with less than 3 % of the limit "
        "to spare, or a tenth where blocks are not counted, is marked tight and may run several "
        "times slower."
        "\n\nSpeed-ups are over the first of --strategies or --schedules, which is told where "
        "it runs out of memory. Without a list the first row is packed, as most software packs, or "
        "where "
        "that does not fit the first strategy that does and trains all tokens: no step that is "
        "padded to the context, or that cannot run."
        "\n\nCtrl-C ends a comparison with the rows that are known (exit status 130; with "
        "--best-layout also the best layout so far), a second one at once."
        "\n\nA row that runs out of memory is marked oom; a warning (with --json its reason) says "
        "which sample needs how much. The exit status is 1 when no row can be trained.",
    .examples = examples,
    .options = options,
    .list = list_strategies,
    .args_bytes = sizeof(cli_compare_args),
    .run = run,
};
