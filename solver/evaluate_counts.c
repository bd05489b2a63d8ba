// What a batch amounts to: micro-batches, tokens, FLOPs.
#include "sim/model/inventory.h"
#include "solver/evaluate_private.h"

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
