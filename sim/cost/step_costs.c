#include "sim/cost/step_costs.h"

#include "sim/base/alloc.h"
#include "sim/base/units.h"

void sp_step_costs_fini(sp_step_costs *costs)
{
    sp_i_free(costs->class_of_vstage);
    sp_i_free(costs->f);
    sp_i_free(costs->b);
    sp_i_free(costs->i);
    sp_i_free(costs->w);
    sp_i_free(costs->r);
    sp_i_free(costs->p2p_f_ns);
    sp_i_free(costs->p2p_b_ns);
    sp_i_free(costs->p2p_f_far_ns);
    sp_i_free(costs->p2p_b_far_ns);
    sp_i_free(costs->far);
    sp_i_free(costs->tail);
    sp_i_free(costs->unit);
    sp_i_free(costs->backward_unit);
    sp_i_free(costs->states);
    *costs = (sp_step_costs){0};
}

int64_t sp_step_costs_p2p_ns(const sp_step_costs *costs, int backward, size_t pack, int from,
                             int to, int pp)
{
    // The link between ranks r and r+1 carries both directions; `from` names it going up.
    int link = (from + 1) % pp == to ? from : to;
    if (costs->far[link]) {
        return backward ? costs->p2p_b_far_ns[pack] : costs->p2p_f_far_ns[pack];
    }
    return backward ? costs->p2p_b_ns[pack] : costs->p2p_f_ns[pack];
}

static bool allocate_uniform(sp_step_costs *costs, size_t vstages, size_t pp)
{
    size_t forward = costs->forward_packs;
    size_t backward = costs->backward_packs;
    costs->class_of_vstage = sp_i_calloc(vstages, sizeof *costs->class_of_vstage);
    costs->f = sp_i_calloc(forward, sizeof *costs->f);
    costs->b = sp_i_calloc(backward, sizeof *costs->b);
    costs->i = sp_i_calloc(backward, sizeof *costs->i);
    costs->w = sp_i_calloc(backward, sizeof *costs->w);
    costs->r = sp_i_calloc(backward, sizeof *costs->r);
    costs->p2p_f_ns = sp_i_calloc(forward, sizeof *costs->p2p_f_ns);
    costs->p2p_b_ns = sp_i_calloc(backward, sizeof *costs->p2p_b_ns);
    costs->p2p_f_far_ns = sp_i_calloc(forward, sizeof *costs->p2p_f_far_ns);
    costs->p2p_b_far_ns = sp_i_calloc(backward, sizeof *costs->p2p_b_far_ns);
    costs->far = sp_i_calloc(pp, sizeof *costs->far);
    costs->tail = sp_i_calloc(pp, sizeof *costs->tail);
    return costs->class_of_vstage != NULL && costs->f != NULL && costs->b != NULL &&
           costs->i != NULL && costs->w != NULL && costs->r != NULL && costs->p2p_f_ns != NULL &&
           costs->p2p_b_ns != NULL && costs->p2p_f_far_ns != NULL && costs->p2p_b_far_ns != NULL &&
           costs->far != NULL && costs->tail != NULL;
}

sp_status sp_step_costs_uniform(const sp_uniform_costs *uniform, const sp_layout *layout,
                                const sp_packing *packing, sp_step_costs *costs, sp_error *err)
{
    *costs = (sp_step_costs){.classes = 1,
                             .forward_packs = packing->forward.count,
                             .backward_packs = sp_packing_backward(packing)->count};
    if (!allocate_uniform(costs, (size_t)sp_layout_vstages(layout), (size_t)layout->pp)) {
        sp_step_costs_fini(costs);
        return sp_error_no_memory(err, "uniform costs");
    }
    double chunks = uniform->per_chunk ? 1.0 : (double)layout->chunks;
    int64_t f_ns = sp_ns_from_ms(uniform->f_ms / chunks);
    int64_t i_ns = sp_ns_from_ms(uniform->b_ms / chunks);
    int64_t w_ns = sp_ns_from_ms(uniform->w_ms / chunks);
    int64_t p2p_ns = sp_ns_from_ms(uniform->p2p_ms);
    for (size_t k = 0; k < costs->forward_packs; k++) {
        costs->f[k].compute_ns = f_ns;
        costs->p2p_f_ns[k] = p2p_ns;
    }
    for (size_t k = 0; k < costs->backward_packs; k++) {
        costs->b[k].compute_ns = i_ns + w_ns;
        costs->i[k].compute_ns = i_ns;
        costs->w[k].compute_ns = w_ns;
        costs->p2p_b_ns[k] = p2p_ns;
    }
    costs->unit_f = uniform->has_units ? uniform->unit_f : 1.0;
    costs->unit_b = uniform->has_units ? uniform->unit_b : -1.0;
    costs->unit_w = uniform->has_units ? uniform->unit_w : 0.0;
    costs->split_unit_f = uniform->has_units ? uniform->unit_f : 1.0;
    costs->split_unit_b = uniform->has_units ? uniform->unit_b : 0.0;
    costs->split_unit_w = uniform->has_units ? uniform->unit_w : -1.0;
    return SP_OK;
}
