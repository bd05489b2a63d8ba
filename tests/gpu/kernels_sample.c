// Sampled attention on a device: the sums against their definition in fp64, attention against the
// definition over the keys that the mask's words name, and against dense attention where it keeps
// every key.
#include <string.h>

#include "kernels/cuda_sample.h"
#include "tests/gpu/kernels_test.h"
#include "tests/support/attention_tiles.h"
#include "tests/support/sampled_keys.h"

enum { TILE = SP_KERNEL_SAMPLE_TILE, MOST_BANDS = 32 };

static const sp_kernel_sample_options stripes = {.pattern = SP_KERNEL_SAMPLE_STRIPES,
                                                 .alpha = 0.6,
                                                 .row_share = 0.2,
                                                 .window_share = 0.08,
                                                 .window_counts = true,
                                                 .bottom_rows = 1};
static const sp_kernel_sample_options slashes = {
    .pattern = SP_KERNEL_SAMPLE_SLASHES, .alpha = 0.3, .alpha_slash = 0.3, .row_share = 0.2};

// One sample, whose queries are those from `begin` on, and all that is chosen for its heads.
typedef struct sampled {
    attention_pack p;
    const sp_kernel_sample_options *options;
    int64_t begin, len, keys, blocks;
    sp_cuda_sample_bands bands;
    int32_t *position; // on the host
    tensor lse;        // of the sampled queries
    tensor before, inside, by_query;
    sp_kernel_sample_mask *masks;
} sampled;

static void *room(int64_t count, size_t bytes)
{
    void *memory = calloc((size_t)count + 1, bytes);
    EXPECT(memory != NULL);
    return memory;
}

static void set_up(sampled *s, const sp_kernel_sample_options *options, int64_t heads,
                   int64_t kv_heads, int64_t head_dim, int64_t begin, int64_t len)
{
    *s = (sampled){.options = options,
                   .begin = begin,
                   .len = len,
                   .keys = begin + len,
                   .blocks = sp_kernel_sample_blocks(begin + len)};
    s->p = (attention_pack){.shape = {.heads = heads, .kv_heads = kv_heads, .head_dim = head_dim},
                            .samples = 1,
                            .slice_count = 1,
                            .key_count = 1,
                            .slices = {{0, begin, len}},
                            .keys = {{0, 0, begin + len}}};
    attention_fill(&s->p);
    attention_show(&s->p);
    s->masks = room(heads, sizeof *s->masks);
    for (int64_t h = 0; h < heads; h++) {
        s->masks[h].column = room(s->keys, sizeof(int32_t));
        s->masks[h].slash = room(s->blocks, sizeof(int32_t));
    }
}

static void tear_down(sampled *s)
{
    for (int64_t h = 0; h < s->p.shape.heads; h++) {
        free(s->masks[h].column);
        free(s->masks[h].slash);
    }
    free(s->masks);
    free(s->position);
}

// Bands as slices of dense attention. Returns the sampled queries.
static int64_t slice_bands(sampled *s, tensor out, sp_cuda_attention_slice slices[MOST_BANDS])
{
    const sp_kernel_attention_shape *shape = &s->p.shape;
    int64_t rows = 0;
    for (int64_t b = 0; b < sp_kernel_sample_bands(s->options, s->len); b++) {
        sp_kernel_sample_run band = sp_kernel_sample_band(s->options, s->len, b);
        slices[b] = (sp_cuda_attention_slice){.q = BF16(s->p.q[0]) + band.begin * shape->q_stride,
                                              .out = BF16(out) + rows * shape->out_stride,
                                              .lse = FP32(s->lse) + rows * shape->heads,
                                              .query_begin = s->begin + band.begin,
                                              .queries = band.end - band.begin};
        for (int64_t row = band.begin; row < band.end; row++) {
            s->position[rows++] = (int32_t)(s->begin + row);
        }
    }
    return rows;
}

