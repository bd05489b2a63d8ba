#include "solver/evaluate/evaluate.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "sim/base/alloc.h"
#include "sim/base/order.h"
#include "sim/base/parallel.h"
#include "sim/base/progress.h"
#include "sim/base/units.h"
#include "solver/evaluate/evaluation.h"
#include "solver/search.h"

// Part of a batch's time limit in which its packs are searched for; the rest is for the last trial
// before it ends, and for writing the packs and their order down.
#define SEARCHING 0.8

static void warn_of_order(sp_i_evaluation *ev);
static sp_status resolve(sp_i_evaluation *ev, sp_error *err);
static void note_batches(sp_result *result, const sp_batches *batches);
static void warn_of_delayed(sp_i_evaluation *ev, sp_status status);
static void warn_of_bound(sp_i_evaluation *ev);
static void note_positions(sp_i_evaluation *ev, const sp_packing *packing);
static void warn_of_idle_ranks(sp_i_evaluation *ev, const sp_packing *packing);
static void warn_of_repeats(sp_i_evaluation *ev, const sp_plan *plan);
static void warn_of_whole_backwards(sp_i_evaluation *ev, const sp_packing *packing);
static void warn_of_gathers(sp_i_evaluation *ev, const sp_packing *packing);
static void note_copies(sp_i_evaluation *ev, const sp_plan *plan, const sp_step_costs *costs);
static void note_shapes(sp_i_evaluation *ev, const sp_packing *packing);
static void warn_of_shapes(sp_i_evaluation *ev);
static sp_status refuse_idle_offload(const sp_i_evaluation *ev, sp_error *err);
static void warn_of_offload(const sp_i_evaluation *ev);
static sp_status evaluate_batch(sp_i_evaluation *ev, int index, const sp_batch *batch,
                                int64_t context, sp_error *err);
static sp_status check_plans(const sp_scenario *scenario, const sp_plan_file *plans, sp_error *err);
static sp_status evaluate_plan(sp_i_evaluation *ev, int index, const sp_plan *plan, sp_error *err);
static sp_status pack(sp_i_evaluation *ev, const sp_batch *batch, int64_t context, sp_i_step *step,
                      sp_error *err);
static sp_status evaluate_costed(sp_i_evaluation *ev, int index, const sp_plan *plan,
                                 const sp_step_costs *costs, sp_batch_facts *facts, sp_error *err);
static sp_status diagnose_oom(sp_i_evaluation *ev, const sp_packing *packing, sp_error *err);
static void note_oom(const sp_i_evaluation *ev);
static void take_settings(sp_i_evaluation *ev, const char *settings);
static sp_status refuse_impossible(const sp_i_evaluation *ev, sp_error *err);
static void note_error(const sp_i_evaluation *ev, sp_status status);
static bool has_ended(const sp_i_evaluation *ev);
static sp_status refuse_order(const sp_i_evaluation *ev, const sp_packing *packing,
                              sp_status status, sp_error *err);

sp_status sp_evaluate_batches(const sp_scenario *scenario, sp_batches *batches, sp_error *err)
{
    *batches = (sp_batches){0};
    return scenario->uniform ? SP_OK : sp_batches_make(&scenario->workload, batches, err);
}

sp_status sp_evaluate(const sp_scenario *scenario, const sp_batches *batches,
                      const sp_evaluate_options *options, sp_result *result, sp_error *err)
{
    sp_i_evaluation ev;
    sp_status status = sp_i_evaluate_begin(&ev, scenario, options, result, err);
    if (status == SP_OK && scenario->uniform) {
        status = evaluate_batch(&ev, 0, NULL, 0, err);
    } else if (status == SP_OK) {
        note_batches(result, batches);
    }
    for (int b = 0; status == SP_OK && b < batches->count && !has_ended(&ev); b++) {
        status = evaluate_batch(&ev, b, &batches->batch[b], batches->context, err);
    }
    warn_of_delayed(&ev, status);
    sp_i_evaluate_note(&ev, status);
    sp_i_idle_switches_warn(&ev, status);
    if (status == SP_OK && batches->count > 0) {
        status = refuse_idle_offload(&ev, err);
    }
    if (status == SP_OK) {
        status = refuse_impossible(&ev, err);
    }
    if (status == SP_ERR_INFEASIBLE && ev.refused && !options->no_causes) {
        status = sp_i_oom_settings_of_refused(&ev, batches, err);
    }
    if (status == SP_OK && ev.oom.limit_bytes > 0 && !options->no_causes) {
        status = sp_i_oom_settings_find(&ev, batches, err);
        sp_oom_diagnosis_settings(&ev.oom, result->settings);
        note_oom(&ev);
    } else if (status == SP_OK && ev.repeats && !options->no_causes) {
        status = sp_i_recompute_find(&ev, batches, err);
    }
    // A search that was stopped has cut its choice short.
    status = status == SP_OK ? sp_stop_check(err) : status;
    note_error(&ev, status);
    sp_i_evaluate_end(&ev, status);
    return status;
}

