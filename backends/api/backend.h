// Execution backends: what one is given, what it gives back, and the table of operations that it
// fills in. Callers go through device.h, which fills the slots that a backend leaves empty.
//
// A backend executes a plan: it runs exactly the plan's actions, each rank's in the plan's order,
// and returns when each ran and what was held, in the types of the simulator (sim/simulate), so
// that one function (sim/metrics) measures both.
#ifndef SLIMPACK_BACKENDS_API_BACKEND_H
#define SLIMPACK_BACKENDS_API_BACKEND_H

#include <jansson.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "sim/base/status.h"
#include "sim/cost/step_costs.h"
#include "sim/memory/footprint.h"
#include "sim/model/model.h"
#include "sim/plan/plan.h"
#include "sim/plan/timeline.h"

// Capabilities of a device, as bits.

// X(name, text that names it in messages). The order is part of the plug-in interface: new ones go
// to the end, and SP_BACKEND_ABI rises when one goes.
#define SP_CAPABILITY_LIST(X)                                               \
    X(PIPELINE, "several pipeline ranks")                                   \
    X(DATA_PARALLEL, "several data-parallel ranks")                         \
    X(TENSOR_PARALLEL, "tensor parallelism")                                \
    X(SEQUENCE_PARALLEL, "sequence parallelism")                            \
    X(CONTEXT_PARALLEL, "context parallelism")                              \
    X(VOCAB_PARALLEL, "a vocabulary spread over the pipeline ranks")        \
    X(DP_MERGE, "a pack on several data-parallel ranks (DP-Merge)")         \
    X(ZERO_1, "sharded optimizer states (ZeRO 1)")                          \
    X(ZERO_2, "sharded gradients (ZeRO 2)")                                 \
    X(ZERO_3, "sharded parameters (ZeRO 3)")                                \
    X(CHUNKS, "several model chunks per rank")                              \
    X(SLICES, "samples in several slices")                                  \
    X(REGROUPED, "backward packs that differ from the forward packs")       \
    X(SPLIT_BACKWARD, "input and weight gradients as actions of their own") \
    X(PAIRS, "a forward and a backward side by side")                       \
    X(RECOMPUTE_ACTION, "recomputation as an action of its own")            \
    X(RECOMPUTE_ACTIVATION, "recomputed activation functions and norms")    \
    X(RECOMPUTE_PARTIAL_FC1, "a recomputed first MLP projection")           \
    X(RECOMPUTE_ATTENTION, "recomputed attention")                          \
    X(RECOMPUTE_MLA_UP_PROJ, "recomputed up-projections of latents")        \
    X(RECOMPUTE_FULL, "recomputed layers")                                  \
    X(OFFLOAD, "offload to host memory")                                    \
    X(NO_MODEL, "a plan without a model")                                   \
    X(FP64, "fp64")                                                         \
    X(FP32, "fp32")                                                         \
    X(BF16, "bf16")                                                         \
    X(CLOCK_VIRTUAL, "the virtual clock")                                   \
    X(CLOCK_WALL, "the wall clock")                                         \
    X(STEPS, "several steps")                                               \
    X(MEMORY_POINTS, "the course of memory over time")                      \
    X(ZONES, "attention on some of a pack's ranks (zones)")                 \
    X(RECOMPUTE_MLP, "recomputed dense MLPs")                               \
    X(RECOMPUTE_MOE, "recomputed layers of experts")                        \
    X(RECOMPUTE_SHARED_EXPERTS, "recomputed shared experts")

typedef enum sp_capability {
#define X(name, text) SP_CAP_##name,
    SP_CAPABILITY_LIST(X)
#undef X
        SP_CAPABILITIES
} sp_capability;

// No capability: its bit lies above all others and SP_CAN_EVERYTHING takes it away.
enum { SP_CAP_RECOMPUTE_NONE = SP_CAPABILITIES };

// The bit of one, as in SP_CAN(SPLIT_BACKWARD) | SP_CAN(OFFLOAD), and all bits.
#define SP_CAN(name) (UINT64_C(1) << SP_CAP_##name)
#define SP_CAN_EVERYTHING ((UINT64_C(1) << SP_CAPABILITIES) - 1)

const char *sp_capability_text(sp_capability capability);

// Version of this interface. A backend of another version is refused.
enum { SP_BACKEND_ABI = 2 };

