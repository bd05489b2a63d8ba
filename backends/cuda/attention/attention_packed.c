#include "backends/cuda/attention/attention_packed.h"

#include "backends/cuda/attention/attention.h"
#include "backends/cuda/attention/attention_pass.h"
#include "kernels/cuda_grid.h"

enum {
    LEAST_LENGTH = 128,
    STEPS = 8, // of lengths, to each doubling
    HEAD_STEP = 16,
    TABLES = SP_I_CUDA_ATTENTION_TENSORS - SP_I_CUDA_QUERY_LENGTHS,
    LENGTH_TABLES = SP_I_CUDA_Q_OFFSETS - SP_I_CUDA_QUERY_LENGTHS
};

static int64_t round_up(int64_t length)
{
    int64_t base = LEAST_LENGTH;
    while (2 * base < length) {
        base *= 2;
    }
    return length <= base ? base : sp_i_cuda_ceil(length, base / STEPS) * (base / STEPS);
}

int64_t sp_i_cuda_packed_row(const sp_i_exec_pack *pack, int32_t i)
{
    return pack->piece[pack->first_piece[i]].row;
}

// In the order of their positions, and in rows one behind the other from the slice's first on.
static bool is_one_run(const sp_i_exec_pack *pack, int32_t i, const sp_i_exec_slice *slice)
{
    int64_t at = 0;
    for (size_t p = pack->first_piece[i]; p < pack->first_piece[i + 1]; p++) {
        const sp_i_exec_piece *piece = &pack->piece[p];
        if (piece->begin != slice->begin + at || piece->row != sp_i_cuda_packed_row(pack, i) + at) {
            return false;
        }
        at += piece->rows;
    }
    return at == slice->computed && at > 0;
}

static bool offsets_fit(int64_t rows, const sp_i_cuda_attention_shape *s)
{
    const int64_t strides[] = {s->q_stride,  s->kv_stride,  s->out_stride,
                               s->dq_stride, s->dkv_stride, s->heads};
    for (int i = 0; i < 6; i++) {
        if (rows > INT32_MAX / strides[i]) {
            return false;
        }
    }
    return true;
}

bool sp_i_cuda_packed_shape(const sp_i_exec_slices *slices, const sp_i_exec_pack *pack,
                            const sp_kernel_attention_shape *shape,
                            sp_i_cuda_attention_shape *packed)
{
    int64_t longest = 0;
    if (shape->head_dim % HEAD_STEP != 0) {
        return false;
    }
    for (int32_t i = 0; i < pack->count; i++) {
        const sp_i_exec_slice *slice = &slices->slice[pack->slice[i]];
        if (slice->begin != 0 || slice->shards != 1 || !is_one_run(pack, i, slice)) {
            return false;
        }
        longest = slice->computed > longest ? slice->computed : longest;
    }
    int64_t length = round_up(longest);
    int64_t rows = round_up(pack->rows);
    *packed = (sp_i_cuda_attention_shape){.segments = pack->count,
                                          .queries = length,
                                          .keys = length,
                                          .all_queries = rows,
                                          .all_keys = rows,
                                          .heads = shape->heads,
                                          .kv_heads = shape->kv_heads,
                                          .head_dim = shape->head_dim,
                                          .q_stride = shape->q_stride,
                                          .kv_stride = shape->kv_stride,
                                          .out_stride = shape->out_stride,
                                          .dq_stride = shape->q_stride,
                                          .dkv_stride = shape->kv_heads * shape->head_dim,
                                          .causal = true,
                                          .packed = true};
    return sp_i_cuda_attention_refusal(packed) == NULL && offsets_fit(pack->rows, packed);
}

// ---- lengths and offsets ----

// Every table has room for the longest.
static int64_t table_step(const sp_i_exec_pack *pack)
{
    return sp_i_cuda_ceil(pack->count + 1, 4) * 4;
}

int64_t sp_i_cuda_packed_index_count(const sp_i_exec_pack *pack)
{
    return TABLES * table_step(pack);
}

// Elements of a token, in the order of the tables of offsets.
static int64_t stride_of(const sp_i_cuda_attention_shape *s, int tensor)
{
    switch (tensor) {
    case SP_I_CUDA_Q_OFFSETS:
        return s->q_stride;
    case SP_I_CUDA_KV_OFFSETS:
        return s->kv_stride;
    case SP_I_CUDA_O_OFFSETS:
        return s->out_stride;
    case SP_I_CUDA_STATS_OFFSETS:
        return s->heads;
    case SP_I_CUDA_DQ_OFFSETS:
        return s->dq_stride;
    default:
        return s->dkv_stride;
    }
}

