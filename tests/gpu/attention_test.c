// Attention through cuDNN against its definition in fp64: outputs, statistics and gradients of
// whole samples, late slices and packed samples. Bound: relative error 1e-2 of
// each tensor (bf16 in and out, fp32 sums).
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "backends/cuda/attention.h"
#include "backends/cuda/calibration.h"
#include "backends/cuda/device.h"
#include "sim/base/alloc.h"
#include "tests/gpu/attention_reference.h"
#include "tests/gpu/checklist.h"
#include "tests/gpu/gpu_check.h"

enum { MOST = 8 };

static const sp_i_cuda_attention_place whole_device; // all zero

static double worst; // relative error so far, in this process

typedef struct sample {
    int64_t queries, keys;
} sample;

// One case: segments of the given lengths, one after another in memory.
typedef struct attention_case {
    sample samples[MOST];
    int count;
    int64_t heads, kv_heads, head_dim;
    bool interleaved; // Q, K and V of a token beside each other
    struct {
        int64_t segments, queries, keys;
    } plan;     // larger than what is there; 0: as it is
    bool stale; // rows behind the last segment, and all that is written, hold NaN at first
} attention_case;

typedef struct buffers {
    char *memory;
    void *tensors[SP_I_CUDA_ATTENTION_TENSORS];
    void *workspace;
} buffers;

// A pass of one shape, again and again.
typedef struct timed_pass {
    sp_i_cuda_attention *attention;
    sp_i_cuda_attention_shape shape;
    bool backward;
    buffers buffers;
} timed_pass;

static sp_i_cuda_attention_shape shape_of(const attention_case *c)
{
    const int64_t q = c->heads * c->head_dim;
    const int64_t kv = c->kv_heads * c->head_dim;
    sp_i_cuda_attention_shape s = {.segments = c->count,
                                   .heads = c->heads,
                                   .kv_heads = c->kv_heads,
                                   .head_dim = c->head_dim,
                                   .q_stride = c->interleaved ? q + 2 * kv : q,
                                   .kv_stride = c->interleaved ? q + 2 * kv : kv,
                                   .out_stride = q,
                                   .dq_stride = q,
                                   .dkv_stride = kv};
    for (int i = 0; i < c->count; i++) {
        s.all_queries += c->samples[i].queries;
        s.all_keys += c->samples[i].keys;
        s.queries = c->samples[i].queries > s.queries ? c->samples[i].queries : s.queries;
        s.keys = c->samples[i].keys > s.keys ? c->samples[i].keys : s.keys;
    }
    if (c->plan.segments > 0) {
        s.segments = c->plan.segments;
        s.queries = c->plan.queries;
        s.keys = c->plan.keys;
    }
    return s;
}

static sp_status upload_tables(gpu_test *t, const attention_case *c,
                               const sp_i_cuda_attention_shape *s, const buffers *b, sp_error *err)
{
    const int64_t strides[] = {s->q_stride, s->kv_stride, s->out_stride,
                               s->heads,    s->dq_stride, s->dkv_stride};
    const bool of_keys[] = {false, true, false, false, false, true};
    int32_t lengths[2][MOST] = {{0}};
    SP_ASSERT(s->segments <= MOST);
    for (int i = 0; i < c->count; i++) {
        lengths[0][i] = (int32_t)c->samples[i].queries;
        lengths[1][i] = (int32_t)c->samples[i].keys;
    }
    for (int k = 0; k < 2; k++) {
        GPU_TRY(sp_i_cuda_upload(&t->device, b->tensors[SP_I_CUDA_QUERY_LENGTHS + k], lengths[k],
                                 4 * s->segments, NULL, err));
    }
    for (int table = 0; table < 6; table++) {
        int64_t offsets[MOST + 1] = {0};
        for (int i = 0; i < s->segments; i++) {
            offsets[i + 1] = offsets[i] + lengths[of_keys[table]][i] * strides[table];
        }
        GPU_TRY(sp_i_cuda_upload(&t->device, b->tensors[SP_I_CUDA_Q_OFFSETS + table], offsets,
                                 8 * (s->segments + 1), NULL, err));
    }
    return SP_OK;
}

