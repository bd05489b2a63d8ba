#include "backends/host/sampled_attention.h"

#include <math.h>

#include "backends/host/host.h"
#include "sim/base/alloc.h"
#include "sim/base/parallel.h"
#include "sim/base/prng.h"
#include "sim/base/progress.h"

// ---- Drawn inputs ----

enum { SINKS = 4 };

// The score that key j gets from all queries.
static double column_score(const sp_sample_input *in, sp_prng *prng, int64_t j)
{
    double drawn = sp_prng_uniform(prng);
    double less = sp_prng_uniform(prng);
    if (j < SINKS) {
        return in->sink;
    }
    return drawn < in->stripe_share ? in->stripe * (1.0 - 0.25 * less) : 0.0;
}

// cos and sin of the position at wave lengths from 4 to 8400 tokens, as rotary positions have them:
// products of two such rows depend on the distance alone, and are largest at 0.
static void put_waves(double position, double size, int64_t waves, float *row)
{
    for (int64_t w = 0; w < waves; w++) {
        double turn = position * 1.5 * pow(2000.0, -(double)w / (double)(waves - 1));
        row[2 * w] = (float)(size * cos(turn));
        row[2 * w + 1] = (float)(size * sin(turn));
    }
}

void sp_sample_input_fill(const sp_sample_input *in, uint64_t seed, int64_t tokens,
                          int64_t head_dim, float *q, int64_t q_stride, float *k, int64_t k_stride)
{
    int64_t waves = head_dim * 3 / 16;
    int64_t at_diagonal = 1 + 2 * waves;
    int64_t at_noise = 1 + 4 * waves;
    sp_prng prng;
    sp_prng_seed(&prng, seed);
    double root = sqrt((double)head_dim);
    double band = sqrt(in->band * root / (double)waves);
    double diagonal = sqrt(in->diagonal * root / (double)waves);
    // Each of the rest's products has the variance size^4 / 9.
    double size = sqrt(3.0 * in->noise * root / sqrt((double)(head_dim - at_noise)));
    for (int64_t t = 0; t < tokens; t++) {
        float *query = q + t * q_stride;
        float *key = k + t * k_stride;
        query[0] = (float)root;
        key[0] = (float)column_score(in, &prng, t);
        put_waves((double)t, band, waves, query + 1);
        // Sinks and stripes are looked for by what they say, not by where they stand.
        put_waves((double)t, key[0] > 0.0F ? 0.0 : band, waves, key + 1);
        put_waves((double)(t - in->distance), diagonal, waves, query + at_diagonal);
        put_waves((double)t, key[0] > 0.0F ? 0.0 : diagonal, waves, key + at_diagonal);
        for (int64_t c = at_noise; c < head_dim; c++) {
            query[c] = (float)(size * (2.0 * sp_prng_uniform(&prng) - 1.0));
            key[c] = (float)(size * (2.0 * sp_prng_uniform(&prng) - 1.0));
        }
    }
}

// ---- A layer ----

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
    sp_arena arena;               // holds the tables
} layer_work;

static void reserve_layer(layer_work *w)
{
    const sp_kernel_attention_shape *shape = &w->layer->shape;
    sp_arena *work = &w->arena;
    size_t heads = (size_t)shape->heads;
    size_t threads = (size_t)w->threads;
    size_t each = (size_t)(w->keys + w->blocks);
    w->masks = sp_arena_take(work, heads, sizeof *w->masks);
    w->indices = sp_arena_take(work, heads * each, sizeof *w->indices);
    w->sampled_lse = sp_arena_take(work, heads * (size_t)w->sampled, sizeof *w->sampled_lse);
    w->mass = sp_arena_take(work, threads * each, sizeof *w->mass);
    w->workspace =
        sp_arena_take(work, threads * (size_t)w->workspace_elements, sizeof *w->workspace);
    w->items = sp_arena_take(work, heads * (size_t)w->tiles, sizeof *w->items);
    w->load = sp_arena_take(work, threads, sizeof *w->load);
    for (size_t h = 0; h < heads; h++) {
        w->masks[h].column = w->indices + h * each;
        w->masks[h].slash = w->masks[h].column + w->keys;
    }
}

