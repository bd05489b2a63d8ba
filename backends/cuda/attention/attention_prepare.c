#include "backends/cuda/attention/attention_prepare.h"

#include "backends/cuda/attention/attention_packed.h"
#include "backends/cuda/attention/attention_pass.h"

const char *sp_i_cuda_attention_model_refusal(const sp_model *model)
{
    return model->head_dim % 8 != 0 || model->head_dim > 128
               ? "attention on a GPU takes heads of a multiple of 8 up to 128"
               : NULL;
}

static sp_status prepare(sp_i_cuda_attention *attention, const sp_i_exec_slices *slices,
                         const sp_i_exec_pack *pack, const sp_kernel_attention_shape *shape,
                         sp_error *err)
{
    sp_i_cuda_attention_shape packed;
    int64_t bytes;
    if (!sp_i_cuda_packed_shape(slices, pack, shape, &packed)) {
        return SP_OK;
    }
    sp_status status = sp_i_cuda_attention_workspace(attention, &packed, false, &bytes, err);
    return status != SP_OK ? status
                           : sp_i_cuda_attention_workspace(attention, &packed, true, &bytes, err);
}

sp_status sp_i_cuda_attention_prepare(sp_i_cuda_attention *attention, const sp_i_exec_job *job,
                                      sp_error *err)
{
    sp_i_exec_stage stage = {.job = job};
    const layer l = {.stage = &stage};
    sp_kernel_attention_shape shape = SP_EXEC(attention_shape)(&l);
    const sp_i_exec_slices *slices = &job->slices;
    sp_status status = SP_OK;
    for (size_t p = 0; status == SP_OK && p < slices->forward_count; p++) {
        status = prepare(attention, slices, &slices->forward[p], &shape, err);
    }
    for (size_t p = 0; status == SP_OK && p < slices->backward_count; p++) {
        status = prepare(attention, slices, &slices->backward[p], &shape, err);
    }
    return status;
}