// Fills all behind the last rows of Q, K, V and dO, and all other memory, with the bits of NaN, as
// memory that a run recycles may hold them. Engines read whole tiles of rows, and a weight of 0
// times NaN is NaN.
static sp_status spoil(gpu_test *t, const sp_i_cuda_attention_shape *s, const buffers *b,
                       int64_t wide, const char *end, sp_error *err)
{
    const struct {
        int id;
        int64_t bytes;
    } of[] = {{SP_I_CUDA_Q, 2 * s->all_queries * s->q_stride},
              {SP_I_CUDA_K, 2 * s->all_keys * s->kv_stride},
              {SP_I_CUDA_V, 2 * s->all_keys * s->kv_stride},
              {SP_I_CUDA_DO, 2 * s->all_queries * s->out_stride}};
    char *written = (char *)b->tensors[SP_I_CUDA_DO] + sp_i_cuda_aligned_bytes(wide);
    for (size_t i = 0; i < sizeof of / sizeof *of; i++) {
        GPU_TRY(SP_I_CUDA(&t->device, err, MemsetD8Async,
                          sp_i_cuda_at((char *)b->tensors[of[i].id] + of[i].bytes), 0xff,
                          (size_t)(wide - of[i].bytes), (CUstream)NULL));
    }
    return SP_I_CUDA(&t->device, err, MemsetD8Async, sp_i_cuda_at(written), 0xff,
                     (size_t)(end - written), (CUstream)NULL);
}

static sp_status make_buffers(gpu_test *t, const attention_case *c,
                              const sp_i_cuda_attention_shape *s, int64_t workspace, buffers *b,
                              sp_error *err)
{
    const int64_t rows = s->all_queries > s->all_keys ? s->all_queries : s->all_keys;
    const int64_t wide = 2 * rows * (s->q_stride + 2 * s->kv_stride) + 256;
    void *memory = NULL;
    GPU_TRY(sp_i_cuda_take(&t->device, (size_t)(12 * wide + workspace + 8192), &memory, err));
    b->memory = memory;
    char *next = b->memory;
    char *q = sp_i_cuda_take_part(&next, wide);
    b->tensors[SP_I_CUDA_Q] = q;
    b->tensors[SP_I_CUDA_K] =
        c->interleaved ? q + 2 * s->heads * s->head_dim : sp_i_cuda_take_part(&next, wide);
    b->tensors[SP_I_CUDA_V] = c->interleaved ? q + 2 * (s->heads + s->kv_heads) * s->head_dim
                                             : sp_i_cuda_take_part(&next, wide);
    b->tensors[SP_I_CUDA_DO] = sp_i_cuda_take_part(&next, wide);
    const int64_t drawn = (next - b->memory) / 2;
    for (int id = SP_I_CUDA_O; id < SP_I_CUDA_QUERY_LENGTHS; id++) {
        if (b->tensors[id] == NULL) {
            b->tensors[id] =
                sp_i_cuda_take_part(&next, id == SP_I_CUDA_STATS ? 4 * rows * s->heads : wide);
        }
    }
    for (int id = SP_I_CUDA_QUERY_LENGTHS; id < SP_I_CUDA_ATTENTION_TENSORS; id++) {
        b->tensors[id] = sp_i_cuda_take_part(&next, 8 * (MOST + 1));
    }
    b->workspace = next;
    GPU_TRY(
        sp_i_cuda_fill_normal(&t->device, b->memory, drawn, SP_I_CUDA_DRAWN, 1.0, 3, NULL, err));
    GPU_TRY(c->stale ? spoil(t, s, b, wide, next + workspace, err) : SP_OK);
    return upload_tables(t, c, s, b, err);
}

// One sample of a tensor of the device, its heads one after another.
static double *read_rows(gpu_test *t, const void *data, int64_t first, int64_t rows, int64_t stride,
                         int64_t width, bool fp32, sp_error *err)
{
    const char *from = (const char *)data + first * stride * (fp32 ? 4 : 2);
    const int64_t count = (rows - 1) * stride + width;
    double *all = gpu_read(t, from, count, fp32, err);
    for (int64_t r = 0; all != NULL && r < rows; r++) {
        memmove(&all[r * width], &all[r * stride], (size_t)width * sizeof *all);
    }
    return all;
}

