// Products as an executor runs them, each between two events, and beside them the same shapes
// alone. The backend's calls of sp_i_cuda_gemm_run and sp_i_cuda_gemm_run_biased come by here where
// a program is linked with --wrap for both (CMakeLists.txt). All ranks of one process, on any
// thread.
#ifndef SLIMPACK_TESTS_GPU_PRODUCTS_H
#define SLIMPACK_TESTS_GPU_PRODUCTS_H

#include "backends/cuda/gemm.h"

enum { PRODUCTS_MOST = 16384, PRODUCTS_SHAPES = 256 };

// A shape and what it took.
typedef struct products_shape {
    sp_i_cuda_product product;
    int times;         // that count
    double executor_s; // median of them
    double alone_s;    // of as many bytes and sums of its own, on an idle device
} products_shape;

// From here on products are watched, the first PRODUCTS_MOST of them.
void products_watch(const sp_i_cuda_device *device);
// Ends that, when all of them are over. Of `steps` steps with as many products each, the first
// warms up and does not count. SP_ERR_LIMIT: there were too many products or shapes.
sp_status products_seen(int steps, products_shape shapes[PRODUCTS_SHAPES], int *count,
                        sp_error *err);

// Fills alone_s: cuBLASLt's own choice for each shape, one after another on one stream with warm
// caches, on normal random numbers; about budget_s of device time each.
sp_status products_alone(const sp_i_cuda_device *device, const sp_i_cublas_api *cublas,
                         double budget_s, products_shape *shapes, int count, sp_error *err);

#endif