sp_status sp_evaluate_plans(const sp_scenario *scenario, const sp_plan_file *plans,
                            const sp_evaluate_options *options, sp_result *result, sp_error *err)
{
    sp_i_evaluation ev;
    sp_scenario planned;
    sp_scenario_copy_with(scenario, &(sp_scenario_changes){.documented = true, .planned = true},
                          &planned, NULL);
    sp_status status = sp_i_evaluate_begin(&ev, &planned, options, result, err);
    if (status == SP_OK) {
        note_batches(result, &plans->formed);
        ev.curtailed = plans->curtailed;
        status = check_plans(scenario, plans, err);
    }
    for (int b = 0; status == SP_OK && b < plans->count; b++) {
        status = evaluate_plan(&ev, b, &plans->plans[b], err);
    }
    if (status == SP_OK && plans->count > 0) {
        const sp_packing *last = plans->plans[plans->count - 1].packing;
        sp_batch_pick(last->batch, last->delayed, last->delayed_count, &ev.carried);
    }
    warn_of_delayed(&ev, status);
    sp_i_evaluate_note(&ev, status);
    sp_i_idle_switches_warn(&ev, status);
    if (status == SP_OK) {
        status = refuse_impossible(&ev, err);
    }
    if (status == SP_OK && plans->settings != NULL) {
        take_settings(&ev, json_string_value(plans->settings));
    }
    note_error(&ev, status);
    sp_i_evaluate_end(&ev, status);
    sp_scenario_fini(&planned);
    return status;
}

static sp_status check_plans(const sp_scenario *scenario, const sp_plan_file *plans, sp_error *err)
{
    int batches = scenario->uniform ? 1 : scenario->workload.batches;
    sp_status status = SP_OK;
    if (plans->count > batches) {
        status = sp_error_in(err, SP_ERR_CONTENT, scenario->source, "batches",
                             "%d are more than the scenario's %d (workload.batches)", plans->count,
                             batches);
    }
    for (int b = 0; b < plans->count; b++) {
        sp_status found =
            sp_plan_check_scenario(&plans->plans[b], b, scenario, scenario->source, err);
        status = found != SP_OK ? found : status;
    }
    return status;
}

// A plan is not made anew with others.
static void take_settings(sp_i_evaluation *ev, const char *settings)
{
    sp_result *result = ev->steps.result;
    bool oom = ev->oom.limit_bytes > 0;
    if (oom || ev->repeats) {
        snprintf(result->settings, sizeof result->settings, "%s", settings);
    }
    if (oom) {
        ev->oom.settings = settings;
        note_oom(ev);
    } else if (ev->repeats) {
        sp_warnings_add(&result->warnings, "%s", settings);
    }
}

// Finds the error with what is known by now: bubble, micro-batches, and what takes the time.
static void note_error(const sp_i_evaluation *ev, sp_status status)
{
    sp_result *result = ev->steps.result;
    if (status == SP_OK) {
        sp_step_error *error = &result->step_error;
        sp_scenario_step_error(ev->steps.scenario, sp_result_bubble_ratio(result),
                               sp_result_microbatches(result), error);
        const char *gpu = ev->steps.scenario->profile.gpu;
        bool of_gpu = strncmp(gpu, "none", 4) != 0 && strncmp(gpu, "CPU", 3) != 0;
        bool fp8 = sp_precision_is_fp8(&ev->steps.scenario->memory.stack.precision);
        if (!error->known && of_gpu && !fp8) { // GPUs' steps were logged, in BF16
            error->range =
                sp_error_range_of(error->differing, error->foreign,
                                  sp_result_layer_ms(result, ev->steps.scenario->model.layers));
            if (error->range.most > 0.0) {
                error->waiting = sp_scenario_waiting_steps(ev->steps.scenario);
            }
        }
    }
}

// No GPU computes more than its peak: the peak is wrong, or the rates are another GPU's. Of the
// pairs that causal attention leaves out, and of rows that experts drop, a formula may count more.
static sp_status refuse_utilisation(const sp_i_evaluation *ev, sp_error *err)
{
    const sp_scenario *scenario = ev->steps.scenario;
    sp_result *result = ev->steps.result;
    if (ev->steps.options->any_rate || sp_model_drops_rows(&scenario->model)) {
        return SP_OK;
    }
    double mfu = sp_result_mfu(result, SP_FLOPS_CAUSAL);
    double most = fmax(mfu, sp_result_hfu(result));
    // Tensor cores run FP8 at twice the rate of BF16, whose peak utilisation is counted against.
    bool fp8 = sp_precision_is_fp8(&scenario->memory.stack.precision);
    most /= fp8 ? 2.0 : 1.0;
    double peak_tflops = scenario->cluster.peak_flops_per_s / 1e12;
    bool is_assumed = strncmp(scenario->cluster.source, "assumed", strlen("assumed")) == 0;
    bool of_no_gpu = strncmp(scenario->profile.gpu, "none", strlen("none")) == 0;
    if (most > 1.0 && (is_assumed || of_no_gpu)) {
        sp_warnings_add(&result->warnings,
                        "utilisation is above 100 %%: the %.5g TFLOP/s of cluster %s are %s",
                        peak_tflops, scenario->cluster.name,
                        of_no_gpu ? "of another GPU than the profile's, which is none"
                                  : "assumed, and the profile was measured on a faster one");
    } else if (most > 1.0) {
        return sp_error_in(err, SP_ERR_CONTENT, scenario->source, "cluster.peak_tflops",
                           "the predicted step would use %.1f %% of it: expected at least the "
                           "%.5g TFLOP/s that profile %s computes with, got %.5g; state the peak "
                           "of the GPU that the profile is of (peak_tflops in the profile), or "
                           "name a profile of the cluster's",
                           100.0 * most, most * peak_tflops, scenario->profile.name, peak_tflops);
    }
    if (sp_result_mfu(result, SP_FLOPS_MEGATRON) > 1.0 && !fp8) {
        sp_warnings_add(&result->warnings,
                        "MFU of all pairs is above 100 %%: it counts, as Megatron-LM did before "
                        "2026, pairs that causal attention does not compute");
    }
    return SP_OK;
}

