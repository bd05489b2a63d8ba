#include "tests/support/kernels/key_block.h"
#include "sim/base/alloc.h"

#include <string.h>

enum { ROWS_BEHIND = 2, POISON = 0xff }; // a NaN in either type

static size_t element_of(bool wide)
{
    return wide ? sizeof(double) : sizeof(float);
}

void take_rows(const sp_comm_shard *shard, bool wide, tensor from, int64_t stride, int64_t width,
               char *to, int64_t to_stride)
{
    for (int i = 0; i < shard->count; i++) {
        for (int64_t t = 0; t < shard->runs[i].tokens; t++) {
            int64_t at = (shard->runs[i].begin + t) * stride;
            const void *row = wide ? (void *)(from.d + at) : (void *)(from.f + at);
            memcpy(to, row, (size_t)width * element_of(wide));
            to += (size_t)to_stride * element_of(wide);
        }
    }
}

void put_rows(const sp_comm_shard *shard, bool wide, const char *from, int64_t from_stride,
              tensor to, int64_t stride, int64_t width)
{
    for (int i = 0; i < shard->count; i++) {
        for (int64_t t = 0; t < shard->runs[i].tokens; t++) {
            double *row = &to.d[(shard->runs[i].begin + t) * stride];
            for (int64_t k = 0; k < width; k++) {
                row[k] = wide ? ((const double *)(const void *)from)[k]
                              : (double)((const float *)(const void *)from)[k];
            }
            from += (size_t)from_stride * element_of(wide);
        }
    }
}

static int64_t key_width(const attention_problem *p)
{
    return p->shape.kv_heads * p->shape.head_dim;
}

void key_block_init(key_block *b, const attention_problem *p, const sp_comm_shard *shard, bool wide,
                    bool joined)
{
    *b = (key_block){.shard = *shard, .wide = wide, .joined = joined};
    b->stride = joined ? 2 * key_width(p) : p->shape.kv_stride;
    size_t row_bytes = (size_t)b->stride * element_of(wide);
    b->held_bytes = (size_t)sp_comm_shard_tokens(shard) * row_bytes;
    b->bytes = b->held_bytes + ROWS_BEHIND * row_bytes;
    b->rows = sp_malloc(2 * b->bytes);
    b->gradients = sp_malloc(2 * b->bytes);
    size_t to_v = joined ? (size_t)key_width(p) * element_of(wide) : b->bytes;
    b->k = b->rows;
    b->v = b->rows + to_v;
    b->dk = b->gradients;
    b->dv = b->gradients + to_v;
    memset(b->rows, POISON, 2 * b->bytes);
    memset(b->gradients, POISON, 2 * b->bytes);
    take_rows(shard, wide, p->k, p->shape.kv_stride, key_width(p), b->k, b->stride);
    take_rows(shard, wide, p->v, p->shape.kv_stride, key_width(p), b->v, b->stride);
    memset(b->dk, 0, b->held_bytes);
    memset(joined ? b->dk : b->dv, 0, b->held_bytes);
    if (b->held_bytes == 0) {
        b->k = b->v = b->dk = b->dv = NULL;
    }
}

void key_block_fini(key_block *b)
{
    sp_free(b->rows);
    sp_free(b->gradients);
}

bool key_block_is_intact(const key_block *b)
{
    bool intact = true;
    for (size_t i = b->held_bytes; i < b->bytes; i++) {
        intact = intact && (unsigned char)b->gradients[i] == POISON &&
                 (b->joined || (unsigned char)b->gradients[b->bytes + i] == POISON);
    }
    return intact;
}

void key_block_put(const key_block *b, const attention_problem *p, tensor dk, tensor dv)
{
    put_rows(&b->shard, b->wide, b->dk, b->stride, dk, p->shape.kv_stride, key_width(p));
    put_rows(&b->shard, b->wide, b->dv, b->stride, dv, p->shape.kv_stride, key_width(p));
}
