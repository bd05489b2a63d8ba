// Time on a CUDA device: delays that stand for what is not there, such as a link, and stamps.
#ifndef SLIMPACK_KERNELS_CUDA_DELAY_H
#define SLIMPACK_KERNELS_CUDA_DELAY_H

#include "kernels/cuda_stream.h"

SP_CUDA_BEGIN

// Ends no sooner than `ns` nanoseconds after it began, by the device's global timer, whose step may
// be a microsecond. One warp of one block: other work runs beside it. None for 0 or less.
int sp_cuda_delay(int64_t ns, sp_cuda_stream stream);

// *at = nanoseconds of that timer, which all streams of the device share.
int sp_cuda_stamp(int64_t *at, sp_cuda_stream stream);

SP_CUDA_END

#endif