static sp_status check_sample(gpu_test *t, const sp_i_cuda_attention_shape *s, const buffers *b,
                              sample one, int64_t first_query, int64_t first_key, sp_error *err)
{
    const int64_t wide = s->heads * s->head_dim;
    const int64_t narrow = s->kv_heads * s->head_dim;
    const struct {
        int id;
        int64_t first, rows, stride, width;
        const char *name;
    } of[] = {{SP_I_CUDA_Q, first_query, one.queries, s->q_stride, wide, "Q"},
              {SP_I_CUDA_K, first_key, one.keys, s->kv_stride, narrow, "K"},
              {SP_I_CUDA_V, first_key, one.keys, s->kv_stride, narrow, "V"},
              {SP_I_CUDA_DO, first_query, one.queries, s->out_stride, wide, "dO"},
              {SP_I_CUDA_O, first_query, one.queries, s->out_stride, wide, "O"},
              {SP_I_CUDA_STATS, first_query, one.queries, s->heads, s->heads, "statistics"},
              {SP_I_CUDA_DQ, first_query, one.queries, s->dq_stride, wide, "dQ"},
              {SP_I_CUDA_DK, first_key, one.keys, s->dkv_stride, narrow, "dK"},
              {SP_I_CUDA_DV, first_key, one.keys, s->dkv_stride, narrow, "dV"}};
    enum { TENSORS = sizeof of / sizeof *of, INPUTS = 4 };
    double *values[TENSORS] = {NULL};
    bool read = true;
    for (int i = 0; read && i < TENSORS; i++) {
        values[i] = read_rows(t, b->tensors[of[i].id], of[i].first, of[i].rows, of[i].stride,
                              of[i].width, of[i].id == SP_I_CUDA_STATS, err);
        read = values[i] != NULL;
    }
    double *want[TENSORS] = {NULL};
    for (int i = INPUTS; i < TENSORS; i++) {
        want[i] = sp_calloc((size_t)(of[i].rows * of[i].width), sizeof *want[i]);
    }
    const attention_reference r = {.shape = {.heads = s->heads,
                                             .kv_heads = s->kv_heads,
                                             .head_dim = s->head_dim,
                                             .q_stride = wide,
                                             .kv_stride = narrow,
                                             .out_stride = wide,
                                             .scale = 1.0 / sqrt((double)s->head_dim)},
                                   .queries = one.queries,
                                   .keys = one.keys,
                                   .dkv_stride = narrow,
                                   .q = values[0],
                                   .k = values[1],
                                   .v = values[2],
                                   .d_out = values[3],
                                   .out = want[4],
                                   .stats = want[5],
                                   .dq = want[6],
                                   .dk = want[7],
                                   .dv = want[8]};
    if (read) {
        attention_reference_compute(&r);
    }
    for (int i = INPUTS; read && i < TENSORS; i++) {
        double error = gpu_relative_error(values[i], want[i], of[i].rows * of[i].width);
        worst = error > worst ? error : worst;
        gpu_require(t, error < 1e-2, "%lld of %lld keys: %s has a relative error of %.1e",
                    (long long)one.queries, (long long)one.keys, of[i].name, error);
    }
    for (int i = 0; i < TENSORS; i++) {
        sp_free(values[i]);
        sp_free(want[i]);
    }
    return read ? SP_OK : SP_ERR_INTERNAL;
}

