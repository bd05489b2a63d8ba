#include "sim/model/tensor_builder.h"

#include <string.h>

#include "sim/base/alloc.h"

int32_t sp_i_program_allocate(sp_i_program_builder *b, const char *name, int64_t bytes)
{
    sp_tensor_program *program = b->program;
    if (b->failed || !sp_i_reserve((void **)&program->tensors, &program->tensor_capacity,
                                   program->tensor_count + 1, sizeof *program->tensors)) {
        b->failed = true;
        return SP_NO_TENSOR;
    }
    int32_t tensor = (int32_t)program->tensor_count++;
    program->tensors[tensor] = (sp_program_tensor){.name = name, .bytes = bytes, .storage = tensor};
    if (b->to != NULL) {
        if (!sp_i_reserve((void **)&b->to->items, &b->to->capacity, b->to->count + 1,
                          sizeof *b->to->items)) {
            b->failed = true;
            return tensor;
        }
        b->to->items[b->to->count++] = (sp_tensor_event){.tensor = tensor};
    }
    return tensor;
}

void sp_i_program_free(sp_i_program_builder *b, int32_t tensor)
{
    if (tensor == SP_NO_TENSOR || b->failed) {
        return;
    }
    if (!sp_i_reserve((void **)&b->to->items, &b->to->capacity, b->to->count + 1,
                      sizeof *b->to->items)) {
        b->failed = true;
        return;
    }
    b->to->items[b->to->count++] = (sp_tensor_event){.tensor = tensor, .gone = true};
}

int sp_i_program_row(const sp_i_program_builder *b, const char *name)
{
    for (int r = 0; r < b->row_count; r++) {
        if (strcmp(b->rows[r].name, name) == 0) {
            return r;
        }
    }
    return -1;
}

bool sp_i_program_keeps(const sp_i_program_builder *b, const char *name)
{
    int r = sp_i_program_row(b, name);
    return r >= 0 && sp_saved_is_kept(&b->rows[r], b->mode);
}

int64_t sp_i_program_row_bytes(const sp_i_program_builder *b, const sp_saved_tensor *row)
{
    return sp_saved_bytes(row, b->layout, b->tokens, b->pairs);
}

int32_t sp_i_program_make(sp_i_program_builder *b, const char *name)
{
    int r = sp_i_program_row(b, name);
    if (r < 0) {
        return SP_NO_TENSOR;
    }
    b->now[r] = sp_i_program_allocate(b, name, sp_i_program_row_bytes(b, &b->rows[r]));
    return b->now[r];
}
