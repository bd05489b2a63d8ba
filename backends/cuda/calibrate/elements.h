// The kernels of a model that are bound by memory, as a calibration times them: what each moves,
// what the cost model counts for it (sim/model/inventory.c), and the memory to run it in.
#ifndef SLIMPACK_BACKENDS_CUDA_CALIBRATE_ELEMENTS_H
#define SLIMPACK_BACKENDS_CUDA_CALIBRATE_ELEMENTS_H

#include "backends/cuda/device/device.h"
#include "kernels/bf16.h"
#include "sim/model/model.h"

typedef enum sp_i_cuda_element {
    SP_I_CUDA_RMS_NORM,
    SP_I_CUDA_RMS_NORM_BACKWARD, // of input and weight
    SP_I_CUDA_LAYER_NORM,
    SP_I_CUDA_LAYER_NORM_BACKWARD,
    SP_I_CUDA_SWIGLU,
    SP_I_CUDA_SWIGLU_BACKWARD,
    SP_I_CUDA_GELU,
    SP_I_CUDA_GELU_BACKWARD,
    SP_I_CUDA_ROPE, // of queries, and of keys (RoPE)
    SP_I_CUDA_RESIDUAL_ADD,
    SP_I_CUDA_LOOKUP,
    SP_I_CUDA_LOOKUP_BACKWARD,
    SP_I_CUDA_CROSS_ENTROPY,
    SP_I_CUDA_CROSS_ENTROPY_BACKWARD,
    SP_I_CUDA_KEY_VALUE_GRADIENT, // added to what later slices left
    SP_I_CUDA_ADAMW,              // a parameter for each element of the hidden states
    SP_I_CUDA_ELEMENTS
} sp_i_cuda_element;

const char *sp_i_cuda_element_name(sp_i_cuda_element element); // such as "rms_norm"

typedef struct sp_i_cuda_element_shape {
    int64_t tokens, hidden, q, kv, head_dim, ffn, vocab; // q, kv, ffn: columns
    int64_t loss_tokens;                                 // whose logits there is memory for
    int64_t distinct;                                    // rows that the lookup's indices name
} sp_i_cuda_element_shape;

enum { SP_I_CUDA_ELEMENT_ROWS = 4, SP_I_CUDA_ELEMENT_BF16 = 5, SP_I_CUDA_ELEMENT_FP32 = 4 };

typedef struct sp_i_cuda_element_data {
    sp_bf16 *x[SP_I_CUDA_ELEMENT_BF16]; // the widest activation each; logits go through all of them
    float *wide[SP_I_CUDA_ELEMENT_FP32];            // fp32, hidden states or keys and values
    sp_bf16 *vector[2];                             // [hidden]
    float *column[2], *row[SP_I_CUDA_ELEMENT_ROWS]; // [hidden], [tokens]
    float *workspace;                               // of column sums
    double *loss;
    int64_t *index, *order; // [tokens], below `tokens`
} sp_i_cuda_element_data;

typedef struct sp_i_cuda_element_cost {
    double moved_bytes;   // read and written
    double counted_bytes; // by the cost model; 0: it has another key for them
    int counted_kernels;
} sp_i_cuda_element_cost;

// The shape at so many tokens. `memory_tokens` is what the data was laid out for.
sp_i_cuda_element_shape sp_i_cuda_element_shape_of(const sp_model *model, int64_t tokens,
                                                   int64_t memory_tokens);
sp_i_cuda_element_cost sp_i_cuda_element_cost_of(sp_i_cuda_element element,
                                                 const sp_i_cuda_element_shape *shape);
// How often it runs in a forward and a backward of one of the model's layers.
int sp_i_cuda_element_in_layer(sp_i_cuda_element element, const sp_model *model);

// Bytes for a shape, and where everything is in them; x and wide come first, in one piece of
// sp_i_cuda_element_drawn bytes.
int64_t sp_i_cuda_element_bytes(const sp_i_cuda_element_shape *shape);
int64_t sp_i_cuda_element_drawn(const sp_i_cuda_element_shape *shape);
void sp_i_cuda_element_place(const sp_i_cuda_element_shape *shape, void *memory,
                             sp_i_cuda_element_data *data);

// Puts one run on the stream; a cudaError_t. What it writes it does not need to find again.
typedef int (*sp_i_cuda_element_launch)(sp_i_cuda_element element,
                                        const sp_i_cuda_element_shape *shape,
                                        const sp_i_cuda_element_data *data, cudaStream_t stream);
int sp_i_cuda_launch_element(sp_i_cuda_element element, const sp_i_cuda_element_shape *shape,
                             const sp_i_cuda_element_data *data, cudaStream_t stream);

#endif
