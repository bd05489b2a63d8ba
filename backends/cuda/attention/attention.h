// Attention through cuDNN, for one thread and its streams: plans by shape, made when a shape is
// first asked for.
#ifndef SLIMPACK_BACKENDS_CUDA_ATTENTION_ATTENTION_H
#define SLIMPACK_BACKENDS_CUDA_ATTENTION_ATTENTION_H

#include <stddef.h>

#include "backends/cuda/attention/attention_shape.h"
#include "backends/cuda/device/device.h"

typedef struct sp_i_cuda_attention sp_i_cuda_attention;

// SP_ERR_USAGE with the reason where cuDNN is not there, in this build or on this machine.
sp_status sp_i_cuda_attention_new(const sp_i_cuda_device *device, sp_i_cuda_attention **made,
                                  sp_error *err);
void sp_i_cuda_attention_free(sp_i_cuda_attention *attention);

// What cuDNN does not take, as text; NULL: nothing is known against the shape.
const char *sp_i_cuda_attention_refusal(const sp_i_cuda_attention_shape *shape);

// Bytes that a pass needs beside its tensors. Makes the plan, which takes up to a second; O(shapes)
// after that. SP_ERR_USAGE for a refused shape, SP_ERR_INTERNAL where cuDNN finds no engine.
sp_status sp_i_cuda_attention_workspace(sp_i_cuda_attention *attention,
                                        const sp_i_cuda_attention_shape *shape, bool backward,
                                        int64_t *bytes, sp_error *err);
// Puts a pass on the stream. Tensors stand at their numbers; those of other passes may be NULL.
// `workspace` holds the bytes above, at a multiple of 256, and is written.
sp_status sp_i_cuda_attention_run(sp_i_cuda_attention *attention,
                                  const sp_i_cuda_attention_shape *shape, bool backward,
                                  void *const tensors[SP_I_CUDA_ATTENTION_TENSORS], void *workspace,
                                  cudaStream_t stream, sp_error *err);

// Plans that were made.
size_t sp_i_cuda_attention_plans(const sp_i_cuda_attention *attention);

#endif