static sp_status check_case(gpu_test *t, sp_error *err)
{
    const attention_case *c = t->context;
    sp_i_cuda_attention *attention;
    buffers b;
    int64_t bytes[2];
    const sp_i_cuda_attention_shape s = shape_of(c);
    memset(&b, 0, sizeof b);
    GPU_TRY(sp_i_cuda_attention_new(&t->device, &whole_device, &attention, err));
    for (int pass = 0; pass < 2; pass++) {
        GPU_TRY(sp_i_cuda_attention_workspace(attention, &s, pass == 1, &bytes[pass], err));
    }
    GPU_TRY(make_buffers(t, c, &s, bytes[0] > bytes[1] ? bytes[0] : bytes[1], &b, err));
    for (int pass = 0; pass < 2; pass++) {
        GPU_TRY(
            sp_i_cuda_attention_run(attention, &s, pass == 1, b.tensors, b.workspace, NULL, err));
    }
    GPU_TRY(SP_I_CUDA(&t->device, err, StreamSynchronize, (CUstream)NULL));
    int64_t first_query = 0, first_key = 0;
    for (int i = 0; i < c->count && c->samples[i].queries > 0; i++) {
        GPU_TRY(check_sample(t, &s, &b, c->samples[i], first_query, first_key, err));
        first_query += c->samples[i].queries;
        first_key += c->samples[i].keys;
    }
    sp_i_cuda_give(&t->device, b.memory);
    sp_i_cuda_attention_free(attention);
    if (worst > 0.0) {
        // What is no number is not JSON, and no error that holds.
        printf("{\"attention_error\":%.4g}\n", isfinite(worst) ? worst : 1e99);
    }
    return SP_OK;
}

// ---- attention in SM partitions ----

static sp_status run_pass(void *context, CUstream stream, sp_error *err)
{
    const timed_pass *p = context;
    return sp_i_cuda_attention_run(p->attention, &p->shape, p->backward, p->buffers.tensors,
                                   p->buffers.workspace, stream, err);
}

// cuDNN 9.19 on an H200: causal, forward, 8192 tokens, batch 1, 64 query and 8 key heads of 128,
// bf16: github.com/NVIDIA/cudnn-frontend,
// benchmark/sdpa_benchmark_training/results/h200_919_only_cudnn. Rates of other GPUs are reported
// alone.
#define PUBLISHED_TFLOPS 644.0
#define LEAST_OF_PUBLISHED 0.9

static sp_status compare_rate(const checklist *c, double tflops, sp_error *err)
{
    if (strcmp(c->info.name, "NVIDIA H200") != 0 ||
        tflops >= LEAST_OF_PUBLISHED * PUBLISHED_TFLOPS) {
        return SP_OK;
    }
    return sp_error_set(err, SP_ERR_CONTENT, "%.0f TFLOP/s, less than %.1f of the %.0f of cuDNN",
                        tflops, LEAST_OF_PUBLISHED, PUBLISHED_TFLOPS);
}

static sp_status time_partition(const checklist *c, sp_i_cuda_attention *plans, timed_pass *p,
                                int count, double *forward_tflops, sp_error *err)
{
    sp_i_cuda_partitions *partitions = NULL;
    sp_i_cuda_bench bench = {0};
    sp_i_cuda_timing t;
    const sp_i_cuda_attention_shape *s = &p->shape;
    const double pairs = 0.5 * (double)s->queries * (double)s->keys;
    GPU_TRY(sp_i_cuda_partitions_new(&c->device, count, 1, &partitions, err));
    const sp_i_cuda_attention_place place = {.context = sp_i_cuda_partition_context(partitions, 0),
                                             .shares = plans};
    GPU_TRY(sp_i_cuda_attention_new(&c->device, &place, &p->attention, err));
    GPU_TRY(sp_i_cuda_bench_init(&c->device, sp_i_cuda_partition_stream(partitions, 0, 0),
                                 2 * c->info.l2_bytes, &bench, err));
    for (int pass = 0; pass < 2; pass++) {
        p->backward = pass == 1;
        GPU_TRY(sp_i_cuda_bench_time(&bench, run_pass, p, 0.05, &t, err));
        double flops = (p->backward ? 10.0 : 4.0) * pairs * (double)(s->heads * s->head_dim);
        double tflops = 1e-12 * flops / t.median_s;
        *forward_tflops = p->backward ? *forward_tflops : tflops;
        checklist_found("attention",
                        json_pack("{s:i, s:i, s:b, s:b, s:f, s:f, s:f}", "partitions", count, "sms",
                                  sp_i_cuda_partition_sms(partitions, 0), "disjoint",
                                  sp_i_cuda_are_partitioned(partitions, NULL), "backward",
                                  p->backward, "median_us", 1e6 * t.median_s, "spread", t.spread,
                                  "tflops", tflops));
    }
    sp_i_cuda_bench_fini(&bench);
    sp_i_cuda_attention_free(p->attention);
    sp_i_cuda_partitions_free(partitions);
    return SP_OK;
}

