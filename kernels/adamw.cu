#include "kernels/cuda_kernels.h"

#include "kernels/walk.cuh"

namespace
{

template <int COUNT> struct adamw_inputs {
    floats<COUNT> gradient, master, first, second;
};

struct adamw_operation {
    sp_i_cuda_adamw step;
    const float *clip; // or NULL
    const float *gradient;
    float *master, *first, *second;
    sp_bf16 *parameter;

    template <int COUNT> using inputs = adamw_inputs<COUNT>;

    template <int COUNT> __device__ inputs<COUNT> take(int64_t, int64_t column) const
    {
        return {read<COUNT>(gradient + column), read<COUNT>(master + column),
                read<COUNT>(first + column), read<COUNT>(second + column)};
    }

    template <int COUNT> __device__ void put(int64_t, int64_t column, const inputs<COUNT> &in) const
    {
        inputs<COUNT> now = in;
        float scale = step.gradient_scale * (clip != nullptr ? *clip : 1.0F);
#pragma unroll
        for (int i = 0; i < COUNT; i++) {
            sp_i_cuda_adamw_update(&step, scale, now.gradient.v[i], &now.master.v[i],
                                   &now.first.v[i], &now.second.v[i]);
        }
        write<COUNT>(master + column, now.master);
        write<COUNT>(first + column, now.first);
        write<COUNT>(second + column, now.second);
        write<COUNT>(parameter + column, now.master);
    }
};

} // namespace

int sp_cuda_adamw(const sp_kernel_adamw_step *step, const float *clip, int64_t n,
                  const float *gradient, float *master, float *first, float *second,
                  sp_bf16 *parameter, sp_cuda_stream stream)
{
    if (step->step < 1) {
        return SP_I_CUDA_INVALID;
    }
    double count = static_cast<double>(step->step);
    adamw_operation op = {};
    op.step.beta1 = static_cast<float>(step->beta1);
    op.step.beta2 = static_cast<float>(step->beta2);
    op.step.rest1 = static_cast<float>(1.0 - step->beta1);
    op.step.rest2 = static_cast<float>(1.0 - step->beta2);
    op.step.rate = static_cast<float>(step->learning_rate / (1.0 - pow(step->beta1, count)));
    op.step.unbias = static_cast<float>(1.0 / sqrt(1.0 - pow(step->beta2, count)));
    op.step.keep = static_cast<float>(1.0 - step->learning_rate * step->weight_decay);
    op.step.epsilon = static_cast<float>(step->epsilon);
    op.step.gradient_scale = static_cast<float>(step->gradient_scale);
    op.clip = clip;
    op.gradient = gradient;
    op.master = master;
    op.first = first;
    op.second = second;
    op.parameter = parameter;
    bool aligned = aligned_rows(gradient, 0) && aligned_rows(master, 0) && aligned_rows(first, 0) &&
                   aligned_rows(second, 0) && aligned_rows(parameter, 0);
    return walk_over<4>(1, n, aligned, op, stream);
}
