// Tensors of a test of operations on a machine of one rank, on the fakes of CUDA and cuBLASLt:
// values on the host that their type holds exactly, and the same on the device.
#ifndef SLIMPACK_TESTS_GPU_SUPPORT_OPS_TENSOR_H
#define SLIMPACK_TESTS_GPU_SUPPORT_OPS_TENSOR_H

#include <stdbool.h>
#include <stdint.h>

#include "backends/api/device_runtime.h"

enum { OPS_MOST = 4096 };

typedef struct ops_tensor {
    int64_t rows, columns;
    double value[OPS_MOST];
    void *data;
    bool bf16; // else fp32
} ops_tensor;

// The machine of the case that runs, with one rank, which the calling thread enters. The end
// expects that nothing failed and that nothing is left.
extern sp_runtime *ops_runtime;
void ops_begin(void);
void ops_end(void);

// Drawn numbers in [-1, 1).
ops_tensor *ops_bf16(int64_t rows, int64_t columns);
ops_tensor *ops_fp32(int64_t rows, int64_t columns);

// Numbers in [-size, size), and in [0, n).
ops_tensor *ops_drawn(sp_runtime *runtime, bool bf16, int64_t rows, int64_t columns, double size);
int64_t ops_below(int64_t n);
// Rounds the values and copies them to the device.
void ops_put(sp_runtime *runtime, ops_tensor *t);
// One of four copies of the values.
double *ops_copy(const ops_tensor *t);
void ops_drop(sp_runtime *runtime, int count, ops_tensor *const *all);

// Fetches the values. Each is within `roundings` roundings of the largest of its row: 2^-8 of it
// for bf16, and a little for what fp32 rounded before; 1e-5 of it for fp32.
void ops_check_rounded(sp_runtime *runtime, const char *what, ops_tensor *t, const double *expected,
                       double roundings);
// Within one rounding.
void ops_check(const char *what, ops_tensor *t, const double *expected);

#define OPS_DROP(...)                                                                   \
    ops_drop(ops_runtime, sizeof((ops_tensor *[]){__VA_ARGS__}) / sizeof(ops_tensor *), \
             (ops_tensor *[]){__VA_ARGS__})

#endif
