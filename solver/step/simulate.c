// One step: timeline, metrics and memory of a plan whose costs are known.
#include "sim/base/progress.h"
#include "sim/base/units.h"
#include "sim/engine/allocator_replay.h"
#include "solver/step/step.h"

static sp_status plan_memory(const sp_i_steps *steps, const sp_packing *packing,
                             sp_step_metrics *metrics, sp_error *err);
static sp_status count_blocks(const sp_i_steps *steps, const sp_timeline *timeline,
                              const sp_step_costs *costs, const sp_memory_timeline *memory,
                              int64_t peak_bytes, sp_error *err);
static sp_status explain_peak(const sp_i_steps *steps, const sp_timeline *timeline,
                              const sp_step_costs *costs, const sp_memory_timeline *memory,
                              int64_t peak_bytes, sp_error *err);

sp_status sp_i_step_simulate(sp_i_steps *steps, int index, const sp_plan *plan,
                             const sp_step_costs *costs, sp_batch_facts *facts, sp_error *err)
{
    sp_timeline timeline;
    sp_memory_timeline memory;
    sp_engine_counts counts = {0};
    sp_step_metrics metrics = {0};
    sp_engine_options engine = steps->options->engine;
    engine.source = steps->scenario->source;
    const sp_network network = sp_scenario_network(steps->scenario);
    engine.network = &network;
    engine.jitter = steps->scenario->jitter;
    double started_s = sp_clock_s();
    const sp_i_kept_step *known = steps->known;
    sp_status status = SP_OK;
    if (known != NULL) {
        timeline = known->timeline;
        timeline.plan = plan;
        memory = known->memory;
        counts = known->counts;
    } else {
        status = sp_simulate(plan, costs, &engine, &timeline, &memory, &counts, err);
    }
    if (status != SP_OK) {
        return status;
    }
    sp_step_metrics_compute(&timeline, &memory, &metrics);
    status = plan_memory(steps, plan->packing, &metrics, err);
    if (status == SP_OK) {
        status = count_blocks(steps, &timeline, costs, &memory, metrics.peak_bytes, err);
    }
    if (status == SP_OK) {
        status = explain_peak(steps, &timeline, costs, &memory, metrics.peak_bytes, err);
    }
    facts->simulate_ms += (sp_clock_s() - started_s) * 1e3;
    facts->tasks = (int64_t)counts.tasks;
    facts->edges = (int64_t)counts.edges;
    facts->lower_bound_ns = -1.0;
    facts->work_bound_ns = -1.0;
    // GPUs that differ may be faster than those of the profile, from which bounds follow.
    bool bounded = !steps->options->no_bounds && !(engine.jitter.gpu_cv > 0.0);
    if (status == SP_OK && bounded) {
        sp_i_step_bounds(steps, plan, costs, &metrics, facts);
    }
    if (status == SP_OK) {
        sp_result_add(steps->result, &metrics, facts);
    }
    if (status == SP_OK && steps->options->observer != NULL) {
        sp_step_view view = {.batch = index,
                             .plan = plan,
                             .costs = costs,
                             .timeline = &timeline,
                             .memory = &memory,
                             .lower_bound_ms = facts->lower_bound_ns / SP_NS_PER_MS};
        status = steps->options->observer(steps->options->observer_context, &view, err);
    }
    sp_step_metrics_fini(&metrics);
    if (steps->keep != NULL && status == SP_OK) {
        steps->keep->timeline = timeline;
        steps->keep->memory = memory;
        steps->keep->counts = counts;
    } else if (known == NULL) {
        sp_timeline_fini(&timeline);
        sp_memory_timeline_fini(&memory);
    }
    return status;
}

