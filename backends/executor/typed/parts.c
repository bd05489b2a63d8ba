// What the operations of a layer, of the embedding and of the head share: tensors, norms, dropout,
// and exchanges between ranks.
#include <string.h>

#include "backends/executor/typed/layer.h"
#include "backends/ranks/comm.h"
#include "sim/base/alloc.h"

static const sp_i_exec_spec *spec_of(const layer *l, sp_layer_tensor_id tensor)
{
    return &l->kind->specs.of[tensor];
}

bool SP_EXEC(make)(layer *l, sp_layer_tensor_id tensor)
{
    const sp_i_exec_spec *spec = spec_of(l, tensor);
    sp_memory_category category = l->rebuilds             ? SP_MEM_RECOMPUTE
                                  : l->keep && spec->kept ? spec->category
                                                          : SP_MEM_WORKSPACE;
    int64_t elements = spec->routed ? l->routed.count * (spec->columns / l->kind->shard.active)
                                    : (spec->own ? l->own : l->rows) * spec->columns;
    SP_ASSERT(l->t[tensor] == NULL);
    l->t[tensor] = sp_i_exec_take(l->stage->arena, category, elements, spec->width);
    return l->t[tensor] != NULL;
}

void SP_EXEC(drop)(layer *l, sp_layer_tensor_id tensor)
{
    if (!l->rebuilds && !(l->keep && spec_of(l, tensor)->kept)) {
        give_tensor(l, (int)tensor);
    }
}

void SP_EXEC(keep_saved)(layer *l, int32_t forward_pack)
{
    for (int t = 0; t < SP_ALL_TENSORS; t++) {
        // What is not here may be there: a stage without layers saves its share of a head beside
        // what its own forward leaves.
        if (l->t[t] == NULL) {
            continue;
        }
        if (l->keep && spec_of(l, (sp_layer_tensor_id)t)->kept) {
            *sp_i_exec_saved(l->stage, forward_pack, l->index, (sp_layer_tensor_id)t) = l->t[t];
            l->t[t] = NULL;
        } else {
            give_tensor(l, t);
        }
    }
}

void SP_EXEC(clear)(layer *l)
{
    for (int t = 0; t < SP_ALL_TENSORS; t++) {
        give_tensor(l, t);
    }
}

void *SP_EXEC(take)(const layer *l, int64_t columns)
{
    return sp_i_exec_take(l->stage->arena, SP_MEM_WORKSPACE, l->rows * columns,
                          l->stage->job->width.value);
}

void *SP_EXEC(take_own)(const layer *l)
{
    return sp_i_exec_take(l->stage->arena, SP_MEM_WORKSPACE, l->own * l->stage->job->model->hidden,
                          l->stage->job->width.value);
}

real *SP_EXEC(value)(const layer *l, sp_parameter_kind weight)
{
    return l->stage->value[sp_i_exec_slot(l->index, weight)];
}

// ---- Norms ----

void SP_EXEC(norm)(const layer *l, int64_t h, void *const *weights, const real *x, real *y,
                   exact *statistics)
{
    exact *mean = statistics;
    exact *rstd = statistics + l->own;
    if (l->stage->job->model->norm == SP_RMSNORM) {
        SP_OP(rms_norm)(l->own, h, x, weights[0], SP_I_EXEC_NORM_EPSILON, y, rstd);
    } else {
        SP_OP(layer_norm)
        (l->own, h, x, weights[0], weights[1], SP_I_EXEC_NORM_EPSILON, y, mean, rstd);
    }
}

void SP_EXEC(norm_backward)(const layer *l, int64_t h, void *const *weights, void *const *gradients,
                            const real *x, const exact *statistics, const real *dy, real *dx)
{
    const exact *mean = statistics;
    const exact *rstd = statistics + l->own;
    if (l->stage->job->model->norm == SP_RMSNORM) {
        SP_OP(rms_norm_backward_input)(l->own, h, x, weights[0], rstd, dy, dx);
        SP_OP(rms_norm_backward_weight)(l->own, h, x, rstd, dy, gradients[0]);
    } else {
        SP_OP(layer_norm_backward_input)(l->own, h, x, weights[0], mean, rstd, dy, dx);
        SP_OP(layer_norm_backward_weight)
        (l->own, h, x, mean, rstd, dy, gradients[0], gradients[1]);
    }
}

