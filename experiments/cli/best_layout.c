// The layout that serves a strategy best.
#include <jansson.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "experiments/cli/cli.h"
#include "sim/base/json.h"
#include "sim/base/parallel.h"

// Notes the fastest layout where it is faster than the best, which has the least time for its risk.
static void note_risky(const sweep_layouts *layouts, cli_best *b)
{
    const sweep_trial *best = &layouts->ranked[0]->trial;
    const sweep_trial *fastest = best;
    for (int64_t i = 0; i < layouts->ranked_count; i++) {
        const sweep_trial *d = &layouts->ranked[i]->trial;
        fastest = sweep_whole_ms(d) < sweep_whole_ms(fastest) ? d : fastest;
    }
    if (fastest != best) {
        b->risky_ms = fastest->figure[SWEEP_ITERATION_MS];
        b->risky_margin_gib = fastest->figure[SWEEP_MEMORY_MARGIN_GIB];
        b->risky_probability = fastest->figure[SWEEP_FIT_PROBABILITY];
        b->risky_is_tight = fastest->fits == SP_FITS_TIGHT;
        snprintf(b->risky_layout, sizeof b->risky_layout, "tp %d, cp %d, pp %d, dp %d, %s",
                 fastest->degree[0], fastest->degree[1], fastest->degree[2], fastest->degree[3],
                 fastest->schedule);
    }
}

// Evaluates the best layout.
static sp_status evaluate(const cli_best_question *q, const sweep_layouts *layouts, cli_best *b,
                          sp_result *result, sp_error *err)
{
    const sp_evaluate_options options = {.allocator_peak = true, .threads = q->threads};
    sp_scenario scenario;
    json_t *document = sweep_layouts_document(layouts, layouts->ranked[0]);
    sp_status status =
        sp_scenario_from_json(document, q->scenario->source, NULL, 0, &scenario, err);
    json_decref(document);
    if (status != SP_OK) {
        return status;
    }
    status = sp_evaluate(&scenario, q->batches, &options, result, err);
    if (status == SP_OK) {
        cli_layout_text(result, &scenario, b->layout);
        b->document = json_incref(scenario.resolved);
    }
    sp_scenario_fini(&scenario);
    return status;
}

sp_status cli_best_layout(const cli_best_question *q, cli_best *b, sp_result *result, sp_error *err)
{
    const sweep_layouts_options options = {.strategies = &q->strategy,
                                           .strategy_count = 1,
                                           .within_stack = q->within_stack,
                                           .strategies_stated = true,
                                           .threads = q->threads,
                                           .quiet = q->quiet};
    sweep_layouts layouts;
    sp_status status = sweep_layouts_find(q->root, q->scenario, &options, &layouts, err);
    memcpy(b->of_status, layouts.of_status, sizeof b->of_status);
    b->left_out = layouts.left_out;
    b->risky_ms = (double)NAN;
    if (status == SP_OK && layouts.ranked_count == 0 && layouts.stopped) {
        status = sp_error_set(err, SP_ERR_STOPPED, "no layout that fits was found before the stop");
    } else if (status == SP_OK && layouts.ranked_count == 0) {
        status = sp_error_set(err, SP_ERR_INFEASIBLE, "no layout fits: %s", layouts.reason);
    }
    if (status == SP_OK && !layouts.stopped) {
        status = sweep_layouts_refine(&options, q->scenario->source, &layouts, err);
    }
    b->stopped = layouts.stopped || status == SP_ERR_STOPPED || sp_stop_requested();
    if (status == SP_ERR_STOPPED && layouts.ranked_count > 0) {
        sp_error_clear(err);
        status = SP_OK;
    }
    // The best so far is evaluated all the same, whatever the time.
    if (status == SP_OK) {
        sp_stop_forget();
        note_risky(&layouts, b);
        status = evaluate(q, &layouts, b, result, err);
    }
    sweep_layouts_fini(&layouts);
    return status;
}

void cli_best_add_json(const cli_best *b, json_t *object)
{
    json_t *layouts = cli_statuses_json(b->of_status);
    sp_json_put(layouts, "left_out", json_integer(b->left_out));
    sp_json_add(object, SP_JSON("layouts", layouts),
                SP_JSON("layout", sp_json_text_or_null(b->layout)));
    sp_json_add(object, SP_JSON("stated_layout_ms", b->stated_ms),
                SP_JSON("tight_layout", sp_json_text_or_null(b->risky_layout)),
                SP_JSON("tight_layout_ms", b->risky_ms));
}

// Settings of a layout that a result does not say, where the scenario there has them.
static const char *const stated[][2] = {
    {"schedule", "slices"},
    {"schedule", "group"},
    {"schedule", "exchange"},
    {"schedule", "retained_chunks"},
    {"schedule", "microbatch_samples"},
    {"memory", "recompute"},
    {"stack", "cp_overlap"},
    {"strategy", "rank_tokens"},
    {"strategy", "chunk_tokens"},
};

enum { STATED = sizeof stated / sizeof stated[0] };

void cli_best_add_columns(char *columns, size_t size)
{
    sp_append(columns, size, "|1 tp|1 cp|1 pp|1 dp|1 ep|1 etp|1 zero|1 schedule|1 chunks_per_rank");
    for (int s = 0; s < STATED; s++) {
        sp_append(columns, size, "|1 %s", stated[s][1]);
    }
    sp_append(columns, size, "|1 @row_tokens");
}

void cli_best_cells(const cli_best *b, const sp_result *result, cli_table *table)
{
    const sp_layout *layout = &result->layout;
    const int degrees[] = {layout->tp,  layout->cp,           layout->pp,
                           layout->dp,  sp_layout_ep(layout), sp_layout_etp(layout),
                           layout->zero};
    for (size_t d = 0; d < sizeof degrees / sizeof degrees[0]; d++) {
        cli_count_cell(table, degrees[d]);
    }
    cli_text_cell(table, result->schedule);
    cli_count_cell(table, layout->chunks);
    for (int s = 0; s < STATED; s++) {
        const json_t *group = json_object_get(b->document, stated[s][0]);
        const json_t *value = json_object_get(group, stated[s][1]);
        char *text = json_is_string(value) ? NULL : sweep_point_text(value);
        cli_text_cell(table, value == NULL           ? ""
                             : json_is_string(value) ? json_string_value(value)
                                                     : text);
        free(text);
    }
    cli_figure_cells(table, cli_figure_of_result, result);
}

void cli_best_print_risky(const cli_best *b, const char *strategy)
{
    char risk[CLI_RISK];
    if (!isfinite(b->risky_ms)) {
        return;
    }
    cli_memory_risk(b->risky_probability, b->risky_margin_gib, risk);
    printf("%s: %.1f ms left out: %s (margin %.2f GiB by what PyTorch reserves); %s\n", strategy,
           b->risky_ms, b->risky_is_tight ? cli_tight_text(b->risky_margin_gib) : risk,
           b->risky_margin_gib, b->risky_layout);
}

sp_status cli_best_emit(const cli_best *b, const cli_list *emit, const char *source, json_t *answer,
                        bool quiet, sp_error *err)
{
    sp_scenario scenario = {0};
    json_t *document = json_deep_copy(b->document);
    sp_status status = sp_scenario_from_json(document, source, NULL, 0, &scenario, err);
    if (status == SP_OK) {
        status = cli_emit(emit, &scenario, answer, quiet, err);
    }
    sp_scenario_fini(&scenario);
    json_decref(document);
    return status;
}
