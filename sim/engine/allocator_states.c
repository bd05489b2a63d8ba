#include "sim/engine/allocator_private.h"

#include "sim/base/alloc.h"
#include "sim/base/units.h"
#include "sim/model/layout.h"
#include "sim/model/parameter_list.h"

enum {
    BF16 = 2,
    FP32 = 4,
    WORK_SPACES = 3, // forward thread, backward thread, GEMM beside communication
    WORK_SPACE_BYTES = 32 << 20
};

// A rank with both ends of a tied model holds the table once.
static bool head_has_table(const sp_model *model, const sp_layout *layout, const sp_stage *stages)
{
    bool embedding = false;
    for (int c = 0; c < layout->chunks; c++) {
        embedding = embedding || stages[c].embedding;
    }
    return !model->tied_embeddings || !embedding;
}

static int64_t shares(const sp_layout *layout)
{
    return (int64_t)layout->dp * layout->cp;
}

static sp_status take(sp_block_allocator *blocks, int64_t bytes, sp_error *err)
{
    int32_t block;
    return sp_block_allocate(blocks, bytes, &block, err);
}

static int64_t elements_of(const sp_parameter_list *list)
{
    int64_t elements = 0;
    for (size_t i = 0; i < list->count; i++) {
        elements += list->items[i].elements;
    }
    return elements;
}

// Parameters one by one, then the chunk's gradient buffer, padded to equal shares.
static sp_status allocate_chunk(sp_block_allocator *blocks, const sp_layout *layout,
                                const sp_stack *stack, const sp_parameter_list *list, sp_error *err)
{
    sp_status status = SP_OK;
    int64_t ranks = shares(layout);
    for (size_t i = 0; status == SP_OK && i < list->count; i++) {
        int64_t bytes = sp_mul_bytes(BF16, list->items[i].elements);
        status = take(blocks, layout->zero >= 3 ? sp_ceil_div(bytes, ranks) : bytes, err);
    }
    int64_t share = sp_ceil_div(elements_of(list), ranks);
    if (status == SP_OK) {
        int64_t number = (int64_t)sp_stack_gradient_bytes(stack);
        int64_t elements = layout->zero >= 2 ? share : share * ranks;
        status = take(blocks, sp_mul_bytes(number, elements), err);
    }
    if (status == SP_OK && stack->gradient_buckets && ranks > 1) {
        status = take(blocks, sp_mul_bytes(BF16, elements_of(list)), err);
    }
    return status;
}

static sp_status allocate_buffers(sp_block_allocator *blocks, const sp_model *model,
                                  const sp_layout *layout, const sp_stage *stages,
                                  const sp_stack *stack, const sp_i_largest *largest, sp_error *err)
{
    sp_status status = SP_OK;
    int64_t spaces = stack->work_spaces > 0 ? stack->work_spaces : WORK_SPACES;
    int64_t bytes = stack->work_space_bytes > 0 ? stack->work_space_bytes : WORK_SPACE_BYTES;
    for (int64_t i = 0; status == SP_OK && i < spaces; i++) {
        status = take(blocks, bytes, err);
    }
    int64_t rows = sp_ceil_div(largest->tokens, layout->cp);
    sp_shard shard = sp_shard_of(model, layout);
    if (status == SP_OK && shard.norm_split > 1) {
        // One gather buffer for all layers.
        status = take(blocks, sp_mul_bytes(rows, BF16 * model->hidden), err);
    }
    if (status == SP_OK && stack->score_buffer) {
        int64_t pairs = sp_ceil_div(largest->pairs, layout->cp);
        status = take(blocks, sp_mul_bytes(pairs, BF16 * shard.heads), err);
    }
    int64_t dummies[SP_DUMMY_GRADIENTS];
    int count = sp_footprint_dummy_gradients(model, layout, stack, stages, layout->chunks, dummies);
    for (int i = 0; status == SP_OK && i < count; i++) {
        status = take(blocks, dummies[i], err);
    }
    // Each chunk keeps its table of angles.
    for (int c = 0; status == SP_OK && model->positional == SP_ROPE && c < layout->chunks; c++) {
        status = take(blocks, sp_mul_bytes(rows, 2 * BF16 * model->head_dim), err);
    }
    return status;
}

