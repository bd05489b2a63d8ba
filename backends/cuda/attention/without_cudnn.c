// In place of cudnn_attention.c where cuDNN's headers were not there when this was built.
#include "backends/cuda/attention/attention.h"

#pragma GCC diagnostic ignored "-Wunused-parameter"

sp_status sp_i_cuda_attention_new(const sp_i_cuda_device *device, sp_i_cuda_attention *shares,
                                  sp_i_cuda_attention **made, sp_error *err)
{
    *made = NULL;
    return sp_error_set(err, SP_ERR_USAGE,
                        "GPU %d: this build has no attention: cuDNN's headers were not found",
                        device->index);
}

void sp_i_cuda_attention_free(sp_i_cuda_attention *attention)
{
    SP_ASSERT(attention == NULL);
}

sp_status sp_i_cuda_attention_plan(sp_i_cuda_attention *attention, sp_i_cuda_attention_shape *shape,
                                   bool backward, sp_error *err)
{
    SP_UNREACHABLE("attention without cuDNN");
}

sp_status sp_i_cuda_attention_workspace(sp_i_cuda_attention *attention,
                                        const sp_i_cuda_attention_shape *shape, bool backward,
                                        int64_t *bytes, sp_error *err)
{
    SP_UNREACHABLE("attention without cuDNN");
}

sp_status sp_i_cuda_attention_run(sp_i_cuda_attention *attention,
                                  const sp_i_cuda_attention_shape *shape, bool backward,
                                  void *const tensors[SP_I_CUDA_ATTENTION_TENSORS], void *workspace,
                                  cudaStream_t stream, sp_error *err)
{
    SP_UNREACHABLE("attention without cuDNN");
}
