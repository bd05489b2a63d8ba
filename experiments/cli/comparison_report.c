// The rows of a comparison for people and for programs.
#include <math.h>
#include <string.h>

#include "experiments/cli/comparison.h"
#include "experiments/cli/report.h"
#include "sim/base/units.h"
#include "sim/base/writer.h"

// Baseline time over this row's, where samples were left out for as many tokens; NAN where one of
// the two is missing.
static double speedup(const cli_comparison *cmp, const cli_compared *r)
{
    const cli_compared *base = &cmp->rows[0];
    if (base->status != SP_OK || r->status != SP_OK) {
        return (double)NAN;
    }
    return base->result.lossless && r->result.lossless
               ? sp_result_iteration_ms(&base->result) / sp_result_iteration_ms(&r->result)
               : sp_result_tokens_per_s(&r->result) / sp_result_tokens_per_s(&base->result);
}

static json_t *row_json(const cli_comparison *cmp, const cli_compared *r)
{
    json_t *object = r->status == SP_OK ? sp_result_json(&r->result, true) : sp_result_json_empty();
    double factor = speedup(cmp, r);
    if (object != NULL) {
        sp_json_put(object, cmp->of_schedules ? "schedule" : "strategy", json_string(r->name));
        sp_json_put(object, "status", json_string(cli_compared_status(r)));
        sp_json_put(object, "reason", sp_json_text_or_null(r->reason));
        sp_json_put(object, "speedup", sp_json_figure(factor));
        if (!cmp->of_schedules) {
            bool lossless = r->status == SP_OK ? r->result.lossless
                                               : sp_strategy_is_lossless(sp_strategy_find(r->name),
                                                                         &cmp->scenario.strategy);
            sp_json_put(object, "lossless", json_boolean(lossless));
        }
        if (cmp->root != NULL) {
            json_t *layouts = json_object();
            for (int s = 0; s < SWEEP_STATUSES; s++) {
                sp_json_put(layouts, sweep_status_names[s], json_integer(r->of_status[s]));
            }
            sp_json_put(layouts, "left_out", json_integer(r->left_out));
            sp_json_put(object, "layouts", layouts);
            sp_json_put(object, "layout", sp_json_text_or_null(r->layout));
            if (r->stopped) {
                sp_json_put(object, "stopped", json_true());
            }
            sp_json_put(object, "stated_layout_ms", sp_json_figure(r->stated_ms));
            sp_json_put(object, "tight_layout", sp_json_text_or_null(r->tight_layout));
            sp_json_put(object, "tight_layout_ms", sp_json_figure(r->tight_ms));
        }
    }
    return object;
}

json_t *cli_comparison_json(const cli_comparison *cmp)
{
    json_t *rows = json_array();
    for (int i = 0; i < cmp->count; i++) {
        json_array_append_new(rows, row_json(cmp, &cmp->rows[i]));
    }
    bool oom = cmp->rows[0].status == SP_OK && sp_result_is_oom(&cmp->rows[0].result);
    return json_pack("{s:s, s:s, s:b, s:o, s:o*}", "schema", "slimpack/comparison/1", "baseline",
                     cmp->rows[0].name, "baseline_oom", (int)oom, "rows", rows, "stopped",
                     cmp->stopped ? json_true() : NULL);
}

enum { FACTOR = 32, STATUS = CLI_LOSS + 16 };

// "1.25x"; "-" where the baseline has no time.
static const char *factor_text(double factor, char text[FACTOR])
{
    snprintf(text, FACTOR, isfinite(factor) ? "%.2fx" : "-", factor);
    return text;
}

// The state of the memory and what the strategy loses: "tight, 12.3 % of tokens left out".
static const char *status_text(const sp_result *result, char text[STATUS])
{
    char lost[CLI_LOSS];
    const cli_loss loss = {.left_out = sp_result_left_out_share(result),
                           .cut = sp_result_cut_share(result),
                           .lossy = !result->lossless};
    cli_loss_text(loss, lost);
    snprintf(text, STATUS, "%s%s%s", cli_memory_word(result), lost[0] != '\0' ? ", " : "", lost);
    return text;
}