static void attend_slices(const sp_kernel_attention_shape *shape,
                          const sp_cuda_attention_slice slices[MOST_BANDS], int64_t bands,
                          sp_cuda_attention_keys keys)
{
    sp_cuda_attention_group group = {.slices = bands, .key_blocks = 1};
    sp_cuda_attention_tables t = {.slices = slices,
                                  .keys = &keys,
                                  .groups = &group,
                                  .slice_count = bands,
                                  .key_count = 1,
                                  .group_count = 1};
    count_attention_tiles(&t);
    t.query_tiles = room(t.query_tile_count, sizeof *t.query_tiles);
    t.key_tiles = room(t.key_tile_count, sizeof *t.key_tiles);
    EXPECT(sp_cuda_attention_plan(shape, &t) == 0);
    sp_cuda_attention_tile *host_tiles[2] = {t.query_tiles, t.key_tiles};
    t.slices = device_copy(slices, MOST_BANDS * sizeof *slices);
    t.keys = device_copy(&keys, sizeof keys);
    t.groups = device_copy(&group, sizeof group);
    t.query_tiles = device_copy(t.query_tiles, (size_t)t.query_tile_count * sizeof *t.query_tiles);
    device_wait(sp_cuda_attention_forward(shape, &t, NULL));
    free(host_tiles[0]);
    free(host_tiles[1]);
}

// lse of the sampled queries, by the kernel of dense attention.
static void attend_bands(sampled *s)
{
    const sp_kernel_attention_shape *shape = &s->p.shape;
    const tensor_layout plain = {0, 0};
    sp_cuda_attention_slice slices[MOST_BANDS] = {0};
    int64_t bands = sp_kernel_sample_bands(s->options, s->len);
    int64_t most = bands * SP_KERNEL_SAMPLE_BAND;
    EXPECT(bands <= MOST_BANDS);
    s->position = room(most, sizeof *s->position);
    tensor out = tensor_blank(TENSOR_BF16, most, shape->out_stride, plain);
    s->lse = tensor_blank(TENSOR_FP32, most, shape->heads, plain);
    int64_t rows = slice_bands(s, out, slices);
    attend_slices(
        shape, slices, bands,
        (sp_cuda_attention_keys){.k = BF16(s->p.k[0]), .v = BF16(s->p.v[0]), .keys = s->keys});
    s->bands = (sp_cuda_sample_bands){
        .q = BF16(s->p.q[0]),
        .k = BF16(s->p.k[0]),
        .lse = FP32(s->lse),
        .position = device_copy(s->position, (size_t)rows * sizeof *s->position),
        .begin = s->begin,
        .keys = s->keys,
        .sampled = rows,
        .window = s->options->window_counts ? sp_kernel_sample_window(s->options, s->keys) : 0};
}

static void add_up(sampled *s)
{
    const tensor_layout plain = {0, 0};
    int64_t heads = s->p.shape.heads;
    s->before = tensor_blank(TENSOR_FP32, heads, s->keys, plain);
    s->inside = tensor_blank(TENSOR_FP32, heads, s->keys, plain);
    s->by_query = tensor_blank(TENSOR_FP32, heads * s->blocks, s->bands.sampled, plain);
    sp_cuda_sample_sums sums = {
        .before = FP32(s->before), .inside = FP32(s->inside), .by_query = FP32(s->by_query)};
    device_wait(sp_cuda_sample_mass(&s->p.shape, &s->bands, &sums, NULL));
}

static double score_of(const sampled *s, int64_t head, int64_t i, int64_t j)
{
    const sp_kernel_attention_shape *shape = &s->p.shape;
    const double *q = s->p.q[0].value + (i - s->begin) * shape->q_stride + head * shape->head_dim;
    const double *k = s->p.k[0].value + j * shape->kv_stride +
                      head / (shape->heads / shape->kv_heads) * shape->head_dim;
    double sum = 0;
    for (int64_t c = 0; c < shape->head_dim; c++) {
        sum += q[c] * k[c];
    }
    return shape->scale * sum;
}

static double lse_of(const sampled *s, int64_t head, int64_t i)
{
    return s->p.expected_lse[0][(i - s->begin) * s->p.shape.heads + head];
}

