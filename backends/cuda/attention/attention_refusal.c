#include "backends/cuda/attention/attention.h"

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
