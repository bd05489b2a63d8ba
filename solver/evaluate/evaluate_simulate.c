// One step: timeline, metrics and memory of a plan whose costs are known.
#include "sim/base/progress.h"
#include "sim/base/units.h"
#include "sim/engine/allocator_replay.h"
#include "sim/model/inventory.h"
#include "sim/model/planner_memory.h"
#include "solver/evaluate/evaluate_private.h"

static sp_status plan_memory(const sp_i_evaluation *ev, const sp_packing *packing,
                             sp_step_metrics *metrics, sp_error *err);
static sp_status count_blocks(const sp_i_evaluation *ev, const sp_timeline *timeline,
                              const sp_step_costs *costs, const sp_memory_timeline *memory,
                              sp_error *err);
static sp_status explain_peak(const sp_i_evaluation *ev, const sp_timeline *timeline,
                              const sp_step_costs *costs, const sp_memory_timeline *memory,
                              int64_t peak_bytes, sp_error *err);

sp_status sp_i_evaluate_simulate(sp_i_evaluation *ev, int index, const sp_plan *plan,
                                 const sp_step_costs *costs, sp_batch_facts *facts, sp_error *err)
{
    sp_timeline timeline;
    sp_memory_timeline memory;
    sp_engine_counts counts = {0};
    sp_step_metrics metrics = {0};
    sp_engine_options engine = ev->options->engine;
    engine.source = ev->scenario->source;
    double started_s = sp_clock_s();
    sp_status status = sp_simulate(plan, costs, &engine, &timeline, &memory, &counts, err);
    if (status != SP_OK) {
        return status;
    }
    status = sp_step_metrics_compute(&timeline, &memory, &metrics, err);
    if (status == SP_OK) {
        status = plan_memory(ev, plan->packing, &metrics, err);
    }
    if (status == SP_OK) {
        status = count_blocks(ev, &timeline, costs, &memory, err);
    }
    if (status == SP_OK) {
        status = explain_peak(ev, &timeline, costs, &memory, metrics.peak_bytes, err);
    }
    facts->simulate_ms += (sp_clock_s() - started_s) * 1e3;
    facts->tasks = (int64_t)counts.tasks;
    facts->edges = (int64_t)counts.edges;
    facts->lower_bound_ns = -1.0;
    facts->work_bound_ns = -1.0;
    if (status == SP_OK && !ev->options->no_bounds) {
        status = sp_i_evaluate_bounds(ev, plan, costs, &metrics, facts, err);
    }
    if (status == SP_OK) {
        status = sp_result_add(ev->result, &metrics, facts, err);
    }
    if (status == SP_OK && ev->options->observer != NULL) {
        sp_step_view view = {.batch = index,
                             .plan = plan,
                             .costs = costs,
                             .timeline = &timeline,
                             .memory = &memory,
                             .lower_bound_ms = facts->lower_bound_ns / SP_NS_PER_MS};
        status = ev->options->observer(ev->options->observer_context, &view, err);
    }
    sp_step_metrics_fini(&metrics);
    sp_timeline_fini(&timeline);
    sp_memory_timeline_fini(&memory);
    return status;
}

