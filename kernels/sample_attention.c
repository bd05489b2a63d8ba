#include <math.h>
#include <string.h>

#include "kernels/typed.h"
#include "kernels/vector.h"

// Keys that are gathered before they are multiplied. A run of fewer is copied, because a product of
// few columns is slow.
enum { GATHER = 256, SHORT_RUN = 64, TILE = SP_KERNEL_SAMPLE_TILE };

// Keys and values that were copied together, and the state of one tile's queries.
typedef struct tile_work {
    sp_kernel_attention_shape shape; // of one head
    sp_kernel_sample_run tile;       // positions of the queries
    const real *q;
    real *out;
    real *max, *sum;
    real *keys, *values; // [GATHER, head_dim]
    int64_t gathered;
    real *workspace; // of attention_block
} tile_work;

static int64_t state_elements(const sp_kernel_attention_shape *shape)
{
    return 2 * TILE + 2 * GATHER * shape->head_dim;
}

int64_t SP_KERNEL(sample_attention_workspace)(const sp_kernel_attention_shape *shape, int64_t keys)
{
    int64_t band = SP_KERNEL_SAMPLE_BAND * keys;
    int64_t tile = state_elements(shape) + SP_KERNEL(attention_workspace)(shape, TILE);
    return band > tile ? band : tile;
}

// ---- Sampling ----

SP_KERNEL_WIDE static void add_scaled(int64_t n, real scale, const real *restrict x,
                                      double *restrict y)
{
    for (int64_t i = 0; i < n; i++) {
        y[i] += (double)(scale * x[i]);
    }
}

// One query's exponentials, 1 / sum of which is `scale`.
static void add_row(const sp_kernel_sample_options *options, int64_t keys, int64_t position,
                    real scale, const real *row, sp_kernel_sample_mass *mass)
{
    int64_t before = position + 1;
    if (options->pattern == SP_KERNEL_SAMPLE_SLASHES) {
        for (int64_t j = 0; j <= position; j += TILE) {
            int64_t n = position + 1 - j < TILE ? position + 1 - j : TILE;
            mass->slash[position / TILE - j / TILE] += (double)(scale * row_sum(n, row + j));
        }
    } else if (options->window_counts) {
        int64_t window = sp_kernel_sample_window(options, keys);
        before = before > window ? before - window : 0;
        mass->window += (double)(scale * row_sum(position + 1 - before, row + before));
    }
    add_scaled(before, scale, row, mass->column);
    mass->total += 1.0;
}

static void clear(const sp_kernel_sample_options *options, int64_t keys,
                  sp_kernel_sample_mass *mass)
{
    mass->window = mass->total = 0.0;
    memset(mass->column, 0, (size_t)keys * sizeof *mass->column);
    if (options->pattern == SP_KERNEL_SAMPLE_SLASHES) {
        memset(mass->slash, 0, (size_t)sp_kernel_sample_blocks(keys) * sizeof *mass->slash);
    }
}

void SP_KERNEL(sample_mass)(const sp_kernel_attention_shape *shape,
                            const sp_kernel_sample_options *options, int64_t begin, int64_t len,
                            int64_t head, const real *q, const real *k, sp_kernel_sample_mass *mass,
                            real *lse, real *workspace)
{
    int64_t d = shape->head_dim;
    int64_t keys = begin + len;
    const real *head_q = q + head * d;
    const real *head_k = k + head / (shape->heads / shape->kv_heads) * d;
    clear(options, keys, mass);
    for (int64_t b = 0; b < sp_kernel_sample_bands(options, len); b++) {
        sp_kernel_sample_run band = sp_kernel_sample_band(options, len, b);
        gemm(false, true, band.end - band.begin, begin + band.end, d, shape->scale,
             head_q + band.begin * shape->q_stride, shape->q_stride, head_k, shape->kv_stride, 0.0,
             workspace, keys);
        for (int64_t i = band.begin; i < band.end; i++) {
            real *row = workspace + (i - band.begin) * keys;
            real max = row_max(begin + i + 1, row);
            real sum = row_exp_sum(begin + i + 1, row, max);
            *lse++ = (real)((double)max + log((double)sum));
            add_row(options, keys, begin + i, (real)1.0 / sum, row, mass);
        }
    }
}

