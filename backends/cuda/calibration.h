// What the parts of a calibration (calibrate.h) share.
#ifndef SLIMPACK_BACKENDS_CUDA_CALIBRATION_H
#define SLIMPACK_BACKENDS_CUDA_CALIBRATION_H

#include <jansson.h>

#include "backends/cuda/attention.h"
#include "backends/cuda/bench.h"
#include "backends/cuda/cublas_api.h"
#include "backends/cuda/nvml.h"
#include "sim/model/model.h"

typedef struct sp_i_cuda_calibration {
    sp_i_cuda_device device;
    sp_i_cuda_info info;
    const sp_i_cublas_api *cublas;
    sp_i_cuda_attention *attention; // NULL: none
    const sp_i_nvml *nvml;          // NULL: none
    sp_i_cuda_bench bench;
    sp_model model;
    uint64_t seed;
    double limit_s;      // of all parts
    int64_t most_tokens; // of a measurement
    json_t *base;        // a profile of this GPU from other sources; NULL: none
    json_t *document;    // owned by the caller of the parts below
    json_t *extra;       // measurements that a profile has no place for; the document's
} sp_i_cuda_calibration;

// ---- the parts of the document, each O(its measurements) ----

// "gemm" for the model's products and "gemm_rate" for any other.
sp_status sp_i_cuda_calibrate_products(sp_i_cuda_calibration *c, sp_error *err);
// "attention" at the model's heads; the base profile's where there is no attention.
sp_status sp_i_cuda_calibrate_attention(sp_i_cuda_calibration *c, sp_error *err);
// "memory" and "kernel".
sp_status sp_i_cuda_calibrate_copies(sp_i_cuda_calibration *c, sp_error *err);
// What one GPU cannot say ("links", "collectives", "optimizer"): the base profile's, else assumed.
sp_status sp_i_cuda_calibrate_rest(sp_i_cuda_calibration *c, sp_error *err);

// All of them, into a new document.
sp_status sp_i_cuda_calibrate_all(sp_i_cuda_calibration *c, sp_error *err);

// "h200" of "NVIDIA H200", "a100" of "NVIDIA A100-SXM4-80GB": the profile's name.
void sp_i_cuda_profile_name(const char *gpu, char *name, size_t name_bytes);

// A member of a document that is a table or a section: {"level": "measured", "source": text}. NULL
// when memory ran out.
json_t *sp_i_cuda_measured(const sp_i_cuda_calibration *c, const char *what, double spread);
// Puts `points` in it and it into `section` under `key`; the caller keeps `points`.
bool sp_i_cuda_add_table(const sp_i_cuda_calibration *c, json_t *section, const char *key,
                         const char *what, double spread, json_t *points);

#endif
