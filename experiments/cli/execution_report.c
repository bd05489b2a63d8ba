#include "experiments/cli/execution_report.h"

#include "experiments/cli/report.h"
#include "experiments/cli/run_report.h"
#include "experiments/execution/execution.h"
#include "sim/base/units.h"

// ---- what was executed ----

enum { STEPS_SHOWN = 32 };

static void print_how(FILE *out, const sp_execution *execution)
{
    const sp_execution_options *options = execution->options;
    fprintf(out, "executed by backend %s on %s: %s clock, %s, seed %llu, %d step%s a batch\n",
            sp_backend_name(options->backend), execution->device.name,
            sp_clock_names[options->clock], sp_precision_names[options->precision],
            (unsigned long long)options->seed, options->steps, options->steps == 1 ? "" : "s");
}

static void print_step(FILE *out, size_t batch, int step, const sp_executed_batch *of)
{
    const sp_executed_step *executed = &of->steps[step];
    fprintf(out, "  %5zu %6d %14.3f", batch, step, sp_ms_from_ns(executed->iteration_ns));
    if (executed->has_loss) {
        fprintf(out, " %12.6f", executed->loss);
    } else {
        fprintf(out, " %12s", "-");
    }
    fputs(of->step_count > 1 && step == of->shown ? "  shown\n" : "\n", out);
}

static void print_steps(FILE *out, const sp_execution *execution)
{
    int64_t listed = 0;
    int64_t more = 0;
    fputs("\n  batch   step   iteration ms         loss\n", out);
    for (size_t b = 0; b < execution->batch_count; b++) {
        const sp_executed_batch *batch = &execution->batches[b];
        for (int s = 0; s < batch->step_count; s++) {
            if (listed < STEPS_SHOWN) {
                print_step(out, b, s, batch);
                listed++;
            } else {
                more++;
            }
        }
    }
    if (more > 0) {
        fprintf(out, "  ... %lld more; --json lists all\n", (long long)more);
    }
}

void cli_print_execution(FILE *out, const sp_scenario *scenario, const sp_execution *execution)
{
    print_how(out, execution);
    cli_print_result(out, scenario, &execution->measured);
    print_steps(out, execution);
}

// ---- predicted beside measured ----

static void print_figures(FILE *out, const sp_execution *execution)
{
    const sp_result *predicted = &execution->predicted;
    const sp_result *measured = &execution->measured;
    const sp_execution_error error = sp_execution_compare(execution);
    char text[CLI_PERCENT];
    fputs("\n                          predicted       measured        error\n", out);
    fprintf(out, "  iteration ms       %14.3f %14.3f %12s\n", sp_result_iteration_ms(predicted),
            sp_result_iteration_ms(measured), cli_percent(error.iteration_time, "%+.2f %%", text));
    fprintf(out, "  bubble ratio       %14.4f %14.4f %+12.4f\n", sp_result_bubble_ratio(predicted),
            sp_result_bubble_ratio(measured), error.bubble_ratio);
    if (measured->parameters > 0) {
        double peak =
            sp_relative_error((double)predicted->peak_bytes, (double)measured->peak_bytes);
        fprintf(out, "  peak memory GiB    %14.4f %14.4f %12s\n",
                sp_gib_from_bytes(predicted->peak_bytes), sp_gib_from_bytes(measured->peak_bytes),
                cli_percent(peak, "%+.2f %%", text));
        fprintf(out, "  peak memory, mean absolute error over ranks %15.2f %%\n",
                100.0 * error.peak_memory_mape);
    }
}

static void print_both_ranks(FILE *out, const sp_execution *execution)
{
    const sp_result *predicted = &execution->predicted;
    const sp_result *measured = &execution->measured;
    int ranks = measured->layout.dp * measured->layout.pp;
    double batches = (double)measured->batch_count;
    bool memory = measured->parameters > 0;
    fprintf(out, "\n   dp   pp   busy ms: predicted       measured%s\n",
            memory ? "   peak MiB: predicted       measured" : "");
    for (int r = 0; r < ranks && r < CLI_RANKS_SHOWN; r++) {
        const sp_rank_metrics *left = &predicted->ranks[r];
        const sp_rank_metrics *right = &measured->ranks[r];
        fprintf(out, "  %3d  %3d %20.3f %14.3f", right->dp, right->pp,
                sp_ms_from_ns(left->busy_ns) / batches, sp_ms_from_ns(right->busy_ns) / batches);
        if (memory) {
            fprintf(out, " %21.3f %14.3f", 1024.0 * sp_gib_from_bytes(left->peak_bytes),
                    1024.0 * sp_gib_from_bytes(right->peak_bytes));
        }
        fputc('\n', out);
    }
    if (ranks > CLI_RANKS_SHOWN) {
        fprintf(out, "  ... %d more; --json lists all\n", ranks - CLI_RANKS_SHOWN);
    }
}

// Of one category, sums over ranks of the most that is held between actions.
static void print_category(FILE *out, const sp_execution *execution, int category)
{
    int ranks = execution->measured.layout.dp * execution->measured.layout.pp;
    int64_t predicted = 0;
    int64_t measured = 0;
    int differ = 0;
    for (int r = 0; r < ranks; r++) {
        const sp_held_memory *held = &execution->held[r];
        predicted += held->predicted.of[category];
        measured += held->measured.of[category];
        differ += held->predicted.of[category] != held->measured.of[category];
    }
    if (predicted == 0 && measured == 0) {
        return;
    }
    char left[CLI_GROUPED];
    char right[CLI_GROUPED];
    fprintf(out, "  %-14s %18s %18s   ", sp_memory_category_names[category],
            cli_grouped(predicted, left), cli_grouped(measured, right));
    if (differ == 0) {
        fputs("equal on every rank\n", out);
    } else {
        fprintf(out, "differs on %d of %d ranks\n", differ, ranks);
    }
}

void cli_print_validation(FILE *out, const sp_scenario *scenario, const sp_execution *execution)
{
    cli_print_headline(out, scenario);
    print_how(out, execution);
    print_figures(out, execution);
    print_both_ranks(out, execution);
    if (execution->held != NULL) {
        fputs("\n  held between actions, bytes of all ranks\n"
              "                          predicted           measured\n",
              out);
        for (int c = 0; c < SP_MEM_CATEGORIES; c++) {
            print_category(out, execution, c);
        }
    }
    fprintf(out, "\npredicted with profile %s (%s)%s%s\n",
            execution->predicted.profile[0] != '\0' ? execution->predicted.profile : "-",
            sp_level_names[execution->predicted.level],
            execution->measured.parameters > 0 ? ", stack " : "",
            execution->measured.parameters > 0 ? execution->stack.name : "");
}
