// Attention in SM partitions: does its time follow the partition's share of the SMs, and how far is
// the whole device from the published rate.
#include <string.h>

#include "backends/cuda/attention.h"
#include "backends/cuda/calibration.h"
#include "backends/cuda/device.h"
#include "tests/gpu/checklist.h"

enum { LENGTH = 8192, HEADS = 64, KV_HEADS = 8, HEAD_DIM = 128 };

// The published shape: causal, batch 1, 64 query and 8 key heads of 128, 8192 tokens.
static const sp_i_cuda_attention_shape shape = {.segments = 1,
                                                .queries = LENGTH,
                                                .keys = LENGTH,
                                                .all_queries = LENGTH,
                                                .all_keys = LENGTH,
                                                .heads = HEADS,
                                                .kv_heads = KV_HEADS,
                                                .head_dim = HEAD_DIM,
                                                .q_stride = HEADS * HEAD_DIM,
                                                .kv_stride = KV_HEADS * HEAD_DIM,
                                                .out_stride = HEADS * HEAD_DIM,
                                                .dq_stride = HEADS * HEAD_DIM,
                                                .dkv_stride = KV_HEADS * HEAD_DIM};

typedef struct pass {
    sp_i_cuda_attention *attention;
    bool backward;
    void *memory;
    void *tensors[SP_I_CUDA_ATTENTION_TENSORS];
    void *workspace;
} pass;

static sp_status run(void *context, cudaStream_t stream, sp_error *err)
{
    const pass *p = context;
    return sp_i_cuda_attention_run(p->attention, &shape, p->backward, p->tensors, p->workspace,
                                   stream, err);
}

enum { INDEX = 64 };

// One segment, as the executor has a pack of one sample.
static sp_status put_index(const checklist *c, pass *p, char *to, sp_error *err)
{
    int64_t key_row = 0;
    sp_i_cuda_segment whole = {.queries = LENGTH, .keys = LENGTH};
    const sp_i_cuda_segments segments = {.of = &whole, .count = 1, .key_row = &key_row};
    int32_t index[INDEX];
    const int64_t count = sp_i_cuda_packed_index_count(&shape);
    SP_ASSERT(count <= INDEX);
    sp_i_cuda_packed_index(&segments, &shape, index);
    sp_i_cuda_packed_tensors(&shape, (int32_t *)(void *)to, p->tensors);
    return sp_i_cuda_upload(&c->device, to, index, count * (int64_t)sizeof *index, NULL, err);
}

static sp_status place(const checklist *c, pass *p, int64_t *workspace_bytes, sp_error *err)
{
    const int64_t wide = 2 * LENGTH * shape.q_stride;
    int64_t forward_bytes;
    sp_status status =
        sp_i_cuda_attention_workspace(p->attention, &shape, false, &forward_bytes, err);
    if (status == SP_OK) {
        status = sp_i_cuda_attention_workspace(p->attention, &shape, true, workspace_bytes, err);
    }
    const int64_t rest = sp_i_cuda_aligned_bytes(*workspace_bytes > forward_bytes ? *workspace_bytes
                                                                                  : forward_bytes);
    if (status == SP_OK) {
        status =
            SP_I_CUDA(&c->device, err, Malloc, &p->memory,
                      (size_t)(wide * SP_I_CUDA_QUERY_LENGTHS + rest) + INDEX * sizeof(int32_t));
    }
    if (status != SP_OK) {
        return status;
    }
    for (int id = SP_I_CUDA_Q; id < SP_I_CUDA_QUERY_LENGTHS; id++) {
        p->tensors[id] = (char *)p->memory + wide * (id - 1);
    }
    p->workspace = (char *)p->memory + wide * (SP_I_CUDA_QUERY_LENGTHS - 1);
    status = put_index(c, p, (char *)p->workspace + rest, err);
    return status == SP_OK
               ? sp_i_cuda_fill_normal(&c->device, p->memory,
                                       wide / 2 * (SP_I_CUDA_QUERY_LENGTHS - 1), 1.0, 1, NULL, err)
               : status;
}

static sp_status time_partition(const checklist *c, pass *p, int count, sp_error *err)
{
    sp_i_cuda_partitions *partitions = NULL;
    sp_i_cuda_bench bench = {0};
    sp_i_cuda_timing t;
    sp_status status = sp_i_cuda_partitions_new(&c->device, count, 1, &partitions, err);
    if (status == SP_OK) {
        status = sp_i_cuda_bench_init(&c->device, sp_i_cuda_partition_stream(partitions, 0, 0),
                                      2 * c->info.l2_bytes, &bench, err);
    }
    for (int pass_of = 0; status == SP_OK && pass_of < 2; pass_of++) {
        p->backward = pass_of == 1;
        status = sp_i_cuda_bench_time(&bench, run, p, 0.05, &t, err);
        double flops = (p->backward ? 10.0 : 4.0) * 0.5 * LENGTH * LENGTH * HEADS * HEAD_DIM;
        if (status == SP_OK) {
            checklist_found("attention",
                            json_pack("{s:i, s:i, s:b, s:b, s:f, s:f, s:f}", "partitions", count,
                                      "sms", sp_i_cuda_partition_sms(partitions, 0), "disjoint",
                                      sp_i_cuda_are_partitioned(partitions, NULL), "backward",
                                      p->backward, "median_us", 1e6 * t.median_s, "spread",
                                      t.spread, "tflops", 1e-12 * flops / t.median_s));
        }
    }
    sp_i_cuda_bench_fini(&bench);
    sp_i_cuda_partitions_free(partitions);
    return status;
}

sp_status check_attention(checklist *c, sp_error *err)
{
    pass p;
    int64_t bytes = 0;
    memset(&p, 0, sizeof p);
    sp_status status = sp_i_cuda_attention_new(&c->device, NULL, &p.attention, err);
    if (status == SP_ERR_USAGE) {
        checklist_missing("attention", err->message[0]);
        sp_error_clear(err);
        return SP_OK;
    }
    if (status == SP_OK) {
        status = place(c, &p, &bytes, err);
    }
    if (status == SP_OK) {
        checklist_found("attention",
                        json_pack("{s:I}", "backward_workspace_bytes", (json_int_t)bytes));
    }
    for (int count = 1; status == SP_OK && count <= 8; count *= 2) {
        status = time_partition(c, &p, count, err);
    }
    if (p.memory != NULL) {
        (void)c->api.Free(p.memory);
    }
    sp_i_cuda_attention_free(p.attention);
    return status;
}
