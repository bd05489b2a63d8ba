// Dropout (Srivastava and others: "Dropout", 2014) of what embedding and blocks add to the residual
// path, scaled when training. Whether an element goes is a hash of its sample, position, layer and
// feature, so that it does not depend on slices, packs and ranks, and a mask can be made again.
#include <string.h>

#include "backends/host/draw.h"
#include "backends/host/typed/layer.h"

static uint64_t seed_of(const layer *l, sp_i_host_tensor mask, int64_t id)
{
    uint64_t place = (uint64_t)(l->stage->first_layer + l->index) * SP_I_HOST_TENSORS;
    uint64_t seed = sp_i_host_draw(l->stage->job->dropout_seed, place + (uint64_t)mask);
    return sp_i_host_draw(seed, (uint64_t)id);
}

static void fill(const layer *l, sp_i_host_tensor mask)
{
    const sp_i_host_job *job = l->stage->job;
    int64_t h = job->model->hidden;
    uint8_t *keeps = l->t[mask];
    if (job->dropout <= 0.0) {
        memset(keeps, 1, (size_t)(l->own * h));
        return;
    }
    for (size_t p = 0; p < l->pack->first_piece[l->pack->count]; p++) {
        const sp_i_host_piece *piece = &l->pack->piece[p];
        if (piece->part != job->slices.place.part) {
            continue;
        }
        int32_t sample = job->slices.slice[piece->slice].sample;
        uint64_t seed = seed_of(l, mask, job->ids[sample]);
        uint64_t first = (uint64_t)(piece->begin * h);
        for (int64_t e = 0; e < piece->rows * h; e++) {
            *keeps++ = sp_i_host_unit(sp_i_host_draw(seed, first + (uint64_t)e)) >= job->dropout;
        }
    }
}

static void apply(const layer *l, sp_i_host_tensor mask, const real *x, real *y)
{
    const uint8_t *keeps = l->t[mask];
    real scale = (real)(1.0 / (1.0 - l->stage->job->dropout));
    for (int64_t e = 0; e < l->own * l->stage->job->model->hidden; e++) {
        y[e] = keeps[e] != 0 ? scale * x[e] : (real)0.0;
    }
}

bool SP_HOST(mask)(layer *l, sp_i_host_tensor mask)
{
    if (!l->stage->job->specs.drops || l->t[mask] != NULL) {
        return true;
    }
    if (!SP_HOST(make)(l, mask)) {
        return false;
    }
    fill(l, mask);
    return true;
}

bool SP_HOST(drop_out)(layer *l, sp_i_host_tensor mask, real *x)
{
    if (!SP_HOST(mask)(l, mask)) {
        return false;
    }
    if (l->t[mask] != NULL && l->stage->job->dropout > 0.0) {
        apply(l, mask, x, x);
    }
    return true;
}

real *SP_HOST(drop_out_backward)(const layer *l, sp_i_host_tensor mask, const real *dy)
{
    real *dx = SP_HOST(take_own)(l);
    if (dx != NULL) {
        apply(l, mask, dy, dx);
    }
    return dx;
}
