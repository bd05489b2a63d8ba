// Calibration of the executor on the CPU: the profile that predicts its steps on the virtual clock,
// the machine's speed, and the operators that are timed.
#ifndef SLIMPACK_BACKENDS_HOST_CALIBRATE_H
#define SLIMPACK_BACKENDS_HOST_CALIBRATE_H

#include <jansson.h>
#include <stdbool.h>
#include <stdint.h>

#include "backends/api/backend.h"
#include "backends/executor/calibrate.h"
#include "kernels/shapes.h"

// The slot of the backend's table.
sp_status sp_i_host_calibrate(int device, const sp_calibration_request *request, json_t **profile,
                              sp_error *err);

// A small piece of work that is always the same: what it takes now, over what it took at another
// time, says how the machine's speed has changed.

// Seconds of a product of two fp32 matrices of 256 x 256 and a copy of 2 MiB, each the lower
// quartile of its repeats by the thread's processor time. About 20 ms. Needs
// sp_kernels_start_threads.
double sp_i_host_reference_s(void);

// Seconds of the reference work on `ranks` threads at once by the wall clock: a mean over about 30
// ms, of the slowest. It is longer as well where the threads have no cores to themselves.
sp_status sp_i_host_reference_wall_s(int ranks, double *seconds, sp_error *err);

// Single operators of the executor on matrices of random numbers, for calibration. One table for
// each precision.

typedef enum sp_i_host_probe_tensor {
    SP_I_HOST_PROBE_Q, // [context + queries, heads * head_dim], as are out, dout and dq
    SP_I_HOST_PROBE_K, // [context + queries, kv_heads * head_dim], as are v, dk and dv
    SP_I_HOST_PROBE_V,
    SP_I_HOST_PROBE_OUT,
    SP_I_HOST_PROBE_DOUT,
    SP_I_HOST_PROBE_DQ,
    SP_I_HOST_PROBE_DK,
    SP_I_HOST_PROBE_DV,
    SP_I_HOST_PROBE_LSE,       // [context + queries, heads]
    SP_I_HOST_PROBE_WORKSPACE, // attention_workspace elements
    SP_I_HOST_PROBE_TENSORS
} sp_i_host_probe_tensor;

typedef struct sp_i_host_probe {
    int64_t real_bytes;
    // Uniform in [-1, 1), from the seed.
    void (*fill)(uint64_t seed, int64_t n, void *values);
    // x [tokens, in], weight [out, in], y [tokens, out], or their gradients.
    void (*product)(sp_i_product kind, int64_t tokens, int64_t in, int64_t out, void *x,
                    void *weight, void *y);
    int64_t (*attention_workspace)(const sp_kernel_attention_shape *shape, int64_t queries);
    // Queries after `context` keys of the same sample. The backward takes what a forward left.
    void (*attention)(bool backward, const sp_kernel_attention_shape *shape, int64_t context,
                      int64_t queries, void *const *tensors);
    // Queries over a block of `keys` earlier keys, in a call of its own.
    void (*attention_block)(bool backward, const sp_kernel_attention_shape *shape, int64_t keys,
                            int64_t queries, void *const *tensors);
} sp_i_host_probe;

extern const sp_i_host_probe sp_i_exec_probe_f32, sp_i_exec_probe_f64;

#endif
