// Runs strategies: packs one batch by the function of a strategy, or plans all batches of a job and
// adds up their times.
#include <math.h>
#include <string.h>

#include "sim/base/alloc.h"
#include "sim/base/units.h"
#include "solver/choices/choices.h"
#include "solver/rows.h"
#include "solver/search.h"
#include "solver/strategy_list.h"

sp_status sp_strategy_pack(const sp_strategy *strategy, const sp_strategy_input *input,
                           sp_packing *packing, sp_error *err)
{
    static const sp_strategy_pack_function functions[] = {
#define X(text, function, ...) sp_i_pack_##function,
        SP_STRATEGY_LIST(X)
#undef X
    };
    size_t row = 0;
    while (strcmp(sp_strategy_names[row], strategy->name) != 0) {
        row++;
    }
    return functions[row](input, packing, err);
}

// ---- the first batch of a job ----

sp_layout sp_i_layout_in_chunks(const sp_scenario *scenario, int chunks, const int *layers)
{
    sp_layout layout = scenario->layout;
    layout.chunks = chunks;
    layout.placement = sp_schedule_placement(scenario->schedule.kind, chunks);
    layout.stage_layers = layers;
    return layout;
}

sp_status sp_i_trial_init(const sp_scenario *scenario, const sp_batches *batches, sp_i_trial *trial,
                          sp_error *err)
{
    trial->padded = sp_batch_view(&batches->batch[0], sp_strategy_padding(scenario));
    trial->input = (sp_strategy_input){.scenario = scenario,
                                       .batch = &trial->padded,
                                       .context = batches->context,
                                       .cost = &trial->cost};
    return sp_scenario_cost_model(scenario, &trial->cost, err);
}

// ---- a job ----

static bool has_plan(const sp_packflow_outcome *outcome)
{
    return outcome->makespan_ns < INT64_MAX;
}

static void add_step(sp_packflow_outcome *total, const sp_packflow_outcome *step)
{
    if (!has_plan(total) || !has_plan(step)) {
        *total = SP_PACKFLOW_WORST;
        return;
    }
    total->makespan_ns += step->makespan_ns;
    total->lacking_bytes = sp_larger(total->lacking_bytes, step->lacking_bytes);
    total->tight = total->tight || step->tight;
    total->overfull = total->overfull || step->overfull;
}

sp_status sp_i_trial_job_give_up(sp_i_trial_job *j, sp_status status, const sp_error *own,
                                 sp_error *err)
{
    j->total = SP_PACKFLOW_WORST;
    return sp_i_only_fatal(status, own, err);
}

// Do ranks, context- or data-parallel?
static bool shares_packs(const sp_layout *layout, const sp_pack_list *list)
{
    bool shares = layout->cp > 1;
    for (size_t k = 0; k < list->count && !shares; k++) {
        shares = list->packs[k].dp_count > 1;
    }
    return shares;
}

static sp_status measure_uneven(const sp_strategy_input *input, const sp_pack_list *list,
                                double *uneven, sp_error *err)
{
    const sp_layout *layout = &input->scenario->layout;
    const int64_t longest = sp_batch_longest(input->batch);
    double most_s = 0.0;
    double all_s = 0.0;
    sp_i_work work;
    if (shares_packs(layout, list)) {
        *uneven = 1.0;
        return SP_OK;
    }
    sp_status status = sp_i_work_measure(input->cost, sp_larger(longest, 1), &work, err);
    if (status != SP_OK) {
        return status;
    }
    double *rank_s = sp_calloc((size_t)layout->dp, sizeof *rank_s);
    for (size_t k = 0; k < list->count; k++) {
        const sp_pack *pack = &list->packs[k];
        double *of_rank = &rank_s[pack->dp_first];
        for (size_t i = pack->first_slice; i < pack->first_slice + pack->slice_count; i++) {
            *of_rank += sp_i_slice_work_s(&work, list->slices[i].begin, list->slices[i].tokens);
        }
        most_s = fmax(most_s, *of_rank);
    }
    for (int d = 0; d < layout->dp; d++) {
        all_s += rank_s[d];
    }
    sp_free(rank_s);
    *uneven = most_s > 0.0 ? fmax(*uneven, 1.0 - all_s / layout->dp / most_s) : *uneven;
    return SP_OK;
}