// Nor does it move more bytes than its memory and its NVLink carry.
static sp_status refuse_rates(const sp_i_evaluation *ev, sp_error *err)
{
    const sp_scenario *scenario = ev->steps.scenario;
    const sp_profile *profile = &scenario->profile;
    const sp_cluster *cluster = &scenario->cluster;
    bool is_assumed = strncmp(cluster->source, "assumed", strlen("assumed")) == 0;
    bool of_no_gpu = strncmp(profile->gpu, "none", strlen("none")) == 0;
    if (ev->steps.options->any_rate || is_assumed || of_no_gpu) {
        return SP_OK;
    }
    const struct {
        const char *key, *reached;
        double most, least;
    } rates[] = {
        {"cluster.hbm_gb_per_s", "memory.gb_per_s", cluster->hbm_bytes_per_s,
         profile->memory_bytes_per_s},
        // Where NVLink's rate by the data sheet is known, the profile's is scaled by it.
        {"cluster.nvlink_gb_per_s", "links.nvlink_gb_per_s", cluster->nvlink_bytes_per_s,
         profile->nvlink_nominal_bytes_per_s > 0.0 ? 0.0 : profile->nvlink_bytes_per_s},
    };
    for (size_t i = 0; i < sizeof rates / sizeof rates[0]; i++) {
        // Rates that were scaled to the cluster's differ from it by rounding.
        if (rates[i].least > rates[i].most * (1.0 + 1e-9)) {
            return sp_error_in(err, SP_ERR_CONTENT, scenario->source, rates[i].key,
                               "less than what profile %s reaches (%s): expected at least %.5g, "
                               "got %.5g; state the rate of the GPU that the profile is of, or "
                               "name a profile of the cluster's",
                               profile->name, rates[i].reached, rates[i].least / 1e9,
                               rates[i].most / 1e9);
        }
    }
    return SP_OK;
}

static sp_status refuse_impossible(const sp_i_evaluation *ev, sp_error *err)
{
    sp_status status = refuse_utilisation(ev, err);
    return status == SP_OK ? refuse_rates(ev, err) : status;
}

static bool has_ended(const sp_i_evaluation *ev)
{
    return ev->steps.options->ends_when_oom && sp_result_is_oom(ev->steps.result);
}

static void note_batches(sp_result *result, const sp_batches *batches)
{
    result->over_length_share = sp_batches_over_length_share(batches);
    sp_warn_of_batches(batches, &result->warnings);
}

void sp_warn_of_batches(const sp_batches *batches, sp_warnings *warnings)
{
    if (batches->dropped > 0) {
        sp_warnings_add(warnings, "samples longer than the context, dropped: %lld",
                        (long long)batches->dropped);
    }
    if (batches->truncated > 0) {
        sp_warnings_add(warnings, "samples longer than the context, truncated: %lld",
                        (long long)batches->truncated);
    }
    if (batches->split > 0) {
        sp_warnings_add(warnings, "samples longer than the context, split: %lld",
                        (long long)batches->split);
    }
    if (batches->left_samples > 0) {
        sp_warnings_add(warnings,
                        "samples left over when all batches are full: %lld (%lld token%s)",
                        (long long)batches->left_samples, (long long)batches->left_tokens,
                        sp_plural(batches->left_tokens));
    }
    if (batches->wrapped) {
        sp_warnings_add(warnings,
                        "the list of lengths is shorter than the batches: it was started again");
    }
}

void sp_warn_of_uneven_rows(const sp_scenario *scenario, const sp_result *result,
                            sp_warnings *warnings)
{
    bool uneven = false;
    for (size_t b = 0; b < result->batch_count; b++) {
        uneven = uneven || result->batches[b].facts.microbatches % scenario->layout.dp != 0;
    }
    if (uneven && sp_strategy_find(scenario->strategy.kind)->kind == SP_STRATEGY_ROWS &&
        sp_stack_abilities_of(&scenario->memory.stack).whole_batches) {
        // Without numbers, which differ from batch to batch: it is told once.
        sp_warnings_add(warnings,
                        "some data-parallel ranks have more micro-batches than others, but the "
                        "framework of stack %s runs as many on each: add some without labels to "
                        "those that have fewer",
                        scenario->memory.stack.name);
    }
}

static void warn_of_delayed(sp_i_evaluation *ev, sp_status status)
{
    if (status == SP_OK && ev->carried.count > 0) {
        sp_warnings_add(&ev->steps.result->warnings,
                        "samples still delayed after the last batch: %zu (%lld token%s)",
                        ev->carried.count, (long long)ev->carried.total_tokens,
                        sp_plural(ev->carried.total_tokens));
    }
}

void sp_i_evaluate_note(sp_i_evaluation *ev, sp_status status)
{
    if (status == SP_OK) {
        sp_warn_of_positions(&ev->steps.scenario->model, ev->positions,
                             &ev->steps.result->warnings);
        warn_of_bound(ev);
        warn_of_offload(ev);
        warn_of_shapes(ev);
    }
}

