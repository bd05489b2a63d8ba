#include "solver/evaluate.h"

#include <stdio.h>
#include <string.h>

#include "sim/base/progress.h"
#include "sim/base/units.h"
#include "sim/cost/cost_model.h"
#include "sim/cost/exchange.h"
#include "sim/model/inventory.h"
#include "sim/model/planner_memory.h"
#include "sim/schedule/offload.h"
#include "solver/slicing.h"
#include "solver/strategy.h"

#define BYTES_BF16 2.0

// What stays the same over the batches of one evaluation.
typedef struct evaluation {
    const sp_scenario *scenario;
    const sp_evaluate_options *options;
    sp_cost_model cost; // unused with uniform costs
    double recompute_flops_per_token, recompute_flops_per_pair2;
    sp_result *result;
} evaluation;

sp_status sp_evaluate_batches(const sp_scenario *scenario, sp_batches *batches, sp_error *err)
{
    *batches = (sp_batches){0};
    return scenario->uniform ? SP_OK : sp_batches_make(&scenario->workload, batches, err);
}

// FLOPs that the recomputation of all layers adds, per token and per half pair, before sharding.
static void measure_recompute(evaluation *ev)
{
    const sp_scenario *scenario = ev->scenario;
    sp_layout alone = {.tp = 1, .cp = 1, .pp = 1, .dp = 1, .chunks = 1};
    sp_inventory ops;
    sp_inventory_build(&scenario->model, &alone, scenario->memory.attention,
                       scenario->memory.recompute, SP_PART_LAYER, SP_PASS_RECOMPUTE, &ops);
    double layers = (double)scenario->model.layers;
    ev->recompute_flops_per_token =
        layers * sp_inventory_flops(&ops, &scenario->model, &alone, SP_PASS_RECOMPUTE, 1.0, 0.0);
    ev->recompute_flops_per_pair2 =
        layers * sp_inventory_flops(&ops, &scenario->model, &alone, SP_PASS_RECOMPUTE, 0.0, 1.0);
}

// Closed form of the zero-bubble tables for interleaved 1F1B (arXiv 2401.10241, Table 5): bubble
// (p-1)(F+B+W)/v + c(2pv-p-2) over the longest stage; negative where it does not apply.
static double published_bubble(const sp_scenario *scenario)
{
    if (!scenario->uniform || scenario->schedule.kind != SP_SCHEDULE_INTERLEAVED ||
        scenario->microbatches <= 0) {
        return -1.0;
    }
    const sp_uniform_costs *u = &scenario->uniform_costs;
    double p = scenario->layout.pp;
    double v = scenario->layout.chunks;
    double per_rank = (u->f_ms + u->b_ms + u->w_ms) * (u->per_chunk ? v : 1.0);
    double work = (double)scenario->microbatches * per_rank;
    double bubble = (p - 1.0) * per_rank / v + u->p2p_ms * (2.0 * p * v - p - 2.0);
    return bubble / (work + bubble);
}

// Settings whose time rests on an assumption, or is not counted.
static void warn_of_free_settings(const sp_scenario *scenario, sp_warnings *warnings)
{
    if (scenario->memory.offload_ratio > 0.0) {
        sp_warnings_add(warnings,
                        "offloading: copies run at an assumed host link rate of %.0f GB/s",
                        scenario->cluster.host_link_bytes_per_s / 1e9);
    }
    if (scenario->layout.zero >= 2) {
        sp_warnings_add(warnings,
                        "zero %d: gradients are reduced and parameters gathered once per step, "
                        "not for every micro-batch",
                        scenario->layout.zero);
    }
    if (scenario->layout.vocab_parallel) {
        sp_warnings_add(warnings,
                        "vocab_parallel: a rank's share of the head does not wait for the "
                        "last stage; its exchange counts as TP communication");
    }
}

