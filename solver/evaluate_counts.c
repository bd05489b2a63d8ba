// What a batch amounts to: micro-batches, tokens, FLOPs, and the bound under its time.
#include "sim/base/units.h"
#include "sim/model/inventory.h"
#include "solver/evaluate_private.h"

static double work_bound_ns(sp_i_evaluation *ev, const sp_packing *packing,
                            const sp_step_costs *costs);
static int64_t busiest_rank_ns(const sp_step_metrics *metrics);

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

void sp_i_evaluate_count(const sp_i_evaluation *ev, const sp_packing *packing,
                         sp_batch_facts *facts)
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

double sp_i_evaluate_bound_ns(sp_i_evaluation *ev, const sp_packing *packing,
                              const sp_step_costs *costs, const sp_step_metrics *metrics)
{
    return ev->scenario->uniform ? (double)busiest_rank_ns(metrics)
                                 : work_bound_ns(ev, packing, costs);
}

// No step of the packed samples is faster: their work without any fixed cost, spread evenly over
// all ranks, and the shortest tail. Makespan >= mean busy time >= work / ranks, and every rank's
// tail follows its last action.
static double work_bound_ns(sp_i_evaluation *ev, const sp_packing *packing,
                            const sp_step_costs *costs)
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
                     costs->tail[r].param_gather_ns - costs->tail[r].hideable_gather_ns;
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