static void warn_of_bound(sp_i_evaluation *ev)
{
    const sp_strategy_spec *spec = &ev->steps.scenario->strategy;
    if (ev->curtailed || spec->curtailed) {
        ev->steps.result->curtailed = true;
        sp_warnings_add(
            &ev->steps.result->warnings,
            "%s took the best plan so far when its search came to the bound of its work; "
            "strategy.time_limit_ms states a bound by time instead",
            spec->kind);
    }
}

sp_status sp_i_evaluate_begin(sp_i_evaluation *ev, const sp_scenario *scenario,
                              const sp_evaluate_options *options, sp_result *result, sp_error *err)
{
    *ev = (sp_i_evaluation){.steps = {.scenario = scenario, .options = options, .result = result},
                            .stated = scenario,
                            .evaluate = sp_evaluate};
    *result = (sp_result){0};
    sp_status status = resolve(ev, err);
    if (status != SP_OK) {
        return status;
    }
    ev->spent_s = ev->steps.scenario->strategy.spent_s;
    sp_i_evaluate_describe(ev);
    if (scenario->uniform) {
        return SP_OK;
    }
    sp_i_step_recompute(&ev->steps);
    sp_result_note_layers(result, &ev->steps.scenario->layout);
    sp_i_group_starts_init(&ev->starts, ev->steps.scenario);
    return sp_i_steps_init(&ev->steps, err);
}

void sp_i_evaluate_describe(sp_i_evaluation *ev)
{
    ev->curtailed = ev->repeats = ev->offloads = ev->copies = false;
    ev->row_lengths = ev->sample_counts = 0;
    sp_i_step_describe(ev->steps.scenario, ev->steps.result);
    sp_i_step_warn(ev->steps.scenario, &ev->steps.result->warnings);
    warn_of_order(ev);
}

// In a comparison a stated order is for the strategies that bring none.
static void warn_of_order(sp_i_evaluation *ev)
{
    sp_schedule_kind runs = ev->steps.scenario->schedule.kind;
    if (ev->stated->schedule_given && ev->stated->schedule.kind != runs) {
        sp_warnings_add(&ev->steps.result->warnings,
                        "schedule.kind \"%s\" is not for strategy %s, which brings its own order, "
                        "\"%s\"",
                        sp_schedule_names[ev->stated->schedule.kind],
                        ev->steps.scenario->strategy.kind, sp_schedule_names[runs]);
    }
}

// Evaluates in a copy what its strategy has still to choose or to bring an order into.
static sp_status resolve(sp_i_evaluation *ev, sp_error *err)
{
    const sp_scenario *scenario = ev->stated;
    if (scenario->uniform) {
        return SP_OK;
    }
    sp_status status = sp_strategy_check(scenario->strategy.kind, scenario->source, err);
    if (status != SP_OK || scenario->order_resolved || !sp_strategy_resolves(scenario)) {
        return status;
    }
    const sp_scenario_changes changes = {.documented = true,
                                         .effort_percent = ev->steps.options->effort_percent};
    sp_scenario_copy_with(scenario, &changes, &ev->own, NULL);
    ev->steps.scenario = &ev->own;
    return sp_strategy_resolve(&ev->own, ev->steps.options->compared, err);
}

static sp_status evaluate_batch(sp_i_evaluation *ev, int index, const sp_batch *batch,
                                int64_t context, sp_error *err)
{
    sp_i_step step;
    sp_batch with_carried = {0};
    if (ev->carried.count > 0) {
        sp_batch_join(&ev->carried, batch, &with_carried);
        batch = &with_carried;
    }
    sp_status status = sp_i_evaluate_batch(ev, index, batch, context, &step, err);
    if (status == SP_OK) {
        status = sp_i_idle_switches_try(ev, &step.plan, err);
    }
    if (status == SP_OK && batch != NULL) {
        sp_batch_fini(&ev->carried);
        sp_batch_pick(batch, step.packing.delayed, step.packing.delayed_count, &ev->carried);
    }
    sp_i_step_fini(&step);
    sp_batch_fini(&with_carried);
    return status;
}

sp_status sp_i_evaluate_batch(sp_i_evaluation *ev, int index, const sp_batch *batch,
                              int64_t context, sp_i_step *step, sp_error *err)
{
    *step = (sp_i_step){0};
    double started_s = sp_clock_s();
    sp_status status = pack(ev, batch, context, step, err);
    if (status != SP_OK) {
        sp_i_best_step_fini(&ev->best_step);
        step->packing = (sp_packing){0};
        return status;
    }
    if (sp_i_best_step_serves(&ev->best_step, ev->steps.options, &step->packing)) {
        step->plan = ev->best_step.plan;
        step->plan.packing = &step->packing;
        ev->best_step.plan = (sp_plan){.packing = NULL};
        ev->steps.known = &ev->best_step;
    } else {
        sp_i_best_step_fini(&ev->best_step);
        sp_plan_init(&step->plan, &ev->steps.scenario->layout, &step->packing);
    }
    double packed_s = sp_clock_s();
    if (status == SP_OK) {
        status = sp_i_step_costs(&ev->steps, &step->packing, &step->costs, err);
    }
    if (status == SP_OK) {
        sp_i_group_starts_add(&ev->starts, &step->packing, &step->costs);
    }
    double costed_s = sp_clock_s();
    if (status == SP_OK && ev->steps.known == NULL) {
        status = sp_i_step_schedule(&ev->steps, &step->plan, &step->costs, err);
    }
    step->facts.simulate_ms = (costed_s - packed_s) * 1e3;
    step->facts.solver_ms = (sp_clock_s() - started_s) * 1e3 - step->facts.simulate_ms;
    if (status == SP_OK) {
        status = evaluate_costed(ev, index, &step->plan, &step->costs, &step->facts, err);
    }
    ev->steps.known = NULL;
    sp_i_best_step_fini(&ev->best_step);
    return status == SP_ERR_DEADLOCK ? refuse_order(ev, &step->packing, status, err) : status;
}

