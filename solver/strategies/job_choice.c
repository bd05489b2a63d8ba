// Choices that a job keeps from its first step to its last: how it runs, by all of its batches, and
// what its strategy brings.
#include "solver/strategies/job_choice.h"

#include <stdio.h>

#include "sim/base/alloc.h"
#include "sim/base/progress.h"
#include "sim/base/units.h"
#include "solver/search.h"
#include "solver/step/step.h"
#include "solver/strategy_list.h"

// One way, over the batches so far.
typedef struct job {
    sp_scenario scenario; // a copy that owns no more than what its strategy chooses
    sp_cost_model cost;
    bool costed;
    sp_i_group_starts starts;
    int64_t context;
    sp_packflow_outcome total;
} job;

static bool has_plan(const sp_packflow_outcome *outcome)
{
    return outcome->makespan_ns < INT64_MAX;
}

static void add(sp_packflow_outcome *total, const sp_packflow_outcome *step)
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

// With no plan there is no more to run.
static sp_status give_up(job *j, sp_status status, const sp_error *own, sp_error *err)
{
    j->total = SP_PACKFLOW_WORST;
    return sp_i_only_fatal(status, own, err);
}

static sp_status run_batch(job *j, const sp_batch *batch, double deadline_s, sp_error *err)
{
    const sp_strategy *strategy = sp_strategy_find(j->scenario.strategy.kind);
    const sp_strategy_input input = {.scenario = &j->scenario,
                                     .batch = batch,
                                     .context = j->context,
                                     .cost = &j->cost,
                                     .starts = &j->starts,
                                     .deadline_s = deadline_s};
    sp_packing packing;
    sp_packflow_outcome judged;
    sp_status status = strategy->pack(&input, &packing, err);
    if (status != SP_OK) {
        return status;
    }
    status = strategy->sliced
                 ? sp_step_judge_blocks(&input, &packing, &SP_PACKFLOW_WORST, &judged, err)
                 : sp_step_judge_rows(&input, &packing, &judged, err);
    if (status == SP_OK) {
        sp_step_costs none = {0};
        sp_i_group_starts_add(&j->starts, &packing, &none);
        add(&j->total, &judged);
    }
    sp_packing_fini(&packing);
    return status;
}

// Plans the next batch, and adds what it comes to, unless one before had no plan.
static sp_status run_next(job *j, const sp_batch *batch, double deadline_s, sp_error *err)
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
    return status == SP_OK ? SP_OK : give_up(j, status, &own, err);
}

static void job_fini(job *j)
{
    if (j->costed) {
        sp_cost_model_fini(&j->cost);
    }
    sp_i_group_starts_fini(&j->starts);
    sp_free(j->scenario.chosen_layers);
}

static void job_init(job *j, const sp_scenario *scenario)
{
    *j = (job){.scenario = *scenario};
    j->scenario.resolved = NULL;
    j->scenario.chosen_layers = NULL;
}

// Once the strategy has made its choices.
static sp_status job_begin(job *j, sp_error *err)
{
    sp_i_group_starts_init(&j->starts, &j->scenario);
    sp_status status = sp_scenario_cost_model(&j->scenario, &j->cost, err);
    j->costed = status == SP_OK;
    return status;
}

sp_status sp_i_job_run(const sp_scenario *scenario, const sp_batches *batches, double deadline_s,
                       sp_packflow_outcome *total, sp_error *err)
{
    job j;
    sp_error own;
    sp_error_clear(&own);
    job_init(&j, scenario);
    j.context = batches->context;
    sp_status status = job_begin(&j, &own);
    if (status != SP_OK) {
        status = give_up(&j, status, &own, err);
    }
    for (int b = 0; status == SP_OK && b < batches->count; b++) {
        double part_s = sp_i_deadline_part_s(deadline_s, 1.0 / (batches->count - b));
        status = run_next(&j, &batches->batch[b], part_s, err);
    }
    *total = j.total;
    job_fini(&j);
    return status;
}

static void take_way(sp_scenario *scenario, const sp_i_job_way *way)
{
    sp_scenario_set_strategy(scenario, way->kind, way->exchange_of);
    if (way->exchange_of != NULL) {
        sp_i_take_exchange(sp_strategy_find(way->exchange_of), scenario);
        scenario->order_resolved = false;
    }
}

