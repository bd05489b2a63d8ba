#include "sim/engine/allocator_private.h"

#include <math.h>
#include <stdlib.h>

#include "sim/base/alloc.h"
#include "sim/base/units.h"

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

sp_status sp_i_unit_shape_init(sp_i_unit_shape *shape, double offload_ratio, sp_error *err)
{
    const sp_tensor_program *program = &shape->program;
    sp_i_offload_cut *cut = &shape->cut;
    *cut = (sp_i_offload_cut){0};
    if (offload_ratio <= 0.0) {
        return SP_OK;
    }
    cut->order = sp_i_calloc(program->saved_count, sizeof *cut->order);
    if (cut->order == NULL) {
        return sp_error_no_memory(err, "offloaded tensors");
    }
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
    return SP_OK;
}

void sp_i_unit_shape_fini(sp_i_unit_shape *shape)
{
    sp_tensor_program_fini(&shape->program);
    sp_i_free(shape->cut.order);
    shape->cut = (sp_i_offload_cut){0};
}

sp_status sp_i_unit_begin(sp_i_unit *unit, const sp_i_unit_shape *shape, sp_error *err)
{
    *unit = (sp_i_unit){.shape = shape, .rest = SP_NO_BLOCK, .packed = SP_NO_BLOCK, .buffer = -1};
    unit->tensors = sp_i_calloc(shape->program.tensor_count, sizeof *unit->tensors);
    return unit->tensors != NULL ? SP_OK : sp_error_no_memory(err, "a unit");
}

void sp_i_unit_end(sp_i_unit *unit)
{
    sp_i_free(unit->tensors);
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

sp_status sp_i_unit_run(sp_i_unit_memory *memory, sp_i_unit *unit, sp_program_pass pass,
                        sp_error *err)
{
    const sp_tensor_program *program = &unit->shape->program;
    const sp_tensor_events *events = &program->pass[pass];
    for (size_t e = 0; e < events->count; e++) {
        int32_t tensor = events->items[e].tensor;
        if (events->items[e].gone) {
            drop(memory, unit, tensor);
            continue;
        }
        sp_i_tensor_state *state = &unit->tensors[tensor];
        int32_t storage = program->tensors[tensor].storage;
        if (storage != tensor) {
            unit->tensors[storage].holders++;
            state->place = SP_I_TENSOR_STORAGE;
            continue;
        }
        int32_t block;
        sp_status status =
            sp_block_allocate(memory->blocks, program->tensors[tensor].bytes, &block, err);
        if (status != SP_OK) {
            return status;
        }
        sp_i_unit_adopt(unit, tensor, block);
    }
    return SP_OK;
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
static sp_status own_block(sp_i_unit_memory *memory, sp_i_unit *unit, int32_t tensor, sp_error *err)
{
    int32_t block;
    sp_status status = sp_block_allocate(memory->blocks, tensor_bytes(unit, tensor), &block, err);
    if (status == SP_OK) {
        unit->tensors[tensor].block = block;
        unit->tensors[tensor].place = SP_I_TENSOR_OWN;
    }
    return status;
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
sp_status sp_i_offload_begin(sp_i_unit_memory *memory, sp_i_unit *unit, sp_error *err)
{
    const sp_i_offload_cut *cut = &unit->shape->cut;
    sp_status status = SP_OK;
    if (cut->split_bytes > 0) {
        int32_t tensor = tensor_at(unit, cut->whole);
        int64_t bytes = tensor_bytes(unit, tensor);
        if (!unit->shape->program.saved[cut->order[cut->whole]].contiguous) {
            status = sp_block_allocate(memory->blocks, bytes, &unit->packed, err);
        }
        if (status == SP_OK) {
            status = sp_block_allocate(memory->blocks, bytes - cut->split_bytes, &unit->rest, err);
        }
        if (status == SP_OK && unit->packed != SP_NO_BLOCK) {
            drop(memory, unit, tensor);
        }
    }
    for (size_t i = cut->whole + (cut->split_bytes > 0); status == SP_OK && i < cut->count; i++) {
        int32_t tensor = tensor_at(unit, i);
        if (is_view(unit, tensor) && sibling_leaves(unit, tensor)) {
            status = own_block(memory, unit, tensor, err);
            drop_storage(memory, unit, tensor);
        }
    }
    return status;
}

// What is being copied is held to the end of the copy.
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
sp_status sp_i_load_begin(sp_i_unit_memory *memory, sp_i_unit *unit, sp_error *err)
{
    int64_t bytes = unit->shape->cut.buffer_bytes;
    int b = 0;
    while (b < SP_I_BUFFERS - 1 && memory->buffers[b].views > 0) {
        b++;
    }
    sp_i_load_buffer *buffer = &memory->buffers[b];
    unit->buffer = b;
    sp_status status = SP_OK;
    if (buffer->bytes < bytes) {
        if (buffer->bytes > 0) {
            sp_block_release(memory->blocks, buffer->block);
        }
        *buffer = (sp_i_load_buffer){.bytes = bytes};
        status = sp_block_allocate(memory->blocks, bytes, &buffer->block, err);
    }
    // In use from now on.
    buffer->views++;
    return status;
}

// Whole tensors become views of the buffer, the one on the edge is put together again.
sp_status sp_i_load_end(sp_i_unit_memory *memory, sp_i_unit *unit, sp_error *err)
{
    const sp_i_offload_cut *cut = &unit->shape->cut;
    sp_status status = SP_OK;
    for (size_t i = 0; i < cut->whole; i++) {
        unit->tensors[tensor_at(unit, i)].place = SP_I_TENSOR_BUFFER;
        memory->buffers[unit->buffer].views++;
    }
    if (cut->split_bytes > 0) {
        status = own_block(memory, unit, tensor_at(unit, cut->whole), err);
        sp_block_release(memory->blocks, unit->rest);
        unit->rest = SP_NO_BLOCK;
    }
    memory->buffers[unit->buffer].views--;
    return status;
}