static double deadline_s(sp_i_evaluation *ev)
{
    double left_s = sp_i_time_left_s(ev->steps.scenario->strategy.time_limit_ms, ev->spent_s);
    ev->spent_s = 0.0;
    return left_s > 0.0 ? sp_clock_s() + SEARCHING * left_s : 0.0;
}

static sp_status pack(sp_i_evaluation *ev, const sp_batch *batch, int64_t context, sp_i_step *step,
                      sp_error *err)
{
    sp_i_steps *steps = &ev->steps;
    const sp_scenario *scenario = steps->scenario;
    const sp_schedule_spec *schedule = &scenario->schedule;
    if (scenario->uniform) {
        int slices = sp_schedule_traits_of(schedule->kind).sliced ? schedule->slices : 1;
        return sp_packing_uniform_sliced(&step->packing, &step->own, scenario->layout.dp,
                                         scenario->microbatches, slices, err);
    }
    const sp_strategy *strategy = sp_strategy_find(scenario->strategy.kind);
    sp_status status = SP_OK;
    if (strategy->joins_documents) {
        sp_batch_concatenate(batch, context, scenario->strategy.attention_across, &step->own);
        batch = &step->own;
    }
    step->padded = sp_batch_view(batch, sp_strategy_padding(scenario));
    sp_oom_diagnosis refused = {0};
    sp_meter meter = {.limit = SP_I_MOST_WORK};
    bool unmetered = scenario->strategy.meter == NULL && scenario->strategy.time_limit_ms == 0;
    sp_scenario metered;
    sp_scenario_copy_with(scenario, &(sp_scenario_changes){.meter = unmetered ? &meter : NULL},
                          &metered, NULL);
    const sp_strategy_input input = {.scenario = &metered,
                                     .batch = &step->padded,
                                     .carried = ev->carried.count,
                                     .context = context,
                                     .cost = &steps->trial,
                                     .threads = steps->options->threads,
                                     .deadline_s = deadline_s(ev),
                                     .starts = &ev->starts,
                                     .best_step = &ev->best_step,
                                     .refused = &refused};
    if (status == SP_OK) {
        status = sp_strategy_pack(strategy, &input, &step->packing, err);
    }
    sp_scenario_fini(&metered);
    ev->curtailed = ev->curtailed || meter.ended;
    ev->refused = status == SP_ERR_INFEASIBLE && refused.limit_bytes > 0;
    if (ev->refused) {
        ev->oom = refused;
    }
    if (status != SP_OK) {
        return status;
    }
    status = strategy->sliced ? sp_i_step_check_count(steps, &step->packing, err)
                              : sp_i_step_rows(steps, &step->packing, err);
    if (status != SP_OK) {
        sp_packing_fini(&step->packing);
    }
    return status;
}

// Ranks that share packs must meet at them in one order. A schedule that orders each rank by how
// many micro-batches it has does not promise that.
static sp_status refuse_order(const sp_i_evaluation *ev, const sp_packing *packing,
                              sp_status status, sp_error *err)
{
    const sp_scenario *scenario = ev->steps.scenario;
    size_t k = 0;
    while (k < packing->forward.count && packing->forward.packs[k].dp_count == 1) {
        k++;
    }
    if (k == packing->forward.count) {
        return status;
    }
    sp_error_clear(err);
    return sp_error_in(err, SP_ERR_INFEASIBLE, scenario->source, "schedule.kind",
                       "\"%s\" gives the %d data-parallel ranks that share pack %zu of strategy "
                       "\"%s\" orders that wait for each other",
                       sp_schedule_names[scenario->schedule.kind],
                       packing->forward.packs[k].dp_count, k, scenario->strategy.kind);
}

void sp_i_step_fini(sp_i_step *step)
{
    sp_step_costs_fini(&step->costs);
    sp_plan_fini(&step->plan);
    sp_packing_fini(&step->packing);
    sp_batch_fini(&step->own);
}

// A plan that exists already.
static sp_status evaluate_plan(sp_i_evaluation *ev, int index, const sp_plan *plan, sp_error *err)
{
    sp_step_costs costs = {0};
    sp_batch_facts facts = {0};
    double started_s = sp_clock_s();
    sp_status status = sp_i_step_costs(&ev->steps, plan->packing, &costs, err);
    if (status == SP_OK) {
        sp_i_group_starts_add(&ev->starts, plan->packing, &costs);
        status = sp_i_step_exchange(&ev->steps, plan, &costs, err);
    }
    facts.simulate_ms = (sp_clock_s() - started_s) * 1e3;
    if (status == SP_OK) {
        status = evaluate_costed(ev, index, plan, &costs, &facts, err);
    }
    if (status == SP_OK) {
        status = sp_i_idle_switches_try(ev, plan, err);
    }
    sp_step_costs_fini(&costs);
    return status;
}

