// Embedding and head.
#include "backends/host/typed/layer.h"

static const sp_i_host_job *job_of(const layer *l)
{
    return l->stage->job;
}

static void *const *end_value(const sp_i_host_stage *stage, sp_i_host_end_weight weight)
{
    return stage->value + sp_i_host_end_slot(stage->part.layers, weight);
}

static void *const *end_gradient(const sp_i_host_stage *stage, sp_i_host_end_weight weight)
{
    return stage->gradient + sp_i_host_end_slot(stage->part.layers, weight);
}

// A number for each of the pack's rows out of a table of the job, as a block.
static int64_t *numbers(const layer *l, const int64_t *from)
{
    const sp_i_host_width width = {sizeof(int64_t), 0};
    int64_t *to = sp_i_host_take(l->stage->arena, SP_MEM_WORKSPACE, l->rows, width);
    if (to != NULL) {
        sp_i_host_gather(job_of(l), l->pack, from, to);
    }
    return to;
}

bool SP_HOST(embed)(layer *l, real *y)
{
    const sp_model *model = job_of(l)->model;
    int64_t h = model->hidden;
    int64_t *index = numbers(l, job_of(l)->token);
    if (index == NULL) {
        return false;
    }
    SP_KERNEL(embedding)
    (l->rows, h, index, 0, model->vocab, *end_value(l->stage, SP_I_HOST_TOKEN_TABLE), false, y, h);
    if (model->positional == SP_LEARNED) {
        sp_i_host_gather(job_of(l), l->pack, job_of(l)->position, index);
        SP_KERNEL(embedding)
        (l->rows, h, index, 0, model->max_positions, *end_value(l->stage, SP_I_HOST_POSITION_TABLE),
         true, y, h);
    }
    sp_i_host_give(l->stage->arena, index);
    return SP_HOST(drop_out)(l, SP_I_HOST_EMBEDDING_MASK, y);
}

static bool table_gradients(const layer *l, const real *dy)
{
    const sp_model *model = job_of(l)->model;
    int64_t h = model->hidden;
    int64_t *index = numbers(l, job_of(l)->token);
    if (index == NULL) {
        return false;
    }
    SP_KERNEL(embedding_backward_weight)
    (l->rows, h, index, 0, model->vocab, dy, h, *end_gradient(l->stage, SP_I_HOST_TOKEN_TABLE));
    if (model->positional == SP_LEARNED) {
        sp_i_host_gather(job_of(l), l->pack, job_of(l)->position, index);
        SP_KERNEL(embedding_backward_weight)
        (l->rows, h, index, 0, model->max_positions, dy, h,
         *end_gradient(l->stage, SP_I_HOST_POSITION_TABLE));
    }
    sp_i_host_give(l->stage->arena, index);
    return true;
}

bool SP_HOST(embed_backward)(layer *l, const real *dy)
{
    if (!job_of(l)->specs.drops) {
        return table_gradients(l, dy);
    }
    if (!sp_i_host_fetch(l->stage, l->pack, l->index, SP_I_HOST_EMBEDDING_MASK,
                         &l->t[SP_I_HOST_EMBEDDING_MASK])) {
        return false;
    }
    real *dx = SP_HOST(drop_out_backward)(l, SP_I_HOST_EMBEDDING_MASK, dy);
    bool ok = dx != NULL && table_gradients(l, dx);
    sp_i_host_give(l->stage->arena, dx);
    SP_HOST(clear)(l);
    return ok;
}

bool SP_HOST(head_forward)(layer *l, int32_t forward_pack, bool counts)
{
    const sp_i_host_job *job = job_of(l);
    int64_t h = job->model->hidden;
    int64_t vocab = job->shard.vocab;
    int64_t *target = numbers(l, job->target);
    if (target == NULL || !SP_HOST(make)(l, SP_I_HOST_FINAL_NORM) ||
        !SP_HOST(make)(l, SP_I_HOST_FINAL_MEAN) || !SP_HOST(make)(l, SP_I_HOST_FINAL_RSTD) ||
        !SP_HOST(make)(l, SP_I_HOST_LOGITS) || !SP_HOST(make)(l, SP_I_HOST_FINAL_LSE)) {
        return false;
    }
    SP_HOST(norm)
    (l, end_value(l->stage, SP_I_HOST_FINAL_WEIGHT), l->t[SP_I_HOST_FINAL_INPUT],
     l->t[SP_I_HOST_FINAL_NORM], l->t[SP_I_HOST_FINAL_MEAN], l->t[SP_I_HOST_FINAL_RSTD]);
    SP_KERNEL(linear)
    (l->rows, h, vocab, l->t[SP_I_HOST_FINAL_NORM], h, *end_value(l->stage, SP_I_HOST_HEAD_TABLE),
     h, NULL, l->t[SP_I_HOST_LOGITS], vocab);
    double loss =
        SP_KERNEL(cross_entropy)(l->rows, vocab, l->t[SP_I_HOST_LOGITS], vocab, target, NULL,
                                 (double)job->slices.trained, l->t[SP_I_HOST_FINAL_LSE]);
    l->stage->loss[forward_pack] += counts ? loss : 0.0;
    sp_i_host_give(l->stage->arena, target);
    return true;
}

