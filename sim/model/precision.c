#include "sim/model/precision.h"

#include <math.h>
#include <stddef.h>

#include "sim/base/units.h"

const char *const sp_compute_names[] = {"bf16", "fp8", NULL};
const char *const sp_fp8_recipe_names[] = {"delayed", "current", "blockwise", "mxfp8", NULL};

const char *const sp_frozen_weight_names[] = {"bf16", "4bit", "4bit-double", NULL};

enum {
    BF16 = 2,
    FP32 = 4,
    ROW_BLOCK = 128, // numbers of a row with a scale, blockwise
    ROW_SCALE = 4,   // bytes of that scale
    MX_BLOCK = 32,   // with a scale of one byte
    // Of bitsandbytes (functional.py, quantize_4bit): weights with a scale, scales with one.
    FROZEN_BLOCK = 64,
    NESTED_BLOCK = 256,
};

bool sp_fp8_is_per_tensor(const sp_step_precision *precision)
{
    return precision->recipe == SP_FP8_DELAYED || precision->recipe == SP_FP8_CURRENT;
}

int sp_fp8_copies(const sp_step_precision *precision)
{
    return sp_fp8_is_per_tensor(precision) && !precision->transposes ? 1 : 2;
}

// Of `numbers` those that share a scale of so many bytes.
static int64_t with_scales(int64_t numbers, int64_t block, int64_t scale)
{
    return numbers + scale * sp_ceil_div(numbers, block);
}

double sp_fp8_bytes(const sp_step_precision *precision)
{
    return precision->recipe == SP_FP8_BLOCKWISE ? 1.0 + (double)ROW_SCALE / ROW_BLOCK
           : precision->recipe == SP_FP8_MXFP8   ? 1.0 + 1.0 / MX_BLOCK
                                                 : 1.0;
}

int64_t sp_fp8_tensor_bytes(const sp_step_precision *precision, int64_t numbers)
{
    return precision->recipe == SP_FP8_BLOCKWISE ? with_scales(numbers, ROW_BLOCK, ROW_SCALE)
           : precision->recipe == SP_FP8_MXFP8   ? with_scales(numbers, MX_BLOCK, 1)
                                                 : numbers;
}

int64_t sp_fp8_weight_bytes(const sp_step_precision *precision, int64_t weights)
{
    int64_t copy = precision->recipe == SP_FP8_BLOCKWISE
                       ? with_scales(weights, ROW_BLOCK * ROW_BLOCK, ROW_SCALE)
                       : sp_fp8_tensor_bytes(precision, weights);
    return (precision->parameters ? 0 : BF16 * weights) + sp_fp8_copies(precision) * copy;
}

static bool gathers_fp8(const sp_step_precision *precision)
{
    return precision->parameters && precision->recipe != SP_FP8_MXFP8;
}

double sp_fp8_gathered_bytes(const sp_step_precision *precision)
{
    return gathers_fp8(precision) ? 1.0 : BF16;
}

// Of weights that arrive in FP8 the second copy alone is made, from the first.
double sp_fp8_weight_cast_bytes(const sp_step_precision *precision)
{
    double copies = sp_fp8_copies(precision);
    double written = sp_fp8_bytes(precision);
    return gathers_fp8(precision) ? 2.0 * (copies - 1.0) : BF16 + copies * written;
}

sp_fp8_cast sp_fp8_cast_of(const sp_step_precision *precision, int copies, bool of_norm)
{
    double written = copies * sp_fp8_bytes(precision);
    bool looks_first = precision->recipe == SP_FP8_CURRENT;
    if (of_norm && (precision->recipe == SP_FP8_DELAYED || precision->recipe == SP_FP8_MXFP8)) {
        return (sp_fp8_cast){fmax(0.0, written - BF16), 0};
    }
    return (sp_fp8_cast){(looks_first ? 2.0 : 1.0) * BF16 + written, looks_first ? 2 : 1};
}

bool sp_fp8_keeps_original(const sp_step_precision *precision)
{
    return precision->recipe != SP_FP8_DELAYED;
}

int sp_fp8_alignment(const sp_step_precision *precision)
{
    return precision->recipe == SP_FP8_MXFP8 ? MX_BLOCK : 16;
}

int sp_fp8_expert_rows(const sp_step_precision *precision)
{
    return precision->recipe == SP_FP8_BLOCKWISE ? ROW_BLOCK : sp_fp8_alignment(precision);
}

int64_t sp_4bit_packed_bytes(int64_t weights)
{
    return sp_ceil_div(weights, SP_4BIT_WEIGHTS_OF_BYTE);
}

int64_t sp_4bit_scale_bytes(sp_frozen_weights frozen, int64_t weights)
{
    return (frozen == SP_FROZEN_4BIT_DOUBLE ? 1 : FP32) * sp_ceil_div(weights, FROZEN_BLOCK);
}

int64_t sp_4bit_nested_bytes(sp_frozen_weights frozen, int64_t weights)
{
    int64_t scales = sp_ceil_div(weights, FROZEN_BLOCK);
    return frozen == SP_FROZEN_4BIT_DOUBLE ? FP32 * sp_ceil_div(scales, NESTED_BLOCK) : 0;
}

double sp_4bit_turned_back_bytes(sp_frozen_weights frozen)
{
    double of_scale = frozen == SP_FROZEN_4BIT_DOUBLE
                          ? 1.0 + (double)FP32 / NESTED_BLOCK + FP32 + 2.0 * FP32
                          : 0.0;
    return 1.0 / SP_4BIT_WEIGHTS_OF_BYTE + BF16 + (FP32 + of_scale) / FROZEN_BLOCK;
}

int sp_4bit_kernels(sp_frozen_weights frozen)
{
    return frozen == SP_FROZEN_4BIT_DOUBLE ? 3 : 1;
}
