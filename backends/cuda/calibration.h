// Calibration of one GPU, or of one of several partitions of it beside busy others: products,
// attention, kernels bound by memory, copies. The result is a profile (sim/cost/profile.h). What
// one GPU cannot say (links between GPUs) is taken from the known profile of the same GPU, at its
// own level. Processes that a launcher has started with a GPU each (multi_process.h) measure those
// together.
#ifndef SLIMPACK_BACKENDS_CUDA_CALIBRATION_H
#define SLIMPACK_BACKENDS_CUDA_CALIBRATION_H

#include <jansson.h>
#include <stdbool.h>

#include "backends/api/backend.h"
#include "backends/cuda/attention.h"
#include "backends/cuda/device.h"
#include "backends/cuda/gemm.h"
#include "backends/cuda/nccl.h"
#include "kernels/bf16.h"
#include "kernels/cuda_kernels.h"
#include "kernels/shapes.h"
#include "sim/cost/profile.h"
#include "sim/model/model.h"

// ---- Times of work on a stream (bench.c) ----

// Times of work on a stream: warm-up, the L2 cache cleared before each repeat, events around it,
// the median of the repeats and their spread. Clearing also gives the host time to queue what is
// timed, so that launches are not in it.
//
// Under load, other streams work at the same time, on memory of their own: all start behind one
// delay, the others go on a little longer, and caches are what they leave. They do the same work,
// or work that is named (`beside`): where the same kernel ran everywhere, kernels bound by memory
// would all have an equal share of its rate, which no rank of a run has whose neighbours compute.

// Puts one repeat on the stream.
typedef sp_status (*sp_i_cuda_work)(void *context, CUstream stream, sp_error *err);

// Median seconds, half the distance between the quartiles as a share of it, and the fastest.
typedef struct sp_i_cuda_timing {
    double median_s, spread, least_s;
    int repeats;
    int pieces; // that stood between the two events of a repeat; times are those of one
} sp_i_cuda_timing;

enum {
    SP_I_CUDA_BATCH = 16,
    SP_I_CUDA_LEAST_REPEATS = 4, // of what takes longer than its budget
    SP_I_CUDA_MOST_REPEATS = 512,
    SP_I_CUDA_MOST_PIECES = 8 // between two events
};

enum { SP_I_CUDA_MOST_NEIGHBOURS = 15 };

typedef struct sp_i_cuda_bench {
    sp_i_cuda_device device;
    CUstream stream; // borrowed
    sp_i_cuda_events events;
    void *flushed; // NULL: caches stay warm
    int64_t flushed_bytes;
    // Events resolve half a microsecond: pieces of less than ten stand between two of them several
    // times, one behind the other as in a run, with caches as they leave them. Needs `delay`, for
    // whose time the host puts them down. Set by the caller.
    bool several;
    // ---- for work under load; set by the caller ----
    int neighbours;
    CUstream neighbour[SP_I_CUDA_MOST_NEIGHBOURS]; // borrowed
    sp_i_cuda_delay delay;                         // that all wait for at the start
    sp_i_cuda_work beside;        // the neighbours' work; NULL: that which is timed
    void *const *beside_contexts; // theirs from the second on
    double beside_s;              // that a piece of it takes
} sp_i_cuda_bench;

// flushed_bytes: memory that is overwritten before each repeat, at least the size of the L2 cache
// where it is to be cold; 0: none.
sp_status sp_i_cuda_bench_init(const sp_i_cuda_device *device, CUstream stream,
                               int64_t flushed_bytes, sp_i_cuda_bench *bench, sp_error *err);
void sp_i_cuda_bench_fini(sp_i_cuda_bench *bench);

// Repeats until about budget_s of device time is over, between SP_I_CUDA_LEAST_REPEATS and
// SP_I_CUDA_MOST_REPEATS times, in batches of SP_I_CUDA_BATCH or, of long pieces, of as many as the
// budget holds. A first repeat, which says how long a piece takes, and of short pieces a first
// batch warm up and do not count.
sp_status sp_i_cuda_bench_time(sp_i_cuda_bench *bench, sp_i_cuda_work work, void *context,
                               double budget_s, sp_i_cuda_timing *timing, sp_error *err);