// Whether cuDNN takes streams of green contexts at all, which everything in partitions rests on: a
// forward and a backward in each of two, by a handle of each and the plans of the first. Before
// them what happens without the context of the stream.
sp_status check_green(checklist *c, sp_error *err)
{
    static const attention_case small = {
        .samples = {{512, 512}}, .count = 1, .heads = 4, .kv_heads = 4, .head_dim = 128};
    enum { PLACES = 2 };
    gpu_test t = {.api = c->api, .device = c->device, .info = c->info};
    timed_pass p = {.shape = shape_of(&small)};
    sp_i_cuda_attention *whole = NULL;
    sp_i_cuda_attention *at[PLACES];
    sp_i_cuda_partitions *partitions = NULL;
    const char *reason = NULL;
    int64_t bytes = 0;
    sp_error plain = {0};
    sp_status status = sp_i_cuda_attention_new(&c->device, &whole_device, &whole, err);
    GPU_TRY(status == SP_ERR_USAGE ? SP_OK : status);
    GPU_TRY(sp_i_cuda_partitions_new(&c->device, PLACES, 1, &partitions, err));
    if (status != SP_OK || !sp_i_cuda_are_partitioned(partitions, &reason)) {
        checklist_missing("green", status != SP_OK ? err->message[0] : reason);
        sp_error_clear(err);
        return SP_OK;
    }
    GPU_TRY(sp_i_cuda_attention_workspace(whole, &p.shape, true, &bytes, err));
    GPU_TRY(make_buffers(&t, &small, &p.shape, bytes + (1 << 20), &p.buffers, err));
    p.attention = whole;
    status = run_pass(&p, sp_i_cuda_partition_stream(partitions, 0, 0), &plain);
    checklist_found("green", json_pack("{s:s, s:s}", "primary_context_handle",
                                       status == SP_OK ? "taken" : "refused", "detail",
                                       status == SP_OK ? "" : plain.message[0]));
    for (int i = 0; i < PLACES; i++) {
        const sp_i_cuda_attention_place place = {
            .context = sp_i_cuda_partition_context(partitions, i), .shares = whole};
        CUstream stream = sp_i_cuda_partition_stream(partitions, i, 0);
        GPU_TRY(sp_i_cuda_attention_new(&c->device, &place, &at[i], err));
        p.attention = at[i];
        for (int pass = 0; pass < 2; pass++) {
            p.backward = pass == 1;
            GPU_TRY(run_pass(&p, stream, err));
        }
        GPU_TRY(SP_I_CUDA(&c->device, err, StreamSynchronize, stream));
        GPU_TRY(check_sample(&t, &p.shape, &p.buffers, small.samples[0], 0, 0, err));
        checklist_found("green", json_pack("{s:i, s:f, s:s}", "partition", i, "worst_error", worst,
                                           "status", t.failed ? "failed" : "ok"));
        sp_i_cuda_attention_free(at[i]);
    }
    sp_i_cuda_give(&c->device, p.buffers.memory);
    sp_i_cuda_attention_free(whole);
    sp_i_cuda_partitions_free(partitions);
    return t.failed ? sp_error_set(err, SP_ERR_INTERNAL, "%s", t.finding) : SP_OK;
}