void sp_i_cuda_packed_index(const sp_i_exec_slices *slices, const sp_i_exec_pack *pack,
                            const sp_i_cuda_attention_shape *packed, int32_t *index)
{
    int64_t step = table_step(pack);
    for (int64_t i = 0; i < TABLES * step; i++) {
        index[i] = 0;
    }
    for (int32_t i = 0; i < pack->count; i++) {
        int64_t computed = slices->slice[pack->slice[i]].computed;
        int64_t row = sp_i_cuda_packed_row(pack, i);
        for (int table = 0; table < LENGTH_TABLES; table++) {
            index[table * step + i] = (int32_t)computed;
        }
        for (int table = LENGTH_TABLES; table < TABLES; table++) {
            int64_t stride = stride_of(packed, SP_I_CUDA_QUERY_LENGTHS + table);
            index[table * step + i] = (int32_t)(row * stride);
            index[table * step + i + 1] = (int32_t)((row + computed) * stride);
        }
    }
}

void sp_i_cuda_packed_tensors(const sp_i_exec_pack *pack, int32_t *index,
                              void *tensors[SP_I_CUDA_ATTENTION_TENSORS])
{
    for (int table = 0; table < TABLES; table++) {
        tensors[SP_I_CUDA_QUERY_LENGTHS + table] = index + table * table_step(pack);
    }
}

const char *sp_i_cuda_attention_model_refusal(const sp_model *model)
{
    return model->head_dim % 8 != 0 || model->head_dim > 128
               ? "attention on a GPU takes heads of a multiple of 8 up to 128"
               : NULL;
}

static sp_status prepare(sp_i_cuda_attention *attention, const sp_i_exec_slices *slices,
                         const sp_i_exec_pack *pack, const sp_kernel_attention_shape *shape,
                         sp_error *err)
{
    sp_i_cuda_attention_shape packed;
    int64_t bytes;
    if (!sp_i_cuda_packed_shape(slices, pack, shape, &packed)) {
        return SP_OK;
    }
    sp_status status = sp_i_cuda_attention_workspace(attention, &packed, false, &bytes, err);
    return status != SP_OK ? status
                           : sp_i_cuda_attention_workspace(attention, &packed, true, &bytes, err);
}

sp_status sp_i_cuda_attention_prepare(sp_i_cuda_attention *attention, const sp_i_exec_job *job,
                                      sp_error *err)
{
    sp_i_exec_stage stage = {.job = job};
    const layer l = {.stage = &stage};
    sp_kernel_attention_shape shape = SP_EXEC(attention_shape)(&l);
    const sp_i_exec_slices *slices = &job->slices;
    sp_status status = SP_OK;
    for (size_t p = 0; status == SP_OK && p < slices->forward_count; p++) {
        status = prepare(attention, slices, &slices->forward[p], &shape, err);
    }
    for (size_t p = 0; status == SP_OK && p < slices->backward_count; p++) {
        status = prepare(attention, slices, &slices->backward[p], &shape, err);
    }
    return status;
}

enum { MOST_HEAD_DIM = 256, STEP = 8 }; // STEP: bf16 elements of 16 bytes

const char *sp_i_cuda_attention_refusal(const sp_i_cuda_attention_shape *s)
{
    const int64_t strides[] = {s->q_stride, s->kv_stride, s->out_stride, s->dq_stride,
                               s->dkv_stride};
    if (s->head_dim % STEP != 0 || s->head_dim > MOST_HEAD_DIM || s->head_dim < STEP) {
        return "a head dimension that is not a multiple of 8 up to 256";
    }
    if (s->kv_heads < 1 || s->heads % s->kv_heads != 0) {
        return "query heads that are no multiple of the key heads";
    }
    if (s->segments < 1 || s->queries < 1 || s->keys < 1) {
        return "an empty slice";
    }
    if (!s->packed && s->causal && s->queries > s->keys) {
        return "more queries than keys under a causal mask";
    }
    if (!s->packed && s->segments != 1) {
        return "several slices without a table of lengths";
    }
    for (int i = 0; i < 5; i++) {
        if (strides[i] % STEP != 0) {
            return "rows that do not begin at multiples of 16 bytes";
        }
    }
    return NULL;
}