// Memory by SlimPipe's planner in place of the simulated one: one figure for all ranks, the
// fullest.
static sp_status plan_memory(const sp_i_evaluation *ev, const sp_packing *packing,
                             sp_step_metrics *metrics, sp_error *err)
{
    const sp_scenario *scenario = ev->scenario;
    sp_schedule_kind kind = scenario->schedule.kind;
    sp_planner_options options = {.order = kind == SP_SCHEDULE_SLIMPIPE  ? SP_PLANNER_SLIMPIPE
                                           : scenario->layout.chunks > 1 ? SP_PLANNER_INTERLEAVED
                                                                         : SP_PLANNER_1F1B,
                                  .slices = scenario->schedule.slices,
                                  .memory = scenario->memory};
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

static int64_t larger(int64_t a, int64_t b)
{
    return a > b ? a : b;
}

// What PyTorch's allocator would count, where that can be said.
static sp_status count_blocks(const sp_i_evaluation *ev, const sp_timeline *timeline,
                              const sp_step_costs *costs, const sp_memory_timeline *memory,
                              sp_error *err)
{
    const sp_scenario *scenario = ev->scenario;
    const sp_evaluate_options *options = ev->options;
    ev->result->reserved_peak_bytes =
        larger(ev->result->reserved_peak_bytes, options->reserved_bytes);
    if ((!options->allocator_peak && options->rank_peak == SP_NO_RANK) || scenario->uniform) {
        return SP_OK;
    }
    const char *obstacle = "the planner's formulas know no tensors";
    bool known = scenario->memory_model != SP_MEMORY_SLIMPIPE_PLANNER;
    sp_allocator_peak all = {0};
    sp_allocator_peak one = {0};
    sp_status status = SP_OK;
    if (known && options->allocator_peak) {
        status = sp_allocator_replay(timeline, costs, memory, &scenario->model, &scenario->memory,
                                     SP_NO_RANK, &all, &obstacle, err);
    }
    if (known && options->rank_peak != SP_NO_RANK && status == SP_OK) {
        status = sp_allocator_replay(timeline, costs, memory, &scenario->model, &scenario->memory,
                                     options->rank_peak, &one, &obstacle, err);
    }
    if (status == SP_OK && obstacle != NULL) {
        sp_warnings_add(&ev->result->warnings, "no peak_memory_allocator_gib: %s", obstacle);
    }
    if (status == SP_OK) {
        sp_result *r = ev->result;
        r->allocator_peak_bytes = larger(r->allocator_peak_bytes, all.allocated_bytes);
        r->reserved_peak_bytes = larger(r->reserved_peak_bytes, all.reserved_bytes);
        r->rank_peak_bytes = larger(r->rank_peak_bytes, one.allocated_bytes);
        r->rank_reserved_bytes = larger(r->rank_reserved_bytes, one.reserved_bytes);
    }
    return status;
}

// What fills the peak of the batch that has the largest.
static sp_status explain_peak(const sp_i_evaluation *ev, const sp_timeline *timeline,
                              const sp_step_costs *costs, const sp_memory_timeline *memory,
                              int64_t peak_bytes, sp_error *err)
{
    const sp_scenario *scenario = ev->scenario;
    if (scenario->uniform || scenario->memory_model != SP_MEMORY_TENSORS ||
        peak_bytes <= ev->result->peak_bytes) {
        return SP_OK;
    }
    return sp_peak_memory_explain(timeline, memory, costs, &scenario->model, &scenario->memory,
                                  &ev->result->peak_memory, err);
}

// What a batch amounts to: micro-batches, tokens, FLOPs.
void sp_i_evaluate_recompute(sp_i_evaluation *ev)
{
    const sp_scenario *scenario = ev->scenario;
    sp_layout alone = {.tp = 1, .cp = 1, .pp = 1, .dp = 1, .chunks = 1};
    sp_inventory ops;
    sp_inventory_build(&scenario->model, &alone, &scenario->memory.stack,
                       scenario->memory.attention, scenario->memory.recompute, SP_PART_LAYER,
                       SP_PASS_RECOMPUTE, &ops);
    double layers = (double)scenario->model.layers;
    ev->recompute_flops_per_token =
        layers * sp_inventory_flops(&ops, &scenario->model, &alone, SP_PASS_RECOMPUTE, 1.0, 0.0);
    ev->recompute_flops_per_pair2 =
        layers * sp_inventory_flops(&ops, &scenario->model, &alone, SP_PASS_RECOMPUTE, 0.0, 1.0);
}

int64_t sp_i_evaluate_microbatches(const sp_packing *packing)
{
    int64_t count = 0;
    for (size_t k = 0; k < packing->forward.count; k++) {
        count += k == 0 ||
                 packing->forward.packs[k].microbatch != packing->forward.packs[k - 1].microbatch;
    }
    return count;
}

void sp_i_evaluate_count(const sp_i_evaluation *ev, const sp_packing *packing,
                         sp_batch_facts *facts)
{
    const sp_model *model = &ev->scenario->model;
    double pairs2 = 0.0;
    double full2 = 0.0;
    facts->microbatches = sp_i_evaluate_microbatches(packing);
    if (ev->scenario->uniform) {
        return;
    }
    for (size_t k = 0; k < packing->forward.count; k++) {
        facts->tokens += packing->forward.packs[k].tokens;
        facts->computed_tokens += packing->forward.packs[k].computed;
    }
    for (size_t s = 0; s < packing->forward.slice_count; s++) {
        const sp_slice *slice = &packing->forward.slices[s];
        double l = (double)slice->tokens;
        pairs2 += 2.0 * l * (double)slice->begin + l * l;
        // What a slice's queries would cover without the causal mask: the whole sample.
        full2 += 2.0 * l * (double)packing->batch->tokens[slice->sample];
        facts->samples += slice->begin == 0;
    }
    double tokens = (double)facts->tokens;
    facts->model_flops = 3.0 * sp_model_forward_flops(model, tokens, pairs2);
    facts->full_flops = 3.0 * sp_model_forward_flops(model, tokens, full2);
    facts->hardware_flops = facts->model_flops + tokens * ev->recompute_flops_per_token +
                            pairs2 * ev->recompute_flops_per_pair2;
}
