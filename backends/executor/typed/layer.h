// One layer of a stage at work on a pack. Compiled for each precision.
#include "backends/executor/stage.h"
#include "backends/executor/typed/ops.h"
#include "kernels/shapes.h"

#ifndef SLIMPACK_BACKENDS_EXECUTOR_TYPED_LAYER_H
#define SLIMPACK_BACKENDS_EXECUTOR_TYPED_LAYER_H

#if SP_KERNEL_BITS == 64
#define SP_EXEC(name) sp_i_exec_##name##_f64
#elif SP_KERNEL_BITS == 32
#define SP_EXEC(name) sp_i_exec_##name##_f32
#else
#define SP_EXEC(name) sp_i_exec_##name##_bf16
#endif

typedef struct layer {
    sp_i_exec_stage *stage;
    const sp_i_exec_pack *pack;
    const sp_i_exec_kind *kind;
    int index;    // in the stage; the head's is the number of layers
    int64_t rows; // this rank's of the pack
    int64_t own;  // of its part: those of hidden states under sequence parallelism
    bool keep;    // forward: what the table keeps stays
    bool rebuilds;
    void *t[SP_ALL_TENSORS];
    // Rows of the MLP; of experts those that this rank's have, as they arrived from each rank, and
    // how many of the pack's own went to each.
    sp_i_exec_routed routed;
    int32_t *own_rows; // a block: of each of the pack's own their expert and place, as they go out
    int64_t arrived[SP_I_EXEC_MOST_EXPERT_RANKS], sent[SP_I_EXEC_MOST_EXPERT_RANKS];
} layer;

static inline void give_tensor(layer *l, int tensor)
{
    sp_i_exec_give(l->stage->arena, l->t[tensor]);
    l->t[tensor] = NULL;
}

static inline const sp_i_exec_slice *slice_of(const layer *l, int32_t number)
{
    return &l->stage->job->slices.slice[number];
}

// ---- tensors (parts.c) ----

// Makes a tensor of the table; in t[] afterwards. One that is not kept is workspace, or recompute
// where the backward rebuilds it.
bool SP_EXEC(make)(layer *l, sp_layer_tensor_id tensor);
// Gives back a tensor that the forward does not keep.
void SP_EXEC(drop)(layer *l, sp_layer_tensor_id tensor);
// A forward's tensors become the saved ones; all others are given back.
void SP_EXEC(keep_saved)(layer *l, int32_t forward_pack);
// Gives back all of t[].
void SP_EXEC(clear)(layer *l);
// A matrix [rows, columns] that no table names, as workspace.
void *SP_EXEC(take)(const layer *l, int64_t columns);
// Hidden states [own, hidden], as workspace.
void *SP_EXEC(take_own)(const layer *l);

real *SP_EXEC(value)(const layer *l, sp_parameter_kind weight);

// ---- tensor parallelism (parts.c): hidden states of a layer stand at each rank, all
// rows or its own part of them; products with the layer's matrices see all rows

// All rows of hidden states [own, hidden]: themselves, or gathered into a matrix that is given back
// with SP_EXEC(release). NULL on failure.
real *SP_EXEC(gather)(const layer *l, real *own);
void SP_EXEC(release)(const layer *l, const real *own, real *all);
// Where a product that each rank has a part of [rows, hidden] is written, so that its sum becomes
// `own`: `own` itself, or a matrix of all rows. NULL on failure.
real *SP_EXEC(partial)(const layer *l, real *own);
// Sums the ranks' parts into `own` and gives `part` back.
bool SP_EXEC(sum)(const layer *l, real *part, real *own);
// Is this the rank that adds what is to be added once?
bool SP_EXEC(adds)(const layer *l);

// ---- ranks that share the vocabulary (parts.c); nothing where they do not

// The maximum, or the sum, of n numbers over all of them, in place.
bool SP_EXEC(reduce)(const layer *l, bool maximum, int64_t n, exact *x);
// Over pipeline ranks: the sum of hidden states [own, hidden], in place.
bool SP_EXEC(sum_stages)(const layer *l, real *x);
// Hidden states [own, hidden] of the stage with the model's last layers, or first ones, to all.
bool SP_EXEC(share_stages)(const layer *l, bool last, real *x);

// ---- norms (parts.c): weights are the value or the gradient of a norm, its bias in the slot
// behind

// Of [own, features], most often hidden states. Statistics are [own] means, then as many
// reciprocals of deviations.
void SP_EXEC(norm)(const layer *l, int64_t features, void *const *weights, const real *x, real *y,
                   exact *statistics);
// dx is overwritten.
void SP_EXEC(norm_backward)(const layer *l, int64_t features, void *const *weights,
                            void *const *gradients, const real *x, const exact *statistics,
                            const real *dy, real *dx);

// ---- attention (heads.c): for every device

// Of the layer's heads on this rank. Queries, attention output and dq are dense [rows, q], a
// slice's keys and values, and their gradients, are [rows, keys | values] in a block of their own.
sp_kernel_attention_shape SP_EXEC(attention_shape)(const layer *l);
// Does another rank hold tokens of the pack's slices?
bool SP_EXEC(is_shared)(const layer *l);

// The running gradient of a slice's keys and values, zero before its sample's last slice; NULL when
// memory ran out.
exact *SP_EXEC(kv_gradient)(const layer *l, int32_t number);

// ---- queries, keys and values of the pack's slices (keys.c) ----

