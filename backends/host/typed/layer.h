// One layer of a stage at work on a pack. Compiled for each precision.
#include "backends/host/math.h"
#include "kernels/typed.h"

#ifndef SLIMPACK_BACKENDS_HOST_TYPED_LAYER_H
#define SLIMPACK_BACKENDS_HOST_TYPED_LAYER_H

#if SP_KERNEL_BITS == 64
#define SP_HOST(name) sp_i_host_##name##_f64
#else
#define SP_HOST(name) sp_i_host_##name##_f32
#endif

typedef struct layer {
    sp_i_host_stage *stage;
    const sp_i_host_pack *pack;
    int index;    // in the stage; the head's is the number of layers
    int64_t rows; // this rank's of the pack
    int64_t own;  // of its part: those of hidden states under sequence parallelism
    bool keep;    // forward: what the table keeps stays
    bool rebuilds;
    void *t[SP_I_HOST_TENSORS];
} layer;

// ---- tensors (tensors.c) ----

// Makes a tensor of the table; in t[] afterwards. One that is not kept is workspace, or recompute
// where the backward rebuilds it.
bool SP_HOST(make)(layer *l, sp_i_host_tensor tensor);
// Gives back a tensor that the forward does not keep.
void SP_HOST(drop)(layer *l, sp_i_host_tensor tensor);
// A forward's tensors become the saved ones; all others are given back.
void SP_HOST(settle)(layer *l, int32_t forward_pack);
// Gives back all of t[].
void SP_HOST(clear)(layer *l);
// A matrix [rows, columns] that no table names, as workspace.
void *SP_HOST(take)(const layer *l, int64_t columns);
// Hidden states [own, hidden], likewise.
void *SP_HOST(take_own)(const layer *l);

real *SP_HOST(value)(const layer *l, sp_i_host_layer_weight weight);
real *SP_HOST(gradient)(const layer *l, sp_i_host_layer_weight weight);

// ---- tensor parallelism (tensor_parallel.c): hidden states of a layer stand at each rank, all
// rows or its own part of them; products with the layer's matrices see all rows

// All rows of hidden states [own, hidden]: themselves, or gathered into a matrix that is given back
// with SP_HOST(release). NULL on failure.
real *SP_HOST(gather)(const layer *l, real *own);
void SP_HOST(release)(const layer *l, const real *own, real *all);
// Where a product that each rank has a part of [rows, hidden] is written, so that its sum becomes
// `own`: `own` itself, or a matrix of all rows. NULL on failure.
real *SP_HOST(partial)(const layer *l, real *own);
// Sums the ranks' parts into `own` and gives `part` back.
bool SP_HOST(sum)(const layer *l, real *part, real *own);
// Is this the rank that adds what is to be added once?
bool SP_HOST(adds)(const layer *l);
// The maximum, or the sum, of n numbers over the ranks, in place.
bool SP_HOST(reduce)(const layer *l, bool maximum, int64_t n, real *x);

// ---- pipeline ranks that share the vocabulary (tensor_parallel.c); nothing where they do not

bool SP_HOST(reduce_stages)(const layer *l, bool maximum, int64_t n, real *x);
// Hidden states [own, hidden] of the stage with the model's last layers, or first ones, to all.
bool SP_HOST(share_stages)(const layer *l, bool last, real *x);

// ---- norms (norms.c): weights are the value or the gradient of a norm, its bias in the slot
// behind

void SP_HOST(norm)(const layer *l, void *const *weights, const real *x, real *y, real *mean,
                   real *rstd);
// dx [own, hidden] is overwritten.
void SP_HOST(norm_backward)(const layer *l, void *const *weights, void *const *gradients,
                            const real *x, const real *mean, const real *rstd, const real *dy,
                            real *dx);

// ---- attention (attention.c) ----

// Writes queries, turned, and the keys and values of the pack's slices that are not there yet.
bool SP_HOST(split_qkv)(layer *l, real *qkv);
bool SP_HOST(attend)(layer *l);
// At the end of a forward: gives back keys and values that neither later slices nor the table keep.
void SP_HOST(release_kv)(const layer *l);
// Writes the gradient of the QKV projection's output and gives back keys, values and their
// gradients.
bool SP_HOST(attend_backward)(layer *l, const real *dout, real *dqkv);

// The running gradient of a slice's keys and values; NULL when memory ran out.
real *SP_HOST(kv_gradient)(const layer *l, int32_t number);

// ---- context parallelism (context_parallel.c): packs whose tokens several ranks share ----

// Takes the keys and values of all ranks into the pack's attention output, its running maxima
// (SP_I_HOST_LSE) and sums [rows, heads].
bool SP_HOST(attend_shards)(const layer *l, const sp_kernel_attention_shape *shape, real *sum);
// Adds to dq and to the gradients of this rank's keys and values.
bool SP_HOST(shards_backward)(const layer *l, const sp_kernel_attention_shape *shape,
                              const real *dout, const real *delta, real *dq);

// ---- dropout (dropout.c), for models that have it ----

// Makes a mask unless it is there.
bool SP_HOST(mask)(layer *l, sp_i_host_tensor mask);
// Makes it and drops elements of x [own, hidden].
bool SP_HOST(drop_out)(layer *l, sp_i_host_tensor mask, real *x);
// Gives the gradient before the mask, as a new matrix: NULL when memory ran out.
real *SP_HOST(drop_out_backward)(const layer *l, sp_i_host_tensor mask, const real *dy);

// ---- layers ----

// From t[SP_I_HOST_INPUT] to y [own, hidden] (layer_forward.c).
bool SP_HOST(layer_forward)(layer *l, real *y);
// Makes the tensors that the backward reads and t[] lacks.
bool SP_HOST(layer_rebuild)(layer *l);
// Takes over dy, the gradient of the layer's output, and gives that of its input
// (layer_backward.c).
bool SP_HOST(layer_backward)(layer *l, int32_t backward_pack, real *dy, bool split, real **dx);
bool SP_HOST(layer_weights)(const layer *l, int32_t backward_pack);

// ---- ends (ends.c) ----

bool SP_HOST(embed)(layer *l, real *y);
bool SP_HOST(embed_backward)(layer *l, real *dy);
// A share of the vocabulary at a rank that does not hold the model's first layers.
bool SP_HOST(embed_share)(layer *l);
bool SP_HOST(embed_share_backward)(layer *l);
// `counts`: the loss is added to the pack's.
bool SP_HOST(head_forward)(layer *l, int32_t forward_pack, bool counts);
bool SP_HOST(head_backward)(layer *l, int32_t backward_pack, bool split, real **dx);
bool SP_HOST(head_weights)(const layer *l, int32_t backward_pack);

#endif
