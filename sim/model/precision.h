// In which numbers a step computes. In FP8 the products of the layers run at twice the width of
// tensor cores, and what they read is cast first; the recipe says how a cast finds its scales, and
// so what it reads and writes. Attention, embedding, head, router, norms, loss and optimizer stay
// as they are in BF16.
#ifndef SLIMPACK_SIM_MODEL_PRECISION_H
#define SLIMPACK_SIM_MODEL_PRECISION_H

#include <stdbool.h>
#include <stdint.h>

typedef enum sp_compute { SP_COMPUTE_BF16, SP_COMPUTE_FP8 } sp_compute;

// As Transformer Engine's recipes of these names (github NVIDIA/TransformerEngine, docs and
// common/recipe).
typedef enum sp_fp8_recipe {
    SP_FP8_DELAYED,   // a scale for each tensor, from the maxima of earlier steps
    SP_FP8_CURRENT,   // the same from the tensor itself, which is read twice
    SP_FP8_BLOCKWISE, // an fp32 scale for 128 numbers of a row, of weights for 128 x 128
    SP_FP8_MXFP8      // a byte of exponent for 32 numbers of a row
} sp_fp8_recipe;

// A zeroed one is BF16.
typedef struct sp_step_precision {
    sp_compute compute;
    sp_fp8_recipe recipe;
    bool parameters; // weights of FP8 products are kept and gathered in FP8, without BF16 ones
    // The GPU's FP8 products read both operands along the inner dimension (Hopper), so that what
    // another pass reads along the other dimension is a transposed copy. The profile says it.
    bool transposes;
} sp_step_precision;

extern const char *const sp_compute_names[];    // "bf16", "fp8", NULL
extern const char *const sp_fp8_recipe_names[]; // in the order of the enum, NULL

static inline bool sp_precision_is_fp8(const sp_step_precision *precision)
{
    return precision->compute == SP_COMPUTE_FP8;
}

// Does each tensor have one scale?
bool sp_fp8_is_per_tensor(const sp_step_precision *precision);

// Copies that a matrix has in FP8 which is read along both dimensions, by rows and by columns: 2,
// or 1 where one serves both.
int sp_fp8_copies(const sp_step_precision *precision);

// Bytes of a number of activations or gradients in one copy, with its share of the scales.
double sp_fp8_bytes(const sp_step_precision *precision);

// Bytes of so many numbers of activations in one copy, in whole bytes.
int64_t sp_fp8_tensor_bytes(const sp_step_precision *precision, int64_t numbers);

// Bytes of so many weights of FP8 products as a rank keeps them: those in BF16 unless parameters
// are FP8, and the copies with their scales.
int64_t sp_fp8_weight_bytes(const sp_step_precision *precision, int64_t weights);

// Bytes that a weight of FP8 products has on its way between data-parallel ranks: MXFP8 is gathered
// in BF16 and cast behind it (Megatron-LM, --fp8-param-gather).
double sp_fp8_gathered_bytes(const sp_step_precision *precision);

// Bytes that a step reads and writes once for a weight to make its copies, beside the optimizer's.
double sp_fp8_weight_cast_bytes(const sp_step_precision *precision);

// A cast of a BF16 tensor, in bytes of a number read plus written, and its kernels.
typedef struct sp_fp8_cast {
    double bytes;
    int kernels;
} sp_fp8_cast;

// `copies` are written at once (1: by rows or by columns). `of_norm`: the tensor comes out of a
// norm whose kernel writes FP8 in place of BF16 where the recipe knows the scale beforehand
// (delayed) or finds it in a row (MXFP8): then only what is written more than BF16's two bytes
// counts.
sp_fp8_cast sp_fp8_cast_of(const sp_step_precision *precision, int copies, bool of_norm);

// Does the projection of the attention's output, whose input the attention keeps in BF16 anyway,
// make its FP8 copy for the weight gradient anew? Megatron-Core keeps the original input but with
// delayed scaling, whose scale has changed by then (save_original_input); shared experts, whose
// input the router keeps, do the same.
bool sp_fp8_keeps_original(const sp_step_precision *precision);

// Numbers that both dimensions of an FP8 product must be a multiple of: 16 bytes' worth, or a block
// of MXFP8.
int sp_fp8_alignment(const sp_step_precision *precision);

// Rows of each expert in grouped FP8 products are filled up to a multiple of so many: 16, 32 with
// MXFP8 (Megatron-LM, get_fp8_align_size), the 128 of a block with blockwise scales (DeepGEMM's
// contiguous groups).
int sp_fp8_expert_rows(const sp_step_precision *precision);

// How the weights of a layer's products are kept where adapters alone are trained: in BF16, or in 4
// bits (QLoRA, arXiv 2305.14314; NF4 and FP4 are alike in bytes and time) with an fp32 scale for 64
// of them, or with one of 8 bits and an fp32 scale for 256 of those (double quantisation: 4 + 8/64
// + 32/(64*256) = 4.127 bits a weight, its section 3).
typedef enum sp_frozen_weights {
    SP_FROZEN_BF16,
    SP_FROZEN_4BIT,
    SP_FROZEN_4BIT_DOUBLE
} sp_frozen_weights;

extern const char *const sp_frozen_weight_names[]; // in the order of the enum, NULL

enum { SP_4BIT_WEIGHTS_OF_BYTE = 2 };

// Bytes of so many weights of one tensor in 4 bits, and of its scales: of one tensor, and of that
// of scales of scales, 0 without.
int64_t sp_4bit_packed_bytes(int64_t weights);
int64_t sp_4bit_scale_bytes(sp_frozen_weights frozen, int64_t weights);
int64_t sp_4bit_nested_bytes(sp_frozen_weights frozen, int64_t weights);

// Bytes that are read and written for a weight when it is turned back into BF16, as each product
// does it anew (bitsandbytes, autograd/_functions.py, MatMul4Bit: forward and input gradient): half
// a byte and 1/64 of its scale read, 2 written. Double quantisation makes the fp32 scales in two
// kernels before: 1 byte and 1/256 of a scale read and 4 written, 4 read and 4 written for an
// offset.
double sp_4bit_turned_back_bytes(sp_frozen_weights frozen);
int sp_4bit_kernels(sp_frozen_weights frozen); // for one tensor

#endif
