// AdamW on a CUDA device, by the algorithm of adamw.h.
#ifndef SLIMPACK_KERNELS_CUDA_ADAMW_H
#define SLIMPACK_KERNELS_CUDA_ADAMW_H

#include "kernels/adamw_step.h"
#include "kernels/cuda_stream.h"

SP_CUDA_BEGIN

// One step over n parameters: gradient, master, first and second fp32; master and both moments are
// updated in place and `parameter` becomes the master rounded to bf16. `step` is on the host. The
// gradient is multiplied with step->gradient_scale and with *clip, unless clip is NULL.
int sp_cuda_adamw(const sp_kernel_adamw_step *step, const float *clip, int64_t n,
                  const float *gradient, float *master, float *first, float *second,
                  sp_bf16 *parameter, sp_cuda_stream stream);

SP_CUDA_END

#endif