// Simulates a plan whose costs are known.
static sp_status evaluate_costed(sp_i_evaluation *ev, int index, const sp_plan *plan,
                                 const sp_step_costs *costs, sp_batch_facts *facts, sp_error *err)
{
    sp_i_step_count(&ev->steps, plan->packing, facts);
    warn_of_idle_ranks(ev, plan->packing);
    warn_of_repeats(ev, plan);
    warn_of_whole_backwards(ev, plan->packing);
    warn_of_gathers(ev, plan->packing);
    note_positions(ev, plan->packing);
    note_shapes(ev, plan->packing);
    note_copies(ev, plan, costs);
    if (plan->packing->dropped_count + plan->packing->delayed_count > 0) {
        ev->steps.result->lossless = false;
    }
    sp_status status = sp_i_step_simulate(&ev->steps, index, plan, costs, facts, err);
    return status == SP_OK ? diagnose_oom(ev, plan->packing, err) : status;
}

// A strategy runs forwards again where memory is short, unless its order always does. A pack's
// first stage on its first rank tells, also in a plan that was read.
static void warn_of_repeats(sp_i_evaluation *ev, const sp_plan *plan)
{
    const sp_pack_list *packs = &plan->packing->forward;
    bool may = ev->steps.scenario->schedule.kind == SP_SCHEDULE_PACKFLOW;
    size_t again = 0;
    for (int d = 0; may && d < plan->layout.dp; d++) {
        const sp_stage_plan *stage = sp_plan_stage(plan, d, 0);
        for (size_t a = 0; a < stage->count; a++) {
            const sp_action *action = &stage->actions[a];
            again += action->kind == SP_ACTION_R && action->chunk == 0 &&
                     packs->packs[action->pack].dp_first == d;
        }
    }
    if (again > 0) {
        ev->repeats = true;
        sp_warnings_add(&ev->steps.result->warnings,
                        "memory is short: %zu of %zu packs run their forward again before their "
                        "backward",
                        again, packs->count);
    }
}

static void note_copies(sp_i_evaluation *ev, const sp_plan *plan, const sp_step_costs *costs)
{
    const sp_layout *layout = &plan->layout;
    bool may = costs->offloaded_bytes != NULL && ev->steps.scenario->memory.offload_ratio > 0.0;
    for (int s = 0; may && !ev->copies && s < layout->dp * layout->pp; s++) {
        const sp_stage_plan *stage = &plan->stages[s];
        for (size_t a = 0; a < stage->count && !ev->copies; a++) {
            const sp_action *action = &stage->actions[a];
            if (action->kind == SP_ACTION_O) {
                int vstage = sp_layout_vstage(layout, s % layout->pp, action->chunk);
                ev->offloads = true;
                ev->copies = sp_step_costs_offloaded(costs, (size_t)action->pack, vstage) > 0;
            }
        }
    }
}

static bool should_copy(const sp_i_evaluation *ev)
{
    const sp_scenario *scenario = ev->steps.scenario;
    return !scenario->uniform && scenario->memory.offload_ratio > 0.0 &&
           scenario->memory_model == SP_MEMORY_TENSORS;
}

static void say_why_none_copies(const sp_i_evaluation *ev, char text[SP_WARNING_TEXT])
{
    const sp_scenario *scenario = ev->steps.scenario;
    char kept[SP_RECOMPUTE_TEXT];
    if (ev->offloads) {
        snprintf(text, SP_WARNING_TEXT,
                 "nothing is offloaded: what recomputation \"%s\" keeps of a pack are tensors of "
                 "less than 1 MiB, which are not worth a copy",
                 sp_recompute_text(scenario->memory.recompute, kept));
    } else {
        snprintf(text, SP_WARNING_TEXT,
                 "nothing is offloaded: no action of the plan copies. Behind a forward whose "
                 "backward follows at once there is no time for it, and copies within a pack are "
                 "not modelled");
    }
}

// Refused is offloading that copies nothing on one pipeline rank with full recomputation, where
// copies layer by layer are asked for. Where that follows from the samples of a batch, and of a
// plan, which stands, there is a warning.
static sp_status refuse_idle_offload(const sp_i_evaluation *ev, sp_error *err)
{
    char text[SP_WARNING_TEXT];
    bool may = ev->steps.scenario->layout.pp > 1 || ev->offloads ||
               ev->steps.scenario->memory.recompute != SP_RECOMPUTE_FULL;
    if (may || !should_copy(ev) || has_ended(ev)) {
        return SP_OK;
    }
    say_why_none_copies(ev, text);
    return sp_error_in(err, SP_ERR_CONTENT, ev->steps.scenario->source, "memory.offload_ratio",
                       "%s; leave it 0", text);
}

static void warn_of_offload(const sp_i_evaluation *ev)
{
    char text[SP_WARNING_TEXT];
    sp_result *result = ev->steps.result;
    double ratio = ev->steps.scenario->memory.offload_ratio;
    if (should_copy(ev) && !ev->copies) {
        say_why_none_copies(ev, text);
        sp_warnings_add(&result->warnings, "%s", text);
        return;
    }
    if (should_copy(ev)) {
        sp_warnings_add(&result->warnings,
                        "offloading: copies run at an assumed host link rate of %.0f GB/s",
                        ev->steps.scenario->cluster.host_link_bytes_per_s / 1e9);
    }
    if (ev->steps.scenario->uniform || !(ratio > 0.0) || result->batch_count == 0) {
        return;
    }
    if (should_copy(ev) && result->uncopied_peak_bytes <= result->peak_bytes) {
        sp_warnings_add(&result->warnings,
                        "memory.offload_ratio %g takes nothing off the peak: without copies and "
                        "their buffers it is no higher",
                        ratio);
    } else if (!should_copy(ev) && result->peak.of[SP_MEM_OFFLOADED] == 0) {
        sp_warnings_add(&result->warnings,
                        "memory.offload_ratio %g takes nothing off the peak: nothing is away then",
                        ratio);
    }
}