static sp_status begin(evaluation *ev, const sp_scenario *scenario,
                       const sp_evaluate_options *options, sp_result *result, sp_error *err)
{
    *ev = (evaluation){.scenario = scenario, .options = options, .result = result};
    *result = (sp_result){.layout = scenario->layout,
                          .seed = scenario->workload.seed,
                          .lossless = true,
                          .level = SP_LEVEL_ASSUMED,
                          .published_bubble_ratio = published_bubble(scenario)};
    // A result may outlive the scenario that owns them.
    result->layout.stage_layers = NULL;
    snprintf(result->schedule, sizeof result->schedule, "%s",
             sp_schedule_names[scenario->schedule.kind]);
    if (scenario->uniform) {
        return SP_OK;
    }
    snprintf(result->strategy, sizeof result->strategy, "%s", scenario->strategy.kind);
    snprintf(result->model_name, sizeof result->model_name, "%s", scenario->model.name);
    snprintf(result->profile, sizeof result->profile, "%s", scenario->profile.name);
    result->parameters = sp_model_parameters(&scenario->model);
    result->flops_per_token = 3.0 * sp_model_forward_flops(&scenario->model, 1.0, 0.0);
    result->peak_flops_per_s = scenario->cluster.peak_flops_per_s;
    result->memory_limit_bytes = scenario->memory_limit_bytes;
    // The rates of host links are assumed in every cluster.
    result->level = scenario->memory.offload_ratio > 0.0 ? SP_LEVEL_ASSUMED
                                                         : sp_profile_level(&scenario->profile);
    result->lossless = sp_strategy_is_lossless(scenario->strategy.kind);
    measure_recompute(ev);
    warn_of_free_settings(scenario, &result->warnings);
    if (strcmp(scenario->profile.gpu, scenario->cluster.gpu) != 0 &&
        strcmp(scenario->profile.name, scenario->cluster.profile) != 0) {
        sp_warnings_add(&result->warnings,
                        "profile %s describes the %s, the cluster's GPUs are %s: utilisation is "
                        "against the latter's peak",
                        scenario->profile.name, scenario->profile.gpu, scenario->cluster.gpu);
    }
    return sp_cost_model_init(&ev->cost, &scenario->model, &scenario->layout, &scenario->cluster,
                              &scenario->profile, scenario->memory, scenario->source, err);
}

static void end(evaluation *ev, sp_status status)
{
    if (!ev->scenario->uniform) {
        ev->result->uncalibrated_count =
            sp_uncalibrated_lines(&ev->cost.uncalibrated, ev->result->uncalibrated);
        sp_cost_model_fini(&ev->cost);
    }
    if (status != SP_OK) {
        sp_result_fini(ev->result);
    }
}

// No step of the packed samples is faster: their work without any fixed cost, spread evenly over
// all ranks, and the shortest tail. Makespan >= mean busy time >= work / ranks, and every rank's
// tail follows its last action.
static double work_bound_ns(evaluation *ev, const sp_packing *packing, const sp_step_costs *costs)
{
    const sp_layout *layout = &ev->scenario->layout;
    double work_s = 0.0;
    for (size_t s = 0; s < packing->forward.slice_count; s++) {
        const sp_slice *slice = &packing->forward.slices[s];
        if (slice->begin == 0) {
            int64_t tokens = packing->batch->tokens[slice->sample];
            work_s += sp_cost_model_sample_work_s(&ev->cost, tokens);
        }
    }
    int64_t tail_ns = INT64_MAX;
    for (int r = 0; r < layout->pp; r++) {
        int64_t ns = costs->tail[r].grad_reduce_ns + costs->tail[r].optimizer_ns +
                     costs->tail[r].param_gather_ns;
        tail_ns = ns < tail_ns ? ns : tail_ns;
    }
    return work_s * SP_NS_PER_S / ((double)layout->dp * layout->pp) + (double)tail_ns;
}