static sp_status try_way(job *j, const sp_scenario *scenario, const sp_i_job_way *way,
                         double deadline_s, bool compared, sp_error *err)
{
    sp_error own;
    sp_error_clear(&own);
    job_init(j, scenario);
    if (deadline_s > 0.0) {
        j->scenario.strategy.time_limit_ms = sp_i_deadline_left_ms(deadline_s) + 1;
    }
    take_way(&j->scenario, way);
    sp_status status = sp_strategy_resolve(&j->scenario, compared, &own);
    if (status == SP_OK) {
        status = job_begin(j, &own);
    }
    return status == SP_OK ? SP_OK : give_up(j, status, &own, err);
}

// One more batch of all ways that have had a plan so far.
static sp_status run_ways(job *jobs, int count, const sp_batch *batch, double deadline_s,
                          sp_error *err)
{
    sp_status status = SP_OK;
    for (int i = 0; status == SP_OK && i < count; i++) {
        status =
            run_next(&jobs[i], batch, sp_i_deadline_part_s(deadline_s, 1.0 / (count - i)), err);
    }
    return status;
}

static int fastest_of(const job *jobs, int count)
{
    int fastest = 0;
    for (int i = 1; i < count; i++) {
        fastest = sp_packflow_is_better(&jobs[i].total, &jobs[fastest].total) ? i : fastest;
    }
    return fastest;
}

// Each way has an equal part of the time for its choices and the first batch. By the others is
// chosen as far as they are run in all ways before the deadline.
static sp_status run_jobs(job *jobs, const sp_scenario *scenario, const sp_i_job_way *ways,
                          int count, bool compared, double deadline_s, int *fastest, sp_error *err)
{
    sp_batches batches;
    sp_status status = sp_batches_make(&scenario->workload, &batches, err);
    for (int i = 0; status == SP_OK && i < count; i++) {
        double part_s = sp_i_deadline_part_s(deadline_s, 1.0 / (count - i));
        const int64_t limit = sp_i_begin_part(scenario, 1.0 / (count - i));
        status = try_way(&jobs[i], scenario, &ways[i], part_s, compared, err);
        jobs[i].context = batches.context;
        if (status == SP_OK && batches.count > 0) {
            status = run_next(&jobs[i], &batches.batch[0], part_s, err);
        }
        sp_i_end_part(scenario, limit);
    }
    *fastest = status == SP_OK ? fastest_of(jobs, count) : 0;
    for (int b = 1; status == SP_OK && b < batches.count; b++) {
        status = run_ways(jobs, count, &batches.batch[b], deadline_s, err);
        if (sp_i_is_late(scenario, deadline_s)) {
            break;
        }
        *fastest = fastest_of(jobs, count);
    }
    sp_batches_fini(&batches);
    return status;
}

// As much of a time limit is left for what is then chosen and planned as each way has had.
static sp_status find_fastest(sp_scenario *scenario, const sp_i_job_way *ways, int count,
                              bool compared, int *fastest, sp_error *err)
{
    const double begun_s = sp_clock_s();
    const double limit_s = 1e-3 * (double)scenario->strategy.time_limit_ms;
    const double deadline_s = limit_s > 0.0 ? begun_s + limit_s * count / (count + 1) : 0.0;
    job *jobs = sp_calloc((size_t)count, sizeof *jobs);
    *fastest = 0;
    sp_status status = run_jobs(jobs, scenario, ways, count, compared, deadline_s, fastest, err);
    for (int i = 0; i < count; i++) {
        job_fini(&jobs[i]);
    }
    sp_free(jobs);
    scenario->strategy.spent_s += sp_clock_s() - begun_s;
    return status;
}

// As a resolved document does, which is to give the same scenario when it is read again.
static bool states_all(const sp_scenario *scenario)
{
    return scenario->schedule_given && scenario->chunks_given && scenario->cp_overlap_given;
}

sp_status sp_i_job_choose(sp_scenario *scenario, const sp_i_job_way *ways, int count, bool compared,
                          sp_error *err)
{
    int fastest = 0;
    sp_strategy_spec *strategy = &scenario->strategy;
    snprintf(strategy->asked, sizeof strategy->asked, "%s", strategy->kind);
    sp_status status = SP_OK;
    if (count > 1 && (compared || !states_all(scenario))) {
        status = find_fastest(scenario, ways, count, compared, &fastest, err);
    }
    if (status == SP_OK) {
        take_way(scenario, &ways[fastest]);
    }
    return status;
}

// ---- a strategy's own order, exchange and cut, in place of the scenario's ----

// Ranks that share the vocabulary are alike.
static bool cuts_layers(const sp_scenario *scenario)
{
    const sp_layout *layout = &scenario->layout;
    return scenario->cuts_layers && layout->pp > 1 && !layout->vocab_parallel;
}

bool sp_strategy_resolves(const sp_scenario *scenario)
{
    const sp_strategy *strategy = sp_strategy_find(scenario->strategy.kind);
    return strategy->brings_order || strategy->brings_exchange || strategy->rings ||
           cuts_layers(scenario) || scenario->shares_open;
}

