// The arithmetic of one element, alike in kernels and in tests on the host. C17 and C++.
#ifndef SLIMPACK_KERNELS_CUDA_MATH_H
#define SLIMPACK_KERNELS_CUDA_MATH_H

#include <math.h>

#ifdef __CUDACC__
#define SP_I_CUDA_BOTH __host__ __device__ __forceinline__
#else
#define SP_I_CUDA_BOTH static inline
#endif

// 1 / (1 + e^-x).
SP_I_CUDA_BOTH float sp_i_cuda_sigmoid(float x)
{
#ifdef __CUDA_ARCH__
    return __fdividef(1.0F, 1.0F + __expf(-x));
#else
    return 1.0F / (1.0F + expf(-x));
#endif
}

SP_I_CUDA_BOTH float sp_i_cuda_swiglu(float gate, float up)
{
    return gate * sp_i_cuda_sigmoid(gate) * up;
}

SP_I_CUDA_BOTH void sp_i_cuda_swiglu_backward(float gate, float up, float dy, float *dgate,
                                              float *dup)
{
    float s = sp_i_cuda_sigmoid(gate);
    *dup = dy * gate * s;
    *dgate = dy * up * s * (1.0F + gate * (1.0F - s));
}

#define SP_I_CUDA_GELU_SLOPE 0.79788456F // sqrt(2/pi)
#define SP_I_CUDA_GELU_CUBIC 0.044715F

SP_I_CUDA_BOTH float sp_i_cuda_gelu(float x)
{
    float u = SP_I_CUDA_GELU_SLOPE * (x + SP_I_CUDA_GELU_CUBIC * x * x * x);
    return x * sp_i_cuda_sigmoid(2.0F * u);
}

SP_I_CUDA_BOTH float sp_i_cuda_gelu_backward(float x, float dy)
{
    float square = x * x;
    float u = SP_I_CUDA_GELU_SLOPE * (x + SP_I_CUDA_GELU_CUBIC * square * x);
    float slope = SP_I_CUDA_GELU_SLOPE * (1.0F + 3.0F * SP_I_CUDA_GELU_CUBIC * square);
    float s = sp_i_cuda_sigmoid(2.0F * u);
    return dy * (s + x * s * (1.0F - s) * 2.0F * slope);
}

// What an AdamW step does to each parameter, in fp32.
typedef struct sp_i_cuda_adamw {
    float beta1, beta2, rest1, rest2;
    float rate;   // with the first moment's bias correction
    float unbias; // 1 / sqrt of the second's
    float keep;   // what weight decay leaves
    float epsilon, gradient_scale;
} sp_i_cuda_adamw;

SP_I_CUDA_BOTH void sp_i_cuda_adamw_update(const sp_i_cuda_adamw *a, float scale, float gradient,
                                           float *parameter, float *first, float *second)
{
    float g = scale * gradient;
    *first = a->beta1 * *first + a->rest1 * g;
    *second = a->beta2 * *second + a->rest2 * g * g;
    float size = sqrtf(*second) * a->unbias + a->epsilon;
    *parameter = a->keep * *parameter - a->rate * *first / size;
}

#endif
