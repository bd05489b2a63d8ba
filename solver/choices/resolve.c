// Resolves a scenario: puts in place the choices that a job keeps from its first step to its last.
// Its strategy brings some of them, and others are chosen by all batches of the job.
#include <stdio.h>
#include <string.h>

#include "sim/base/alloc.h"
#include "sim/base/progress.h"
#include "sim/base/units.h"
#include "solver/choices/choices.h"
#include "solver/search.h"

// One way to run a job: another strategy, or another strategy's exchange.
typedef struct job_candidate {
    const char *kind;        // strategy
    const char *exchange_of; // takes its exchange where none is stated; NULL: the scenario's own
} job_candidate;

static bool cuts_layers(const sp_scenario *scenario);
static void take_exchange(const sp_strategy *strategy, sp_scenario *scenario);

static void take_candidate(sp_scenario *scenario, const job_candidate *candidate)
{
    sp_scenario_set_strategy(scenario, candidate->kind, candidate->exchange_of);
    if (candidate->exchange_of != NULL) {
        take_exchange(sp_strategy_find(candidate->exchange_of), scenario);
        scenario->order_resolved = false;
    }
}

static sp_status try_candidate(sp_i_trial_job *j, const sp_scenario *scenario,
                               const job_candidate *candidate, double deadline_s, bool compared,
                               sp_error *err)
{
    sp_error own;
    sp_error_clear(&own);
    sp_i_trial_job_init(j, scenario, deadline_s > 0.0 ? sp_i_deadline_left_ms(deadline_s) + 1 : 0);
    take_candidate(&j->scenario, candidate);
    sp_status status = sp_strategy_resolve(&j->scenario, compared, &own);
    if (status == SP_OK) {
        status = sp_i_trial_job_begin(j, &own);
    }
    return status == SP_OK ? SP_OK : sp_i_trial_job_give_up(j, status, &own, err);
}

// Runs one more batch as each candidate that has had a plan so far.
static sp_status run_all(sp_i_trial_job *jobs, int count, const sp_batch *batch, double deadline_s,
                         sp_error *err)
{
    sp_status status = SP_OK;
    for (int i = 0; status == SP_OK && i < count; i++) {
        status = sp_i_trial_job_run_next(&jobs[i], batch,
                                         sp_i_deadline_part_s(deadline_s, 1.0 / (count - i)), err);
    }
    return status;
}

static int fastest_of(const sp_i_trial_job *jobs, int count)
{
    int fastest = 0;
    for (int i = 1; i < count; i++) {
        fastest = sp_packflow_is_better(&jobs[i].total, &jobs[fastest].total) ? i : fastest;
    }
    return fastest;
}

// Each candidate has an equal part of the time for its choices and the first batch. A later batch
// counts where all candidates have run it before the deadline.
static sp_status run_jobs(sp_i_trial_job *jobs, const sp_scenario *scenario,
                          const job_candidate *list, int count, bool compared, double deadline_s,
                          int *fastest, sp_error *err)
{
    sp_batches batches;
    sp_status status = sp_batches_make(&scenario->workload, &batches, err);
    for (int i = 0; status == SP_OK && i < count; i++) {
        double part_s = sp_i_deadline_part_s(deadline_s, 1.0 / (count - i));
        const int64_t limit = sp_i_begin_part(scenario, 1.0 / (count - i));
        status = try_candidate(&jobs[i], scenario, &list[i], part_s, compared, err);
        jobs[i].context = batches.context;
        if (status == SP_OK && batches.count > 0) {
            status = sp_i_trial_job_run_next(&jobs[i], &batches.batch[0], part_s, err);
        }
        sp_i_end_part(scenario, limit);
    }
    *fastest = status == SP_OK ? fastest_of(jobs, count) : 0;
    for (int b = 1; status == SP_OK && b < batches.count; b++) {
        status = run_all(jobs, count, &batches.batch[b], deadline_s, err);
        if (sp_i_is_late(scenario, deadline_s)) {
            break;
        }
        *fastest = fastest_of(jobs, count);
    }
    sp_batches_fini(&batches);
    return status;
}

// The choices and plans that follow have as much of a time limit as each candidate has had.
static sp_status find_fastest(sp_scenario *scenario, const job_candidate *list, int count,
                              bool compared, int *fastest, sp_error *err)
{
    const double begun_s = sp_clock_s();
    const double limit_s = 1e-3 * (double)scenario->strategy.time_limit_ms;
    const double deadline_s = limit_s > 0.0 ? begun_s + limit_s * count / (count + 1) : 0.0;
    sp_i_trial_job *jobs = sp_calloc((size_t)count, sizeof *jobs);
    *fastest = 0;
    sp_status status = run_jobs(jobs, scenario, list, count, compared, deadline_s, fastest, err);
    for (int i = 0; i < count; i++) {
        sp_i_trial_job_fini(&jobs[i]);
    }
    sp_free(jobs);
    scenario->strategy.spent_s += sp_clock_s() - begun_s;
    return status;
}

// A resolved document states all of them, so that reading it again gives the same scenario.
static bool states_all(const sp_scenario *scenario)
{
    return scenario->schedule_given && scenario->chunks_given && scenario->cp_overlap_given;
}

enum { MOST_CANDIDATES = 7 };