static void warn_of_whole_backwards(sp_i_evaluation *ev, const sp_packing *packing)
{
    if (packing->whole_backwards) {
        sp_warnings_add(&ev->steps.result->warnings,
                        "memory is short: packed as slimpack does, with input and weight gradients "
                        "together");
    }
}

static void warn_of_gathers(sp_i_evaluation *ev, const sp_packing *packing)
{
    const sp_pack_list *packs = &packing->forward;
    size_t gathers = 0;
    for (size_t k = 0; k < packs->count; k++) {
        gathers += packs->packs[k].gathers;
    }
    if (gathers > 0) {
        sp_warnings_add(&ev->steps.result->warnings,
                        "%zu of %zu packs gather keys and values as llama-cp does, because their "
                        "ring would take longer",
                        gathers, packs->count);
    }
}

// The end of the longest sample is that of its last slice.
static void note_positions(sp_i_evaluation *ev, const sp_packing *packing)
{
    const sp_pack_list *packs = &packing->forward;
    for (size_t i = 0; i < packs->slice_count && !ev->steps.scenario->uniform; i++) {
        int64_t end = packs->slices[i].begin + packs->slices[i].tokens;
        ev->positions = end > ev->positions ? end : ev->positions;
    }
}

// ---- attention plans ----

// Transformer Engine keeps a plan of cuDNN's for each shape. Of packed rows these are few: numbers
// of samples are rounded up to powers of two, those over 512 not until February 2026, and tokens,
// too (transformer_engine/common/fused_attn/utils.cu, get_max_batch_size(); pull request 2653). Of
// padded rows each length is a shape, whose plan takes the host about a second (verl, pull request
// 6901). Steps of packed rows were measured that leave no time for it: sim/README.md.
enum { BUCKETED_SAMPLES = 512 };

static size_t kinds_among(int64_t *values, size_t count)
{
    size_t kinds = 0;
    qsort(values, count, sizeof *values, sp_ascending_int64s);
    for (size_t i = 0; i < count; i++) {
        kinds += i == 0 || values[i] != values[i - 1];
    }
    return kinds;
}

static void note_shapes(sp_i_evaluation *ev, const sp_packing *packing)
{
    const sp_scenario *scenario = ev->steps.scenario;
    const sp_pack_list *packs = &packing->forward;
    if (scenario->uniform || scenario->memory.attention != SP_ATTENTION_FLASH ||
        !sp_stack_runs_transformer_engine(&scenario->memory.stack)) {
        return;
    }
    bool pads = sp_strategy_find(scenario->strategy.kind)->pads;
    int64_t *shapes = sp_malloc((packs->count + 1) * sizeof *shapes);
    size_t count = 0;
    for (size_t k = 0; k < packs->count; k++) {
        const sp_pack *pack = &packs->packs[k];
        if (pads && pack->slice_count > 0) {
            shapes[count++] = packs->slices[pack->first_slice].computed_tokens;
        } else if (pack->slice_count > BUCKETED_SAMPLES) {
            shapes[count++] = (int64_t)pack->slice_count;
        }
    }
    size_t *most = pads ? &ev->row_lengths : &ev->sample_counts;
    count = kinds_among(shapes, count);
    *most = count > *most ? count : *most;
    sp_free(shapes);
}

static void warn_of_shapes(sp_i_evaluation *ev)
{
    if (ev->row_lengths > 1) {
        sp_warnings_add(&ev->steps.result->warnings,
                        "a risk that is not in the time: Transformer Engine has cuDNN build an "
                        "attention plan for each length of rows that it has not met, about 1 s "
                        "each, and rows here have %zu lengths; strategy.pad_to \"context\" has one",
                        ev->row_lengths);
    }
    if (ev->sample_counts > 1) {
        sp_warnings_add(&ev->steps.result->warnings,
                        "a risk that is not in the time: Transformer Engine before February 2026 "
                        "has cuDNN build an attention plan for each number of samples over %d in a "
                        "row that it has not met, about 1 s each, and rows here have %zu such "
                        "numbers",
                        (int)BUCKETED_SAMPLES, ev->sample_counts);
    }
}

// O(packs + dp).
static void warn_of_idle_ranks(sp_i_evaluation *ev, const sp_packing *packing)
{
    const sp_pack_list *packs = &packing->forward;
    long long made = sp_i_step_microbatches(packing);
    int dp = ev->steps.scenario->layout.dp;
    int idle = 0;
    if (made >= dp) {
        return;
    }
    // For each rank the packs that begin there less those that end before it.
    int64_t *begun = sp_calloc((size_t)dp + 1, sizeof *begun);
    for (size_t k = 0; k < packs->count; k++) {
        begun[packs->packs[k].dp_first]++;
        begun[packs->packs[k].dp_first + packs->packs[k].dp_count]--;
    }
    int64_t packs_of_rank = 0;
    for (int d = 0; d < dp; d++) {
        packs_of_rank += begun[d];
        idle += packs_of_rank == 0;
    }
    sp_free(begun);
    if (idle > 0) {
        sp_warnings_add(&ev->steps.result->warnings,
                        "%lld micro-batch%s %d of %d data-parallel ranks idle", made,
                        made == 1 ? " leaves" : "es leave", idle, dp);
    }
}

