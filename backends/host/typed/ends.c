// Embedding and head.
#include <math.h>
#include <string.h>

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
        sp_i_host_numbers(job_of(l), l->pack, false, from, to);
    }
    return to;
}

// The rows of the vocabulary that this rank holds begin here.
static int64_t first_word(const layer *l)
{
    return l->stage->vocab_rank * job_of(l)->shard.vocab;
}

// How many of them are real: a table's last rows may be padding.
static int64_t words(const layer *l)
{
    int64_t left = job_of(l)->model->vocab - first_word(l);
    int64_t rows = job_of(l)->shard.vocab;
    return left < 0 ? 0 : left < rows ? left : rows;
}

// The words that other ranks hold are rows of zeros here, until all parts are summed.
static bool embed_tokens(const layer *l, int64_t *index, real *y)
{
    int64_t h = job_of(l)->model->hidden;
    real *part = SP_HOST(partial)(l, y);
    if (part == NULL) {
        return false;
    }
    SP_KERNEL(embedding)
    (l->rows, h, index, first_word(l), words(l), *end_value(l->stage, SP_I_HOST_TOKEN_TABLE), false,
     part, h);
    return SP_HOST(sum)(l, part, y) && SP_HOST(reduce_stages)(l, false, l->own * h, y);
}

bool SP_HOST(embed_share)(layer *l)
{
    int64_t *index = numbers(l, job_of(l)->token);
    real *y = index != NULL ? SP_HOST(take_own)(l) : NULL;
    bool ok = y != NULL && embed_tokens(l, index, y);
    sp_i_host_give(l->stage->arena, y);
    sp_i_host_give(l->stage->arena, index);
    return ok;
}

bool SP_HOST(embed)(layer *l, real *y)
{
    const sp_model *model = job_of(l)->model;
    int64_t h = model->hidden;
    int64_t *index = numbers(l, job_of(l)->token);
    if (index == NULL || !embed_tokens(l, index, y)) {
        return false;
    }
    if (model->positional == SP_LEARNED) {
        sp_i_host_numbers(job_of(l), l->pack, true, job_of(l)->position, index);
        SP_KERNEL(embedding)
        (l->own, h, index, 0, model->max_positions, *end_value(l->stage, SP_I_HOST_POSITION_TABLE),
         true, y, h);
    }
    sp_i_host_give(l->stage->arena, index);
    return SP_HOST(drop_out)(l, SP_I_HOST_EMBEDDING_MASK, y);
}

static bool table_gradients(const layer *l, real *dy)
{
    const sp_model *model = job_of(l)->model;
    int64_t h = model->hidden;
    int64_t *index = numbers(l, job_of(l)->token);
    real *all = index != NULL ? SP_HOST(gather)(l, dy) : NULL;
    if (all == NULL) {
        return false;
    }
    SP_KERNEL(embedding_backward_weight)
    (l->rows, h, index, first_word(l), words(l), all, h,
     *end_gradient(l->stage, SP_I_HOST_TOKEN_TABLE));
    if (model->positional == SP_LEARNED) {
        sp_i_host_numbers(job_of(l), l->pack, false, job_of(l)->position, index);
        SP_KERNEL(embedding_backward_weight)
        (l->rows, h, index, 0, model->max_positions, all, h,
         *end_gradient(l->stage, SP_I_HOST_POSITION_TABLE));
    }
    SP_HOST(release)(l, dy, all);
    sp_i_host_give(l->stage->arena, index);
    return true;
}

bool SP_HOST(embed_share_backward)(layer *l)
{
    real *dy = SP_HOST(take_own)(l);
    bool ok = dy != NULL && SP_HOST(share_stages)(l, false, dy) && table_gradients(l, dy);
    sp_i_host_give(l->stage->arena, dy);
    return ok;
}

bool SP_HOST(embed_backward)(layer *l, real *dy)
{
    if (!job_of(l)->specs.drops) {
        return SP_HOST(share_stages)(l, false, dy) && table_gradients(l, dy);
    }
    if (!sp_i_host_fetch(l->stage, l->pack, l->index, SP_I_HOST_EMBEDDING_MASK,
                         &l->t[SP_I_HOST_EMBEDDING_MASK])) {
        return false;
    }
    real *dx = SP_HOST(drop_out_backward)(l, SP_I_HOST_EMBEDDING_MASK, dy);
    bool ok = dx != NULL && SP_HOST(share_stages)(l, false, dx) && table_gradients(l, dx);
    sp_i_host_give(l->stage->arena, dx);
    SP_HOST(clear)(l);
    return ok;
}