// Does its time follow the partition's share of the SMs, and how far is the whole device from the
// published rate? The published shape: causal, batch 1, 64 query and 8 key heads of 128, 8192
// tokens.
sp_status check_attention(checklist *c, sp_error *err)
{
    static const attention_case published = {
        .samples = {{8192, 8192}}, .count = 1, .heads = 64, .kv_heads = 8, .head_dim = 128};
    gpu_test t = {.api = c->api, .device = c->device, .info = c->info};
    timed_pass p = {.shape = shape_of(&published)};
    sp_i_cuda_attention *plans = NULL;
    int64_t bytes[2] = {0};
    int64_t offset[SP_I_CUDA_WORKSPACE_PARTS];
    double whole_tflops = 0.0;
    sp_status status = sp_i_cuda_attention_new(&c->device, &whole_device, &plans, err);
    if (status == SP_ERR_USAGE) {
        checklist_missing("attention", err->message[0]);
        sp_error_clear(err);
        return SP_OK;
    }
    GPU_TRY(status);
    for (int pass = 0; pass < 2; pass++) {
        GPU_TRY(sp_i_cuda_attention_workspace(plans, &p.shape, pass == 1, &bytes[pass], err));
    }
    const int64_t own = sp_i_cuda_attention_parts(&p.shape, offset);
    checklist_found("attention",
                    json_pack("{s:I, s:I, s:I}", "forward_workspace_bytes", (json_int_t)bytes[0],
                              "backward_workspace_bytes", (json_int_t)bytes[1], "backward_of_cudnn",
                              (json_int_t)(bytes[1] - own)));
    GPU_TRY(make_buffers(&t, &published, &p.shape, bytes[0] > bytes[1] ? bytes[0] : bytes[1],
                         &p.buffers, err));
    for (int count = 1; count <= 8; count *= 2) {
        double tflops = 0.0;
        GPU_TRY(time_partition(c, plans, &p, count, &tflops, err));
        whole_tflops = count == 1 ? tflops : whole_tflops;
    }
    sp_i_cuda_give(&c->device, p.buffers.memory);
    sp_i_cuda_attention_free(plans);
    return compare_rate(c, whole_tflops, err);
}

// ---- the cases ----

int gpu_attention_test(int argc, char **argv)
{
    static const attention_case whole = {
        .samples = {{384, 384}}, .count = 1, .heads = 4, .kv_heads = 4, .head_dim = 128};
    static const attention_case grouped = {
        .samples = {{200, 713}}, .count = 1, .heads = 8, .kv_heads = 2, .head_dim = 64};
    static const attention_case beside = {.samples = {{256, 256}},
                                          .count = 1,
                                          .heads = 8,
                                          .kv_heads = 2,
                                          .head_dim = 128,
                                          .interleaved = true};
    static const attention_case packed = {.samples = {{100, 100}, {257, 257}, {3, 3}, {64, 64}},
                                          .count = 4,
                                          .heads = 8,
                                          .kv_heads = 2,
                                          .head_dim = 128};
    static const attention_case late = {.samples = {{100, 300}, {57, 57}, {128, 513}},
                                        .count = 3,
                                        .heads = 4,
                                        .kv_heads = 4,
                                        .head_dim = 64};
    // Segments that are not there have length 0, and all lengths are less than the plan's.
    static const attention_case none = {
        .samples = {{100, 300}, {57, 57}, {128, 513}, {0, 0}, {0, 0}},
        .count = 5,
        .heads = 8,
        .kv_heads = 2,
        .head_dim = 128,
        .plan = {8, 512, 1024}};
    static const attention_case stale = {.samples = {{100, 300}, {57, 57}, {128, 513}},
                                         .count = 3,
                                         .heads = 8,
                                         .kv_heads = 2,
                                         .head_dim = 128,
                                         .plan = {4, 512, 1024},
                                         .stale = true};
    static const gpu_case cases[] = {
        {"whole_samples", check_case, &whole},
        {"late_slices_of_grouped_heads", check_case, &grouped},
        {"matrices_beside_each_other", check_case, &beside},
        {"packed_samples", check_case, &packed},
        {"packed_late_slices", check_case, &late},
        {"segments_of_no_tokens", check_case, &none},
        {"stale_memory_behind_rows", check_case, &stale},
    };
    return gpu_run_cases(cases, sizeof cases / sizeof *cases);
}
