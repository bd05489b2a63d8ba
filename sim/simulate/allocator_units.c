#include "sim/simulate/allocator_units.h"

#include <math.h>

#include "sim/base/units.h"
#include "sim/model/layer.h"
#include "sim/model/parameter_list.h"

// Smaller tensors stay.
#define LEAST_OFFLOADED INT64_C(1048576)

static int64_t bytes_of(const sp_tensor_program *program, int32_t item)
{
    return program->tensors[program->saved[item].tensor].bytes;
}

// Contiguous ones first, then those of more elements, then in the order of saving.
static bool goes_before(const sp_tensor_program *program, int32_t a, int32_t b)
{
    const sp_saved_item *x = &program->saved[a];
    const sp_saved_item *y = &program->saved[b];
    return x->contiguous != y->contiguous ? x->contiguous : x->elements > y->elements;
}

static void order_items(const sp_tensor_program *program, sp_i_offload_cut *cut, bool reversed)
{
    for (size_t i = 1; i < cut->count; i++) {
        int32_t item = cut->order[i];
        size_t at = i;
        for (; at > 0 && goes_before(program, item, cut->order[at - 1]); at--) {
            cut->order[at] = cut->order[at - 1];
        }
        cut->order[at] = item;
    }
    for (size_t i = 0; reversed && i < cut->count / 2; i++) {
        int32_t item = cut->order[i];
        cut->order[i] = cut->order[cut->count - 1 - i];
        cut->order[cut->count - 1 - i] = item;
    }
}

void sp_i_unit_shape_init(sp_i_unit_shape *shape, double offload_ratio)
{
    const sp_tensor_program *program = &shape->program;
    sp_i_offload_cut *cut = &shape->cut;
    *cut = (sp_i_offload_cut){0};
    if (offload_ratio <= 0.0) {
        return;
    }
    cut->order = sp_calloc(program->saved_count, sizeof *cut->order);
    int64_t total = 0;
    for (size_t i = 0; i < program->saved_count; i++) {
        int64_t bytes = bytes_of(program, (int32_t)i);
        if (program->saved[i].leaves && bytes >= LEAST_OFFLOADED) {
            cut->order[cut->count++] = (int32_t)i;
            total += bytes;
        }
    }
    order_items(program, cut, offload_ratio > 0.5);
    int64_t wanted = (int64_t)ceil((double)total * offload_ratio);
    cut->buffer_bytes = sp_ceil_div(wanted, (int64_t)SP_MIB) * (int64_t)SP_MIB;
    int64_t left = cut->buffer_bytes;
    while (cut->whole < cut->count && bytes_of(program, cut->order[cut->whole]) <= left) {
        left -= bytes_of(program, cut->order[cut->whole++]);
    }
    cut->split_bytes = cut->whole < cut->count ? left : 0;
}

void sp_i_unit_shape_fini(sp_i_unit_shape *shape)
{
    sp_tensor_program_fini(&shape->program);
    sp_free(shape->cut.order);
    shape->cut = (sp_i_offload_cut){0};
}

int32_t sp_i_take(sp_i_unit_memory *memory, int64_t bytes)
{
    int32_t block = SP_NO_BLOCK;
    if (memory->status == SP_OK) {
        memory->status = sp_block_allocate(memory->blocks, bytes, &block, memory->err);
    }
    return block;
}

void sp_i_unit_begin(sp_i_unit *unit, const sp_i_unit_shape *shape)
{
    *unit =
        (sp_i_unit){.shape = shape, .resident = SP_NO_BLOCK, .packed = SP_NO_BLOCK, .buffer = -1};
    unit->tensors = sp_calloc(shape->program.tensor_count, sizeof *unit->tensors);
}

void sp_i_unit_end(sp_i_unit *unit)
{
    sp_free(unit->tensors);
    *unit = (sp_i_unit){0};
}