// wall: ranks work side by side and time is the clock's. virtual: actions run one by one, and what
// each took decides when it would have run (sim/plan/walk.h).
typedef enum sp_clock { SP_CLOCK_VIRTUAL, SP_CLOCK_WALL, SP_CLOCKS } sp_clock;
extern const char *const sp_clock_names[]; // "virtual", "wall", NULL

typedef enum sp_precision { SP_FP64, SP_FP32, SP_BF16, SP_PRECISIONS } sp_precision;
extern const char *const sp_precision_names[]; // "fp64", "fp32", "bf16", NULL

// A setting of one backend, by name.
typedef struct sp_backend_option {
    const char *key, *value;
} sp_backend_option;

// A run that a backend executes. Everything is borrowed for the time of the run and of what it
// returns.
typedef struct sp_run_request {
    const sp_plan *plan;
    const char *source;              // names the plan in messages; NULL: "plan"
    const sp_model *model;           // NULL: uniform costs
    const sp_memory_options *memory; // NULL: no recomputation, no offload
    const sp_step_costs *costs;      // the simulator's; only for backends that are driven by them
    // How long transfers take where a backend emulates links; NULL: as `costs` say, if they are
    // there.
    const sp_link_times *links;
    sp_clock clock;
    sp_precision precision;
    uint64_t seed;              // of all that the backend draws: parameters, tokens, jitter
    int steps;                  // optimizer steps over the same plan; at least 1
    int64_t memory_limit_bytes; // of each rank; 0: what the device has
    int64_t timeout_ns;         // of the whole run by its clock; 0: none
    bool memory_points;         // keep the course of memory, not only the peaks
    const sp_backend_option *options;
    size_t option_count;
} sp_run_request;

// The times of links that a request has; `far` is NULL where it has none.
static inline sp_link_times sp_run_request_links(const sp_run_request *request)
{
    return request->links != NULL   ? *request->links
           : request->costs != NULL ? sp_step_costs_links(request->costs)
                                    : (sp_link_times){0};
}

// One step as it ran.
typedef struct sp_measured_step {
    sp_timeline timeline; // one entry per rank (sp_timeline_init)
    sp_memory_timeline memory;
    bool has_loss;
    double loss;          // mean over the trained tokens of the batch
    double learning_rate; // that the optimizer stepped by; 0: by none, or the backend does not say
} sp_measured_step;

enum { SP_TENSOR_NAME = 128, SP_TENSOR_DIMS = 4 };

// A tensor that can be read after a run: "parameters/NAME" or "gradients/NAME", as on one rank
// that holds the whole model.
typedef struct sp_tensor_info {
    char name[SP_TENSOR_NAME];
    sp_precision precision; // that it is held in
    int dims;
    int64_t size[SP_TENSOR_DIMS]; // slowest first
    int64_t elements;
} sp_tensor_info;

typedef struct sp_device_info {
    char name[64];
    uint64_t capabilities; // SP_CAN(...) | ...
    int64_t ranks;         // most ranks (tp * cp * pp * dp) of a plan; 0: any number
    int64_t cores;         // that the ranks share on the wall clock; 0: each has what it needs
} sp_device_info;

typedef struct sp_calibration_request {
    sp_precision precision;
    uint64_t seed;
    double limit_s;        // time to spend, about; 0: as long as it takes
    const sp_model *model; // whose shapes are measured; NULL: the backend's choice
    int partitions;        // of the device, one is measured beside busy others; 0, 1: all of it
    // Called after each part with the document so far, so that a calibration that is cut off leaves
    // what it has measured; NULL: not called. A backend may have one part.
    void (*part)(void *context, const json_t *so_far);
    void *part_context;
} sp_calibration_request;

typedef struct sp_backend_option_info {
    const char *key;
    const char *text; // one line: values, default, meaning
} sp_backend_option_info;

