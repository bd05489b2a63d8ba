#include "sim/cost/step_costs.h"

#include "sim/base/alloc.h"
#include "sim/base/units.h"

void sp_step_costs_fini(sp_step_costs *costs)
{
    sp_free(costs->class_of_vstage);
    sp_free(costs->memory_class_of_vstage);
    sp_free(costs->f);
    sp_free(costs->b);
    sp_free(costs->i);
    sp_free(costs->w);
    sp_free(costs->r);
    sp_free(costs->p2p_f_ns);
    sp_free(costs->p2p_b_ns);
    sp_free(costs->p2p_f_internode_ns);
    sp_free(costs->p2p_b_internode_ns);
    sp_free(costs->p2p_f_bytes);
    sp_free(costs->p2p_b_bytes);
    sp_free(costs->cp_f);
    sp_free(costs->cp_i);
    sp_free(costs->cp_r);
    sp_free(costs->layers_of_vstage);
    sp_arena_free(&costs->zone_work);
    sp_free(costs->offloaded_bytes);
    sp_free(costs->o_ns);
    sp_free(costs->l_ns);
    sp_free(costs->crosses_nodes);
    sp_free(costs->epilogue);
    sp_free(costs->buckets);
    sp_free(costs->sharded);
    sp_free(costs->unit);
    sp_free(costs->unit_row);
    sp_free(costs->backward_unit_row);
    sp_free(costs->backward_unit);
    sp_free(costs->states);
    *costs = (sp_step_costs){0};
}

int64_t sp_step_costs_p2p_ns(const sp_step_costs *costs, int backward, size_t pack, int from,
                             int to, int pp)
{
    const sp_link_times links = sp_step_costs_links(costs);
    return sp_link_times_ns(&links, backward != 0, pack, from, to, pp);
}

// Of every pack; `written`: whoever asks for it writes all of it.
static void *pack_table(size_t count, size_t size, bool written)
{
    return written ? sp_malloc(count * size + 1) : sp_calloc(count, size);
}

static void make_tables(sp_step_costs *costs, const sp_layout *layout, const sp_packing *packing,
                        int classes, bool with_memory, bool written)
{
    size_t forward = packing->forward.count;
    size_t backward = sp_packing_backward(packing)->count;
    size_t rows = (size_t)classes;
    size_t pp = (size_t)layout->pp;
    *costs = (sp_step_costs){.classes = classes,
                             .forward_packs = forward,
                             .backward_packs = backward,
                             .unit_f = 1.0,
                             .unit_b = -1.0,
                             .split_unit_f = 1.0,
                             .split_unit_w = -1.0};
    costs->class_of_vstage =
        sp_calloc((size_t)sp_layout_vstages(layout), sizeof *costs->class_of_vstage);
    costs->f = pack_table(forward * rows, sizeof *costs->f, written);
    costs->b = pack_table(backward * rows, sizeof *costs->b, written);
    costs->i = pack_table(backward * rows, sizeof *costs->i, written);
    costs->w = pack_table(backward * rows, sizeof *costs->w, written);
    costs->r = pack_table(backward * rows, sizeof *costs->r, written);
    costs->p2p_f_ns = pack_table(forward, sizeof *costs->p2p_f_ns, written);
    costs->p2p_b_ns = pack_table(backward, sizeof *costs->p2p_b_ns, written);
    costs->p2p_f_internode_ns = pack_table(forward, sizeof *costs->p2p_f_internode_ns, written);
    costs->p2p_b_internode_ns = pack_table(backward, sizeof *costs->p2p_b_internode_ns, written);
    costs->crosses_nodes = sp_calloc(pp, sizeof *costs->crosses_nodes);
    costs->epilogue = sp_calloc(pp, sizeof *costs->epilogue);
    if (with_memory) {
        costs->p2p_f_bytes = pack_table(forward, sizeof *costs->p2p_f_bytes, written);
        costs->p2p_b_bytes = pack_table(backward, sizeof *costs->p2p_b_bytes, written);
        costs->cp_f = pack_table(forward, sizeof *costs->cp_f, written);
        costs->cp_i = pack_table(backward, sizeof *costs->cp_i, written);
        costs->cp_r = pack_table(backward, sizeof *costs->cp_r, written);
        costs->layers_of_vstage =
            sp_calloc((size_t)sp_layout_vstages(layout), sizeof *costs->layers_of_vstage);
        costs->o_ns = pack_table(forward * rows, sizeof *costs->o_ns, written);
        costs->l_ns = pack_table(forward * rows, sizeof *costs->l_ns, written);
        costs->states = sp_calloc(pp, sizeof *costs->states);
    }
    // Whoever fills the others knows how many rows there are of what units hold.
    if (with_memory && written) {
        costs->unit_row = pack_table(forward, sizeof *costs->unit_row, written);
    } else if (with_memory) {
        costs->unit = pack_table(forward * rows, sizeof *costs->unit, written);
        costs->offloaded_bytes =
            pack_table(forward * rows, sizeof *costs->offloaded_bytes, written);
    }
    if (with_memory && written && packing->backward.count > 0) {
        costs->backward_unit_row = pack_table(backward, sizeof *costs->backward_unit_row, written);
    } else if (with_memory && packing->backward.count > 0) {
        costs->backward_unit = pack_table(backward * rows, sizeof *costs->backward_unit, written);
    }
}

