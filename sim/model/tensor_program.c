#include "sim/model/tensor_program.h"

#include "sim/base/alloc.h"

void sp_tensor_program_fini(sp_tensor_program *program)
{
    sp_i_free(program->tensors);
    sp_i_free(program->saved);
    for (int p = 0; p < SP_PROGRAM_PASSES; p++) {
        sp_i_free(program->pass[p].items);
    }
    *program = (sp_tensor_program){0};
}
