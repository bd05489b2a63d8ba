// Causal grouped-query attention of a whole pack on a CUDA device, in bf16 with fp32 sums; what
// typed.h computes slice by slice. Tables say where the slices of the pack and the keys of
// their samples lie, so that one launch serves slices and key blocks of any number and length.
// Head size a multiple of 8 up to 128; rows and tensors 16-byte aligned. Equal input
// gives equal bits: no sum is left to the order in which blocks run.
//
// FLOPs of a visible pair of query and key and a query head: 4 head_dim forward, 10 backward (14
// executed, because both parts of backward recompute the scores).
#ifndef SLIMPACK_KERNELS_CUDA_ATTENTION_H
#define SLIMPACK_KERNELS_CUDA_ATTENTION_H

#include "kernels/attention_shape.h"
#include "kernels/cuda_stream.h"

SP_CUDA_BEGIN

// Queries at the positions [query_begin, query_begin + queries) of a sample, with the strides of
// the shape. Members that a call does not use may be NULL.
typedef struct sp_cuda_attention_slice {
    const sp_bf16 *q;
    sp_bf16 *out; // written by forward, read by _delta
    float *lse;   // [queries, heads], likewise
    const sp_bf16 *dout;
    float *delta; // [queries, heads], written by _delta
    sp_bf16 *dq;  // written by _backward_queries
    int64_t query_begin, queries;
    int64_t group;
} sp_cuda_attention_slice;

// Keys at the positions [key_begin, key_begin + keys) of a sample.
typedef struct sp_cuda_attention_keys {
    const sp_bf16 *k, *v;
    float *dk, *dv; // added to, with the stride of k and v
    int64_t key_begin, keys;
    int64_t group;
} sp_cuda_attention_keys;

// A sample: its slices attend to its key blocks; both stand next to each other in their tables.
typedef struct sp_cuda_attention_group {
    int64_t first_slice, slices;
    int64_t first_keys, key_blocks;
} sp_cuda_attention_group;

// Rows [begin, begin + SP_CUDA_ATTENTION_TILE) of the slice or key block `owner`: what one thread
// block computes, for each head.
typedef struct sp_cuda_attention_tile {
    int64_t pairs; // visible
    int32_t owner, begin;
} sp_cuda_attention_tile;

enum { SP_CUDA_ATTENTION_TILE = 128 };

typedef struct sp_cuda_attention_tables {
    const sp_cuda_attention_slice *slices;
    const sp_cuda_attention_keys *keys;
    const sp_cuda_attention_group *groups;
    sp_cuda_attention_tile *query_tiles, *key_tiles;
    int64_t slice_count, key_count, group_count;
    int64_t query_tile_count, key_tile_count;
} sp_cuda_attention_tables;

// On the host, from tables on the host with their counts: fills the tiles, those with most pairs
// first, so that the longest blocks start first. Returns 0, or cudaErrorInvalidValue (1) where
// shape or tables break a rule above. The caller then copies all tables to the device and puts
// their addresses there in place of these.
int sp_cuda_attention_plan(const sp_kernel_attention_shape *shape,
                           sp_cuda_attention_tables *tables);

// out and lse of all slices. The shape is on the host.
int sp_cuda_attention_forward(const sp_kernel_attention_shape *shape,
                              const sp_cuda_attention_tables *tables, sp_cuda_stream stream);

// delta = sum over head_dim of out dout, of all slices.
int sp_cuda_attention_delta(const sp_kernel_attention_shape *shape,
                            const sp_cuda_attention_tables *tables, sp_cuda_stream stream);

// dq of all slices, given lse and delta.
int sp_cuda_attention_backward_queries(const sp_kernel_attention_shape *shape,
                                       const sp_cuda_attention_tables *tables,
                                       sp_cuda_stream stream);

// dk and dv of all key blocks += what these slices give, given lse and delta.
int sp_cuda_attention_backward_keys(const sp_kernel_attention_shape *shape,
                                    const sp_cuda_attention_tables *tables, sp_cuda_stream stream);

SP_CUDA_END

#endif