void sp_i_step_costs_init(sp_step_costs *costs, const sp_layout *layout, const sp_packing *packing,
                          int classes, bool with_memory)
{
    make_tables(costs, layout, packing, classes, with_memory, false);
}

void sp_i_step_costs_take(sp_step_costs *costs, const sp_layout *layout, const sp_packing *packing,
                          int classes)
{
    make_tables(costs, layout, packing, classes, true, true);
}

// The part of a micro-batch's time that one pack takes.
typedef struct share {
    double whole, linear, attention; // of equal slices; without attention; the attention
} share;

// A pack without slices is the whole micro-batch; otherwise it is one token of a sample whose
// length is the number of slices, and the causal attention of slice k of n covers 2k+1 of n*n
// parts.
static share share_of(const sp_pack_list *list, const sp_batch *batch, size_t k,
                      double attention_share)
{
    double n = 1.0;
    double position = 0.0;
    if (list->packs[k].slice_count > 0) {
        const sp_slice *slice = &list->slices[list->packs[k].first_slice];
        n = (double)batch->tokens[slice->sample];
        position = (double)slice->begin;
    }
    return (share){.whole = 1.0 / n,
                   .linear = (1.0 - attention_share) / n,
                   .attention = attention_share * (2.0 * position + 1.0) / (n * n)};
}

static sp_action_cost part_cost(double ms, share part)
{
    return (sp_action_cost){.compute_ns = sp_ns_from_ms(ms * (part.linear + part.attention)),
                            .attention_ns = sp_ns_from_ms(ms * part.attention)};
}

sp_status sp_step_costs_uniform(const sp_uniform_costs *uniform, const sp_layout *layout,
                                const sp_packing *packing, sp_step_costs *costs, sp_error *err)
{
    sp_i_step_costs_init(costs, layout, packing, 1, false);
    double chunks = uniform->per_chunk ? 1.0 : (double)layout->chunks;
    int64_t p2p_ns = sp_ns_from_ms(uniform->p2p_ms);
    for (size_t k = 0; k < costs->forward_packs; k++) {
        share part = share_of(&packing->forward, packing->batch, k, uniform->attention_share);
        costs->f[k] = part_cost(uniform->f_ms / chunks, part);
        costs->p2p_f_ns[k] = p2p_ns;
    }
    for (size_t k = 0; k < costs->backward_packs; k++) {
        share part =
            share_of(sp_packing_backward(packing), packing->batch, k, uniform->attention_share);
        share equal = {.linear = part.whole};
        costs->i[k] = part_cost(uniform->b_ms / chunks, part);
        costs->w[k] = part_cost(uniform->w_ms / chunks, equal);
        costs->b[k] =
            (sp_action_cost){.compute_ns = costs->i[k].compute_ns + costs->w[k].compute_ns,
                             .attention_ns = costs->i[k].attention_ns};
        costs->p2p_b_ns[k] = p2p_ns;
    }
    if (uniform->has_units) {
        costs->unit_f = costs->split_unit_f = uniform->unit_f;
        costs->unit_b = costs->split_unit_b = uniform->unit_b;
        costs->unit_w = costs->split_unit_w = uniform->unit_w;
    }
    (void)err;
    return SP_OK;
}

void sp_schedule_costs_free(sp_schedule_costs *means)
{
    if (means != NULL) {
        sp_free((void *)means->pack_f_ns);
    }
    sp_free(means);
}

double sp_step_costs_mean_p2p_ns(const sp_step_costs *costs, int pp, int backward, size_t k)
{
    int crossings = 0;
    for (int r = 0; r + 1 < pp; r++) {
        crossings += costs->crosses_nodes[r];
    }
    double crossing = pp > 1 ? (double)crossings / (pp - 1) : 0.0;
    int64_t intranode_ns = backward ? costs->p2p_b_ns[k] : costs->p2p_f_ns[k];
    int64_t internode_ns = backward ? costs->p2p_b_internode_ns[k] : costs->p2p_f_internode_ns[k];
    return (1.0 - crossing) * (double)intranode_ns + crossing * (double)internode_ns;
}

