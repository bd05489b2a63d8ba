// Rows of tokens in a shard's order, and the keys and values of one shard with their gradients, as
// a rank of context parallelism holds them: in buffers of their own or joined, with rows behind
// them that nobody may look at or change.
#ifndef SLIMPACK_TESTS_SUPPORT_KERNELS_KEY_BLOCK_H
#define SLIMPACK_TESTS_SUPPORT_KERNELS_KEY_BLOCK_H

#include <stdbool.h>

#include "backends/ranks/attention.h"
#include "tests/support/kernels/naive_attention.h"

// Copies the shard's rows of a tensor, `width` of `stride` elements, to rows of `to_stride` in fp64
// or fp32; and back from rows of either type to the tensor in fp64.
void take_rows(const sp_comm_shard *shard, bool wide, tensor from, int64_t stride, int64_t width,
               char *to, int64_t to_stride);
void put_rows(const sp_comm_shard *shard, bool wide, const char *from, int64_t from_stride,
              tensor to, int64_t stride, int64_t width);

typedef struct key_block {
    sp_comm_shard shard;
    bool wide, joined;        // joined: [key | value] in a row without gaps
    int64_t stride;           // elements of a row
    size_t held_bytes, bytes; // of all rows, and with those behind
    char *k, *v, *dk, *dv;    // NULL without rows
    char *rows, *gradients;   // all of it
} key_block;

// Keys and values of the problem, gradients 0. The runs are the caller's.
void key_block_init(key_block *b, const attention_problem *p, const sp_comm_shard *shard, bool wide,
                    bool joined);
void key_block_fini(key_block *b);
// Has nobody written behind the gradients? What stands behind keys and values is NaN.
bool key_block_is_intact(const key_block *b);
// Copies the gradients to the tensors.
void key_block_put(const key_block *b, const attention_problem *p, tensor dk, tensor dv);

#endif
