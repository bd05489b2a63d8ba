// parallel.stage_layers "auto": of several cuts the one that the strategy runs fastest.
#include <string.h>

#include "sim/base/alloc.h"
#include "sim/base/progress.h"
#include "solver/step/step.h"
#include "solver/strategies/cut_layers.h"
#include "solver/strategies/job_choice.h"
#include "solver/strategy_list.h"
#include "solver/time_limit.h"

enum { MOST_CUTS = 3 };

// Part of a time limit in which they are compared.
#define CHOOSING 0.6

typedef struct cut {
    int chunks;
    int *layers; // [pp * chunks]; NULL: equal shares; owned
} cut;

// By time: for rows in the order of the schedule, or for packs of about equal work.
static sp_status cut_by_time(const sp_scenario *scenario, bool rows, cut *made, sp_error *err)
{
    int vstages = sp_layout_vstages(&scenario->layout);
    *made = (cut){.chunks = scenario->layout.chunks,
                  .layers = sp_calloc((size_t)vstages, sizeof *made->layers)};
    return sp_i_cut_layers(scenario, rows, made->layers, err);
}

// As the layout is, which the strategy chose.
static cut cut_as_chosen(const sp_layout *layout)
{
    size_t bytes = (size_t)sp_layout_vstages(layout) * sizeof *layout->stage_layers;
    cut made = {.chunks = layout->chunks};
    if (layout->stage_layers != NULL) {
        made.layers = sp_malloc(bytes);
        memcpy(made.layers, layout->stage_layers, bytes);
    }
    return made;
}

// Equal shares first, where there are: of equal steps they are wanted. Tells the one to take where
// none runs.
static sp_status make_cuts(const sp_scenario *scenario, cut *cuts, int *count, int *usual,
                           sp_error *err)
{
    bool chooses = sp_strategy_find(scenario->strategy.kind)->choose_chunks != NULL;
    int chunks = chooses && !scenario->chunks_given ? 1 : scenario->layout.chunks;
    sp_status status = SP_OK;
    if (scenario->model.layers % (scenario->layout.pp * chunks) == 0) {
        cuts[(*count)++] = (cut){.chunks = chunks};
    }
    *usual = *count;
    if (chooses) {
        cuts[(*count)++] = cut_as_chosen(&scenario->layout);
    } else if (!sp_schedule_traits_of(scenario->schedule.kind).sliced) {
        status = cut_by_time(scenario, true, &cuts[(*count)++], err);
    }
    return status == SP_OK ? cut_by_time(scenario, false, &cuts[(*count)++], err) : status;
}

// The first batch of the workload in a cut, as it would be reported.
static sp_status judge(const sp_scenario *scenario, const sp_batches *batches, const cut *of,
                       double deadline_s, sp_packflow_outcome *outcome, sp_error *err)
{
    sp_error own;
    sp_scenario tried = *scenario;
    sp_error_clear(&own);
    *outcome = SP_PACKFLOW_WORST;
    tried.layout.chunks = of->chunks;
    tried.layout.stage_layers = of->layers;
    sp_status status = sp_scenario_resolve_layout(&tried, &own);
    if (status == SP_OK) {
        status = sp_i_job_run(&tried, batches, deadline_s, outcome, &own);
    }
    return sp_status_is_fatal(status) ? sp_error_set(err, status, "%s", own.message[0]) : SP_OK;
}

static sp_status find_fastest(const sp_scenario *scenario, const cut *cuts, int count,
                              double deadline_s, int *fastest, sp_error *err)
{
    sp_batches batches;
    sp_workload_spec first = scenario->workload;
    sp_packflow_outcome least = SP_PACKFLOW_WORST;
    first.batches = 1;
    sp_status status = sp_batches_make(&first, &batches, err);
    for (int i = 0; status == SP_OK && i < count && batches.count > 0; i++) {
        sp_packflow_outcome outcome;
        double part_s = sp_i_deadline_part_s(deadline_s, 1.0 / (count - i));
        status = judge(scenario, &batches, &cuts[i], part_s, &outcome, err);
        if (status == SP_OK && sp_packflow_is_better(&outcome, &least)) {
            least = outcome;
            *fastest = i;
        }
    }
    sp_batches_fini(&batches);
    return status;
}

sp_status sp_i_choose_cut(sp_scenario *scenario, sp_error *err)
{
    cut cuts[MOST_CUTS] = {0};
    int count = 0;
    int fastest = 0;
    const sp_strategy *strategy = sp_strategy_find(scenario->strategy.kind);
    if (strategy->choose_chunks != NULL && scenario->strategy.time_limit_ms > 0) {
        return SP_OK;
    }
    const double begun_s = sp_clock_s();
    const double left_s =
        sp_i_time_left_s(scenario->strategy.time_limit_ms, scenario->strategy.spent_s);
    const double deadline_s = left_s > 0.0 ? begun_s + CHOOSING * left_s : 0.0;
    sp_status status = make_cuts(scenario, cuts, &count, &fastest, err);
    if (status == SP_OK && count > 1) {
        status = find_fastest(scenario, cuts, count, deadline_s, &fastest, err);
    }
    scenario->strategy.spent_s += sp_clock_s() - begun_s;
    if (status == SP_OK) {
        sp_scenario_take_cut(scenario, cuts[fastest].chunks, cuts[fastest].layers);
        cuts[fastest].layers = NULL;
    }
    for (int i = 0; i < count; i++) {
        sp_free(cuts[i].layers);
    }
    return status == SP_OK ? sp_scenario_set_order(scenario, err) : status;
}