void sp_i_unit_adopt(sp_i_unit *unit, int32_t tensor, int32_t block)
{
    unit->tensors[tensor] =
        (sp_i_tensor_state){.block = block, .holders = 1, .place = SP_I_TENSOR_STORAGE};
}

int32_t sp_i_unit_hand_over(sp_i_unit *unit, int32_t tensor)
{
    SP_ASSERT(unit->tensors[tensor].place == SP_I_TENSOR_STORAGE);
    unit->tensors[tensor].place = SP_I_TENSOR_NOWHERE;
    return unit->tensors[tensor].block;
}

static void drop_storage(sp_i_unit_memory *memory, sp_i_unit *unit, int32_t tensor)
{
    sp_i_tensor_state *storage = &unit->tensors[unit->shape->program.tensors[tensor].storage];
    if (--storage->holders == 0) {
        sp_block_release(memory->blocks, storage->block);
    }
}

static void drop(sp_i_unit_memory *memory, sp_i_unit *unit, int32_t tensor)
{
    sp_i_tensor_state *state = &unit->tensors[tensor];
    SP_ASSERT(state->place != SP_I_TENSOR_NOWHERE);
    if (state->place == SP_I_TENSOR_STORAGE) {
        drop_storage(memory, unit, tensor);
    } else if (state->place == SP_I_TENSOR_OWN) {
        sp_block_release(memory->blocks, state->block);
    } else {
        memory->buffers[unit->buffer].views--;
    }
    state->place = SP_I_TENSOR_NOWHERE;
}

void sp_i_unit_run(sp_i_unit_memory *memory, sp_i_unit *unit, sp_program_pass pass)
{
    const sp_tensor_program *program = &unit->shape->program;
    const sp_tensor_events *events = &program->pass[pass];
    for (size_t e = 0; e < events->count; e++) {
        int32_t tensor = events->items[e].tensor;
        int32_t storage = program->tensors[tensor].storage;
        if (events->items[e].gone) {
            drop(memory, unit, tensor);
        } else if (storage != tensor) {
            unit->tensors[storage].holders++;
            unit->tensors[tensor].place = SP_I_TENSOR_STORAGE;
        } else {
            sp_i_unit_adopt(unit, tensor, sp_i_take(memory, program->tensors[tensor].bytes));
        }
    }
}

static int32_t tensor_at(const sp_i_unit *unit, size_t index)
{
    return unit->shape->program.saved[unit->shape->cut.order[index]].tensor;
}

static int64_t tensor_bytes(const sp_i_unit *unit, int32_t tensor)
{
    return unit->shape->program.tensors[tensor].bytes;
}

// Gives a tensor a block of its own; its storage stays as it is.
static void own_block(sp_i_unit_memory *memory, sp_i_unit *unit, int32_t tensor)
{
    unit->tensors[tensor].block = sp_i_take(memory, tensor_bytes(unit, tensor));
    unit->tensors[tensor].place = SP_I_TENSOR_OWN;
}

static bool is_view(const sp_i_unit *unit, int32_t tensor)
{
    return unit->shape->program.tensors[tensor].storage != tensor;
}

// Does a view of the same storage leave, whole or in part?
static bool sibling_leaves(const sp_i_unit *unit, int32_t tensor)
{
    const sp_i_offload_cut *cut = &unit->shape->cut;
    size_t leaving = cut->whole + (cut->split_bytes > 0);
    for (size_t i = 0; i < leaving; i++) {
        if (unit->shape->program.tensors[tensor_at(unit, i)].storage ==
            unit->shape->program.tensors[tensor].storage) {
            return true;
        }
    }
    return false;
}