// Finds what a step that is out of memory would have needed.
static sp_status diagnose_oom(sp_i_evaluation *ev, const sp_packing *packing, sp_error *err)
{
    const sp_result *result = ev->steps.result;
    int64_t peak_bytes = result->batches[result->batch_count - 1].peak_bytes;
    if (result->batch_count == 1) {
        ev->oom = (sp_oom_diagnosis){0};
    }
    if (ev->steps.scenario->uniform || peak_bytes <= result->memory_limit_bytes) {
        return SP_OK;
    }
    sp_oom_diagnosis oom = {.limit_bytes = result->memory_limit_bytes, .plan_bytes = peak_bytes};
    sp_status status = SP_OK;
    if (!ev->steps.options->no_causes || ev->steps.options->names_sample) {
        status = sp_oom_diagnosis_find(ev->steps.scenario, packing, peak_bytes, &oom, err);
    }
    if (status == SP_OK && sp_oom_diagnosis_is_worse(&oom, &ev->oom)) {
        ev->oom = oom;
        note_oom(ev);
    }
    return status;
}

static void note_oom(const sp_i_evaluation *ev)
{
    char text[SP_WARNING_TEXT];
    sp_oom_diagnosis_text(&ev->oom, text);
    sp_result_note_oom(ev->steps.result, text);
}

void sp_i_evaluate_end(sp_i_evaluation *ev, sp_status status)
{
    if (!ev->steps.scenario->uniform) {
        ev->steps.result->uncalibrated_count =
            sp_uncalibrated_lines(&ev->steps.cost.uncalibrated, ev->steps.result->uncalibrated);
        sp_i_steps_fini(&ev->steps);
        sp_result_add_stalls(ev->steps.result,
                             ev->steps.scenario->profile.interference.tight_microbatch_s);
        sp_result_warn_of_memory(ev->steps.result);
    }
    sp_i_group_starts_fini(&ev->starts);
    sp_scenario_fini(&ev->own);
    sp_batch_fini(&ev->carried);
    if (status != SP_OK) {
        sp_result_fini(ev->steps.result);
    }
}

sp_status sp_evaluate_work_bound(const sp_scenario *scenario, const sp_batches *batches,
                                 double *bound_s, sp_error *err)
{
    sp_cost_model cost;
    sp_sample_sums sums = {0};
    for (int b = 0; b < batches->count; b++) {
        for (size_t s = 0; s < batches->batch[b].count; s++) {
            sp_sample_sums_add(&sums, &scenario->model, batches->batch[b].tokens[s]);
        }
    }
    *bound_s = 0.0;
    sp_status status = sp_scenario_cost_model(scenario, &cost, err);
    for (int v = 0; status == SP_OK && v < sp_layout_vstages(&scenario->layout); v++) {
        const sp_least_work *least = sp_cost_model_least_work(&cost, v, 0);
        *bound_s += sp_least_work_s(least, &sums);
    }
    *bound_s /= (double)batches->count * scenario->layout.dp * scenario->layout.pp;
    sp_cost_model_fini(&cost);
    return status;
}

// ---- several strategies ----

static sp_status evaluate_row(const sp_scenario *scenario, const sp_batches *batches,
                              const sp_evaluate_options *options, sp_comparison_row *row,
                              sp_error *err)
{
    sp_scenario own;
    const sp_scenario_changes changes = {.strategy = row->strategy};
    sp_evaluate_options compared = *options;
    sp_error met;
    compared.compared = true;
    sp_error_clear(&met);
    row->status = sp_scenario_copy_with(scenario, &changes, &own, &met);
    if (row->status == SP_OK) {
        row->status = sp_evaluate(&own, batches, &compared, &row->result, &met);
        sp_scenario_fini(&own);
    }
    if (row->status == SP_OK) {
        return SP_OK;
    }
    sp_result_fini(&row->result);
    const char *text = met.count > 0 ? met.message[0] : sp_status_text(row->status);
    snprintf(row->reason, sizeof row->reason, "%s", text);
    return sp_status_is_fatal(row->status) ? sp_error_set(err, row->status, "%s", text) : SP_OK;
}

sp_status sp_compare(const sp_scenario *scenario, const sp_batches *batches,
                     const char *const *strategies, int count, const sp_evaluate_options *options,
                     sp_comparison_row *rows, sp_error *err)
{
    sp_status status = SP_OK;
    for (int i = 0; i < count; i++) {
        rows[i] = (sp_comparison_row){.strategy = strategies[i]};
    }
    for (int i = 0; status == SP_OK && i < count; i++) {
        status = sp_strategy_check(strategies[i], scenario->source, err);
    }
    for (int i = 0; status == SP_OK && i < count; i++) {
        status = evaluate_row(scenario, batches, options, &rows[i], err);
    }
    if (status != SP_OK) {
        sp_compare_fini(rows, count);
    }
    return status;
}

void sp_compare_fini(sp_comparison_row *rows, int count)
{
    for (int i = 0; i < count; i++) {
        sp_result_fini(&rows[i].result);
    }
}