static void print_row(const cli_comparison *cmp, const cli_compared *r)
{
    const sp_result *result = &r->result;
    double n = (double)result->batch_count;
    double solver_ms = 0.0;
    for (size_t b = 0; b < result->batch_count; b++) {
        solver_ms += result->batches[b].facts.solver_ms;
    }
    char tokens[CLI_SHORT_NUMBER];
    char factor[FACTOR];
    char status[STATUS];
    printf("%-12s %14.1f %9s %12s %11.1f %7.2f %% %8.2f %% %8.2f %% %9.2f %9.2f %9.3f %8.1f %% "
           "%8.1f %9.2f  %s\n",
           r->name, sp_result_iteration_ms(result), factor_text(speedup(cmp, r), factor),
           cli_short_number(sp_result_tokens_per_gpu_s(result), tokens),
           sp_result_tflops_per_gpu(result, SP_FLOPS_MEGATRON),
           100.0 * sp_result_mfu(result, SP_FLOPS_MEGATRON),
           100.0 * sp_result_mfu(result, SP_FLOPS_CAUSAL), 100.0 * sp_result_bubble_ratio(result),
           sp_gib_from_bytes(result->peak_bytes), sp_gib_from_bytes(sp_result_margin_bytes(result)),
           sp_result_dp_max_over_mean(result), 100.0 * sp_result_gap(result),
           sp_result_microbatches(result), solver_ms / n, status_text(result, status));
}

// Its speed-up is between best layouts, its gain that of its best layout over the scenario's.
static void print_best_row(const cli_comparison *cmp, const cli_compared *r)
{
    char factor[FACTOR];
    char stated[FACTOR] = "-";
    char layout[FACTOR];
    char status[STATUS];
    const sp_result *result = &r->result;
    double ms = sp_result_iteration_ms(result);
    if (isfinite(r->stated_ms)) {
        snprintf(stated, sizeof stated, "%.1f", r->stated_ms);
    }
    printf("%-18s %12.1f %8s %12s %8s %7.2f %% %7.2f %% %9.2f %9.2f  %s; %s%s\n", r->name, ms,
           factor_text(speedup(cmp, r), factor), stated, factor_text(r->stated_ms / ms, layout),
           100.0 * sp_result_mfu(result, SP_FLOPS_MEGATRON), 100.0 * sp_result_bubble_ratio(result),
           sp_gib_from_bytes(result->peak_bytes), sp_gib_from_bytes(sp_result_margin_bytes(result)),
           status_text(result, status), r->layout, r->stopped ? "; search stopped" : "");
    if (isfinite(r->tight_ms)) {
        printf("%18s %12.1f ms left out: fits tightly (margin %.2f GiB by what PyTorch reserves); "
               "%s\n",
               "", r->tight_ms, r->tight_margin_gib, r->tight_layout);
    }
}

static void print_schedule_row(const cli_comparison *cmp, const cli_compared *r)
{
    const sp_result *result = &r->result;
    size_t ranks = (size_t)result->layout.dp * (size_t)result->layout.pp;
    double most = 0.0;
    for (size_t i = 0; i < ranks; i++) {
        most = result->ranks[i].units_peak > most ? result->ranks[i].units_peak : most;
    }
    char factor[FACTOR];
    printf("%-12s %14.3f %9s %8.2f %% %11.2f %% %9.4g %9.4g", r->name,
           sp_result_iteration_ms(result), factor_text(speedup(cmp, r), factor),
           100.0 * sp_result_bubble_ratio(result),
           100.0 * sp_result_bubble_ratio_longest_stage(result), most,
           result->ranks[ranks - 1].units_peak);
    if (result->parameters > 0) {
        printf(" %9.2f %9.2f  %s\n", sp_gib_from_bytes(result->peak_bytes),
               sp_gib_from_bytes(sp_result_margin_bytes(result)), cli_memory_word(result));
    } else {
        printf(" %9s %9s  %s\n", "-", "-", cli_memory_word(result));
    }
}

// Does any row wait where there is no pipeline that could have a bubble?
static bool waits(const cli_comparison *cmp)
{
    for (int i = 0; i < cmp->count; i++) {
        if (cmp->rows[i].status == SP_OK && cli_waits_for_peers(&cmp->rows[i].result)) {
            return true;
        }
    }
    return false;
}

// With one layout for all rows.
static const char *idle_name(const cli_comparison *cmp)
{
    return waits(cmp) ? "waiting" : "bubble";
}

static void print_rows(const cli_comparison *cmp, int width,
                       void (*print)(const cli_comparison *cmp, const cli_compared *r))
{
    for (int i = 0; i < cmp->count; i++) {
        const cli_compared *r = &cmp->rows[i];
        if (r->status == SP_OK) {
            print(cmp, r);
        } else {
            printf("%-*s %s: %s\n", width, r->name, cli_compared_status(r), r->reason);
        }
    }
    if (waits(cmp)) {
        printf("%s: there is no pipeline, data-parallel ranks wait for those with more work\n",
               cmp->root != NULL ? "bubble with pp 1" : "waiting");
    }
}

// Names the baseline, where no list says it or it cannot run.
static void print_baseline(const cli_comparison *cmp)
{
    const cli_compared *base = &cmp->rows[0];
    if (base->status == SP_OK && sp_result_is_oom(&base->result)) {
        printf("speed-up: over %s, which runs out of memory: %s\n", base->name,
               cmp->listed ? "another one first in the list makes a baseline that can run"
                           : "no strategy fits");
    } else if (base->status == SP_OK && !cmp->listed) {
        printf("speed-up: over %s (--strategies: over the first of the list)\n", base->name);
    }
    if (cmp->stopped) {
        puts("stopped by a signal: rows are what was known by then");
    }
}