static sp_status run_batch(sp_i_trial_job *j, const sp_batch *batch, double deadline_s,
                           sp_error *err)
{
    const sp_strategy *strategy = sp_strategy_find(j->scenario.strategy.kind);
    const sp_batch padded = sp_batch_view(batch, sp_strategy_padding(&j->scenario));
    const sp_strategy_input input = {.scenario = &j->scenario,
                                     .batch = &padded,
                                     .context = j->context,
                                     .cost = &j->cost,
                                     .starts = &j->starts,
                                     .deadline_s = deadline_s};
    sp_packing packing;
    sp_packflow_outcome outcome;
    sp_status status = sp_strategy_pack(strategy, &input, &packing, err);
    if (status != SP_OK) {
        return status;
    }
    status = strategy->sliced
                 ? sp_step_judge_blocks(&input, &packing, &SP_PACKFLOW_WORST, &outcome, err)
                 : sp_step_judge_rows(&input, &packing, &outcome, err);
    if (status == SP_OK) {
        sp_step_costs none = {0};
        sp_i_group_starts_add(&j->starts, &packing, &none);
        add_step(&j->total, &outcome);
    }
    if (status == SP_OK && j->uneven < 1.0) {
        status = measure_uneven(&input, &packing.forward, &j->uneven, err);
    }
    sp_packing_fini(&packing);
    return status;
}

sp_status sp_i_trial_job_run_next(sp_i_trial_job *j, const sp_batch *batch, double deadline_s,
                                  sp_error *err)
{
    sp_error own;
    sp_batch joined = {0};
    sp_error_clear(&own);
    if (!has_plan(&j->total)) {
        return SP_OK;
    }
    if (sp_strategy_find(j->scenario.strategy.kind)->joins_documents) {
        sp_batch_concatenate(batch, j->context, j->scenario.strategy.attention_across, &joined);
        batch = &joined;
    }
    sp_status status = run_batch(j, batch, deadline_s, &own);
    sp_batch_fini(&joined);
    return status == SP_OK ? SP_OK : sp_i_trial_job_give_up(j, status, &own, err);
}

void sp_i_trial_job_fini(sp_i_trial_job *j)
{
    if (j->costed) {
        sp_cost_model_fini(&j->cost);
    }
    sp_i_group_starts_fini(&j->starts);
    sp_scenario_fini(&j->scenario);
}

void sp_i_trial_job_init(sp_i_trial_job *j, const sp_scenario *scenario, int64_t time_limit_ms)
{
    *j = (sp_i_trial_job){0};
    sp_scenario_copy_with(scenario, &(sp_scenario_changes){.time_limit_ms = time_limit_ms},
                          &j->scenario, NULL);
}

sp_status sp_i_trial_job_begin(sp_i_trial_job *j, sp_error *err)
{
    sp_i_group_starts_init(&j->starts, &j->scenario);
    sp_status status = sp_scenario_cost_model(&j->scenario, &j->cost, err);
    j->costed = status == SP_OK;
    return status;
}

sp_status sp_i_job_run(const sp_scenario *scenario, const sp_batches *batches, double deadline_s,
                       sp_packflow_outcome *total, double *uneven, sp_error *err)
{
    sp_i_trial_job j;
    sp_error own;
    sp_error_clear(&own);
    sp_i_trial_job_init(&j, scenario, 0);
    j.context = batches->context;
    sp_status status = sp_i_trial_job_begin(&j, &own);
    if (status != SP_OK) {
        status = sp_i_trial_job_give_up(&j, status, &own, err);
    }
    for (int b = 0; status == SP_OK && b < batches->count; b++) {
        double part_s = sp_i_deadline_part_s(deadline_s, 1.0 / (batches->count - b));
        status = sp_i_trial_job_run_next(&j, &batches->batch[b], part_s, err);
    }
    *total = j.total;
    if (uneven != NULL) {
        *uneven = j.uneven;
    }
    sp_i_trial_job_fini(&j);
    return status;
}

// ---- a job in another way ----

sp_status sp_i_job_copy(const sp_scenario *scenario, const sp_i_job_way *way, sp_scenario *with,
                        sp_error *err)
{
    const sp_layout layout = sp_i_layout_in_chunks(scenario, way->chunks, way->layers);
    const sp_scenario_changes changes = {.cp_overlap = way->overlap,
                                         .cut = way->chunks > 0 ? &layout : NULL,
                                         .time_limit_ms = way->time_limit_ms};
    return sp_scenario_copy_with(scenario, &changes, with, err);
}

sp_status sp_i_job_plan(const sp_scenario *scenario, const sp_i_job_way *way,
                        const sp_batches *batches, double deadline_s, sp_packflow_outcome *total,
                        double *uneven, sp_error *err)
{
    sp_error own;
    sp_scenario with;
    sp_error_clear(&own);
    *total = SP_PACKFLOW_WORST;
    sp_status status = sp_i_job_copy(scenario, way, &with, &own);
    if (status == SP_OK && way->choose != NULL) {
        status = way->choose(&with, &own);
    }
    if (status == SP_OK) {
        status = sp_i_job_run(&with, batches, deadline_s, total, uneven, &own);
    }
    sp_scenario_fini(&with);
    return sp_i_only_fatal(status, &own, err);
}