static void fill_transfers(const sp_step_costs *costs, int pp, int backward, size_t packs,
                           int64_t *to)
{
    for (size_t k = 0; k < packs; k++) {
        to[k] = (int64_t)(sp_step_costs_mean_p2p_ns(costs, pp, backward, k) + 0.5);
    }
}

static void fill_pack_times(const sp_step_costs *costs, const sp_action_cost *from, size_t packs,
                            size_t vstages, int64_t *to)
{
    for (size_t k = 0; k < packs; k++) {
        for (size_t s = 0; s < vstages; s++) {
            size_t class = (size_t)costs->class_of_vstage[s];
            to[k * vstages + s] = sp_action_cost_ns(&from[k * (size_t)costs->classes + class]);
        }
    }
}

sp_status sp_step_costs_by_pack(const sp_step_costs *costs, const sp_plan *plan,
                                sp_schedule_costs *means, sp_error *err)
{
    size_t vstages = (size_t)sp_layout_vstages(&plan->layout);
    size_t forward = costs->forward_packs * vstages;
    size_t backward = costs->backward_packs * vstages;
    size_t packs = costs->forward_packs + costs->backward_packs;
    int64_t *f_ns = sp_malloc((forward + 3 * backward + packs + 1) * sizeof *f_ns);
    int64_t *b_ns = f_ns + forward;
    int64_t *i_ns = b_ns + backward;
    int64_t *w_ns = i_ns + backward;
    fill_pack_times(costs, costs->f, costs->forward_packs, vstages, f_ns);
    fill_pack_times(costs, costs->b, costs->backward_packs, vstages, b_ns);
    fill_pack_times(costs, costs->i, costs->backward_packs, vstages, i_ns);
    fill_pack_times(costs, costs->w, costs->backward_packs, vstages, w_ns);
    int64_t *p2p_f_ns = w_ns + backward;
    int64_t *p2p_b_ns = p2p_f_ns + costs->forward_packs;
    fill_transfers(costs, plan->layout.pp, 0, costs->forward_packs, p2p_f_ns);
    fill_transfers(costs, plan->layout.pp, 1, costs->backward_packs, p2p_b_ns);
    means->pack_p2p_f_ns = p2p_f_ns;
    means->pack_p2p_b_ns = p2p_b_ns;
    means->pack_f_ns = f_ns;
    means->pack_b_ns = b_ns;
    means->pack_i_ns = i_ns;
    means->pack_w_ns = w_ns;
    (void)err;
    return SP_OK;
}

static int64_t mean_ns(const sp_action_cost *costs, size_t packs, int classes, int class)
{
    double sum = 0.0;
    for (size_t k = 0; k < packs; k++) {
        const sp_action_cost *cost = &costs[k * (size_t)classes + (size_t) class];
        sum += (double)(sp_action_cost_ns(cost));
    }
    return packs > 0 ? (int64_t)(sum / (double)packs + 0.5) : 0;
}

sp_status sp_step_costs_means(const sp_step_costs *costs, const sp_plan *plan,
                              sp_schedule_costs **means, sp_error *err)
{
    size_t vstages = (size_t)sp_layout_vstages(&plan->layout);
    // One block: the record, then the three tables.
    sp_schedule_costs *made = sp_calloc(1, sizeof *made + 3 * vstages * sizeof *made->f_ns);
    *means = made;
    int64_t *table = (int64_t *)(void *)(made + 1);
    for (size_t s = 0; s < vstages; s++) {
        int class = costs->class_of_vstage[s];
        table[s] = mean_ns(costs->f, costs->forward_packs, costs->classes, class);
        table[vstages + s] = mean_ns(costs->i, costs->backward_packs, costs->classes, class);
        table[2 * vstages + s] = mean_ns(costs->w, costs->backward_packs, costs->classes, class);
    }
    double p2p = 0.0;
    for (size_t k = 0; k < costs->forward_packs; k++) {
        p2p += sp_step_costs_mean_p2p_ns(costs, plan->layout.pp, 0, k);
    }
    *made = (sp_schedule_costs){.f_ns = table,
                                .i_ns = table + vstages,
                                .w_ns = table + 2 * vstages,
                                .unit_f = costs->split_unit_f,
                                .unit_b = costs->split_unit_b,
                                .unit_w = costs->split_unit_w};
    made->p2p_ns =
        costs->forward_packs > 0 ? (int64_t)(p2p / (double)costs->forward_packs + 0.5) : 0;
    (void)err;
    return SP_OK;
}
