// From a packing to a plan: packs cut into slices, in the schedule's order, with what the schedule
// lets ranks exchange and copy.
#include "sim/schedule/schedule.h"
#include "sim/base/alloc.h"
#include "sim/base/units.h"
#include "sim/cost/exchange.h"
#include "solver/slicing.h"
#include "solver/step/packflow.h"
#include "solver/step/step.h"
#include "solver/strategy.h"

#define BYTES_BF16 2.0

static int64_t pack_time_ns(void *context, const sp_pack_list *list);
static sp_status offload_activations(const sp_i_steps *steps, sp_plan *plan, sp_error *err);

sp_status sp_i_step_rows(sp_i_steps *steps, sp_packing *packing, sp_error *err)
{
    sp_status status = sp_i_step_check_count(steps, packing, err);
    return status == SP_OK ? sp_i_step_cut(steps, packing, err) : status;
}

sp_status sp_i_step_cut(sp_i_steps *steps, sp_packing *packing, sp_error *err)
{
    const sp_scenario *scenario = steps->scenario;
    const sp_schedule_spec *schedule = &scenario->schedule;
    if (!sp_schedule_traits_of(schedule->kind).sliced || schedule->slices <= 1) {
        return SP_OK;
    }
    return schedule->slice_rule == SP_SLICE_SHORTEST
               ? sp_slice_rows_shortest(packing, scenario->layout.pp, pack_time_ns, &steps->trial,
                                        err)
               : sp_slice_rows(packing, schedule->slices, schedule->slice_rule, &scenario->model,
                               scenario->source, err);
}

sp_status sp_i_step_schedule(const sp_i_steps *steps, sp_plan *plan, sp_step_costs *costs,
                             sp_error *err)
{
    const sp_scenario *scenario = steps->scenario;
    sp_schedule_spec spec = scenario->schedule;
    const sp_schedule_spec *schedule = &spec;
    sp_schedule_costs *means = NULL;
    sp_arena work = {0};
    sp_status status = SP_OK;
    if (sp_schedule_traits_of(schedule->kind).timed) {
        status = sp_step_costs_means(costs, plan, &means, err);
    }
    if (status == SP_OK && sp_schedule_traits_of(schedule->kind).by_pack) {
        status = sp_step_costs_by_pack(costs, plan, means, err);
        if (status == SP_OK) {
            status =
                sp_i_packflow_choose(scenario, &steps->cost, plan, costs, means, &spec, &work, err);
        }
    }
    if (status == SP_OK) {
        status = sp_schedule_generate(schedule, means, scenario->source, plan, err);
    }
    sp_schedule_costs_free(means);
    sp_arena_free(&work);
    if (status == SP_OK) {
        status = sp_i_step_exchange(steps, plan, costs, err);
    }
    return status == SP_OK ? offload_activations(steps, plan, err) : status;
}

sp_status sp_i_step_exchange(const sp_i_steps *steps, const sp_plan *plan, sp_step_costs *costs,
                             sp_error *err)
{
    const sp_scenario *scenario = steps->scenario;
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
    steps->result->has_exchange = true;
    steps->result->exchange_before = report.imbalance_before;
    steps->result->exchange_after = report.imbalance_after;
    steps->result->exchange_messages += report.messages;
    steps->result->exchange_bytes +=
        sp_exchange_bytes(&report, layers * scenario->model.heads * head_bytes,
                          layers * 2.0 * scenario->model.kv_heads * head_bytes) /
        scenario->layout.cp;
    return SP_OK;
}

// The stated number of micro-batches must be what the strategy made.
sp_status sp_i_step_check_count(const sp_i_steps *steps, const sp_packing *packing, sp_error *err)
{
    int64_t dp = steps->scenario->layout.dp;
    int64_t made = sp_i_step_microbatches(packing);
    int64_t wanted = steps->scenario->microbatches;
    if (wanted > 0 && !steps->scenario->uniform && made != wanted * dp) {
        return sp_error_in(err, SP_ERR_CONTENT, steps->scenario->source, "schedule.microbatches",
                           "is %lld for each of %lld data-parallel ranks, strategy \"%s\" makes "
                           "%lld micro-batches in all",
                           (long long)wanted, (long long)dp, steps->scenario->strategy.kind,
                           (long long)made);
    }
    return SP_OK;
}

static int64_t pack_time_ns(void *context, const sp_pack_list *list)
{
    return sp_ns_from_s(sp_cost_model_forward_s(context, list, &list->packs[0]));
}

static sp_status offload_activations(const sp_i_steps *steps, sp_plan *plan, sp_error *err)
{
    const sp_scenario *scenario = steps->scenario;
    if (scenario->uniform || scenario->memory.offload_ratio <= 0.0 ||
        scenario->memory_model == SP_MEMORY_SLIMPIPE_PLANNER) {
        return SP_OK;
    }
    if (scenario->schedule.kind == SP_SCHEDULE_DUALPIPE_V) {
        return sp_error_in(err, SP_ERR_CONTENT, scenario->source, "memory.offload_ratio",
                           "\"dualpipe-v\" runs actions side by side, which leaves no place for "
                           "copies between them");
    }
    sp_schedule_add_offload(plan);
    return SP_OK;
}
