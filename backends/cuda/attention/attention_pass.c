#include "backends/cuda/attention/attention_pass.h"

void *sp_i_cuda_pass_take(const sp_i_cuda_pass *pass, int64_t count, int64_t bytes)
{
    const sp_i_exec_width width = {bytes, 0};
    return sp_i_exec_take(pass->l->stage->arena, SP_MEM_WORKSPACE, count, width);
}

void sp_i_cuda_pass_give(const sp_i_cuda_pass *pass, void *block)
{
    sp_i_exec_give(pass->l->stage->arena, block);
}

bool sp_i_cuda_pass_no_memory(const sp_i_cuda_pass *pass)
{
    sp_i_exec_links *links = pass->l->stage->links;
    links->status = sp_error_no_memory(&links->err, "the tables of attention");
    return false;
}