// Memory by SlimPipe's planner in place of the simulated one: one figure for all ranks, the
// fullest.
static sp_status plan_memory(const sp_i_steps *steps, const sp_packing *packing,
                             sp_step_metrics *metrics, sp_error *err)
{
    const sp_scenario *scenario = steps->scenario;
    sp_planner_options options = sp_scenario_planner_options(scenario);
    if (scenario->memory_model != SP_MEMORY_SLIMPIPE_PLANNER) {
        return SP_OK;
    }
    // The longest row: its slices lie in a row.
    int64_t tokens = 0;
    for (size_t k = 0; k < packing->forward.count; k++) {
        const sp_pack *pack = &packing->forward.packs[k];
        bool same = k > 0 && pack->microbatch == packing->forward.packs[k - 1].microbatch;
        tokens = same ? tokens + pack->computed : pack->computed;
        options.sequence_tokens =
            tokens > options.sequence_tokens ? tokens : options.sequence_tokens;
    }
    sp_status status = sp_planner_memory(&scenario->model, &scenario->layout, &options,
                                         scenario->source, &metrics->peak, err);
    metrics->peak_bytes = sp_bytes_total(&metrics->peak);
    for (int64_t r = 0; status == SP_OK && r < metrics->rank_count; r++) {
        metrics->ranks[r].peak_bytes = metrics->peak_bytes;
    }
    return status;
}

// What PyTorch's allocator would count, where that can be said.
static sp_status count_blocks(const sp_i_steps *steps, const sp_timeline *timeline,
                              const sp_step_costs *costs, const sp_memory_timeline *memory,
                              int64_t peak_bytes, sp_error *err)
{
    const sp_scenario *scenario = steps->scenario;
    const sp_evaluate_options *options = steps->options;
    steps->result->reserved_peak_bytes =
        sp_larger(steps->result->reserved_peak_bytes, options->reserved_bytes);
    bool all_ranks =
        options->allocator_peak || (options->allocator_if_tight &&
                                    sp_memory_is_short(peak_bytes, scenario->memory_limit_bytes));
    if ((!all_ranks && options->rank_peak == SP_NO_RANK) || scenario->uniform) {
        return SP_OK;
    }
    const char *obstacle = "the planner's formulas know no tensors";
    bool known = scenario->memory_model != SP_MEMORY_SLIMPIPE_PLANNER;
    sp_allocator_peak all = {0};
    sp_allocator_peak one = {0};
    sp_status status = SP_OK;
    if (known && all_ranks) {
        status = sp_allocator_replay(timeline, costs, memory, &scenario->model, &scenario->memory,
                                     SP_NO_RANK, &all, &obstacle, err);
    }
    if (known && options->rank_peak != SP_NO_RANK && status == SP_OK) {
        status = sp_allocator_replay(timeline, costs, memory, &scenario->model, &scenario->memory,
                                     options->rank_peak, &one, &obstacle, err);
    }
    bool asked = options->allocator_peak || options->rank_peak != SP_NO_RANK;
    if (status == SP_OK && obstacle != NULL && asked) {
        sp_warnings_add(&steps->result->warnings, "no peak_memory_allocator_gib: %s", obstacle);
    } else if (status == SP_OK && obstacle == SP_REPLAY_TOO_LONG) {
        sp_warnings_add(&steps->result->warnings,
                        "memory is tight, and what PyTorch reserves for it is not counted: %s",
                        obstacle);
    }
    if (status == SP_OK) {
        sp_result *r = steps->result;
        r->allocator_peak_bytes = sp_larger(r->allocator_peak_bytes, all.allocated_bytes);
        r->reserved_peak_bytes = sp_larger(r->reserved_peak_bytes, all.reserved_bytes);
        r->least_device_bytes = sp_larger(r->least_device_bytes, all.least_bytes);
        r->rank_peak_bytes = sp_larger(r->rank_peak_bytes, one.allocated_bytes);
        r->rank_reserved_bytes = sp_larger(r->rank_reserved_bytes, one.reserved_bytes);
    }
    return status;
}

// What fills the peak of the batch that has the largest.
static sp_status explain_peak(const sp_i_steps *steps, const sp_timeline *timeline,
                              const sp_step_costs *costs, const sp_memory_timeline *memory,
                              int64_t peak_bytes, sp_error *err)
{
    const sp_scenario *scenario = steps->scenario;
    if (steps->options->no_causes || scenario->uniform ||
        scenario->memory_model != SP_MEMORY_TENSORS || peak_bytes <= steps->result->peak_bytes) {
        return SP_OK;
    }
    return sp_peak_memory_explain(timeline, memory, costs, &scenario->model, &scenario->memory,
                                  &steps->result->peak_memory, err);
}
