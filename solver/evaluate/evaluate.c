#include "sim/base/alloc.h"
#include "sim/base/progress.h"
#include "solver/evaluate/evaluate_private.h"
#include "solver/strategy.h"

static sp_status bring_order(sp_i_evaluation *ev, sp_error *err);
static void warn_of_delayed(sp_i_evaluation *ev, sp_status status);
static void warn_of_idle_ranks(sp_i_evaluation *ev, const sp_packing *packing);
static sp_status evaluate_batch(sp_i_evaluation *ev, int index, const sp_batch *batch,
                                int64_t context, sp_error *err);
static sp_status evaluate_plan(sp_i_evaluation *ev, int index, const sp_plan *plan, sp_error *err);
static sp_status evaluate_costed(sp_i_evaluation *ev, int index, const sp_plan *plan,
                                 const sp_step_costs *costs, sp_batch_facts *facts, sp_error *err);
static sp_status name_shortage(sp_i_evaluation *ev, const sp_packing *packing, sp_error *err);
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
        sp_i_evaluate_warn_of_batches(result, batches);
    }
    for (int b = 0; status == SP_OK && b < batches->count; b++) {
        status = evaluate_batch(&ev, b, &batches->batch[b], batches->context, err);
    }
    warn_of_delayed(&ev, status);
    sp_i_evaluate_end(&ev, status);
    return status;
}

sp_status sp_evaluate_plans(const sp_scenario *scenario, const sp_plan *plans, int count,
                            const sp_evaluate_options *options, sp_result *result, sp_error *err)
{
    sp_i_evaluation ev;
    sp_status status = sp_i_evaluate_begin(&ev, scenario, options, result, err);
    if (status == SP_OK && options->formed != NULL) {
        sp_i_evaluate_warn_of_batches(result, options->formed);
    }
    for (int b = 0; status == SP_OK && b < count; b++) {
        status = evaluate_plan(&ev, b, &plans[b], err);
    }
    if (status == SP_OK && count > 0) {
        const sp_packing *last = plans[count - 1].packing;
        status = sp_batch_pick(last->batch, last->delayed, last->delayed_count, &ev.carried, err);
    }
    warn_of_delayed(&ev, status);
    sp_i_evaluate_end(&ev, status);
    return status;
}

static void warn_of_delayed(sp_i_evaluation *ev, sp_status status)
{
    if (status == SP_OK && ev->carried.count > 0) {
        sp_warnings_add(&ev->result->warnings,
                        "samples still delayed after the last batch: %zu (%lld tokens)",
                        ev->carried.count, (long long)ev->carried.total_tokens);
    }
}

sp_status sp_i_evaluate_begin(sp_i_evaluation *ev, const sp_scenario *scenario,
                              const sp_evaluate_options *options, sp_result *result, sp_error *err)
{
    *ev = (sp_i_evaluation){
        .scenario = scenario, .stated = scenario, .options = options, .result = result};
    ev->own.stage_layers = scenario->stage_layers;
    *result = (sp_result){0};
    sp_status status = scenario->uniform
                           ? SP_OK
                           : sp_strategy_check(scenario->strategy.kind, scenario->source, err);
    if (status == SP_OK) {
        status = bring_order(ev, err);
    }
    if (status != SP_OK) {
        return status;
    }
    scenario = ev->scenario;
    sp_i_evaluate_describe(scenario, result);
    if (scenario->uniform) {
        return SP_OK;
    }
    sp_i_evaluate_recompute(ev);
    return sp_i_evaluate_costs(ev, err);
}

// A strategy that brings its own order is evaluated in a copy of the scenario.
static sp_status bring_order(sp_i_evaluation *ev, sp_error *err)
{
    const sp_strategy *strategy = sp_strategy_find(ev->scenario->strategy.kind);
    if (ev->scenario->uniform || strategy == NULL || !strategy->brings_order) {
        return SP_OK;
    }
    ev->own = *ev->scenario;
    ev->own.resolved = json_deep_copy(ev->scenario->resolved);
    if (ev->own.resolved == NULL) {
        return sp_error_no_memory(err, "a scenario");
    }
    ev->scenario = &ev->own;
    return sp_strategy_resolve(&ev->own, ev->options->compared, err);
}

static sp_status evaluate_batch(sp_i_evaluation *ev, int index, const sp_batch *batch,
                                int64_t context, sp_error *err)
{
    sp_i_step step;
    sp_batch joined = {0};
    if (ev->carried.count > 0) {
        sp_status status = sp_batch_join(&ev->carried, batch, &joined, err);
        if (status != SP_OK) {
            return status;
        }
        batch = &joined;
    }
    sp_status status = sp_i_evaluate_batch(ev, index, batch, context, &step, err);
    if (status == SP_OK && batch != NULL) {
        sp_batch_fini(&ev->carried);
        status = sp_batch_pick(batch, step.packing.delayed, step.packing.delayed_count,
                               &ev->carried, err);
    }
    sp_i_step_fini(&step);
    sp_batch_fini(&joined);
    return status;
}

