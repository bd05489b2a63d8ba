#include "backends/host/sampled_attention.h"

#include <math.h>

#include "sim/base/alloc.h"
#include "sim/base/parallel.h"

// All that a layer needs beside its tensors.
typedef struct layer_work {
    const sp_host_sampled_layer *layer;
    int threads;
    int64_t keys, blocks, tiles, sampled, workspace_elements;
    sp_kernel_sample_mask *masks; // [heads]
    int32_t *indices;             // of all masks
    float *sampled_lse;           // [heads, sampled]
    double *mass;                 // [threads, keys + blocks]
    float *workspace;             // [threads, workspace_elements]
    sp_kernel_sample_item *items; // [heads * tiles]
    int64_t *load;                // [threads]
} layer_work;

static void release(layer_work *w)
{
    sp_free(w->masks);
    sp_free(w->indices);
    sp_free(w->sampled_lse);
    sp_free(w->mass);
    sp_free(w->workspace);
    sp_free(w->items);
    sp_free(w->load);
}

static void reserve(layer_work *w)
{
    const sp_kernel_attention_shape *shape = &w->layer->shape;
    size_t heads = (size_t)shape->heads;
    size_t threads = (size_t)w->threads;
    size_t each = (size_t)(w->keys + w->blocks);
    w->masks = sp_calloc(heads, sizeof *w->masks);
    w->indices = sp_calloc(heads * each, sizeof *w->indices);
    w->sampled_lse = sp_calloc(heads * (size_t)w->sampled, sizeof *w->sampled_lse);
    w->mass = sp_calloc(threads * each, sizeof *w->mass);
    w->workspace = sp_calloc(threads * (size_t)w->workspace_elements, sizeof *w->workspace);
    w->items = sp_calloc(heads * (size_t)w->tiles, sizeof *w->items);
    w->load = sp_calloc(threads, sizeof *w->load);
    for (size_t h = 0; h < heads; h++) {
        w->masks[h].column = w->indices + h * each;
        w->masks[h].slash = w->masks[h].column + w->keys;
    }
}

static sp_status sample_head(void *context, int worker, int head, sp_error *err)
{
    (void)err;
    layer_work *w = context;
    const sp_host_sampled_layer *l = w->layer;
    double *own = w->mass + worker * (w->keys + w->blocks);
    sp_kernel_sample_mass mass = {.column = own, .slash = own + w->keys};
    sp_kernel_sample_mass_f32(&l->shape, &l->options, l->begin, l->len, head, l->q, l->k, &mass,
                              w->sampled_lse + head * w->sampled,
                              w->workspace + worker * w->workspace_elements);
    sp_kernel_sample_select(&l->options, l->begin, l->len, &mass, &w->masks[head]);
    return SP_OK;
}

// A share of the tiles; which thread takes it is of no account.
static sp_status attend_share(void *context, int worker, int share, sp_error *err)
{
    (void)err;
    layer_work *w = context;
    const sp_host_sampled_layer *l = w->layer;
    for (int64_t i = 0; i < l->shape.heads * w->tiles; i++) {
        const sp_kernel_sample_item *item = &w->items[i];
        if (item->worker == share) {
            sp_kernel_sample_attention_tile_f32(
                &l->shape, &w->masks[item->head], l->begin, l->len, item->head, item->tile, l->q,
                l->k, l->v, l->out, l->lse, w->workspace + worker * w->workspace_elements);
        }
    }
    return SP_OK;
}

static double pairs_of_head(const layer_work *w, int64_t head)
{
    double pairs = 0.0;
    for (int64_t i = 0; i < w->layer->shape.heads * w->tiles; i++) {
        pairs += w->items[i].head == head ? (double)w->items[i].cost : 0.0;
    }
    return pairs;
}

static void tell(const layer_work *w, sp_host_sampled_report *report)
{
    const sp_host_sampled_layer *l = w->layer;
    double len = (double)l->len;
    double all = (len * (double)l->begin + len * (len + 1.0) / 2.0) * (double)l->shape.heads;
    double kept = 0.0;
    double most_of_head = 0.0;
    double most = 0.0;
    report->coverage = 1.0;
    for (int64_t h = 0; h < l->shape.heads; h++) {
        double own = pairs_of_head(w, h);
        kept += own;
        most_of_head = fmax(most_of_head, own);
        report->coverage =
            fmin(report->coverage,
                 sp_kernel_sample_coverage_f32(&l->shape, &l->options, l->len, h, l->lse,
                                               w->sampled_lse + h * w->sampled));
    }
    for (int t = 0; t < w->threads; t++) {
        most = fmax(most, (double)w->load[t]);
    }
    report->kept_pairs = kept / all;
    report->densest_head = most_of_head * (double)l->shape.heads / kept;
    report->slowest_share = most * w->threads / kept;
}

sp_status sp_host_sampled_attention(const sp_host_sampled_layer *layer, int threads,
                                    sp_host_sampled_report *report, sp_error *err)
{
    const sp_kernel_attention_shape *shape = &layer->shape;
    int64_t keys = layer->begin + layer->len;
    layer_work w = {.layer = layer,
                    .threads = threads,
                    .keys = keys,
                    .blocks = sp_kernel_sample_blocks(keys),
                    .tiles = sp_kernel_sample_blocks(layer->len),
                    .sampled =
                        sp_kernel_sample_bands(&layer->options, layer->len) * SP_KERNEL_SAMPLE_BAND,
                    .workspace_elements = sp_kernel_sample_attention_workspace_f32(shape, keys)};
    int heads = (int)shape->heads;
    reserve(&w);
    double started_s = layer->clock_s();
    sp_status status = sp_parallel_for(threads, heads, sample_head, &w, err);
    double chosen_s = layer->clock_s();
    if (status == SP_OK) {
        sp_kernel_sample_items(heads, w.masks, layer->begin, layer->len, w.items);
        sp_kernel_sample_deal(heads * w.tiles, w.items, threads, w.load);
        status = sp_parallel_for(threads, threads, attend_share, &w, err);
    }
    *report = (sp_host_sampled_report){.sampling_s = chosen_s - started_s,
                                       .attending_s = layer->clock_s() - chosen_s};
    if (status == SP_OK) {
        tell(&w, report);
    }
    release(&w);
    return status;
}