// From the output of the joint product [rows, queries | keys | values], or, where the queries are
// there, of the product of the latent [rows, heads, key | value], writes SP_TENSOR_QUERIES, turned,
// and each slice's keys and values (sp_i_exec_kv).
bool SP_EXEC(split_qkv)(layer *l, const real *qkv);
bool SP_EXEC(split_latent)(layer *l, const real *product);
// At the end of a forward: gives back keys and values that neither later slices nor the layer keep.
void SP_EXEC(release_kv)(const layer *l);
// The gradients of both, from that of the attention's output; of latents dq [rows, queries] and, of
// dlatent [rows, latent | shared keys], the keys alone.
bool SP_EXEC(attend_backward)(layer *l, const real *dout, real *dqkv);
bool SP_EXEC(attend_latent_backward)(layer *l, const real *dout, real *dq, real *dproduct,
                                     real *dlatent);

// ---- attention: each device has its own, the CPU in backends/host/typed/attention.c, a GPU in
// backends/cuda/attention.c

// From the pack's queries, and the keys and values of its slices and of those before them in their
// samples (sp_i_exec_kv, those of earlier slices without padding), writes SP_TENSOR_ATTENTION
// [rows, q] and SP_TENSOR_LOG_SUM_EXP, `exact` [rows, heads]: both are there. All queries of the
// pack see all keys of their own slice that are not behind them, padding too.
bool SP_EXEC(attend_pack)(layer *l);
// Overwrites dq [rows, q], still turned, and adds to the gradients of all these keys and values
// (SP_EXEC(kv_gradient)).
bool SP_EXEC(attend_pack_backward)(layer *l, const real *dout, real *dq);

// ---- experts: the CPU's in backends/host/typed/experts.c. All rows of a pack are the rank's own.
// A function is false where an exchange failed or memory ran out. ----

// A product of each expert with its rows: y = x W^T + b, of [outputs, inputs].
typedef struct expert_product {
    int weight; // sp_parameter_kind, the bias in the one behind
    int64_t inputs, outputs;
} expert_product;

typedef struct expert_operations {
    // The router, from SP_TENSOR_NORM2, makes SP_TENSOR_ROUTER, the weights [rows, experts], and
    // the map. Backward takes the logits' gradient and adds to dx [rows, hidden], as `gate` does.
    bool (*choose)(layer *l);
    void (*choose_backward)(const layer *l, const real *dlogits, real *dx);
    // Makes SP_TENSOR_ROUTES and SP_TENSOR_EXPERT_INPUT, and says what arrived; `recall` says it
    // again for a backward that has them. Backward overwrites dx [rows, hidden].
    bool (*dispatch)(layer *l);
    bool (*dispatch_backward)(const layer *l, const real *drows, real *dx);
    bool (*recall)(layer *l);
    // From SP_TENSOR_EXPERT_OUTPUT to the sums y [rows, hidden]. Backward overwrites drows
    // [routed, hidden] and the gradient of the router's logits.
    bool (*combine)(const layer *l, real *y);
    bool (*combine_backward)(const layer *l, const real *dy, real *drows, real *dlogits);
    bool (*multiply)(const layer *l, const expert_product *p, const real *x, real *y);
    bool (*multiply_backward)(const layer *l, const expert_product *p, const real *dy, real *dx);
    bool (*weight_gradient)(const layer *l, const expert_product *p, const sp_i_exec_routed *routed,
                            const real *x, const real *dy);
    // Shared experts' gate: makes SP_TENSOR_SHARED_SCORE, the sigmoid of a product [rows], by which
    // their output is multiplied. Backward overwrites dshared and dscore.
    bool (*gate)(layer *l);
    void (*gate_backward)(const layer *l, const real *dscore, real *dx);
    void (*add_gated)(const layer *l, const real *shared, real *y);
    void (*add_gated_backward)(const layer *l, const real *dy, real *dshared, real *dscore);
} expert_operations;

extern const expert_operations *const SP_EXEC(experts); // NULL: the device computes none

// ---- dropout (parts.c), for models that have it ----

// Makes a mask unless it is there.
bool SP_EXEC(mask)(layer *l, sp_layer_tensor_id mask);
// Makes it and drops elements of x [own, hidden].
bool SP_EXEC(drop_out)(layer *l, sp_layer_tensor_id mask, real *x);
// Gives the gradient before the mask, as a new matrix: NULL when memory ran out.
real *SP_EXEC(drop_out_backward)(const layer *l, sp_layer_tensor_id mask, const real *dy);

// ---- layers ----

// From t[SP_TENSOR_INPUT] to y [own, hidden] (layer.c).
bool SP_EXEC(layer_forward)(layer *l, real *y);
// Takes over dy, the gradient of the layer's output, and gives that of its input.
bool SP_EXEC(layer_backward)(layer *l, int32_t backward_pack, real *dy, bool split, real **dx);
bool SP_EXEC(layer_weights)(const layer *l, int32_t backward_pack);

// ---- embedding and LM head (vocabulary.c) ----

bool SP_EXEC(embed)(layer *l, real *y);
bool SP_EXEC(embed_backward)(layer *l, real *dy);
// A share of the vocabulary at a rank that does not hold the model's first layers.
bool SP_EXEC(embed_share)(layer *l);
bool SP_EXEC(embed_share_backward)(layer *l);
// `counts`: the loss is added to the pack's.
bool SP_EXEC(head_forward)(layer *l, int32_t forward_pack, bool counts);
bool SP_EXEC(head_backward)(layer *l, int32_t backward_pack, bool split, real **dx);
bool SP_EXEC(head_weights)(const layer *l, int32_t backward_pack);

#endif