// Over all ranks that share the vocabulary.
static bool reduce(const layer *l, bool maximum, int64_t n, real *x)
{
    return SP_HOST(reduce)(l, maximum, n, x) && SP_HOST(reduce_stages)(l, maximum, n, x);
}

// The loss of rows whose logits stand in columns at several ranks.
static bool vocab_parallel_loss(layer *l, const int64_t *target, double *loss)
{
    const sp_i_host_job *job = job_of(l);
    int64_t vocab = job->shard.vocab;
    real *max = sp_i_host_take(l->stage->arena, SP_MEM_WORKSPACE, 3 * l->rows, job->specs.exact);
    if (max == NULL) {
        return false;
    }
    // Sums and targets stand one behind the other, for one exchange.
    real *sums = max + l->rows;
    real *of_target = sums + l->rows;
    const real *logits = l->t[SP_I_HOST_LOGITS];
    if (words(l) > 0) {
        SP_KERNEL(cross_entropy_max)(l->rows, words(l), logits, vocab, max);
    }
    for (int64_t row = 0; words(l) == 0 && row < l->rows; row++) {
        max[row] = (real)-INFINITY;
    }
    bool ok = reduce(l, true, l->rows, max);
    if (ok) {
        SP_KERNEL(cross_entropy_sums)
        (l->rows, words(l), first_word(l), logits, vocab, target, max, sums, of_target);
        ok = reduce(l, false, 2 * l->rows, sums);
    }
    if (ok) {
        *loss = SP_KERNEL(cross_entropy_loss)(l->rows, target, NULL, (double)job->slices.trained,
                                              max, sums, of_target, l->t[SP_I_HOST_FINAL_LSE]);
    }
    sp_i_host_give(l->stage->arena, max);
    return ok;
}

static bool loss_of(layer *l, const int64_t *target, double *loss)
{
    const sp_i_host_job *job = job_of(l);
    int64_t vocab = job->shard.vocab;
    if (job->slices.place.tp > 1 || l->stage->links->vocab_group >= 0) {
        return vocab_parallel_loss(l, target, loss);
    }
    *loss = SP_KERNEL(cross_entropy)(l->rows, vocab, l->t[SP_I_HOST_LOGITS], vocab, target, NULL,
                                     (double)job->slices.trained, l->t[SP_I_HOST_FINAL_LSE]);
    return true;
}

static bool project_words(const layer *l)
{
    int64_t h = job_of(l)->model->hidden;
    int64_t vocab = job_of(l)->shard.vocab;
    real *norm = l->t[SP_I_HOST_FINAL_NORM];
    real *all = SP_HOST(gather)(l, norm);
    if (all == NULL) {
        return false;
    }
    SP_KERNEL(linear)
    (l->rows, h, vocab, all, h, *end_value(l->stage, SP_I_HOST_HEAD_TABLE), h, NULL,
     l->t[SP_I_HOST_LOGITS], vocab);
    SP_HOST(release)(l, norm, all);
    return true;
}

bool SP_HOST(head_forward)(layer *l, int32_t forward_pack, bool counts)
{
    const sp_i_host_job *job = job_of(l);
    if (!SP_HOST(share_stages)(l, true, l->t[SP_I_HOST_FINAL_INPUT])) {
        return false;
    }
    int64_t *target = numbers(l, job->target);
    if (target == NULL || !SP_HOST(make)(l, SP_I_HOST_FINAL_NORM) ||
        !SP_HOST(make)(l, SP_I_HOST_FINAL_MEAN) || !SP_HOST(make)(l, SP_I_HOST_FINAL_RSTD) ||
        !SP_HOST(make)(l, SP_I_HOST_LOGITS) || !SP_HOST(make)(l, SP_I_HOST_FINAL_LSE)) {
        return false;
    }
    SP_HOST(norm)
    (l, end_value(l->stage, SP_I_HOST_FINAL_WEIGHT), l->t[SP_I_HOST_FINAL_INPUT],
     l->t[SP_I_HOST_FINAL_NORM], l->t[SP_I_HOST_FINAL_MEAN], l->t[SP_I_HOST_FINAL_RSTD]);
    double loss = 0.0;
    if (!project_words(l) || !loss_of(l, target, &loss)) {
        return false;
    }
    l->stage->loss[forward_pack] += counts && SP_HOST(adds)(l) ? loss : 0.0;
    sp_i_host_give(l->stage->arena, target);
    return true;
}

