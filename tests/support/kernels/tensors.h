// Tensors that exist in fp64 and fp32 with equal values, to run a kernel in both and to compare its
// gradients with finite differences.
#ifndef SLIMPACK_TESTS_SUPPORT_KERNELS_TENSORS_H
#define SLIMPACK_TESTS_SUPPORT_KERNELS_TENSORS_H

#include <stdint.h>

#include "sim/base/prng.h"

typedef struct tensor {
    double *d;
    float *f;
    int64_t n;
} tensor;

// Owner of all tensors of a test case.
typedef struct tensors {
    sp_prng prng;
    void *held[128];
    int count;
} tensors;

void tensors_init(tensors *all, uint64_t seed);
void tensors_fini(tensors *all);

// A problem of the file's kind, whose first member is its tensors, from its set_up() to the end of
// its block.
#define PROBLEM(name)                                            \
    __attribute__((cleanup(problem_tensors_fini))) problem name; \
    set_up(&(name))
void problem_tensors_fini(void *problem);

// Zeros, and numbers in [-1, 1) that fp32 holds exactly.
tensor tensor_zero(tensors *all, int64_t n);
tensor tensor_random(tensors *all, int64_t n);

// A tensor of equal values.
tensor tensor_copy(tensors *all, tensor from);

// Largest difference at most `tolerance` times the largest number in `expected`.
void assert_near_rows(const double *values, const double *expected, int64_t n, double tolerance);

// The fp32 values against the fp64 ones.
void assert_types_agree(tensor t, double tolerance);

double dot_of(const double *a, const double *b, int64_t n);

// Central differences of loss(problem) by each x[i] against gradient[i], relative to the gradient's
// largest element. Leaves x as it was.
void assert_gradient(double (*loss)(void *problem), void *problem, double *x, int64_t n,
                     const double *gradient);

#endif