static void table_gradient(const sp_i_host_stage *stage, int64_t rows, const real *dlogits,
                           const real *norm)
{
    int64_t h = stage->job->model->hidden;
    int64_t vocab = stage->job->shard.vocab;
    SP_KERNEL(linear_backward_weight)
    (rows, h, vocab, dlogits, vocab, norm, h, *end_gradient(stage, SP_I_HOST_HEAD_TABLE), h, NULL);
}

// The gradient of the logits takes their place; in the table it is bf16.
static bool logits_backward(layer *l)
{
    const sp_i_host_job *job = job_of(l);
    int64_t vocab = job->shard.vocab;
    int64_t *target = numbers(l, job->target);
    if (target == NULL) {
        return false;
    }
    SP_KERNEL(cross_entropy_backward)
    (l->rows, vocab, 0, l->t[SP_I_HOST_LOGITS], vocab, target, NULL, (double)job->slices.trained,
     l->t[SP_I_HOST_FINAL_LSE], l->t[SP_I_HOST_LOGITS], vocab);
    sp_i_host_recount(l->stage->arena, l->t[SP_I_HOST_LOGITS], SP_MEM_LOGITS, l->rows * vocab,
                      job->specs.value);
    sp_i_host_give(l->stage->arena, target);
    return true;
}

static bool fetch(layer *l)
{
    for (int t = SP_I_HOST_FINAL_INPUT; t <= SP_I_HOST_FINAL_LSE; t++) {
        if (!sp_i_host_fetch(l->stage, l->pack, l->index, (sp_i_host_tensor)t, &l->t[t])) {
            return false;
        }
    }
    return true;
}

bool SP_HOST(head_backward)(layer *l, int32_t backward_pack, bool split, real **dx)
{
    int64_t h = job_of(l)->model->hidden;
    int64_t vocab = job_of(l)->shard.vocab;
    real *dnorm = SP_HOST(take)(l, h);
    *dx = SP_HOST(take)(l, h);
    if (dnorm == NULL || *dx == NULL || !fetch(l) || !logits_backward(l)) {
        return false;
    }
    SP_KERNEL(linear_backward_input)
    (l->rows, h, vocab, l->t[SP_I_HOST_LOGITS], vocab, *end_value(l->stage, SP_I_HOST_HEAD_TABLE),
     h, false, dnorm, h);
    SP_HOST(norm_backward)
    (l, end_value(l->stage, SP_I_HOST_FINAL_WEIGHT), end_gradient(l->stage, SP_I_HOST_FINAL_WEIGHT),
     l->t[SP_I_HOST_FINAL_INPUT], l->t[SP_I_HOST_FINAL_MEAN], l->t[SP_I_HOST_FINAL_RSTD], dnorm,
     *dx);
    sp_i_host_give(l->stage->arena, dnorm);
    if (split) {
        void **deferred = sp_i_host_deferred_of(l->stage, backward_pack, l->index);
        deferred[SP_I_HOST_HEAD_IN] = l->t[SP_I_HOST_FINAL_NORM];
        deferred[SP_I_HOST_HEAD_OUT] = l->t[SP_I_HOST_LOGITS];
        l->t[SP_I_HOST_FINAL_NORM] = NULL;
        l->t[SP_I_HOST_LOGITS] = NULL;
    } else {
        table_gradient(l->stage, l->rows, l->t[SP_I_HOST_LOGITS], l->t[SP_I_HOST_FINAL_NORM]);
    }
    SP_HOST(clear)(l);
    return true;
}

void SP_HOST(head_weights)(sp_i_host_stage *stage, int32_t backward_pack)
{
    void **deferred = sp_i_host_deferred_of(stage, backward_pack, stage->part.layers);
    table_gradient(stage, stage->job->slices.backward[backward_pack].rows,
                   deferred[SP_I_HOST_HEAD_OUT], deferred[SP_I_HOST_HEAD_IN]);
    for (int i = SP_I_HOST_HEAD_IN; i <= SP_I_HOST_HEAD_OUT; i++) {
        sp_i_host_give(stage->arena, deferred[i]);
        deferred[i] = NULL;
    }
}
