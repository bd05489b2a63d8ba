#include "sim/engine/allocator_private.h"

#include "sim/base/units.h"
#include "sim/model/parameter_list.h"

enum {
    BF16 = 2,
    FP32 = 4,
    WORK_SPACES = 3, // forward thread, backward thread, GEMM beside communication
    WORK_SPACE_BYTES = 32 << 20
};

// A rank with embedding and LM head of a tied model holds the table once.
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

static int64_t elements_of(const sp_parameter_list *list)
{
    int64_t elements = 0;
    for (size_t i = 0; i < list->count; i++) {
        elements += list->items[i].elements;
    }
    return elements;
}

// Parameters one by one, then the chunk's gradient buffer, padded to equal shares.
static void allocate_chunk(sp_i_unit_memory *memory, const sp_layout *layout, const sp_stack *stack,
                           const sp_parameter_list *list)
{
    int64_t ranks = shares(layout);
    for (size_t i = 0; i < list->count; i++) {
        int64_t bytes = sp_mul_bytes(BF16, list->items[i].elements);
        sp_i_take(memory, layout->zero >= 3 ? sp_ceil_div(bytes, ranks) : bytes);
    }
    int64_t share = sp_ceil_div(elements_of(list), ranks);
    int64_t number = (int64_t)sp_stack_gradient_bytes(stack);
    sp_i_take(memory, sp_mul_bytes(number, layout->zero >= 2 ? share : share * ranks));
    if (stack->gradient_buckets && ranks > 1) {
        sp_i_take(memory, sp_mul_bytes(BF16, elements_of(list)));
    }
}

static void allocate_buffers(sp_i_unit_memory *memory, const sp_model *model,
                             const sp_layout *layout, const sp_stage *stages, const sp_stack *stack,
                             const sp_i_largest *largest)
{
    int64_t spaces = stack->work_spaces > 0 ? stack->work_spaces : WORK_SPACES;
    int64_t bytes = stack->work_space_bytes > 0 ? stack->work_space_bytes : WORK_SPACE_BYTES;
    for (int64_t i = 0; i < spaces && memory->status == SP_OK; i++) {
        sp_i_take(memory, bytes);
    }
    int64_t rows = sp_ceil_div(largest->tokens, layout->cp);
    sp_shard shard = sp_shard_of(model, layout);
    if (shard.norm_split > 1) {
        // One gather buffer for all layers.
        sp_i_take(memory, sp_mul_bytes(rows, BF16 * model->hidden));
    }
    if (stack->score_buffer) {
        int64_t pairs = sp_ceil_div(largest->pairs, layout->cp);
        sp_i_take(memory, sp_mul_bytes(pairs, BF16 * shard.heads));
    }
    int64_t dummies[SP_DUMMY_GRADIENTS];
    int count = sp_footprint_dummy_gradients(model, layout, stack, stages, layout->chunks, dummies);
    for (int i = 0; i < count; i++) {
        sp_i_take(memory, dummies[i]);
    }
    // Each chunk keeps its table of angles.
    for (int c = 0; model->positional == SP_ROPE && c < layout->chunks; c++) {
        sp_i_take(memory, sp_mul_bytes(rows, 2 * BF16 * model->head_dim));
    }
}

// Each piece is cloned in bf16, then turned into fp32 (Megatron-LM,
// optimizer/distrib_optimizer.py).
static void allocate_masters(sp_i_unit_memory *memory, const sp_i_pieces *pieces)
{
    for (size_t i = 0; i < pieces->count; i++) {
        int32_t clone = sp_i_take(memory, sp_mul_bytes(BF16, pieces->elements[i]));
        sp_i_take(memory, sp_mul_bytes(FP32, pieces->elements[i]));
        sp_block_release(memory->blocks, clone);
    }
}

void sp_i_allocate_states(sp_i_unit_memory *memory, const sp_model *model, const sp_layout *layout,
                          const sp_stage *stages, const sp_i_pieces *pieces, const sp_stack *stack,
                          const sp_i_largest *largest)
{
    bool head_table = head_has_table(model, layout, stages);
    for (int c = 0; memory->status == SP_OK && c < layout->chunks; c++) {
        sp_parameter_list list = {0};
        sp_parameter_list_add(model, layout, &stages[c], head_table, &list);
        allocate_chunk(memory, layout, stack, &list);
        sp_parameter_list_fini(&list);
    }
    allocate_masters(memory, pieces);
    allocate_buffers(memory, model, layout, stages, stack, largest);
}

// Which parameters lie in [begin, end) of a chunk's buffer, whose order is that of the backward:
// the last parameter first (Megatron-LM, core/distributed/grad_buffer.py).
static void cut(const sp_parameter_list *list, int64_t begin, int64_t end, bool decays,
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
        sp_reserve((void **)&pieces->elements, &pieces->capacity, pieces->count + 1,
                   sizeof *pieces->elements);
        pieces->elements[pieces->count++] = to - from;
    }
}

// The optimizer takes all parameters with weight decay before those without.
void sp_i_optimizer_pieces(const sp_model *model, const sp_layout *layout, const sp_stage *stages,
                           int64_t rank, sp_i_pieces *pieces)
{
    bool head_table = head_has_table(model, layout, stages);
    for (int group = 0; group < 2; group++) {
        for (int c = 0; c < layout->chunks; c++) {
            sp_parameter_list list = {0};
            sp_parameter_list_add(model, layout, &stages[c], head_table, &list);
            int64_t elements = elements_of(&list);
            int64_t share = layout->zero >= 1 ? sp_ceil_div(elements, shares(layout)) : elements;
            int64_t begin = layout->zero >= 1 ? rank * share : 0;
            cut(&list, begin, begin + share, group == 0, pieces);
            sp_parameter_list_fini(&list);
        }
    }
}

sp_status sp_i_master_bytes(const sp_i_pieces *pieces, int64_t split_limit_bytes, int64_t *bytes,
                            sp_error *err)
{
    sp_i_unit_memory memory = {.blocks = sp_block_allocator_new(split_limit_bytes), .err = err};
    allocate_masters(&memory, pieces);
    *bytes = sp_block_allocator_allocated(memory.blocks);
    sp_block_allocator_free(memory.blocks);
    return memory.status;
}

void sp_i_allocate_moments(sp_i_unit_memory *memory, const sp_i_pieces *pieces)
{
    for (size_t i = 0; i < 2 * pieces->count; i++) {
        sp_i_take(memory, sp_mul_bytes(FP32, pieces->elements[i / 2]));
    }
}
