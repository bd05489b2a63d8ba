#include "backends/host/stage.h"

#include <string.h>

#include "sim/base/alloc.h"

static size_t layers_of(const sp_i_host_stage *stage)
{
    return (size_t)stage->part.layers;
}

sp_status sp_i_host_stage_init(sp_i_host_stage *stage, const sp_i_host_job *job,
                               sp_i_host_arena *arena, sp_stage part, int first_layer,
                               sp_error *err)
{
    *stage =
        (sp_i_host_stage){.job = job, .arena = arena, .part = part, .first_layer = first_layer};
    const sp_i_host_slices *slices = &job->slices;
    size_t layers = layers_of(stage);
    size_t slots = (size_t)sp_i_host_slots(part.layers);
    size_t pack = (layers + 1) * SP_I_HOST_TENSORS;
    size_t deferred = (layers + 1) * SP_I_HOST_DEFERRED;
    stage->value = sp_i_calloc(slots, sizeof *stage->value);
    stage->gradient = sp_i_calloc(slots, sizeof *stage->gradient);
    stage->saved = sp_i_calloc(slices->forward_count * pack, sizeof *stage->saved);
    stage->input = sp_i_calloc(slices->forward_count, sizeof *stage->input);
    stage->kv = sp_i_calloc(slices->count * layers, sizeof *stage->kv);
    stage->kv_gradient = sp_i_calloc(slices->count * layers, sizeof *stage->kv_gradient);
    stage->deferred = sp_i_calloc(slices->backward_count * deferred, sizeof *stage->deferred);
    stage->loss = sp_i_calloc(slices->forward_count, sizeof *stage->loss);
    if (stage->value == NULL || stage->gradient == NULL || stage->saved == NULL ||
        stage->input == NULL || stage->kv == NULL || stage->kv_gradient == NULL ||
        stage->deferred == NULL || stage->loss == NULL) {
        sp_i_host_stage_fini(stage);
        return sp_error_no_memory(err, "a stage");
    }
    return SP_OK;
}

void sp_i_host_stage_fini(sp_i_host_stage *stage)
{
    sp_i_free(stage->value);
    sp_i_free(stage->gradient);
    sp_i_free(stage->saved);
    sp_i_free(stage->input);
    sp_i_free(stage->kv);
    sp_i_free(stage->kv_gradient);
    sp_i_free(stage->deferred);
    sp_i_free(stage->loss);
    *stage = (sp_i_host_stage){0};
}

void **sp_i_host_saved(const sp_i_host_stage *stage, int32_t forward_pack, int layer,
                       sp_i_host_tensor tensor)
{
    size_t unit = (size_t)forward_pack * (layers_of(stage) + 1) + (size_t)layer;
    return &stage->saved[unit * SP_I_HOST_TENSORS + (size_t)tensor];
}

void **sp_i_host_kv(const sp_i_host_stage *stage, int32_t slice, int layer)
{
    return &stage->kv[(size_t)slice * layers_of(stage) + (size_t)layer];
}

void **sp_i_host_kv_gradient(const sp_i_host_stage *stage, int32_t slice, int layer)
{
    return &stage->kv_gradient[(size_t)slice * layers_of(stage) + (size_t)layer];
}

void **sp_i_host_deferred_of(const sp_i_host_stage *stage, int32_t backward_pack, int layer)
{
    size_t unit = (size_t)backward_pack * (layers_of(stage) + 1) + (size_t)layer;
    return &stage->deferred[unit * SP_I_HOST_DEFERRED];
}

bool sp_i_host_fetch(const sp_i_host_stage *stage, const sp_i_host_pack *pack, int layer,
                     sp_i_host_tensor tensor, void **block)
{
    const sp_i_host_slices *slices = &stage->job->slices;
    const sp_i_host_spec *spec = &stage->job->specs.of[tensor];
    if (pack->same_as != SP_I_HOST_NONE) {
        void **saved = sp_i_host_saved(stage, pack->same_as, layer, tensor);
        *block = *saved;
        *saved = NULL;
        return true;
    }
    *block = sp_i_host_take(stage->arena, spec->category, pack->rows * spec->columns, spec->width);
    if (*block == NULL) {
        return false;
    }
    size_t row_bytes = (size_t)(spec->columns * spec->width.real_bytes);
    char *to = *block;
    for (int32_t i = 0; i < pack->count; i++) {
        const sp_i_host_slice *slice = &slices->slice[pack->slice[i]];
        void **saved = sp_i_host_saved(stage, slice->forward_pack, layer, tensor);
        size_t bytes = (size_t)slice->computed * row_bytes;
        memcpy(to, (char *)*saved + (size_t)slice->forward_row * row_bytes, bytes);
        to += bytes;
        if (sp_i_host_give_part(stage->arena, *saved, slice->computed * spec->columns,
                                spec->width)) {
            *saved = NULL;
        }
    }
    return true;
}

void sp_i_host_gather(const sp_i_host_job *job, const sp_i_host_pack *pack, const int64_t *from,
                      int64_t *to)
{
    for (int32_t i = 0; i < pack->count; i++) {
        int64_t rows = job->slices.slice[pack->slice[i]].computed;
        memcpy(to, from + job->token_at[pack->slice[i]], (size_t)rows * sizeof *to);
        to += rows;
    }
}