static sp_status sample_head(void *context, int worker, int head, sp_error *err SP_UNUSED)
{
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
static sp_status attend_share(void *context, int worker, int share, sp_error *err SP_UNUSED)
{
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
    reserve_layer(&w);
    double started_s = sp_clock_s();
    sp_status status = sp_parallel_for(threads, heads, sample_head, &w, err);
    double chosen_s = sp_clock_s();
    if (status == SP_OK) {
        sp_kernel_sample_items(heads, w.masks, layer->begin, layer->len, w.items);
        sp_kernel_sample_deal(heads * w.tiles, w.items, threads, w.load);
        status = sp_parallel_for(threads, threads, attend_share, &w, err);
    }
    *report = (sp_host_sampled_report){.sampling_s = chosen_s - started_s,
                                       .attending_s = sp_clock_s() - chosen_s};
    if (status == SP_OK) {
        tell(&w, report);
    }
    sp_arena_free(&w.arena);
    return status;
}

// ---- Beside dense attention ----

#define MOST_BYTES ((double)(INT64_C(8) << 30))

const sp_sample_input sp_sampled_kinds[SP_SAMPLED_KINDS] = {
    {.sink = 13, .stripe = 13, .stripe_share = 0.003, .band = 8, .noise = 1.0},
    {.sink = 12, .stripe = 12, .stripe_share = 0.0005, .band = 22, .noise = 0.5},
    {.sink = 14, .stripe = 13, .stripe_share = 0.01, .band = 16, .noise = 0.7},
};

typedef struct tensors {
    const sp_sampled_execution *what;
    int64_t features, kv_features;
    sp_host_sampled_layer layer;
    float *q, *k, *v, *out, *lse, *dense_out, *dense_lse;
    float *workspace; // of each thread
    int64_t workspace_elements;
    sp_arena arena; // holds all of them
} tensors;

static float *floats(tensors *t, int64_t count)
{
    return sp_arena_take(&t->arena, (size_t)count, sizeof(float));
}

static sp_status reserve(tensors *t, sp_error *err)
{
    const sp_sampled_execution *what = t->what;
    int64_t tokens = what->tokens;
    double elements = (double)tokens * (double)(3 * t->features + 2 * t->kv_features);
    if (elements * sizeof(float) > MOST_BYTES) {
        return sp_error_set(err, SP_ERR_LIMIT,
                            "%d heads of %lld tokens are more than is executed (8 GiB)",
                            what->heads, (long long)tokens);
    }
    t->workspace_elements = sp_kernel_attention_workspace_f32(&t->layer.shape, tokens);
    t->q = floats(t, tokens * t->features);
    t->k = floats(t, tokens * t->kv_features);
    t->v = floats(t, tokens * t->kv_features);
    t->out = floats(t, tokens * t->features);
    t->dense_out = floats(t, tokens * t->features);
    t->lse = floats(t, tokens * what->heads);
    t->dense_lse = floats(t, tokens * what->heads);
    t->workspace = floats(t, what->threads * t->workspace_elements);
    return SP_OK;
}

static void draw(tensors *t)
{
    const sp_sampled_execution *what = t->what;
    int each = what->heads / what->kv_heads;
    sp_prng prng;
    sp_prng_seed(&prng, what->seed);
    for (int64_t i = 0; i < what->tokens * t->kv_features; i++) {
        t->v[i] = (float)(2.0 * sp_prng_uniform(&prng) - 1.0);
    }
    for (int h = 0; h < what->heads; h++) {
        int kv = h / each;
        const sp_sample_input *input =
            what->input != NULL ? what->input : &sp_sampled_kinds[kv % SP_SAMPLED_KINDS];
        sp_sample_input_fill(input, what->seed + (uint64_t)h, what->tokens, what->head_dim,
                             t->q + h * what->head_dim, t->features, t->k + kv * what->head_dim,
                             t->kv_features);
    }
    t->layer.q = t->q;
    t->layer.k = t->k;
    t->layer.v = t->v;
    t->layer.out = t->out;
    t->layer.lse = t->lse;
}

// One head by the dense kernel. Its lse stand one head after the other.
static sp_status attend_densely(void *context, int worker, int head, sp_error *err SP_UNUSED)
{
    const tensors *t = context;
    const sp_sampled_execution *what = t->what;
    sp_kernel_attention_shape one = t->layer.shape;
    int64_t kv_at = head / (what->heads / what->kv_heads) * what->head_dim;
    int64_t element = head * what->head_dim;
    one.heads = one.kv_heads = 1;
    sp_kernel_attention_f32(&one, 0, what->tokens, t->q + element, t->k + kv_at, t->v + kv_at,
                            t->dense_out + element, t->dense_lse + head * what->tokens,
                            t->workspace + worker * t->workspace_elements);
    return SP_OK;
}

// Sums over the features of a head.
static double difference(const tensors *t, int64_t query, int head)
{
    double sum = 0.0;
    for (int64_t c = 0; c < t->what->head_dim; c++) {
        int64_t element = query * t->features + head * t->what->head_dim + c;
        sum += fabs((double)t->out[element] - (double)t->dense_out[element]);
    }
    return sum;
}

static double largest_value(const tensors *t)
{
    double largest = 0.0;
    for (int64_t i = 0; i < t->what->tokens * t->what->kv_heads; i++) {
        double sum = 0.0;
        for (int64_t c = 0; c < t->what->head_dim; c++) {
            sum += fabs((double)t->v[i * t->what->head_dim + c]);
        }
        largest = fmax(largest, sum);
    }
    return largest;
}

static void compare(const tensors *t, sp_sampled_outcome *outcome)
{
    const sp_sampled_execution *what = t->what;
    outcome->coverage = 1.0;
    outcome->error = 0.0;
    for (int h = 0; h < what->heads; h++) {
        for (int64_t i = 0; i < what->tokens; i++) {
            double dense = (double)t->dense_lse[h * what->tokens + i];
            outcome->coverage =
                fmin(outcome->coverage, exp((double)t->lse[i * what->heads + h] - dense));
            outcome->error = fmax(outcome->error, difference(t, i, h));
        }
    }
    outcome->bound = 2.0 * (1.0 - outcome->coverage) * largest_value(t);
}

sp_status sp_sampled_execute(const sp_sampled_execution *what, sp_sampled_outcome *outcome,
                             sp_error *err)
{
    tensors t = {.what = what,
                 .features = what->heads * what->head_dim,
                 .kv_features = what->kv_heads * what->head_dim};
    t.layer = (sp_host_sampled_layer){.shape = {.heads = what->heads,
                                                .kv_heads = what->kv_heads,
                                                .head_dim = what->head_dim,
                                                .q_stride = t.features,
                                                .kv_stride = t.kv_features,
                                                .out_stride = t.features,
                                                .scale = 1.0 / sqrt((double)what->head_dim)},
                                      .options = what->options,
                                      .len = what->tokens};
    sp_status status = sp_i_host_start(err);
    status = status == SP_OK ? reserve(&t, err) : status;
    if (status == SP_OK) {
        draw(&t);
        double started_s = sp_clock_s();
        status = sp_parallel_for(what->threads, what->heads, attend_densely, &t, err);
        outcome->dense_s = sp_clock_s() - started_s;
    }
    if (status == SP_OK) {
        double started_s = sp_clock_s();
        status = sp_host_sampled_attention(&t.layer, what->threads, &outcome->report, err);
        outcome->sampled_s = sp_clock_s() - started_s;
    }
    if (status == SP_OK) {
        compare(&t, outcome);
    }
    sp_arena_free(&t.arena);
    return status;
}