// Each piece is cloned in bf16, then turned into fp32 (Megatron-LM,
// optimizer/distrib_optimizer.py).
static sp_status allocate_masters(sp_block_allocator *blocks, const sp_i_pieces *pieces,
                                  sp_error *err)
{
    sp_status status = SP_OK;
    for (size_t i = 0; status == SP_OK && i < pieces->count; i++) {
        int32_t clone;
        status = sp_block_allocate(blocks, sp_mul_bytes(BF16, pieces->elements[i]), &clone, err);
        if (status == SP_OK) {
            status = take(blocks, sp_mul_bytes(FP32, pieces->elements[i]), err);
            sp_block_release(blocks, clone);
        }
    }
    return status;
}

sp_status sp_i_allocate_states(sp_block_allocator *blocks, const sp_model *model,
                               const sp_layout *layout, const sp_stage *stages,
                               const sp_i_pieces *pieces, const sp_stack *stack,
                               const sp_i_largest *largest, sp_error *err)
{
    bool head_table = head_has_table(model, layout, stages);
    sp_status status = SP_OK;
    for (int c = 0; status == SP_OK && c < layout->chunks; c++) {
        sp_parameter_list list = {0};
        status = sp_parameter_list_add(model, layout, &stages[c], head_table, &list)
                     ? allocate_chunk(blocks, layout, stack, &list, err)
                     : sp_error_no_memory(err, "the parameters of a rank");
        sp_parameter_list_fini(&list);
    }
    if (status == SP_OK) {
        status = allocate_masters(blocks, pieces, err);
    }
    return status == SP_OK ? allocate_buffers(blocks, model, layout, stages, stack, largest, err)
                           : status;
}

// Which parameters lie in [begin, end) of a chunk's buffer, whose order is that of the backward:
// the last parameter first (Megatron-LM, core/distributed/grad_buffer.py).
static bool cut(const sp_parameter_list *list, int64_t begin, int64_t end, bool decays,
                sp_i_pieces *pieces)
{
    int64_t at = 0;
    for (size_t i = list->count; i-- > 0;) {
        const sp_parameter *parameter = &list->items[i];
        int64_t from = at > begin ? at : begin;
        at += parameter->elements;
        int64_t to = at < end ? at : end;
        if (from >= to || parameter->decays != decays) {
            continue;
        }
        if (!sp_i_reserve((void **)&pieces->elements, &pieces->capacity, pieces->count + 1,
                          sizeof *pieces->elements)) {
            return false;
        }
        pieces->elements[pieces->count++] = to - from;
    }
    return true;
}

// The optimizer takes all parameters with weight decay before those without.
sp_status sp_i_optimizer_pieces(const sp_model *model, const sp_layout *layout,
                                const sp_stage *stages, int64_t rank, sp_i_pieces *pieces,
                                sp_error *err)
{
    bool head_table = head_has_table(model, layout, stages);
    bool ok = true;
    for (int group = 0; ok && group < 2; group++) {
        for (int c = 0; ok && c < layout->chunks; c++) {
            sp_parameter_list list = {0};
            ok = sp_parameter_list_add(model, layout, &stages[c], head_table, &list);
            int64_t elements = elements_of(&list);
            int64_t share = layout->zero >= 1 ? sp_ceil_div(elements, shares(layout)) : elements;
            int64_t begin = layout->zero >= 1 ? rank * share : 0;
            ok = ok && cut(&list, begin, begin + share, group == 0, pieces);
            sp_parameter_list_fini(&list);
        }
    }
    return ok ? SP_OK : sp_error_no_memory(err, "the optimizer's share of a rank");
}

sp_status sp_i_master_bytes(const sp_i_pieces *pieces, int64_t split_limit_bytes, int64_t *bytes,
                            sp_error *err)
{
    sp_block_allocator *blocks = NULL;
    sp_status status = sp_block_allocator_new(split_limit_bytes, &blocks, err);
    if (status == SP_OK) {
        status = allocate_masters(blocks, pieces, err);
    }
    *bytes = status == SP_OK ? sp_block_allocator_allocated(blocks) : 0;
    sp_block_allocator_free(blocks);
    return status;
}

sp_status sp_i_allocate_moments(sp_block_allocator *blocks, const sp_i_pieces *pieces,
                                sp_error *err)
{
    sp_status status = SP_OK;
    for (size_t i = 0; status == SP_OK && i < pieces->count; i++) {
        for (int moment = 0; status == SP_OK && moment < 2; moment++) {
            status = take(blocks, sp_mul_bytes(FP32, pieces->elements[i]), err);
        }
    }
    return status;
}