// Is what is told of one row's error told of the other's, too? Of rows without a known error one
// reason is enough.
static bool shares_error(const cli_compared *row, const cli_compared *other)
{
    char text[2][CLI_STEP_ERROR];
    if (row->status != SP_OK || other->status != SP_OK) {
        return false;
    }
    bool known = row->result.step_error.known;
    return known == other->result.step_error.known &&
           (!known || strcmp(cli_step_error(&row->result.step_error, text[0]),
                             cli_step_error(&other->result.step_error, text[1])) == 0);
}

// Once for all rows, or by kinds of them: they may differ in schedule, stack and bubble.
static void print_error_of_times(const cli_comparison *cmp)
{
    char text[CLI_STEP_ERROR];
    char rows[CLI_STEP_ERROR];
    int answers = 0;
    for (int i = 0; i < cmp->count; i++) {
        answers += cmp->rows[i].status == SP_OK;
    }
    for (int i = 0; i < cmp->count; i++) {
        const cli_compared *row = &cmp->rows[i];
        int alike = 0;
        bool told = row->status != SP_OK;
        rows[0] = '\0';
        for (int k = 0; k < cmp->count; k++) {
            if (shares_error(&cmp->rows[k], row)) {
                told = told || k < i;
                sp_append(rows, sizeof rows, "%s%s", alike++ > 0 ? ", " : "of ", cmp->rows[k].name);
            }
        }
        if (told) {
            continue;
        }
        int column = printf("times ");
        if (alike < answers) {
            cli_print_wrapped(stdout, rows, column, column);
            printf("%*s", column, "");
        }
        cli_print_wrapped(stdout, cli_step_error(&row->result.step_error, text), column, column);
    }
    putchar('\n');
}

static void print_schedules(const cli_comparison *cmp)
{
    printf("pp %d, dp %d; a unit is one chunk's activations of one micro-batch or slice\n",
           cmp->scenario.layout.pp, cmp->scenario.layout.dp);
    if (cmp->scenario.uniform) {
        putchar('\n');
    } else {
        print_error_of_times(cmp);
    }
    printf("%-12s %14s %9s %10s %13s %9s %9s %9s %9s  %s\n", "schedule", "iteration ms", "speed-up",
           idle_name(cmp), "longest stage", "units", "last rank", "peak GiB", "margin", "status");
    print_rows(cmp, 12, print_schedule_row);
    print_baseline(cmp);
}

static void print_table(const cli_comparison *cmp)
{
    char tokens[CLI_SHORT_NUMBER];
    char over[CLI_LOSS];
    char profile[CLI_PROFILE];
    double sum = 0.0;
    for (int b = 0; b < cmp->batches.count; b++) {
        sum += (double)cmp->batches.batch[b].total_tokens;
    }
    cli_print_headline(stdout, &cmp->scenario);
    cli_loss_text((cli_loss){.over_length = sp_batches_over_length_share(&cmp->batches)}, over);
    printf("%d batch%s, %s tokens each (mean)%s%s, context %lld, seed %llu, profile %s\n",
           cmp->batches.count, cmp->batches.count == 1 ? "" : "es",
           cli_short_number(sum / cmp->batches.count, tokens), over[0] != '\0' ? ", " : "", over,
           (long long)cmp->batches.context, (unsigned long long)cmp->scenario.workload.seed,
           cli_profile_text(&cmp->scenario, sp_profile_level(&cmp->scenario.profile), profile));
    print_error_of_times(cmp);
    if (cmp->root != NULL) {
        printf("%-18s %12s %8s %12s %8s %9s %9s %9s %9s  %s\n", "strategy", "iteration ms",
               "speed-up", "scenario ms", "gain", "MFU full", "bubble", "peak GiB", "margin",
               "status; best layout");
        print_rows(cmp, 18, print_best_row);
        print_baseline(cmp);
        return;
    }
    printf("%-12s %14s %9s %12s %11s %9s %10s %10s %9s %9s %9s %10s %8s %9s  %s\n", "strategy",
           "iteration ms", "speed-up", "tokens/s/GPU", "TFLOP/s/GPU", "MFU full", "MFU causal",
           idle_name(cmp), "peak GiB", "margin", "imbalance", "gap", "packs", "solver ms",
           "status");
    print_rows(cmp, 12, print_row);
    print_baseline(cmp);
    puts("gap: to the best bound proved for plans of the row's kind in its schedule; another "
         "strategy may be faster");
}

void cli_print_comparison(const cli_comparison *cmp)
{
    if (cmp->of_schedules) {
        print_schedules(cmp);
    } else {
        print_table(cmp);
    }
}
