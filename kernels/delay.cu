#include "kernels/cuda_kernels.h"

#include "kernels/instructions.cuh"

namespace
{

const unsigned PAUSE_NS = 256; // between looks at the timer, so that the wait takes little power

__global__ void delay_kernel(int64_t ns)
{
    if (threadIdx.x == 0) {
        int64_t begin = sp_i_timer_ns();
        while (sp_i_timer_ns() - begin < ns) {
            sp_pause(PAUSE_NS);
        }
    }
}

__global__ void stamp_kernel(int64_t *at)
{
    if (threadIdx.x == 0) {
        *at = sp_i_timer_ns();
    }
}

} // namespace

int sp_cuda_delay(int64_t ns, sp_cuda_stream stream)
{
    return ns > 0 ? sp_i_launch(delay_kernel, dim3(1), 32, 0, stream, ns) : 0;
}

int sp_cuda_stamp(int64_t *at, sp_cuda_stream stream)
{
    return sp_i_launch(stamp_kernel, dim3(1), 32, 0, stream, at);
}