static void check_sums(sampled *s)
{
    int64_t heads = s->p.shape.heads;
    double *before = tensor_zeros(heads * s->keys);
    double *inside = tensor_zeros(heads * s->keys);
    double *by_query = tensor_zeros(heads * s->blocks * s->bands.sampled);
    for (int64_t h = 0; h < heads; h++) {
        for (int64_t n = 0; n < s->bands.sampled; n++) {
            int64_t i = s->position[n];
            for (int64_t j = 0; j <= i; j++) {
                double p = exp(score_of(s, h, i, j) - lse_of(s, h, i));
                *(j > i - s->bands.window ? &inside[h * s->keys + j] : &before[h * s->keys + j]) +=
                    p;
                by_query[(h * s->blocks + j / TILE) * s->bands.sampled + n] += p;
            }
        }
    }
    tensor_check("sums before the window", &s->before, before, 1e-3, 1e-5);
    tensor_check("sums inside the window", &s->inside, inside, 1e-3, 1e-5);
    tensor_check("sums by query", &s->by_query, by_query, 1e-3, 1e-5);
}

// Chooses by what the device added up: fetched values as the host's tables have them.
static void choose(sampled *s)
{
    int64_t heads = s->p.shape.heads;
    float *fetched[3];
    const tensor *from[3] = {&s->before, &s->inside, &s->by_query};
    for (int t = 0; t < 3; t++) {
        int64_t n = from[t]->rows * from[t]->columns;
        fetched[t] = room(n, sizeof(float));
        device_get(fetched[t], from[t]->device, (size_t)n * sizeof(float));
    }
    sp_cuda_sample_sums sums = {.before = fetched[0], .inside = fetched[1], .by_query = fetched[2]};
    sp_kernel_sample_mass mass = {.column = room(s->keys, sizeof(double)),
                                  .slash = room(s->blocks, sizeof(double))};
    for (int64_t h = 0; h < heads; h++) {
        sp_cuda_sample_gather_mass(s->options, &s->bands, s->position, h, &sums, &mass);
        sp_kernel_sample_select(s->options, s->begin, s->len, &mass, &s->masks[h]);
    }
    free(mass.column);
    free(mass.slash);
    for (int t = 0; t < 3; t++) {
        free(fetched[t]);
    }
}

static sp_cuda_sample_tables plan(sampled *s)
{
    int64_t heads = s->p.shape.heads;
    int64_t items = heads * sp_kernel_sample_blocks(s->len);
    sp_kernel_sample_item *work = room(items, sizeof *work);
    sp_cuda_sample_tables t = {0};
    int64_t runs = sp_cuda_sample_plan(heads, s->masks, s->begin, s->len, work, &t);
    sp_cuda_sample_item *host_items = t.items = room(items, sizeof *t.items);
    sp_cuda_sample_run *host_runs = t.runs = room(runs, sizeof *t.runs);
    EXPECT(sp_cuda_sample_plan(heads, s->masks, s->begin, s->len, work, &t) == runs);
    int32_t *columns = room(heads * s->keys, sizeof *columns);
    for (int64_t h = 0; h < heads; h++) {
        memcpy(columns + h * s->keys, s->masks[h].column,
               (size_t)s->masks[h].columns * sizeof *columns);
    }
    t.column = device_copy(columns, (size_t)(heads * s->keys) * sizeof *columns);
    t.items = device_copy(host_items, (size_t)items * sizeof *t.items);
    t.runs = device_copy(host_runs, (size_t)runs * sizeof *t.runs);
    free(columns);
    free(host_items);
    free(host_runs);
    free(work);
    return t;
}

static void attend(sampled *s)
{
    sp_cuda_sample_tables t = plan(s);
    sp_cuda_sample_queries queries = {.q = BF16(s->p.q[0]),
                                      .k = BF16(s->p.k[0]),
                                      .v = BF16(s->p.v[0]),
                                      .out = BF16(s->p.out[0]),
                                      .lse = FP32(s->p.lse[0]),
                                      .begin = s->begin,
                                      .queries = s->len};
    device_wait(sp_cuda_sample_attention(&s->p.shape, &queries, &t, NULL));
}

