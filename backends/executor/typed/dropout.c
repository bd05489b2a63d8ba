// Dropout (Srivastava and others: "Dropout", 2014) of what embedding and blocks add to the residual
// path, scaled when training. Whether an element goes is a hash of its sample, position, layer and
// feature, so that it does not depend on slices, packs and ranks, and a mask can be made again.
#include <string.h>

#include "backends/executor/draw.h"
#include "backends/executor/typed/layer.h"
#include "sim/base/alloc.h"

static uint64_t seed_of(const layer *l, sp_i_exec_tensor mask, int64_t id)
{
    uint64_t place = (uint64_t)(l->stage->first_layer + l->index) * SP_I_EXEC_TENSORS;
    uint64_t seed = sp_i_exec_draw(l->stage->job->dropout_seed, place + (uint64_t)mask);
    return sp_i_exec_draw(seed, (uint64_t)id);
}

static void draw(const layer *l, sp_i_exec_tensor mask, uint8_t *keeps)
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
            *keeps++ = sp_i_exec_unit(sp_i_exec_draw(seed, first + (uint64_t)e)) >= job->dropout;
        }
    }
}

// Drawn here, for the machine to take over.
static bool fill(const layer *l, sp_i_exec_tensor mask)
{
    const sp_i_exec_job *job = l->stage->job;
    int64_t bytes = l->own * job->model->hidden;
    uint8_t *keeps = sp_i_malloc((size_t)bytes);
    if (keeps == NULL) {
        l->stage->links->status = sp_error_no_memory(&l->stage->links->err, "a dropout mask");
        return false;
    }
    draw(l, mask, keeps);
    job->machine->ops->upload(job->machine, l->t[mask], keeps, bytes);
    sp_i_free(keeps);
    return true;
}

static void apply(const layer *l, sp_i_exec_tensor mask, const real *x, real *y)
{
    const sp_i_exec_job *job = l->stage->job;
    SP_OP(drop)(l->own * job->model->hidden, l->t[mask], 1.0 / (1.0 - job->dropout), x, y);
}

bool SP_EXEC(mask)(layer *l, sp_i_exec_tensor mask)
{
    if (!l->stage->job->specs.drops || l->t[mask] != NULL) {
        return true;
    }
    return SP_EXEC(make)(l, mask) && fill(l, mask);
}

bool SP_EXEC(drop_out)(layer *l, sp_i_exec_tensor mask, real *x)
{
    if (!SP_EXEC(mask)(l, mask)) {
        return false;
    }
    if (l->t[mask] != NULL && l->stage->job->dropout > 0.0) {
        apply(l, mask, x, x);
    }
    return true;
}

real *SP_EXEC(drop_out_backward)(const layer *l, sp_i_exec_tensor mask, const real *dy)
{
    real *dx = SP_EXEC(take_own)(l);
    if (dx != NULL) {
        apply(l, mask, dy, dx);
    }
    return dx;
}
