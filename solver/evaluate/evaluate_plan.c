// From a batch to a plan: the strategy's packs, cut into slices, in the schedule's order, with what
// the schedule lets ranks exchange and copy.
#include "sim/base/alloc.h"
#include "sim/base/units.h"
#include "sim/cost/exchange.h"
#include "sim/schedule/offload.h"
#include "solver/evaluate/evaluate_private.h"
#include "solver/evaluate/packflow_choice.h"
#include "solver/slicing.h"
#include "solver/strategy.h"

#define BYTES_BF16 2.0

static sp_status check_microbatches(const sp_i_evaluation *ev, const sp_packing *packing,
                                    sp_error *err);
static int64_t pack_time_ns(void *context, const sp_pack_list *list);
static sp_status offload_activations(const sp_i_evaluation *ev, sp_plan *plan, sp_error *err);

sp_status sp_i_evaluate_pack(sp_i_evaluation *ev, const sp_batch *batch, int64_t context,
                             sp_batch *uniform, sp_packing *packing, sp_error *err)
{
    const sp_scenario *scenario = ev->scenario;
    const sp_schedule_spec *schedule = &scenario->schedule;
    if (scenario->uniform) {
        int slices = sp_schedule_traits_of(schedule->kind).sliced ? schedule->slices : 1;
        return sp_packing_uniform_sliced(packing, uniform, scenario->layout.dp,
                                         scenario->microbatches, slices, err);
    }
    const sp_strategy *strategy = sp_strategy_find(scenario->strategy.kind);
    const sp_strategy_input input = {.scenario = scenario,
                                     .batch = batch,
                                     .carried = ev->carried.count,
                                     .context = context,
                                     .cost = &ev->trial,
                                     .threads = ev->options->threads};
    sp_status status = strategy->pack(&input, packing, err);
    if (status != SP_OK) {
        return status;
    }
    status = strategy->sliced ? check_microbatches(ev, packing, err)
                              : sp_i_evaluate_rows(ev, packing, err);
    if (status != SP_OK) {
        sp_packing_fini(packing);
    }
    return status;
}

sp_status sp_i_evaluate_rows(sp_i_evaluation *ev, sp_packing *packing, sp_error *err)
{
    sp_status status = check_microbatches(ev, packing, err);
    return status == SP_OK ? sp_i_evaluate_cut(ev, packing, err) : status;
}

sp_status sp_i_evaluate_cut(sp_i_evaluation *ev, sp_packing *packing, sp_error *err)
{
    const sp_scenario *scenario = ev->scenario;
    const sp_schedule_spec *schedule = &scenario->schedule;
    if (!sp_schedule_traits_of(schedule->kind).sliced || schedule->slices <= 1) {
        return SP_OK;
    }
    return schedule->slice_rule == SP_SLICE_SHORTEST
               ? sp_slice_rows_shortest(packing, scenario->layout.pp, pack_time_ns, &ev->trial, err)
               : sp_slice_rows(packing, schedule->slices, schedule->slice_rule, &scenario->model,
                               scenario->source, err);
}

sp_status sp_i_evaluate_schedule(const sp_i_evaluation *ev, sp_plan *plan, sp_step_costs *costs,
                                 sp_error *err)
{
    const sp_scenario *scenario = ev->scenario;
    sp_schedule_spec spec = scenario->schedule;
    const sp_schedule_spec *schedule = &spec;
    sp_schedule_costs *means = NULL;
    int64_t *memory = NULL;
    sp_status status = SP_OK;
    if (sp_schedule_traits_of(schedule->kind).timed) {
        status = sp_step_costs_means(costs, plan, &means, err);
    }
    if (status == SP_OK && sp_schedule_traits_of(schedule->kind).by_pack) {
        status = sp_step_costs_by_pack(costs, plan, means, err);
        if (status == SP_OK) {
            status =
                sp_i_packflow_choose(scenario, &ev->cost, plan, costs, means, &spec, &memory, err);
        }
    }
    if (status == SP_OK) {
        status = sp_schedule_generate(schedule, means, scenario->source, plan, err);
    }
    sp_schedule_costs_free(means);
    sp_i_free(memory);
    if (status == SP_OK) {
        status = sp_i_evaluate_exchange(ev, plan, costs, err);
    }
    return status == SP_OK ? offload_activations(ev, plan, err) : status;
}

sp_status sp_i_evaluate_exchange(const sp_i_evaluation *ev, const sp_plan *plan,
                                 sp_step_costs *costs, sp_error *err)
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

// The stated number of micro-batches must be what the strategy made.
static sp_status check_microbatches(const sp_i_evaluation *ev, const sp_packing *packing,
                                    sp_error *err)
{
    int64_t dp = ev->scenario->layout.dp;
    int64_t made = sp_i_evaluate_microbatches(packing);
    int64_t wanted = ev->scenario->microbatches;
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

static sp_status offload_activations(const sp_i_evaluation *ev, sp_plan *plan, sp_error *err)
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