// ---- Dropout ----

// Dropout (Srivastava and others: "Dropout", 2014) of what embedding and blocks add to the residual
// path, scaled when training. Whether an element goes is a hash of its sample, position, layer and
// feature, so that it does not depend on slices, packs and ranks, and a mask can be made again.

// The numbers that count masks stay what they are: with others the same seed would train otherwise.
static uint64_t seed_of(const layer *l, sp_layer_tensor_id mask, int64_t id)
{
    enum { NUMBERS_OF_LAYER = 22, OF_ATTENTION = 13, OF_MLP = 14, OF_EMBEDDING = 21 };
    uint64_t place = (uint64_t)(l->stage->model_part.first + l->index) * NUMBERS_OF_LAYER;
    place += mask == SP_TENSOR_ATTENTION_MASK ? OF_ATTENTION
             : mask == SP_TENSOR_MLP_MASK     ? OF_MLP
                                              : OF_EMBEDDING;
    uint64_t seed = sp_i_exec_draw(l->stage->job->dropout_seed, place);
    return sp_i_exec_draw(seed, (uint64_t)id);
}

static void draw(const layer *l, sp_layer_tensor_id mask, uint8_t *keeps)
{
    const sp_i_exec_job *job = l->stage->job;
    int64_t h = job->model->hidden;
    if (job->dropout <= 0.0) {
        memset(keeps, 1, (size_t)(l->own * h));
        return;
    }
    for (size_t p = 0; p < l->pack->first_piece[l->pack->count]; p++) {
        const sp_i_exec_piece *piece = &l->pack->piece[p];
        if (piece->part != job->slices.place.part) {
            continue;
        }
        int32_t sample = job->slices.slice[piece->slice].sample;
        uint64_t seed = seed_of(l, mask, job->ids[sample]);
        uint64_t first = (uint64_t)(piece->begin * h);
        for (int64_t e = 0; e < piece->rows * h; e++) {
            *keeps++ = sp_i_exec_uniform(sp_i_exec_draw(seed, first + (uint64_t)e)) >= job->dropout;
        }
    }
}

// Drawn here, for the device to take over.
static void fill(const layer *l, sp_layer_tensor_id mask)
{
    const sp_i_exec_job *job = l->stage->job;
    int64_t bytes = l->own * job->model->hidden;
    uint8_t *keeps = sp_malloc((size_t)bytes);
    draw(l, mask, keeps);
    job->runtime->ops->upload(job->runtime, l->t[mask], keeps, bytes);
    sp_free(keeps);
}

static void apply(const layer *l, sp_layer_tensor_id mask, const real *x, real *y)
{
    const sp_i_exec_job *job = l->stage->job;
    SP_OP(drop)(l->own * job->model->hidden, l->t[mask], 1.0 / (1.0 - job->dropout), x, y);
}

bool SP_EXEC(mask)(layer *l, sp_layer_tensor_id mask)
{
    if (!l->kind->specs.drops || l->t[mask] != NULL) {
        return true;
    }
    if (!SP_EXEC(make)(l, mask)) {
        return false;
    }
    fill(l, mask);
    return true;
}

bool SP_EXEC(drop_out)(layer *l, sp_layer_tensor_id mask, real *x)
{
    if (!SP_EXEC(mask)(l, mask)) {
        return false;
    }
    if (l->t[mask] != NULL && l->stage->job->dropout > 0.0) {
        apply(l, mask, x, x);
    }
    return true;
}

real *SP_EXEC(drop_out_backward)(const layer *l, sp_layer_tensor_id mask, const real *dy)
{
    real *dx = SP_EXEC(take_own)(l);
    if (dx != NULL) {
        apply(l, mask, dy, dx);
    }
    return dx;
}

// ---- Exchanges between ranks that share a layer or the vocabulary (Shoeybi and others:
// "Megatron-LM", 2019, section 3; with sequence parallelism Korthikanti and others: "Reducing
// Activation Recomputation in Large Transformer Models", 2022, section 4.2.2) ----

static bool is_split(const layer *l)
{
    return l->stage->job->slices.place.parts > 1;
}

static int64_t hidden_elements(const layer *l)
{
    return l->own * l->stage->job->model->hidden;
}