double SP_KERNEL(sample_coverage)(const sp_kernel_attention_shape *shape,
                                  const sp_kernel_sample_options *options, int64_t len,
                                  int64_t head, const real *lse, const real *sampled_lse)
{
    double kept = 1.0;
    for (int64_t b = 0; b < sp_kernel_sample_bands(options, len); b++) {
        sp_kernel_sample_run band = sp_kernel_sample_band(options, len, b);
        for (int64_t i = band.begin; i < band.end; i++) {
            kept = fmin(kept, exp((double)(lse[i * shape->heads + head] - *sampled_lse++)));
        }
    }
    return kept;
}

// ---- One tile over the keys that it keeps ----

// All of the gathered keys stand before the tile, so every query sees them.
static void flush(tile_work *w)
{
    if (w->gathered == 0) {
        return;
    }
    sp_kernel_attention_shape shape = w->shape;
    shape.kv_stride = shape.head_dim;
    sp_kernel_attention_block block = {
        .query_begin = w->gathered, .queries = w->tile.end - w->tile.begin, .keys = w->gathered};
    SP_KERNEL(attention_block)
    (&shape, &block, w->q, w->keys, w->values, w->out, w->max, w->sum, w->workspace);
    w->gathered = 0;
}

static void gather(tile_work *w, sp_kernel_sample_run run, const real *k, const real *v)
{
    size_t bytes = (size_t)w->shape.head_dim * sizeof *k;
    for (int64_t j = run.begin; j < run.end; j++) {
        memcpy(w->keys + w->gathered * w->shape.head_dim, k + j * w->shape.kv_stride, bytes);
        memcpy(w->values + w->gathered * w->shape.head_dim, v + j * w->shape.kv_stride, bytes);
        if (++w->gathered == GATHER) {
            flush(w);
        }
    }
}

static void take_run(tile_work *w, sp_kernel_sample_run run, const real *k, const real *v)
{
    if (run.end <= w->tile.begin && run.end - run.begin < SHORT_RUN) {
        gather(w, run, k, v);
        return;
    }
    sp_kernel_attention_block block = {.query_begin = w->tile.begin,
                                       .queries = w->tile.end - w->tile.begin,
                                       .key_begin = run.begin,
                                       .keys = run.end - run.begin};
    int64_t at = run.begin * w->shape.kv_stride;
    SP_KERNEL(attention_block)
    (&w->shape, &block, w->q, k + at, v + at, w->out, w->max, w->sum, w->workspace);
}

static tile_work start_tile(const sp_kernel_attention_shape *shape, sp_kernel_sample_run tile,
                            const real *q, real *out, real *workspace)
{
    tile_work w = {.shape = *shape, .tile = tile, .q = q, .out = out};
    w.shape.heads = w.shape.kv_heads = 1;
    w.max = workspace;
    w.sum = w.max + TILE;
    w.keys = w.sum + TILE;
    w.values = w.keys + GATHER * shape->head_dim;
    w.workspace = w.values + GATHER * shape->head_dim;
    SP_KERNEL(attention_start)(&w.shape, tile.end - tile.begin, out, w.max, w.sum);
    return w;
}

void SP_KERNEL(sample_attention_tile)(const sp_kernel_attention_shape *shape,
                                      const sp_kernel_sample_mask *mask, int64_t begin, int64_t len,
                                      int64_t head, int64_t tile, const real *q, const real *k,
                                      const real *v, real *out, real *lse, real *workspace)
{
    int64_t d = shape->head_dim;
    int64_t first = tile * TILE;
    int64_t rows = len - first < TILE ? len - first : TILE;
    int64_t kv_at = head / (shape->heads / shape->kv_heads) * d;
    tile_work w = start_tile(shape, (sp_kernel_sample_run){begin + first, begin + first + rows},
                             q + first * shape->q_stride + head * d,
                             out + first * shape->out_stride + head * d, workspace);
    sp_kernel_sample_walk walk = sp_kernel_sample_walk_start(mask, w.tile);
    for (sp_kernel_sample_run run; sp_kernel_sample_walk_next(&walk, &run);) {
        take_run(&w, run, k + kv_at, v + kv_at);
    }
    flush(&w);
    SP_KERNEL(attention_finish)(&w.shape, rows, w.max, w.sum, w.out, w.max);
    for (int64_t i = 0; i < rows; i++) {
        lse[(first + i) * shape->heads + head] = w.max[i];
    }
}