sp_status sp_i_evaluate_batch(sp_i_evaluation *ev, int index, const sp_batch *batch,
                              int64_t context, sp_i_step *step, sp_error *err)
{
    *step = (sp_i_step){0};
    double started_s = sp_clock_s();
    sp_status status = sp_i_evaluate_pack(ev, batch, context, &step->uniform, &step->packing, err);
    if (status != SP_OK) {
        step->packing = (sp_packing){0};
        return status;
    }
    status = sp_plan_init(&step->plan, &ev->scenario->layout, &step->packing, err);
    double packed_s = sp_clock_s();
    if (status == SP_OK) {
        status = sp_i_evaluate_build(ev, &step->packing, &step->costs, err);
    }
    double costed_s = sp_clock_s();
    if (status == SP_OK) {
        status = sp_i_evaluate_schedule(ev, &step->plan, &step->costs, err);
    }
    step->facts.simulate_ms = (costed_s - packed_s) * 1e3;
    step->facts.solver_ms = (sp_clock_s() - started_s) * 1e3 - step->facts.simulate_ms;
    if (status == SP_OK) {
        status = evaluate_costed(ev, index, &step->plan, &step->costs, &step->facts, err);
    }
    return status == SP_ERR_DEADLOCK ? refuse_order(ev, &step->packing, status, err) : status;
}

// Ranks that share packs must meet at them in one order. A schedule that orders each rank by how
// many micro-batches it has does not promise that.
static sp_status refuse_order(const sp_i_evaluation *ev, const sp_packing *packing,
                              sp_status status, sp_error *err)
{
    const sp_scenario *scenario = ev->scenario;
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
    sp_batch_fini(&step->uniform);
}

// A plan that exists already.
static sp_status evaluate_plan(sp_i_evaluation *ev, int index, const sp_plan *plan, sp_error *err)
{
    sp_step_costs costs = {0};
    sp_batch_facts facts = {0};
    double started_s = sp_clock_s();
    sp_status status = sp_i_evaluate_build(ev, plan->packing, &costs, err);
    if (status == SP_OK) {
        status = sp_i_evaluate_exchange(ev, plan, &costs, err);
    }
    facts.simulate_ms = (sp_clock_s() - started_s) * 1e3;
    if (status == SP_OK) {
        status = evaluate_costed(ev, index, plan, &costs, &facts, err);
    }
    sp_step_costs_fini(&costs);
    return status;
}

// Simulates a plan whose costs are known.
static sp_status evaluate_costed(sp_i_evaluation *ev, int index, const sp_plan *plan,
                                 const sp_step_costs *costs, sp_batch_facts *facts, sp_error *err)
{
    sp_i_evaluate_count(ev, plan->packing, facts);
    warn_of_idle_ranks(ev, plan->packing);
    if (plan->packing->dropped_count + plan->packing->delayed_count > 0) {
        ev->result->lossless = false;
    }
    sp_status status = sp_i_evaluate_simulate(ev, index, plan, costs, facts, err);
    return status == SP_OK ? name_shortage(ev, plan->packing, err) : status;
}

static void warn_of_idle_ranks(sp_i_evaluation *ev, const sp_packing *packing)
{
    long long dp = ev->scenario->layout.dp;
    long long made = sp_i_evaluate_microbatches(packing);
    if (made < dp) {
        sp_warnings_add(&ev->result->warnings,
                        "%lld micro-batches leave %lld of %lld data-parallel ranks idle", made,
                        dp - made, dp);
    }
}

// Of a step that is out of memory, what it would have needed.
static sp_status name_shortage(sp_i_evaluation *ev, const sp_packing *packing, sp_error *err)
{
    const sp_result *result = ev->result;
    int64_t peak_bytes = result->batches[result->batch_count - 1].peak_bytes;
    if (result->batch_count == 1) {
        ev->shortage = (sp_oom_diagnosis){0};
    }
    if (ev->scenario->uniform || peak_bytes <= result->memory_limit_bytes) {
        return SP_OK;
    }
    sp_oom_diagnosis shortage;
    sp_status status = sp_oom_diagnosis_find(ev->scenario, packing, peak_bytes, &shortage, err);
    if (status == SP_OK && sp_oom_diagnosis_is_worse(&shortage, &ev->shortage)) {
        char text[SP_WARNING_TEXT];
        sp_oom_diagnosis_text(&shortage, text);
        sp_result_note_oom(ev->result, text);
        ev->shortage = shortage;
    }
    return status;
}

void sp_i_evaluate_end(sp_i_evaluation *ev, sp_status status)
{
    if (!ev->scenario->uniform) {
        ev->result->uncalibrated_count =
            sp_uncalibrated_lines(&ev->cost.uncalibrated, ev->result->uncalibrated);
        sp_i_evaluate_costs_fini(ev);
        sp_result_add_stalls(ev->result, ev->scenario->profile.interference.tight_microbatch_s);
        sp_result_warn_of_memory(ev->result);
    }
    json_decref(ev->own.resolved);
    if (ev->own.stage_layers != ev->stated->stage_layers) {
        sp_i_free(ev->own.stage_layers);
    }
    sp_batch_fini(&ev->carried);
    if (status != SP_OK) {
        sp_result_fini(ev->result);
    }
}