// The rest of the tensor on the edge stays as a copy; a strided one is made contiguous first. A
// view whose sibling leaves is copied, so that their storage can go.
void sp_i_offload_begin(sp_i_unit_memory *memory, sp_i_unit *unit)
{
    const sp_i_offload_cut *cut = &unit->shape->cut;
    if (cut->split_bytes > 0) {
        int32_t tensor = tensor_at(unit, cut->whole);
        int64_t bytes = tensor_bytes(unit, tensor);
        bool strided = !unit->shape->program.saved[cut->order[cut->whole]].contiguous;
        unit->packed = strided ? sp_i_take(memory, bytes) : SP_NO_BLOCK;
        unit->resident = sp_i_take(memory, bytes - cut->split_bytes);
        if (unit->packed != SP_NO_BLOCK) {
            drop(memory, unit, tensor);
        }
    }
    for (size_t i = cut->whole + (cut->split_bytes > 0); i < cut->count; i++) {
        int32_t tensor = tensor_at(unit, i);
        if (is_view(unit, tensor) && sibling_leaves(unit, tensor)) {
            own_block(memory, unit, tensor);
            drop_storage(memory, unit, tensor);
        }
    }
}

// A tensor that is being copied is held to the end of the copy.
void sp_i_offload_end(sp_i_unit_memory *memory, sp_i_unit *unit)
{
    const sp_i_offload_cut *cut = &unit->shape->cut;
    for (size_t i = 0; i < cut->whole + (cut->split_bytes > 0); i++) {
        int32_t tensor = tensor_at(unit, i);
        if (i < cut->whole || unit->packed == SP_NO_BLOCK) {
            drop(memory, unit, tensor);
        }
    }
    sp_block_release(memory->blocks, unit->packed);
    unit->packed = SP_NO_BLOCK;
}

// The first buffer that no unit uses; one that is too small is made anew.
void sp_i_load_begin(sp_i_unit_memory *memory, sp_i_unit *unit)
{
    int64_t bytes = unit->shape->cut.buffer_bytes;
    int b = 0;
    while (b < SP_I_BUFFERS - 1 && memory->buffers[b].views > 0) {
        b++;
    }
    sp_i_load_buffer *buffer = &memory->buffers[b];
    unit->buffer = b;
    if (buffer->bytes < bytes) {
        if (buffer->bytes > 0) {
            sp_block_release(memory->blocks, buffer->block);
        }
        *buffer = (sp_i_load_buffer){.bytes = bytes, .block = sp_i_take(memory, bytes)};
    }
    // In use from now on.
    buffer->views++;
}

// Whole tensors become views of the buffer, the one on the edge is put together again.
void sp_i_load_end(sp_i_unit_memory *memory, sp_i_unit *unit)
{
    const sp_i_offload_cut *cut = &unit->shape->cut;
    for (size_t i = 0; i < cut->whole; i++) {
        unit->tensors[tensor_at(unit, i)].place = SP_I_TENSOR_BUFFER;
        memory->buffers[unit->buffer].views++;
    }
    if (cut->split_bytes > 0) {
        own_block(memory, unit, tensor_at(unit, cut->whole));
        sp_block_release(memory->blocks, unit->resident);
        unit->resident = SP_NO_BLOCK;
    }
    memory->buffers[unit->buffer].views--;
}

enum {
    BF16 = 2,
    FP32 = 4,
    WORK_SPACES = 3, // forward thread, backward thread, GEMM beside communication
    WORK_SPACE_BYTES = 32 << 20
};

static bool has_embedding(const sp_layout *layout, const sp_stage *stages)
{
    bool embedding = false;
    for (int c = 0; c < layout->chunks; c++) {
        embedding = embedding || stages[c].embedding;
    }
    return embedding;
}

// Experts on several ranks have buffers of their own, which others split.
enum { COMMON, EXPERTS, BUFFERS };

static int buffer_of(const sp_layout *layout, const sp_parameter *parameter)
{
    return parameter->of_experts && sp_layout_dispatches(layout) ? EXPERTS : COMMON;
}

static int64_t shares(const sp_layout *layout, int buffer)
{
    return buffer == EXPERTS ? sp_layout_expert_replicas(layout) : sp_layout_zero_ranks(layout);
}

