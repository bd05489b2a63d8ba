// What the parts of a calibration (calibrate.h) share.
#ifndef SLIMPACK_BACKENDS_CUDA_CALIBRATE_CALIBRATION_H
#define SLIMPACK_BACKENDS_CUDA_CALIBRATE_CALIBRATION_H

#include <jansson.h>
#include <stdbool.h>

#include "backends/api/backend.h"
#include "backends/cuda/attention/attention.h"
#include "backends/cuda/calibrate/bench.h"
#include "backends/cuda/calibrate/elements.h"
#include "backends/cuda/device/nvml.h"
#include "backends/cuda/device/partition.h"
#include "backends/cuda/products/gemm.h"
#include "kernels/attention_shape.h"
#include "kernels/cuda_attention.h"
#include "sim/model/model.h"

// As sp_cuda_attention.
typedef int (*sp_i_cuda_attention_launcher)(const sp_kernel_attention_shape *shape,
                                            const sp_cuda_attention_pack *pack, bool backward,
                                            cudaStream_t stream);

// That work under load is timed in at the same time: partitions, or the whole device alone.
enum { SP_I_CUDA_MOST_PLACES = 1 + SP_I_CUDA_MOST_NEIGHBOURS };

typedef struct sp_i_cuda_calibration {
    sp_i_cuda_device device;
    sp_i_cuda_info info;
    const sp_i_cublas_api *cublas;
    sp_i_cuda_attention *attention; // NULL: none
    const sp_i_nvml *nvml;          // NULL: none
    sp_i_cuda_element_launch launch;
    sp_i_cuda_attention_launcher attend; // the reference kernels; NULL: not timed
    sp_i_cuda_delay delay;
    sp_i_cuda_partitions *partitions; // NULL: the whole device
    int places;                       // partitions, or 1
    sp_i_cuda_bench bench;            // on the first place's stream
    sp_i_cuda_bench whole;            // with partitions: on the whole device
    sp_model model;
    uint64_t seed;
    double limit_s;      // of all parts
    int64_t most_tokens; // of a measurement
    json_t *base;        // a profile of this GPU from other sources; NULL: none
    double copied_bytes_per_s, small_copy_s, empty_s; // what calibrate_copies found
    const sp_calibration_request *request;            // whose `part` is called; NULL: none
    json_t *document;                                 // owned by the caller of the parts below
    json_t *extra; // measurements that a profile has no place for; the document's
} sp_i_cuda_calibration;

// Splits the device into c->places, where there are several, and makes the benches. The end of
// everything that is in c but the document and what the caller put there.
sp_status sp_i_cuda_calibration_begin(sp_i_cuda_calibration *c, sp_error *err);
void sp_i_cuda_calibration_end(sp_i_cuda_calibration *c);

// ---- the parts of the document, each O(its measurements), in this order ----

// The rates of copies, and what events take.
sp_status sp_i_cuda_calibrate_copies(sp_i_cuda_calibration *c, sp_error *err);
// "memory", "kernel", "loss" and "optimizer".
sp_status sp_i_cuda_calibrate_elements(sp_i_cuda_calibration *c, sp_error *err);
// "gemm" for the model's products and "gemm_rate" for any other.
sp_status sp_i_cuda_calibrate_products(sp_i_cuda_calibration *c, sp_error *err);
// "attention" at the model's heads: the curves of what computes it in a run, which is cuDNN where
// it is there and takes the heads (sp_i_cuda_cudnn_takes), else the reference kernels. The base
// profile's where neither is timed.
sp_status sp_i_cuda_calibrate_attention(sp_i_cuda_calibration *c, sp_error *err);
// What one GPU cannot say ("links", "collectives"): the base profile's, else assumed. Between
// partitions the links are copies, and the collectives follow from them.
sp_status sp_i_cuda_calibrate_links(sp_i_cuda_calibration *c, sp_error *err);

// All of them, into a new document.
sp_status sp_i_cuda_calibrate_all(sp_i_cuda_calibration *c, sp_error *err);

// "h200" of "NVIDIA H200", "a100" of "NVIDIA A100-SXM4-80GB": the profile's name; "h200-1of4" of
// one of four partitions.
void sp_i_cuda_profile_name(const char *gpu, int places, char *name, size_t name_bytes);

