#include <math.h>
#include <stdio.h>
#include <stdlib.h>

#include "tests/gpu/kernels_tensor.h"
#include "tests/gpu/kernels_test.h"
#include "tests/support/attention_tiles.h"

// Row of a token of a sample in the tensors of its ranges: which range, and where in it.
static int64_t range_of(const attention_range *ranges, int64_t count, int64_t sample, int64_t token)
{
    for (int64_t i = 0; i < count; i++) {
        if (ranges[i].sample == sample && token >= ranges[i].begin &&
            token < ranges[i].begin + ranges[i].tokens) {
            return i;
        }
    }
    return -1;
}

static double dot(int64_t n, const double *x, const double *y)
{
    double sum = 0;
    for (int64_t i = 0; i < n; i++) {
        sum += x[i] * y[i];
    }
    return sum;
}

// One query of one head against all keys it sees: probabilities, then all that follows from them.
static void reference_row(attention_pack *p, int64_t s, int64_t row, int64_t head)
{
    const sp_kernel_attention_shape *shape = &p->shape;
    int64_t d = shape->head_dim;
    int64_t sample = p->slices[s].sample;
    int64_t position = p->slices[s].begin + row;
    int64_t kv = head / (shape->heads / shape->kv_heads) * d;
    const double *q = p->q[s].value + row * shape->q_stride + head * d;
    const double *dout = p->dout[s].value + row * shape->out_stride + head * d;
    double *out = p->expected_out[s] + row * shape->out_stride + head * d;
    double *dq = p->expected_dq[s] + row * shape->q_stride + head * d;
    double *score = tensor_zeros(position + 1);
    double max = (double)-INFINITY;
    double sum = 0;
    for (int pass = 0; pass < 4; pass++) {
        double delta = pass == 3 ? dot(d, out, dout) : 0;
        for (int64_t j = 0; j <= position; j++) {
            int64_t b = range_of(p->keys, p->key_count, sample, j);
            if (b < 0) {
                continue;
            }
            int64_t at = (j - p->keys[b].begin) * shape->kv_stride + kv;
            const double *k = p->k[b].value + at;
            const double *v = p->v[b].value + at;
            if (pass == 0) {
                score[j] = shape->scale * dot(d, q, k);
                max = fmax(max, score[j]);
            } else if (pass == 1) {
                sum += exp(score[j] - max);
            } else {
                double probability = exp(score[j] - max) / sum;
                double dscore = shape->scale * probability * (dot(d, dout, v) - delta);
                for (int64_t c = 0; c < d; c++) {
                    if (pass == 2) {
                        out[c] += probability * v[c];
                    } else {
                        p->expected_dv[b][at + c] += probability * dout[c];
                        p->expected_dk[b][at + c] += dscore * q[c];
                        dq[c] += dscore * k[c];
                    }
                }
            }
        }
    }
    p->expected_lse[s][row * shape->heads + head] = max + log(sum);
}

static void fill_slice(attention_pack *p, int64_t s)
{
    const sp_kernel_attention_shape *shape = &p->shape;
    const tensor_layout plain = {0, 0};
    int64_t tokens = p->slices[s].tokens;
    int64_t columns = shape->heads * shape->head_dim;
    tensor_layout q_layout = {0, shape->q_stride - columns};
    tensor_layout out_layout = {0, shape->out_stride - columns};
    p->q[s] = tensor_drawn(TENSOR_BF16, tokens, columns, q_layout, 1.5);
    p->out[s] = tensor_blank(TENSOR_BF16, tokens, columns, out_layout);
    p->lse[s] = tensor_blank(TENSOR_FP32, tokens, shape->heads, plain);
    p->dout[s] = tensor_drawn(TENSOR_BF16, tokens, columns, out_layout, 1);
    p->delta[s] = tensor_blank(TENSOR_FP32, tokens, shape->heads, plain);
    p->dq[s] = tensor_blank(TENSOR_BF16, tokens, columns, q_layout);
    p->expected_out[s] = tensor_zeros(tokens * shape->out_stride);
    p->expected_lse[s] = tensor_zeros(tokens * shape->heads);
    p->expected_dq[s] = tensor_zeros(tokens * shape->q_stride);
}