// That are trained.
static int64_t elements_of(const sp_layout *layout, const sp_parameter_list *list, int buffer)
{
    int64_t elements = 0;
    for (size_t i = 0; i < list->count; i++) {
        bool counts = buffer_of(layout, &list->items[i]) == buffer && !list->items[i].frozen;
        elements += counts ? list->items[i].elements : 0;
    }
    return elements;
}

// The weights of a product in 4 bits: a list of parameters has one of several modules, each of
// which is packed for itself; scales are not split.
static void take_packed(sp_i_unit_memory *memory, const sp_model *model, const sp_layout *layout,
                        const sp_stage *stage, const sp_parameter *parameter)
{
    sp_model space;
    int kind = sp_model_kind_of(model, stage->first + parameter->layer);
    const sp_model *alike = sp_model_of_kind(model, kind, &space);
    const sp_shard shard = sp_shard_of(alike, layout);
    int64_t ranks =
        sp_layout_zero_in_step(layout) >= 3 ? shares(layout, buffer_of(layout, parameter)) : 1;
    sp_layer_frozen of = {.tensors = 0};
    for (int s = 0; s < SP_LAYER_STEPS && of.tensors == 0; s++) {
        if (sp_layer_steps[s].weight == parameter->kind) {
            of = sp_layer_frozen_of(alike, &shard, (sp_layer_place)s);
        }
    }
    for (int t = 0; t < of.tensors; t++) {
        sp_i_take(memory, sp_ceil_div(sp_4bit_packed_bytes(of.weights[t]), ranks));
        sp_i_take(memory, sp_4bit_scale_bytes(model->frozen_weights, of.weights[t]));
        sp_i_take(memory, sp_4bit_nested_bytes(model->frozen_weights, of.weights[t]));
    }
}