// Times work under load: contexts[0] is timed, the others are the neighbours'. Alone where there
// are none.
sp_status sp_i_cuda_bench_time_loaded(sp_i_cuda_bench *bench, sp_i_cuda_work work,
                                      void *const *contexts, double budget_s,
                                      sp_i_cuda_timing *timing, sp_error *err);

// The timing of `count` samples, at least one, which it sorts.
sp_i_cuda_timing sp_i_cuda_timing_of(double *seconds, int count);

// Random numbers in device memory: what a product takes depends on its operands' bits (zeros draw
// less power), so that nothing is timed on constant data.

// Fills `elements` bf16 numbers at `data`: normal, mean 0, this standard deviation. Up to `drawn`
// of them are drawn, and repeated. Returns when it is done.
enum { SP_I_CUDA_DRAWN = 4 << 20 };
sp_status sp_i_cuda_fill_normal(const sp_i_cuda_device *device, void *data, int64_t elements,
                                int64_t drawn, double deviation, uint64_t seed, CUstream stream,
                                sp_error *err);

// Parts of one block of memory, one behind the other: what so many bytes take, and the next of
// them.
int64_t sp_i_cuda_aligned_bytes(int64_t bytes);
void *sp_i_cuda_take_part(char **next, int64_t bytes);

// ---- Kernels bound by memory ----

// The kernels of a model that are bound by memory, as a calibration times them: what each moves,
// what the cost model counts for it (sim/model/inventory.c), and the memory to run it in.

typedef enum sp_i_cuda_element {
    SP_I_CUDA_RMS_NORM,
    SP_I_CUDA_RMS_NORM_BACKWARD, // of input and weight
    SP_I_CUDA_LAYER_NORM,
    SP_I_CUDA_LAYER_NORM_BACKWARD,
    SP_I_CUDA_SWIGLU,
    SP_I_CUDA_SWIGLU_BACKWARD,
    SP_I_CUDA_GELU,
    SP_I_CUDA_GELU_BACKWARD,
    SP_I_CUDA_ROPE, // of queries, and of keys (RoPE)
    SP_I_CUDA_RESIDUAL_ADD,
    SP_I_CUDA_LOOKUP,
    SP_I_CUDA_LOOKUP_BACKWARD,
    SP_I_CUDA_CROSS_ENTROPY,
    SP_I_CUDA_CROSS_ENTROPY_BACKWARD,
    SP_I_CUDA_KEY_VALUE_GRADIENT, // added to what later slices left
    SP_I_CUDA_ADAMW,              // a parameter for each element of the hidden states
    SP_I_CUDA_ELEMENTS
} sp_i_cuda_element;

const char *sp_i_cuda_element_name(sp_i_cuda_element element); // such as "rms_norm"

typedef struct sp_i_cuda_element_shape {
    int64_t tokens, hidden, q, kv, head_dim, ffn, vocab; // q, kv, ffn: columns
    int64_t loss_tokens;                                 // whose logits there is memory for
    int64_t distinct;                                    // rows that the lookup's indices name
} sp_i_cuda_element_shape;

enum { SP_I_CUDA_ELEMENT_ROWS = 4, SP_I_CUDA_ELEMENT_BF16 = 5, SP_I_CUDA_ELEMENT_FP32 = 4 };

typedef struct sp_i_cuda_element_data {
    sp_bf16 *x[SP_I_CUDA_ELEMENT_BF16]; // the widest activation each; logits go through all of them
    float *wide[SP_I_CUDA_ELEMENT_FP32];            // fp32, hidden states or keys and values
    sp_bf16 *vector[2];                             // [hidden]
    float *column[2], *row[SP_I_CUDA_ELEMENT_ROWS]; // [hidden], [tokens]
    float *workspace;                               // of column sums
    double *loss;
    int64_t *index, *order; // [tokens], below `tokens`
} sp_i_cuda_element_data;