static void fill_keys(attention_pack *p, int64_t b)
{
    const sp_kernel_attention_shape *shape = &p->shape;
    int64_t columns = shape->kv_heads * shape->head_dim;
    tensor_layout layout = {0, shape->kv_stride - columns};
    int64_t tokens = p->keys[b].tokens;
    p->k[b] = tensor_drawn(TENSOR_BF16, tokens, columns, layout, 1.5);
    p->v[b] = tensor_drawn(TENSOR_BF16, tokens, columns, layout, 1);
    p->dk[b] = tensor_drawn(TENSOR_FP32, tokens, columns, layout, 0.1);
    p->dv[b] = tensor_drawn(TENSOR_FP32, tokens, columns, layout, 0.1);
    p->expected_dk[b] = tensor_values(&p->dk[b]);
    p->expected_dv[b] = tensor_values(&p->dv[b]);
}

void attention_fill(attention_pack *p)
{
    sp_kernel_attention_shape *shape = &p->shape;
    shape->q_stride = shape->heads * shape->head_dim + 16;
    shape->kv_stride = shape->kv_heads * shape->head_dim + 8;
    shape->out_stride = shape->heads * shape->head_dim + 24;
    shape->scale = 1.5 / sqrt((double)shape->head_dim);
    for (int64_t s = 0; s < p->slice_count; s++) {
        fill_slice(p, s);
    }
    for (int64_t b = 0; b < p->key_count; b++) {
        fill_keys(p, b);
    }
    for (int64_t s = 0; s < p->slice_count; s++) {
        for (int64_t row = 0; row < p->slices[s].tokens; row++) {
            for (int64_t head = 0; head < shape->heads; head++) {
                reference_row(p, s, row, head);
            }
        }
    }
}

void *device_copy(const void *from, size_t bytes)
{
    tensor room = tensor_drawn(TENSOR_INT64, 1, (int64_t)(bytes / sizeof(int64_t)) + 1,
                               (tensor_layout){0, 0}, 0);
    if (bytes > 0) {
        device_put(room.device, from, bytes);
    }
    return room.device;
}

void attention_show(attention_pack *p)
{
    sp_cuda_attention_slice slices[ATTENTION_MOST] = {0};
    sp_cuda_attention_keys keys[ATTENTION_MOST] = {0};
    sp_cuda_attention_group groups[ATTENTION_MOST] = {0};
    sp_cuda_attention_tables t = {.slices = slices, .keys = keys, .groups = groups};
    t.group_count = p->samples;
    for (int64_t g = 0; g < p->samples; g++) {
        groups[g].first_slice = t.slice_count;
        groups[g].first_keys = t.key_count;
        for (int64_t s = 0; s < p->slice_count; s++) {
            if (p->slices[s].sample == g) {
                slices[t.slice_count++] =
                    (sp_cuda_attention_slice){.q = BF16(p->q[s]),
                                              .out = BF16(p->out[s]),
                                              .lse = FP32(p->lse[s]),
                                              .dout = BF16(p->dout[s]),
                                              .delta = FP32(p->delta[s]),
                                              .dq = BF16(p->dq[s]),
                                              .query_begin = p->slices[s].begin,
                                              .queries = p->slices[s].tokens,
                                              .group = g};
                groups[g].slices++;
            }
        }
        for (int64_t b = 0; b < p->key_count; b++) {
            if (p->keys[b].sample == g) {
                keys[t.key_count++] = (sp_cuda_attention_keys){.k = BF16(p->k[b]),
                                                               .v = BF16(p->v[b]),
                                                               .dk = FP32(p->dk[b]),
                                                               .dv = FP32(p->dv[b]),
                                                               .key_begin = p->keys[b].begin,
                                                               .keys = p->keys[b].tokens,
                                                               .group = g};
                groups[g].key_blocks++;
            }
        }
    }
    count_attention_tiles(&t);
    t.query_tiles = calloc((size_t)t.query_tile_count + 1, sizeof *t.query_tiles);
    t.key_tiles = calloc((size_t)t.key_tile_count + 1, sizeof *t.key_tiles);
    if (t.query_tiles == NULL || t.key_tiles == NULL ||
        sp_cuda_attention_plan(&p->shape, &t) != 0) {
        fprintf(stderr, "a pack that the plan refuses\n");
        exit(1);
    }
    p->tables = t;
    p->tables.slices = device_copy(slices, sizeof slices);
    p->tables.keys = device_copy(keys, sizeof keys);
    p->tables.groups = device_copy(groups, sizeof groups);
    p->tables.query_tiles =
        device_copy(t.query_tiles, (size_t)t.query_tile_count * sizeof *t.query_tiles);
    p->tables.key_tiles = device_copy(t.key_tiles, (size_t)t.key_tile_count * sizeof *t.key_tiles);
    free(t.query_tiles);
    free(t.key_tiles);
}