// Memory of a part of the calibration, alike in every place.
typedef struct sp_i_cuda_rooms {
    void *memory[SP_I_CUDA_MOST_PLACES];
} sp_i_cuda_rooms;
// `bytes` in each place, of which the first `elements` bf16 are normal numbers, `drawn` of them and
// then copies of these. To be ended on failure as well; frees NULL.
sp_status sp_i_cuda_rooms_init(const sp_i_cuda_calibration *c, int64_t bytes, int64_t elements,
                               int64_t drawn, sp_i_cuda_rooms *rooms, sp_error *err);
void sp_i_cuda_rooms_fini(const sp_i_cuda_calibration *c, sp_i_cuda_rooms *rooms);

// Products of x [tokens, in], weight [out, in] and a result, one in each place.
typedef struct sp_i_cuda_products {
    sp_i_cuda_product what; // which is computed
    sp_i_cuda_rooms rooms;
    struct sp_i_cuda_product_in {
        const struct sp_i_cuda_products *of;
        sp_i_cuda_gemm *gemm;
        char *x, *dy, *weight, *result, *workspace;
    } in[SP_I_CUDA_MOST_PLACES];
    void *contexts[SP_I_CUDA_MOST_PLACES];
} sp_i_cuda_products;
// Room for so many tokens. `drawn`: as for rooms. To be ended on failure as well.
sp_status sp_i_cuda_products_init(const sp_i_cuda_calibration *c, int64_t in, int64_t out,
                                  int64_t tokens, int64_t drawn, sp_i_cuda_products *products,
                                  sp_error *err);
void sp_i_cuda_products_fini(const sp_i_cuda_calibration *c, sp_i_cuda_products *products);
// Times the product of this kind and so many tokens, which is the products' from then on.
sp_status sp_i_cuda_products_time(sp_i_cuda_calibration *c, sp_i_cuda_products *products,
                                  sp_i_cuda_product_kind kind, int64_t tokens, double budget_s,
                                  sp_i_cuda_timing *t, sp_error *err);

// Times work in the first place while the other places do such work too; contexts [c->places].
sp_status sp_i_cuda_calibration_time(sp_i_cuda_calibration *c, sp_i_cuda_work work,
                                     void *const *contexts, double budget_s, sp_i_cuda_timing *t,
                                     sp_error *err);
// With partitions: notes for people what the work takes on the whole device (its context there),
// in one partition alone, and beside its busy neighbours.
sp_status sp_i_cuda_note_places(sp_i_cuda_calibration *c, const char *name, sp_i_cuda_work work,
                                void *const *contexts, void *whole, double budget_s, sp_error *err);
// SMs of a place, as sp_i_cuda_gemm_place has them.
int sp_i_cuda_place_sms(const sp_i_cuda_calibration *c, int place);

// A member of a document that is a table or a section: {"level": "measured", "source": text}. NULL
// when memory ran out.
json_t *sp_i_cuda_measured(const sp_i_cuda_calibration *c, const char *what, double spread);
// Puts `points` in it and it into `section` under `key`; the caller keeps `points`.
bool sp_i_cuda_add_table(const sp_i_cuda_calibration *c, json_t *section, const char *key,
                         const char *what, double spread, json_t *points);
// {"level", "source", key: value} as the document's `section`.
sp_status sp_i_cuda_add_value(const sp_i_cuda_calibration *c, const char *section, const char *key,
                              double value, const char *what, double spread, sp_error *err);

// A document's memory ran out.
sp_status sp_i_cuda_no_profile(sp_error *err);

// The rate and the floor of a launch that tell times of kernels bound by memory best: the sum of
// the squares of relative errors, ((kernels * kernel_s + bytes / bytes_per_s) / time - 1)^2, is
// least. Two unknowns, so that sums are enough.

typedef struct sp_i_cuda_fit_sums {
    double kernels2, bytes2, both, kernels, bytes; // of terms divided by their times
} sp_i_cuda_fit_sums;

typedef struct sp_i_cuda_fit {
    double bytes_per_s, kernel_s;
} sp_i_cuda_fit;

// `times`: how much it counts.
void sp_i_cuda_fit_add(sp_i_cuda_fit_sums *sums, double times, double bytes, double kernels,
                       double time_s);
// kernel_s is at least a tenth of a microsecond: less cannot be seen. False where no positive rate
// fits.
bool sp_i_cuda_fit_solve(const sp_i_cuda_fit_sums *sums, sp_i_cuda_fit *fit);

#endif