static int64_t busiest_rank_ns(const sp_step_metrics *metrics)
{
    int64_t busiest = 0;
    for (int64_t r = 0; r < metrics->rank_count; r++) {
        busiest = metrics->ranks[r].busy_ns > busiest ? metrics->ranks[r].busy_ns : busiest;
    }
    return busiest;
}

static void count_batch(const evaluation *ev, const sp_packing *packing, sp_batch_facts *facts)
{
    const sp_model *model = &ev->scenario->model;
    double pairs2 = 0.0;
    double full2 = 0.0;
    for (size_t k = 0; k < packing->forward.count; k++) {
        // The slices of a row are one micro-batch.
        facts->microbatches += k == 0 || packing->forward.packs[k].microbatch !=
                                             packing->forward.packs[k - 1].microbatch;
    }
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

// Memory by SlimPipe's planner in place of the simulated one: one figure for all ranks, the
// fullest.
static sp_status plan_memory(const evaluation *ev, const sp_packing *packing,
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

// Packs and schedules are done: simulate, measure, hand to the observer.
static sp_status simulate_plan(evaluation *ev, int index, const sp_plan *plan,
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
    facts->simulate_ms += (sp_clock_s() - started_s) * 1e3;
    facts->tasks = (int64_t)counts.tasks;
    facts->edges = (int64_t)counts.edges;
    if (status == SP_OK) {
        if (ev->scenario->uniform) {
            facts->lower_bound_ns = (double)busiest_rank_ns(&metrics);
        } else {
            facts->lower_bound_ns = work_bound_ns(ev, plan->packing, costs);
        }
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

static sp_status build_costs(evaluation *ev, const sp_packing *packing, sp_step_costs *costs,
                             sp_error *err)
{
    return ev->scenario->uniform ? sp_step_costs_uniform(&ev->scenario->uniform_costs,
                                                         &ev->scenario->layout, packing, costs, err)
                                 : sp_cost_model_build(&ev->cost, packing, costs, err);
}

// Simulates a plan whose costs are known.
static sp_status evaluate_costed(evaluation *ev, int index, const sp_plan *plan,
                                 const sp_step_costs *costs, sp_batch_facts *facts, sp_error *err)
{
    count_batch(ev, plan->packing, facts);
    if (plan->packing->dropped_count + plan->packing->delayed_count > 0) {
        ev->result->lossless = false;
    }
    return simulate_plan(ev, index, plan, costs, facts, err);
}

// The stated number of micro-batches must be what the strategy made.
static sp_status check_microbatches(const evaluation *ev, const sp_packing *packing, sp_error *err)
{
    int64_t dp = ev->scenario->layout.dp;
    int64_t made = (int64_t)packing->forward.count;
    int64_t wanted = ev->scenario->microbatches;
    if (made < dp) {
        sp_warnings_add(&ev->result->warnings,
                        "%lld micro-batches leave %lld of %lld data-parallel ranks idle",
                        (long long)made, (long long)(dp - made), (long long)dp);
    }
    if (wanted > 0 && !ev->scenario->uniform && made != wanted * dp) {
        return sp_error_in(err, SP_ERR_CONTENT, ev->scenario->source, "schedule.microbatches",
                           "is %lld for each of %lld data-parallel ranks, strategy \"%s\" makes "
                           "%lld micro-batches in all",
                           (long long)wanted, (long long)dp, ev->scenario->strategy.kind,
                           (long long)made);
    }
    return SP_OK;
}

static int64_t pack_time_ns(void *context, const sp_pack_list *list)
{
    return sp_ns_from_s(sp_cost_model_forward_s(context, list, &list->packs[0]));
}

// From a batch to its packs: the strategy's rows, cut into slices where the schedule runs slices.
static sp_status pack_batch(evaluation *ev, const sp_batch *batch, int64_t context,
                            sp_batch *uniform, sp_packing *packing, sp_error *err)
{
    const sp_scenario *scenario = ev->scenario;
    const sp_schedule_spec *schedule = &scenario->schedule;
    int dp = scenario->layout.dp;
    int slices = sp_schedule_traits_of(schedule->kind).sliced ? schedule->slices : 1;
    if (scenario->uniform) {
        return sp_packing_uniform_sliced(packing, uniform, dp, scenario->microbatches, slices, err);
    }
    sp_status status = sp_strategy_pack(&scenario->strategy, batch, context, dp, packing, err);
    if (status != SP_OK) {
        return status;
    }
    status = check_microbatches(ev, packing, err);
    if (status == SP_OK && slices > 1 && schedule->slice_rule == SP_SLICE_SHORTEST) {
        status = sp_slice_rows_shortest(packing, scenario->layout.pp, pack_time_ns, &ev->cost, err);
    } else if (status == SP_OK && slices > 1) {
        status = sp_slice_rows(packing, slices, schedule->slice_rule, &scenario->model,
                               scenario->source, err);
    }
    if (status != SP_OK) {
        sp_packing_fini(packing);
    }
    return status;
}

// Lets the ranks exchange attention where the schedule does.
static sp_status exchange_attention(const evaluation *ev, const sp_plan *plan, sp_step_costs *costs,
                                    sp_error *err)
{
    const sp_scenario *scenario = ev->scenario;
    if (scenario->schedule.kind != SP_SCHEDULE_SLIMPIPE || !scenario->schedule.exchange) {
        return SP_OK;
    }
    sp_exchange_report report;
    sp_status status = sp_exchange_apply(plan, costs, &report, err);
    if (status != SP_OK) {
        return status;
    }
    double layers = scenario->uniform
                        ? 0.0
                        : (double)scenario->model.layers / sp_layout_vstages(&scenario->layout);
    double head_bytes = BYTES_BF16 * (double)scenario->model.head_dim / scenario->layout.tp;
    ev->result->has_exchange = true;
    ev->result->exchange_before = report.imbalance_before;
    ev->result->exchange_after = report.imbalance_after;
    ev->result->exchange_messages += report.messages;
    ev->result->exchange_bytes +=
        sp_exchange_bytes(&report, layers * scenario->model.heads * head_bytes,
                          layers * 2.0 * scenario->model.kv_heads * head_bytes) /
        scenario->layout.cp;
    return SP_OK;
}

static sp_status offload_activations(const evaluation *ev, sp_plan *plan, sp_error *err)
{
    const sp_scenario *scenario = ev->scenario;
    if (scenario->uniform || scenario->memory.offload_ratio <= 0.0 ||
        scenario->memory_model == SP_MEMORY_SLIMPIPE_PLANNER) {
        return SP_OK;
    }
    if (scenario->schedule.kind == SP_SCHEDULE_DUALPIPE_V) {
        return sp_error_in(err, SP_ERR_CONTENT, scenario->source, "memory.offload_ratio",
                           "\"dualpipe-v\" runs actions side by side, which leaves no place for "
                           "copies between them");
    }
    return sp_schedule_add_offload(plan, err);
}

// Orders the actions.
static sp_status schedule_packs(const evaluation *ev, sp_plan *plan, sp_step_costs *costs,
                                sp_error *err)
{
    const sp_schedule_spec *schedule = &ev->scenario->schedule;
    sp_schedule_costs *means = NULL;
    sp_status status = SP_OK;
    if (sp_schedule_traits_of(schedule->kind).timed) {
        status = sp_step_costs_means(costs, plan, &means, err);
    }
    if (status == SP_OK) {
        status = sp_schedule_generate(schedule, means, ev->scenario->source, plan, err);
    }
    sp_schedule_costs_free(means);
    if (status == SP_OK) {
        status = exchange_attention(ev, plan, costs, err);
    }
    return status == SP_OK ? offload_activations(ev, plan, err) : status;
}

static sp_status evaluate_batch(evaluation *ev, int index, const sp_batch *batch, int64_t context,
                                sp_error *err)
{
    sp_batch uniform = {0};
    sp_packing packing;
    sp_plan plan = {0};
    sp_step_costs costs = {0};
    sp_batch_facts facts = {0};
    double started_s = sp_clock_s();
    sp_status status = pack_batch(ev, batch, context, &uniform, &packing, err);
    if (status != SP_OK) {
        return status;
    }
    status = sp_plan_init(&plan, &ev->scenario->layout, &packing, err);
    double packed_s = sp_clock_s();
    if (status == SP_OK) {
        status = build_costs(ev, &packing, &costs, err);
    }
    double costed_s = sp_clock_s();
    if (status == SP_OK) {
        status = schedule_packs(ev, &plan, &costs, err);
    }
    facts.simulate_ms = (costed_s - packed_s) * 1e3;
    facts.solver_ms = (sp_clock_s() - started_s) * 1e3 - facts.simulate_ms;
    if (status == SP_OK) {
        status = evaluate_costed(ev, index, &plan, &costs, &facts, err);
    }
    sp_step_costs_fini(&costs);
    sp_plan_fini(&plan);
    sp_packing_fini(&packing);
    sp_batch_fini(&uniform);
    return status;
}

// A plan that exists already.
static sp_status evaluate_plan(evaluation *ev, int index, const sp_plan *plan, sp_error *err)
{
    sp_step_costs costs = {0};
    sp_batch_facts facts = {0};
    double started_s = sp_clock_s();
    sp_status status = build_costs(ev, plan->packing, &costs, err);
    if (status == SP_OK) {
        status = exchange_attention(ev, plan, &costs, err);
    }
    facts.simulate_ms = (sp_clock_s() - started_s) * 1e3;
    if (status == SP_OK) {
        status = evaluate_costed(ev, index, plan, &costs, &facts, err);
    }
    sp_step_costs_fini(&costs);
    return status;
}

static void warn_of_batches(sp_result *result, const sp_batches *batches)
{
    if (batches->dropped > 0) {
        sp_warnings_add(&result->warnings, "samples longer than the context, dropped: %lld",
                        (long long)batches->dropped);
    }
    if (batches->truncated > 0) {
        sp_warnings_add(&result->warnings, "samples longer than the context, truncated: %lld",
                        (long long)batches->truncated);
    }
    if (batches->wrapped) {
        sp_warnings_add(&result->warnings,
                        "the list of lengths is shorter than the batches: it was started again");
    }
}

sp_status sp_evaluate(const sp_scenario *scenario, const sp_batches *batches,
                      const sp_evaluate_options *options, sp_result *result, sp_error *err)
{
    evaluation ev;
    sp_status status = scenario->uniform
                           ? SP_OK
                           : sp_strategy_check(scenario->strategy.kind, scenario->source, err);
    if (status != SP_OK) {
        *result = (sp_result){0};
        return status;
    }
    status = begin(&ev, scenario, options, result, err);
    if (status == SP_OK && scenario->uniform) {
        status = evaluate_batch(&ev, 0, NULL, 0, err);
    } else {
        warn_of_batches(result, batches);
    }
    for (int b = 0; status == SP_OK && b < batches->count; b++) {
        status = evaluate_batch(&ev, b, &batches->batch[b], batches->context, err);
    }
    end(&ev, status);
    return status;
}

sp_status sp_evaluate_plans(const sp_scenario *scenario, const sp_plan *plans, int count,
                            const sp_evaluate_options *options, sp_result *result, sp_error *err)
{
    evaluation ev;
    sp_status status = begin(&ev, scenario, options, result, err);
    for (int b = 0; status == SP_OK && b < count; b++) {
        status = evaluate_plan(&ev, b, &plans[b], err);
    }
    end(&ev, status);
    return status;
}