typedef struct sp_i_cuda_element_cost {
    double moved_bytes;   // read and written
    double counted_bytes; // by the cost model; 0: it has another key for them
    int counted_kernels;
} sp_i_cuda_element_cost;

// The shape at so many tokens. `memory_tokens` is what the data was laid out for.
sp_i_cuda_element_shape sp_i_cuda_element_shape_of(const sp_model *model, int64_t tokens,
                                                   int64_t memory_tokens);
sp_i_cuda_element_cost sp_i_cuda_element_cost_of(sp_i_cuda_element element,
                                                 const sp_i_cuda_element_shape *shape);
// How often it runs in a forward and a backward of one of the model's layers.
int sp_i_cuda_element_in_layer(sp_i_cuda_element element, const sp_model *model);

// Bytes for a shape, and where everything is in them; x and wide come first, in one piece of
// sp_i_cuda_element_drawn bytes.
int64_t sp_i_cuda_element_bytes(const sp_i_cuda_element_shape *shape);
int64_t sp_i_cuda_element_drawn(const sp_i_cuda_element_shape *shape);
void sp_i_cuda_element_place(const sp_i_cuda_element_shape *shape, void *memory,
                             sp_i_cuda_element_data *data);

// Puts one run on the stream; a CUresult. What it writes it does not need to find again.
typedef int (*sp_i_cuda_element_launch)(sp_i_cuda_element element,
                                        const sp_i_cuda_element_shape *shape,
                                        const sp_i_cuda_element_data *data, CUstream stream);
int sp_i_cuda_launch_element(sp_i_cuda_element element, const sp_i_cuda_element_shape *shape,
                             const sp_i_cuda_element_data *data, CUstream stream);

// ---- Parts of a calibration ----

// As sp_cuda_attention.
typedef int (*sp_i_cuda_attention_launcher)(const sp_kernel_attention_shape *shape,
                                            const sp_cuda_attention_pack *pack, bool backward,
                                            CUstream stream);

// Places in which work under load runs at the same time: partitions, or the whole device alone.
enum { SP_I_CUDA_MOST_PLACES = 1 + SP_I_CUDA_MOST_NEIGHBOURS };

typedef struct sp_i_cuda_calibration {
    sp_i_cuda_device device;
    sp_i_cuda_info info;
    const sp_i_cublas_api *cublas;
    sp_i_cuda_attention *attention; // for streams of the whole device; NULL: none
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
// Sections that one GPU cannot say ("links", "collectives"): the base profile's, else assumed.
// Between partitions the links are copies, and the collectives follow from them.
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
// `bytes` in each place, of which the first `elements` bf16 are normal numbers, up to `drawn` of
// them and then copies of these. To be ended on failure as well; frees NULL.
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
                                  sp_i_product kind, int64_t tokens, double budget_s,
                                  sp_i_cuda_timing *t, sp_error *err);

// With partitions: notes for people what the work takes on the whole device (its context there),
// in one partition alone, and beside its busy neighbours.
sp_status sp_i_cuda_note_places(sp_i_cuda_calibration *c, const char *name, sp_i_cuda_work work,
                                void *const *contexts, void *whole, double budget_s, sp_error *err);
// SMs of a place, as sp_i_cuda_gemm_place has them.
int sp_i_cuda_place_sms(const sp_i_cuda_calibration *c, int place);

// With partitions: from here to _end the other places compute products beside what is timed. `p` is
// for the two functions alone; to be ended on failure as well.
sp_status sp_i_cuda_neighbours_compute(sp_i_cuda_calibration *c, sp_i_cuda_products *p,
                                       sp_error *err);
void sp_i_cuda_neighbours_end(sp_i_cuda_calibration *c, sp_i_cuda_products *p);

