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
    int64_t rows; // of the pack
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

real *SP_HOST(value)(const layer *l, sp_i_host_layer_weight weight);
real *SP_HOST(gradient)(const layer *l, sp_i_host_layer_weight weight);

// ---- norms (norms.c): weights are the value or the gradient of a norm, its bias in the slot
// behind

void SP_HOST(norm)(const layer *l, void *const *weights, const real *x, real *y, real *mean,
                   real *rstd);
// dx [rows, hidden] is overwritten.
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

// ---- dropout (dropout.c), for models that have it ----

// Makes a mask unless it is there.
bool SP_HOST(mask)(layer *l, sp_i_host_tensor mask);
// Makes it and drops elements of x [rows, hidden].
bool SP_HOST(drop_out)(layer *l, sp_i_host_tensor mask, real *x);
// Gives the gradient before the mask, as a new matrix: NULL when memory ran out.
real *SP_HOST(drop_out_backward)(const layer *l, sp_i_host_tensor mask, const real *dy);

// ---- layers ----

// From t[SP_I_HOST_INPUT] to y [rows, hidden] (layer_forward.c).
bool SP_HOST(layer_forward)(layer *l, real *y);
// Makes the tensors that the backward reads and t[] lacks.
bool SP_HOST(layer_rebuild)(layer *l);
// Takes over dy, the gradient of the layer's output, and gives that of its input
// (layer_backward.c).
bool SP_HOST(layer_backward)(layer *l, int32_t backward_pack, real *dy, bool split, real **dx);
void SP_HOST(layer_weights)(sp_i_host_stage *stage, int32_t backward_pack, int index);

// ---- ends (ends.c) ----

bool SP_HOST(embed)(layer *l, real *y);
bool SP_HOST(embed_backward)(layer *l, const real *dy);
// `counts`: the loss is added to the pack's.
bool SP_HOST(head_forward)(layer *l, int32_t forward_pack, bool counts);
bool SP_HOST(head_backward)(layer *l, int32_t backward_pack, bool split, real **dx);
void SP_HOST(head_weights)(sp_i_host_stage *stage, int32_t backward_pack);

#endif