// The table of operations. Required slots are marked; all others may be NULL. `abi`, `size` and
// `types` stand first in every version. Text that a function returns lives as long as the table.
// All functions of one backend are called from one thread at a time.
typedef struct sp_backend_ops {
    uint32_t abi;                          // SP_BACKEND_ABI
    uint32_t size;                         // sizeof(sp_backend_ops); slots behind it count as NULL
    uint64_t types;                        // SP_BACKEND_TYPES
    const char *name;                      // required: lower-case letters, digits, '_'
    const char *description;               // required: one line
    const sp_backend_option_info *options; // that a request may set; ends with a NULL key

    // Required. Devices are numbered from 0; a backend without any on this machine has 0 of them,
    // and that is no error. device_info is then asked for one nevertheless, and says why there is
    // none and what to do.
    sp_status (*device_count)(int *count, sp_error *err);
    sp_status (*device_info)(int device, sp_device_info *info, sp_error *err);
    // Required. Runs request->steps steps, which `steps` has room for, zeroed. What it leaves there
    // belongs to the caller, on failure as well. *state is what stays for reading tensors. Times
    // start at 0 in each step. A run ends by itself: no rank waits for ever for one that failed.
    // Errors name rank, action and reason (sp_error_at_action): SP_ERR_INFEASIBLE where memory runs
    // out on the device, SP_ERR_LIMIT at the timeout or for what never ends, SP_ERR_INTERNAL where
    // an action fails.
    sp_status (*execute)(int device, const sp_run_request *request, sp_measured_step *steps,
                         void **state, sp_error *err);

    void (*free_state)(void *state);
    // Tells all that this backend cannot execute beyond capabilities, as content errors.
    sp_status (*check)(int device, const sp_run_request *request, sp_error *err);
    // Tensors of a run: number, description of the i-th, and its elements in row-major order.
    sp_status (*tensor_count)(void *state, size_t *count, sp_error *err);
    sp_status (*tensor_info)(void *state, size_t index, sp_tensor_info *info, sp_error *err);
    sp_status (*tensor_read)(void *state, size_t index, double *values, sp_error *err);
    // Measures the device; *profile is a profile document (sim/cost/profile.h), the caller's.
    sp_status (*calibrate)(int device, const sp_calibration_request *request, json_t **profile,
                           sp_error *err);
    // Name of the software stack (sim/model/stack.h) whose memory is that of this backend.
    const char *stack;
    // Seconds that a small piece of work takes now, always the same one: how fast the device is.
    // With 0 ranks by the time that the virtual clock counts, which a profile of `calibrate` holds
    // as it was then (profiles/README.md, "reference"); else by the wall clock, on so many ranks at
    // once.
    sp_status (*reference)(int device, int ranks, double *seconds, sp_error *err);
    // Says which process this is of those that one run was started as: *rank of *ranks, 0 of 1
    // without this slot. Every process makes the same calls, and each gets what the whole run
    // gives. Programs call it before any other slot.
    sp_status (*process)(int *rank, int *ranks, sp_error *err);
    // How a run was executed, in the backend's own keys: by which kernels, on what, with what
    // memory of the device. *report is an object, the caller's.
    sp_status (*report)(void *state, json_t **report, sp_error *err);
} sp_backend_ops;

// Sizes of the types that cross the interface, folded into one number: a backend that was built
// from other headers than its caller differs here.
#define SP_I_FOLD(seed, type) (((seed) ^ sizeof(type)) * UINT64_C(1099511628211))
#define SP_I_FOLD_PLAN                                                                          \
    SP_I_FOLD(SP_I_FOLD(SP_I_FOLD(SP_I_FOLD(UINT64_C(14695981039346656037), sp_plan), sp_pack), \
                        sp_slice),                                                              \
              sp_batch)
#define SP_I_FOLD_INPUT                                                                          \
    SP_I_FOLD(SP_I_FOLD(SP_I_FOLD(SP_I_FOLD(SP_I_FOLD(SP_I_FOLD_PLAN, sp_model), sp_step_costs), \
                                  sp_link_times),                                                \
                        sp_memory_options),                                                      \
              sp_run_request)
#define SP_BACKEND_TYPES                                                                   \
    SP_I_FOLD(SP_I_FOLD(SP_I_FOLD(SP_I_FOLD(SP_I_FOLD(SP_I_FOLD(SP_I_FOLD_INPUT, sp_span), \
                                                      sp_rank_timeline),                   \
                                            sp_rank_memory),                               \
                                  sp_measured_step),                                       \
                        sp_device_info),                                                   \
              sp_calibration_request)

// A plug-in is a shared library libslimpack-backend-NAME.so that exports its table of operations
// under this name.
extern const sp_backend_ops sp_backend_plugin;
#define SP_BACKEND_SYMBOL "sp_backend_plugin"

#endif