// Parameters one by one, then the chunk's gradient buffers (of those that are trained), padded to
// equal shares.
static void allocate_chunk(sp_i_unit_memory *memory, const sp_model *model, const sp_layout *layout,
                           const sp_stage *stage, const sp_stack *stack,
                           const sp_parameter_list *list)
{
    int64_t number = (int64_t)sp_stack_gradient_bytes(stack);
    for (size_t i = 0; i < list->count; i++) {
        int64_t elements = list->items[i].elements;
        bool fp8 = sp_precision_is_fp8(&stack->precision) &&
                   sp_layer_is_product_weight(list->items[i].kind);
        if (model->frozen_weights != SP_FROZEN_BF16 &&
            sp_layer_is_product_weight(list->items[i].kind)) {
            take_packed(memory, model, layout, stage, &list->items[i]);
            continue;
        }
        int64_t bytes =
            fp8 ? sp_fp8_weight_bytes(&stack->precision, elements) : sp_mul_bytes(BF16, elements);
        int64_t ranks = shares(layout, buffer_of(layout, &list->items[i]));
        sp_i_take(memory, sp_layout_zero_in_step(layout) >= 3 ? sp_ceil_div(bytes, ranks) : bytes);
    }
    for (int b = COMMON; b < BUFFERS; b++) {
        int64_t ranks = shares(layout, b);
        int64_t elements = elements_of(layout, list, b);
        int64_t share = sp_ceil_div(elements, ranks);
        bool reduces = b == EXPERTS ? ranks > 1 : layout->dp * layout->cp > 1;
        // A stage may have no expert, and no parameter that is trained.
        if (elements == 0 && (b == EXPERTS || list->count > 0)) {
            continue;
        }
        sp_i_take(memory, sp_mul_bytes(
                              number, sp_layout_zero_in_step(layout) >= 2 ? share : share * ranks));
        if (stack->gradient_buckets && reduces) {
            sp_i_take(memory, sp_mul_bytes(BF16, elements));
        }
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
        sp_i_take(memory, sp_mul_bytes(rows, 2 * BF16 * sp_model_rotary_dim(model)));
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
    bool embedded = has_embedding(layout, stages);
    for (int c = 0; memory->status == SP_OK && c < layout->chunks; c++) {
        sp_parameter_list list = {0};
        sp_parameter_list_add(model, layout, &stages[c], embedded, &list);
        allocate_chunk(memory, model, layout, &stages[c], stack, &list);
        sp_parameter_list_fini(&list);
    }
    if (!stack->no_master_weights) {
        allocate_masters(memory, pieces);
    }
    allocate_buffers(memory, model, layout, stages, stack, largest);
}

// Which parameters lie in [begin, end) of a chunk's buffer, whose order is that of the backward:
// the last parameter first (Megatron-LM, core/distributed/grad_buffer.py).
static void cut(const sp_layout *layout, const sp_parameter_list *list, int buffer, int64_t begin,
                int64_t end, bool decays, sp_i_pieces *pieces)
{
    int64_t at = 0;
    for (size_t i = list->count; i-- > 0;) {
        const sp_parameter *parameter = &list->items[i];
        if (buffer_of(layout, parameter) != buffer || parameter->frozen) {
            continue;
        }
        int64_t from = at > begin ? at : begin;
        at += parameter->elements;
        int64_t to = at < end ? at : end;
        if (from >= to || parameter->decays != decays) {
            continue;
        }
        *SP_ADDED(pieces->elements, pieces->capacity, pieces->count) = to - from;
    }
}

// The optimizer takes all parameters with weight decay before those without.
void sp_i_optimizer_pieces(const sp_model *model, const sp_layout *layout, const sp_stage *stages,
                           int64_t rank, sp_i_pieces *pieces)
{
    bool embedded = has_embedding(layout, stages);
    for (int group = 0; group < 2; group++) {
        for (int c = 0; c < layout->chunks; c++) {
            sp_parameter_list list = {0};
            sp_parameter_list_add(model, layout, &stages[c], embedded, &list);
            for (int b = COMMON; b < BUFFERS; b++) {
                int64_t elements = elements_of(layout, &list, b);
                int64_t ranks = layout->zero >= 1 ? shares(layout, b) : 1;
                int64_t share = sp_ceil_div(elements, ranks);
                int64_t begin = rank % ranks * share;
                cut(layout, &list, b, begin, begin + share, group == 0, pieces);
            }
            sp_parameter_list_fini(&list);
        }
    }
}

void sp_i_pieces_leave(sp_i_pieces *pieces, double share)
{
    double all = 0.0;
    for (size_t i = 0; i < pieces->count; i++) {
        all += (double)pieces->elements[i];
    }
    int64_t away = (int64_t)(share * all);
    size_t kept = 0;
    for (size_t i = 0; i < pieces->count; i++) {
        int64_t gone = away < pieces->elements[i] ? away : pieces->elements[i];
        away -= gone;
        if (gone < pieces->elements[i]) {
            pieces->elements[kept++] = pieces->elements[i] - gone;
        }
    }
    pieces->count = kept;
}

sp_status sp_i_master_bytes(const sp_i_pieces *pieces, const sp_stack *stack, int64_t *bytes,
                            sp_error *err)
{
    sp_i_unit_memory memory = {.blocks = sp_block_allocator_new(stack->split_limit_bytes),
                               .err = err};
    if (!stack->no_master_weights) {
        allocate_masters(&memory, pieces);
    }
    *bytes = sp_block_allocator_allocated(memory.blocks);
    sp_block_allocator_free(memory.blocks);
    return memory.status;
}

void sp_i_allocate_moments(sp_i_unit_memory *memory, const sp_i_pieces *pieces,
                           const sp_stack *stack)
{
    for (size_t i = 0; i < 2 * pieces->count; i++) {
        sp_i_take(memory, sp_mul_bytes(sp_stack_moment_bytes(stack), pieces->elements[i / 2]));
    }
}