// Groups that one batch starts are there for the next ones: the fastest for each batch need not be
// the fastest for the job.
static int list_for_zeppelin(const sp_scenario *scenario, job_candidate list[MOST_CANDIDATES])
{
    bool starts = scenario->strategy.group_start_ms > 0.0 && scenario->workload.batches > 1 &&
                  scenario->strategy.zones;
    list[0] = (job_candidate){.kind = "zeppelin"};
    list[1] = (job_candidate){.kind = "te-cp"};
    list[2] = (job_candidate){.kind = "hybrid-dp"};
    list[3] = (job_candidate){.kind = "llama-cp"};
    return starts ? 4 : 1;
}

// A job keeps its order, its model chunks and its exchange of keys and values. Where the scenario
// states none of them, they are slimpack's, or slimpack's with zeppelin's exchange, or zeppelin's.
static int list_for_zones(const sp_scenario *scenario, bool compared,
                          job_candidate list[MOST_CANDIDATES])
{
    const sp_layout *layout = &scenario->layout;
    bool open = (int64_t)layout->dp * layout->cp > 1 &&
                !(scenario->cp_overlap_given && scenario->cp_ring_nics_given);
    bool ordered = layout->pp > 1 || scenario->schedule_given;
    bool starts = scenario->strategy.group_start_ms > 0.0 && scenario->workload.batches > 1;
    int count = 0;
    list[count++] = (job_candidate){.kind = "slimpack-zones"};
    if (open) {
        list[count++] = (job_candidate){.kind = "slimpack-zones", .exchange_of = "zeppelin"};
    }
    // Its packs are among those of each batch, in this order and exchange.
    if (open || ordered || starts) {
        list[count++] = (job_candidate){.kind = "zeppelin"};
    }
    if (starts) {
        list[count++] = (job_candidate){.kind = "slimpack"};
        list[count++] = (job_candidate){.kind = "te-cp"};
        list[count++] = (job_candidate){.kind = "hybrid-dp"};
        list[count++] = (job_candidate){.kind = "llama-cp"};
    }
    bool other = scenario->schedule_given && scenario->schedule.kind != SP_SCHEDULE_PACKFLOW;
    return other && !compared ? 1 : count; // resolving then says that the order is another
}

// Runs the batches of the scenario's workload as each candidate, the first batch and as many more
// as there is time for, and makes the scenario ask for the fastest, of equal ones the first:
// changes strategy.kind and the fields of stack that are not stated, and sets strategy.asked. The
// scenario is not resolved, before or after. A candidate without a plan is passed over. The first
// is taken where the scenario states order, chunks and stack.cp_overlap, unless strategies are
// `compared`.
static sp_status choose_job(sp_scenario *scenario, bool compared, sp_error *err)
{
    int fastest = 0;
    job_candidate list[MOST_CANDIDATES];
    sp_strategy_spec *strategy = &scenario->strategy;
    int count = strcmp(strategy->kind, "zeppelin") == 0 ? list_for_zeppelin(scenario, list)
                                                        : list_for_zones(scenario, compared, list);
    snprintf(strategy->asked, sizeof strategy->asked, "%s", strategy->kind);
    sp_status status = SP_OK;
    if (count > 1 && (compared || !states_all(scenario))) {
        status = find_fastest(scenario, list, count, compared, &fastest, err);
    }
    if (status == SP_OK) {
        take_candidate(scenario, &list[fastest]);
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
           strategy->one_sided || cuts_layers(scenario) || scenario->shares_open;
}

// No strategy that brings an exchange, or rings, brings an order.
static void take_exchange(const sp_strategy *strategy, sp_scenario *scenario)
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

// Where it cannot, the strategy refuses its batches. Executors do so as it is; one rank alone has
// nothing to read from others.
static sp_status take_one_sided(sp_scenario *scenario, sp_error *err)
{
    if (!scenario->one_sided_given) {
        sp_stack *stack = &scenario->memory.stack;
        stack->one_sided = scenario->layout.dp > 1 && stack->tensors == SP_TENSORS_AUTOGRAD &&
                           sp_scenario_not_one_sided(scenario) == NULL;
    }
    sp_scenario_set_stack(scenario);
    return sp_scenario_resolve_layout(scenario, err);
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
    if (strategy->zones && scenario->strategy.asked[0] == '\0') {
        sp_status status = choose_job(scenario, compared, err);
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

// Chunks depend on the exchange, and which of two exchanges is faster on the chunks.
static sp_status choose_exchange_and_chunks(sp_scenario *scenario, sp_error *err)
{
    const sp_cp_overlap own = scenario->memory.stack.cp_overlap;
    sp_i_near_exchanges near;
    sp_status status = sp_i_choose_exchange(scenario, &near, err);
    if (status == SP_OK) {
        status = sp_i_choose_chunks(scenario, err);
    }
    if (status == SP_OK) {
        status = sp_i_decide_exchange(scenario, &near, own, err);
    }
    return status == SP_OK ? sp_i_choose_by_rules(scenario, own, err) : status;
}

static sp_status resolve(const sp_strategy *strategy, sp_scenario *scenario, bool compared,
                         sp_error *err)
{
    if (strategy->brings_exchange || strategy->rings) {
        take_exchange(strategy, scenario);
        return SP_OK;
    }
    if (strategy->one_sided) {
        return take_one_sided(scenario, err);
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
    if (status == SP_OK && strategy->chooses_chunks) {
        status = choose_exchange_and_chunks(scenario, err);
    }
    return status == SP_OK ? sp_scenario_set_order(scenario, err) : status;
}