// Of the ranks that share the layers' widths; -1 for one alone.
static int layer_group(const layer *l)
{
    return l->stage->job->slices.place.tp > 1 ? l->stage->links->tp_group : -1;
}

// Rows of each part, where its pieces end.
static void part_rows(const layer *l, int64_t *rows)
{
    for (int part = 0; part < l->stage->job->slices.place.parts; part++) {
        rows[part] = 0;
    }
    for (size_t p = 0; p < l->pack->first_piece[l->pack->count]; p++) {
        rows[l->pack->piece[p].part] += l->pack->piece[p].rows;
    }
}

static bool done(const layer *l, uint64_t start, sp_status status)
{
    return sp_i_exec_exchange_end(l->stage->links, SP_I_EXEC_TP, start, status);
}

// In place; nothing for a group of -1.
static bool all_reduce(const layer *l, int group, sp_comm_op op, sp_element element, int64_t n,
                       void *x)
{
    sp_i_exec_links *links = l->stage->links;
    if (group < 0) {
        return true;
    }
    uint64_t start = sp_i_exec_exchange_begin(links);
    return done(l, start, sp_comm_all_reduce(links->me, group, element, op, x, x, n, &links->err));
}

bool SP_EXEC(adds)(const layer *l)
{
    return l->stage->job->slices.place.tp_rank == 0;
}

real *SP_EXEC(gather)(const layer *l, real *own)
{
    sp_i_exec_links *links = l->stage->links;
    int64_t h = l->stage->job->model->hidden;
    int64_t rows[SP_I_EXEC_MOST_PARTS];
    if (!is_split(l)) {
        return own;
    }
    real *all = SP_EXEC(take)(l, h);
    if (all == NULL) {
        return NULL;
    }
    part_rows(l, rows);
    uint64_t start = sp_i_exec_exchange_begin(links);
    return done(l, start,
                sp_comm_all_gather(links->me, links->tp_group, SP_REAL_ELEMENT, own, all, rows, h,
                                   &links->err))
               ? all
               : NULL;
}

void SP_EXEC(release)(const layer *l, const real *own, real *all)
{
    if (all != own) {
        sp_i_exec_give(l->stage->arena, all);
    }
}

real *SP_EXEC(partial)(const layer *l, real *own)
{
    return is_split(l) ? SP_EXEC(take)(l, l->stage->job->model->hidden) : own;
}

bool SP_EXEC(sum)(const layer *l, real *part, real *own)
{
    sp_i_exec_links *links = l->stage->links;
    int64_t h = l->stage->job->model->hidden;
    int64_t rows[SP_I_EXEC_MOST_PARTS];
    if (!is_split(l)) {
        return all_reduce(l, layer_group(l), SP_COMM_SUM, SP_REAL_ELEMENT, l->rows * h, own);
    }
    part_rows(l, rows);
    uint64_t start = sp_i_exec_exchange_begin(links);
    bool ok = done(l, start,
                   sp_comm_reduce_scatter(links->me, links->tp_group, SP_REAL_ELEMENT, SP_COMM_SUM,
                                          part, own, rows, h, &links->err));
    sp_i_exec_give(l->stage->arena, part);
    return ok;
}

bool SP_EXEC(sum_stages)(const layer *l, real *x)
{
    return all_reduce(l, l->stage->links->vocab_group, SP_COMM_SUM, SP_REAL_ELEMENT,
                      hidden_elements(l), x);
}

bool SP_EXEC(reduce)(const layer *l, bool maximum, int64_t n, exact *x)
{
    sp_comm_op op = maximum ? SP_COMM_MAX : SP_COMM_SUM;
    return all_reduce(l, layer_group(l), op, SP_EXACT_ELEMENT, n, x) &&
           all_reduce(l, l->stage->links->vocab_group, op, SP_EXACT_ELEMENT, n, x);
}

bool SP_EXEC(share_stages)(const layer *l, bool last, real *x)
{
    sp_i_exec_links *links = l->stage->links;
    if (links->vocab_group < 0) {
        return true;
    }
    uint64_t start = sp_i_exec_exchange_begin(links);
    return done(l, start,
                sp_comm_broadcast(links->me, links->vocab_group, SP_REAL_ELEMENT, x, x,
                                  hidden_elements(l), links->vocab_root[last], &links->err));
}