static void check_attention(sampled *s)
{
    const sp_kernel_attention_shape *shape = &s->p.shape;
    double *out = tensor_zeros(s->len * shape->out_stride);
    double *lse = tensor_zeros(s->len * shape->heads);
    int64_t left_out = 0;
    for (int64_t h = 0; h < shape->heads; h++) {
        int64_t kv = h / (shape->heads / shape->kv_heads) * shape->head_dim;
        for (int64_t i = s->begin; i < s->keys; i++) {
            double *row = out + (i - s->begin) * shape->out_stride + h * shape->head_dim;
            double kept = 0;
            for (int64_t j = 0; j <= i; j++) {
                bool keeps = sampled_tile_keeps(&s->masks[h], s->begin, s->keys, i, j);
                double p = keeps ? exp(score_of(s, h, i, j) - lse_of(s, h, i)) : 0.0;
                kept += p;
                left_out += !keeps;
                for (int64_t c = 0; p > 0 && c < shape->head_dim; c++) {
                    row[c] += p * s->p.v[0].value[j * shape->kv_stride + kv + c];
                }
            }
            for (int64_t c = 0; c < shape->head_dim; c++) {
                row[c] /= kept;
            }
            lse[(i - s->begin) * shape->heads + h] = lse_of(s, h, i) + log(kept);
        }
    }
    EXPECT(s->keys < 3 * TILE || left_out > 0);
    tensor_check_share("sampled attention", &s->p.out[0], out, BF16_ROUNDING, 0.01);
    tensor_check("sampled attention's lse", &s->p.lse[0], lse, 1e-6, 5e-5);
}

static void check(const sp_kernel_sample_options *options, int64_t heads, int64_t kv_heads,
                  int64_t head_dim, int64_t begin, int64_t len)
{
    sampled s;
    set_up(&s, options, heads, kv_heads, head_dim, begin, len);
    attend_bands(&s);
    add_up(&s);
    check_sums(&s);
    choose(&s);
    attend(&s);
    check_attention(&s);
    tear_down(&s);
}

static void sample_stripes(void)
{
    check(&stripes, 2, 1, 64, 0, 400);
    check(&stripes, 1, 1, 128, 75, 330);
    check(&stripes, 1, 1, 40, 0, 20);
}

static void sample_slashes(void)
{
    check(&slashes, 1, 1, 64, 0, 520);
    check(&slashes, 1, 1, 128, 75, 400);
}

// With alpha 1 the bits are those of dense attention.
static void sample_of_every_key(void)
{
    sp_kernel_sample_options options = stripes;
    options.alpha = 1.0;
    sampled s;
    set_up(&s, &options, 2, 1, 64, 30, 300);
    const sp_kernel_attention_shape *shape = &s.p.shape;
    int64_t elements = (s.len - 1) * shape->out_stride + shape->heads * shape->head_dim;
    size_t bytes = (size_t)elements * sizeof(sp_bf16);
    sp_bf16 *dense = room(elements, sizeof *dense);
    sp_bf16 *all = room(elements, sizeof *all);
    device_wait(sp_cuda_attention_forward(shape, &s.p.tables, NULL));
    device_get(dense, s.p.out[0].device, bytes);
    attend_bands(&s);
    add_up(&s);
    choose(&s);
    attend(&s);
    device_get(all, s.p.out[0].device, bytes);
    EXPECT(memcmp(dense, all, bytes) == 0);
    free(dense);
    free(all);
    tear_down(&s);
}

// Shapes that no kernel takes are refused before anything is launched.
static void sample_refusals(void)
{
    sp_kernel_attention_shape shape = {.heads = 2,
                                       .kv_heads = 1,
                                       .head_dim = 20,
                                       .q_stride = 40,
                                       .kv_stride = 24,
                                       .out_stride = 40,
                                       .scale = 1};
    sp_cuda_sample_bands bands = {.keys = 10};
    sp_cuda_sample_sums sums = {0};
    sp_cuda_sample_queries queries = {.queries = 10};
    sp_cuda_sample_tables tables = {0};
    EXPECT(sp_cuda_sample_mass(&shape, &bands, &sums, NULL) == 1);
    EXPECT(sp_cuda_sample_attention(&shape, &queries, &tables, NULL) == 1);
    shape.head_dim = 16;
    EXPECT(sp_cuda_sample_attention(&shape, &queries, &tables, NULL) == 0);
}

const kernel_case kernels_sample_cases[] = {
    KERNEL_CASE(sample_stripes),
    KERNEL_CASE(sample_slashes),
    KERNEL_CASE(sample_of_every_key),
    KERNEL_CASE(sample_refusals),
    {NULL, NULL},
};