static bool table_gradient(const layer *l, const real *dlogits, real *norm)
{
    int64_t h = job_of(l)->model->hidden;
    int64_t vocab = job_of(l)->shard.vocab;
    real *all = SP_HOST(gather)(l, norm);
    if (all == NULL) {
        return false;
    }
    SP_KERNEL(linear_backward_weight)
    (l->rows, h, vocab, dlogits, vocab, all, h, *end_gradient(l->stage, SP_I_HOST_HEAD_TABLE), h,
     NULL);
    SP_HOST(release)(l, norm, all);
    return true;
}

// The gradient of the logits takes their place; in the table it is bf16. Columns of padding have
// none.
static bool logits_backward(layer *l)
{
    const sp_i_host_job *job = job_of(l);
    int64_t vocab = job->shard.vocab;
    int64_t *target = numbers(l, job->target);
    if (target == NULL) {
        return false;
    }
    real *logits = l->t[SP_I_HOST_LOGITS];
    SP_KERNEL(cross_entropy_backward)
    (l->rows, words(l), first_word(l), logits, vocab, target, NULL, (double)job->slices.trained,
     l->t[SP_I_HOST_FINAL_LSE], logits, vocab);
    for (int64_t row = 0; words(l) < vocab && row < l->rows; row++) {
        memset(logits + row * vocab + words(l), 0, (size_t)(vocab - words(l)) * sizeof *logits);
    }
    sp_i_host_recount(l->stage->arena, logits, SP_MEM_LOGITS, l->rows * vocab, job->specs.value);
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

static bool norm_gradient(const layer *l, real *dnorm)
{
    int64_t h = job_of(l)->model->hidden;
    int64_t vocab = job_of(l)->shard.vocab;
    real *part = SP_HOST(partial)(l, dnorm);
    if (part == NULL) {
        return false;
    }
    SP_KERNEL(linear_backward_input)
    (l->rows, h, vocab, l->t[SP_I_HOST_LOGITS], vocab, *end_value(l->stage, SP_I_HOST_HEAD_TABLE),
     h, false, part, h);
    return SP_HOST(sum)(l, part, dnorm) && SP_HOST(reduce_stages)(l, false, l->own * h, dnorm);
}

// Leaves what the table's gradient reads for later.
static bool defer(layer *l, void **deferred)
{
    deferred[SP_I_HOST_HEAD_IN] =
        sp_i_host_recount(l->stage->arena, l->t[SP_I_HOST_FINAL_NORM], SP_MEM_ACTIVATIONS,
                          l->own * job_of(l)->model->hidden, job_of(l)->specs.value);
    deferred[SP_I_HOST_HEAD_OUT] = l->t[SP_I_HOST_LOGITS];
    l->t[SP_I_HOST_FINAL_NORM] = NULL;
    l->t[SP_I_HOST_LOGITS] = NULL;
    return deferred[SP_I_HOST_HEAD_IN] != NULL;
}

bool SP_HOST(head_backward)(layer *l, int32_t backward_pack, bool split, real **dx)
{
    real *dnorm = SP_HOST(take_own)(l);
    *dx = SP_HOST(take_own)(l);
    if (dnorm == NULL || *dx == NULL || !fetch(l) || !logits_backward(l) ||
        !norm_gradient(l, dnorm)) {
        return false;
    }
    SP_HOST(norm_backward)
    (l, end_value(l->stage, SP_I_HOST_FINAL_WEIGHT), end_gradient(l->stage, SP_I_HOST_FINAL_WEIGHT),
     l->t[SP_I_HOST_FINAL_INPUT], l->t[SP_I_HOST_FINAL_MEAN], l->t[SP_I_HOST_FINAL_RSTD], dnorm,
     *dx);
    sp_i_host_give(l->stage->arena, dnorm);
    bool ok = true;
    if (split) {
        ok = defer(l, sp_i_host_deferred_of(l->stage, backward_pack, l->index));
    } else {
        ok = table_gradient(l, l->t[SP_I_HOST_LOGITS], l->t[SP_I_HOST_FINAL_NORM]);
    }
    SP_HOST(clear)(l);
    return ok;
}

bool SP_HOST(head_weights)(const layer *l, int32_t backward_pack)
{
    void **deferred = sp_i_host_deferred_of(l->stage, backward_pack, l->stage->part.layers);
    if (!table_gradient(l, deferred[SP_I_HOST_HEAD_OUT], deferred[SP_I_HOST_HEAD_IN])) {
        return false;
    }
    for (int i = SP_I_HOST_HEAD_IN; i <= SP_I_HOST_HEAD_OUT; i++) {
        sp_i_host_give(l->stage->arena, deferred[i]);
        deferred[i] = NULL;
    }
    return true;
}