// No strategy that brings an exchange, or rings, brings an order.
void sp_i_take_exchange(const sp_strategy *strategy, sp_scenario *scenario)
{
    sp_stack *stack = &scenario->memory.stack;
    if (strategy->rings && stack->cp_ring_nics == 0) {
        return;
    }
    if (!scenario->cp_overlap_given) {
        stack->cp_overlap = strategy->rings ? SP_CP_ATTENTION : strategy->cp_overlap;
    }
    if (!scenario->cp_ring_nics_given && !strategy->rings) {
        stack->cp_ring_nics = strategy->cp_ring_nics;
    }
    sp_scenario_set_stack(scenario);
}

static sp_status resolve(const sp_strategy *strategy, sp_scenario *scenario, bool compared,
                         sp_error *err);

static sp_status resolve_all(sp_scenario *scenario, bool compared, sp_error *err)
{
    const sp_strategy *strategy = sp_strategy_find(scenario->strategy.kind);
    if (scenario->uniform || scenario->order_resolved || strategy == NULL ||
        !sp_strategy_resolves(scenario)) {
        return SP_OK;
    }
    sp_status allowed = sp_strategy_check_shares(scenario, err);
    if (allowed != SP_OK) {
        return allowed;
    }
    if (strategy->choose_job != NULL && scenario->strategy.asked[0] == '\0') {
        sp_status status = strategy->choose_job(scenario, compared, err);
        if (status != SP_OK) {
            return status;
        }
        strategy = sp_strategy_find(scenario->strategy.kind);
    }
    sp_status status = resolve(strategy, scenario, compared, err);
    return status == SP_OK && cuts_layers(scenario) ? sp_i_choose_cut(scenario, err) : status;
}

sp_status sp_strategy_resolve(sp_scenario *scenario, bool compared, sp_error *err)
{
    sp_strategy_spec *spec = &scenario->strategy;
    if (spec->meter != NULL || spec->time_limit_ms > 0) {
        return resolve_all(scenario, compared, err);
    }
    sp_meter meter = {.limit = sp_i_most_work(scenario->workload.batches)};
    spec->meter = &meter;
    sp_status status = resolve_all(scenario, compared, err);
    spec->curtailed = meter.ended;
    spec->meter = NULL;
    return status;
}

// Which layers "auto" takes is chosen afterwards.
static void take_chunks(sp_scenario *scenario, int chunks)
{
    int *layers = NULL;
    if (scenario->layout.chunks == chunks) {
        return;
    }
    scenario->layout.chunks = chunks;
    if (scenario->cuts_layers) {
        layers = sp_calloc((size_t)sp_layout_vstages(&scenario->layout), sizeof *layers);
        sp_layout_level(&scenario->layout, scenario->model.layers, 0.0, 0.0, NULL, NULL, layers);
    }
    sp_scenario_take_cut(scenario, chunks, layers);
}

static sp_status resolve(const sp_strategy *strategy, sp_scenario *scenario, bool compared,
                         sp_error *err)
{
    if (strategy->brings_exchange || strategy->rings) {
        sp_i_take_exchange(strategy, scenario);
        return SP_OK;
    }
    if (!strategy->brings_order) {
        return SP_OK;
    }
    sp_schedule_spec *schedule = &scenario->schedule;
    if (scenario->schedule_given && schedule->kind != strategy->schedule && !compared) {
        return sp_error_in(err, SP_ERR_CONTENT, scenario->source, "schedule.kind",
                           "is \"%s\", but strategy \"%s\" brings its own order, \"%s\"",
                           sp_schedule_names[schedule->kind], strategy->name,
                           sp_schedule_names[strategy->schedule]);
    }
    if (schedule->kind != strategy->schedule && !scenario->chunks_given) {
        int chunks = sp_schedule_traits_of(strategy->schedule).chunks;
        take_chunks(scenario, chunks > 1 ? chunks : 1);
    }
    schedule->kind = strategy->schedule;
    schedule->split_backward = strategy->split_backward;
    if (schedule->slices == 0) {
        schedule->slices = scenario->layout.pp;
    }
    sp_status status = sp_scenario_resolve_layout(scenario, err);
    if (status == SP_OK && strategy->choose_exchange != NULL) {
        status = strategy->choose_exchange(scenario, err);
    }
    if (status == SP_OK && strategy->choose_chunks != NULL) {
        status = strategy->choose_chunks(scenario, err);
    }
    return status == SP_OK ? sp_scenario_set_order(scenario, err) : status;
}