// A member of a document that is a table or a section: {"level": "measured", "source": text}. NULL
// where that is no UTF-8.
json_t *sp_i_cuda_measured(const void *calibration, const char *what, double spread);
// The calibrator that is the same on every device (backends/executor/calibrate.h), without times.
sp_i_calibrator sp_i_cuda_calibrator(const sp_i_cuda_calibration *c, void *context);

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

// ---- Collectives ----

// Times of collectives between GPUs, by kind, group and size: the tables of a profile's
// "collective_times" (profiles/README.md).

typedef struct sp_i_cuda_collective_bench {
    sp_i_cuda_device device;
    CUstream stream;
    int rank, ranks; // of the world, two or more, each with a GPU of its own inside one node
    uint64_t seed;
    int64_t most_bytes; // of a tensor
    const char *source; // stands in each table: what was measured, on what
} sp_i_cuda_collective_bench;

// Times bf16 collectives in groups of the world's first 2, 4, ... ranks and of all, over tensors of
// 1 KiB and four times as much each. All ranks of the world call it with the same numbers. *tables
// is an array for the profile at rank 0, by its own events, NULL elsewhere. The groups stay until
// the world is freed. A rank that is in few of them returns long before the others.
sp_status sp_i_nccl_time_collectives(sp_i_nccl *n, const sp_i_cuda_collective_bench *bench,
                                     json_t **tables, sp_error *err);

// A calibration by several processes of one machine with a GPU each: rank 0 measures its GPU while
// the others wait, then all time NCCL's collectives between them, as the profile's
// "collective_times". A rank that fails returns its reason, frees nothing and ends its process; the
// launcher ends the others.

typedef struct sp_i_cuda_team {
    const sp_i_place *place; // of two ranks or more
    const sp_cuda_api *api;
    int device;            // that the caller named, see sp_i_cuda_process_device
    const sp_model *model; // equal at all ranks
    uint64_t seed;
    int wait_ms;                      // for rank 0 to come, and for its measurements
    const struct sp_i_nccl_api *nccl; // NULL: that of libnccl
} sp_i_cuda_team;

// The measurements that rank 0 alone makes, with its GPU.
typedef sp_status (*sp_i_cuda_measure)(void *context, const sp_i_cuda_device *device,
                                       json_t **document, sp_error *err);

// *document is the same at all ranks, each one's own. SP_ERR_USAGE: no NCCL, other machines, other
// models of GPU, two ranks on one GPU.
sp_status sp_i_cuda_calibrate_together(const sp_i_cuda_team *team, sp_i_cuda_measure measure,
                                       void *context, json_t **document, sp_error *err);

// The largest tensor that is timed: the gradients of all parameters, fp32 as they are reduced, up
// to 256 MiB; 1 KiB times a power of four, which the tables' sizes are.
int64_t sp_i_cuda_most_exchanged_bytes(const sp_model *model);

// ---- Slots of the backend's table ----

// The slot of the backend's table. bf16 alone. Of several processes all have the same *profile.
sp_status sp_i_cuda_calibrate(int device, const sp_calibration_request *request, json_t **profile,
                              sp_error *err);

// A small piece of work that is always the same: what it takes now, over what it took at another
// time, says how the GPU's speed has changed (clocks, heat, other users).

enum { SP_I_CUDA_REFERENCE_EDGE = 2048 };

// Device time before the first.
#define SP_I_CUDA_WARM_UP_S 0.5

// Median seconds of one product of two bf16 matrices of this edge with cold caches, where the
// calibration times its work: on the whole device, or in the first partition while the others
// compute such products too. `c` has begun.
// Computes for so long, so that clocks and power are those of a busy GPU.
sp_status sp_i_cuda_warm_up(sp_i_cuda_calibration *c, double device_s, sp_error *err);

sp_status sp_i_cuda_reference_in(sp_i_cuda_calibration *c, double *seconds, sp_error *err);

// The slot of the backend's table: with up to one rank on the whole device, else in one of as many
// partitions. 0 where the device cannot be split into so many, or there is no cuBLASLt.
sp_status sp_i_cuda_reference(int device, int ranks, double *seconds, sp_error *err);

#endif
