// The executor: plans whose actions compute, on any device (README.md). All ranks of a plan live in
// one process, or each has a process and a device of its own (backends/ranks/comm.h).
#ifndef SLIMPACK_BACKENDS_EXECUTOR_EXECUTOR_H
#define SLIMPACK_BACKENDS_EXECUTOR_EXECUTOR_H

#include <stddef.h>
#include <stdint.h>

#include "backends/api/backend.h"
#include "backends/api/device_runtime.h"
#include "backends/executor/stage.h"
#include "backends/ranks/comm.h"
#include "sim/base/status.h"

// The options that a backend of this executor lists among its own.
#define SP_I_EXEC_OPTION_LIST                                                                      \
    {"learning_rate", "of AdamW, 0 or more (default 0.001)"},                                      \
        {"warmup", "steps over which the learning rate rises to learning_rate, by as much in "     \
                   "each; 0: it is "                                                               \
                   "that from the first on (default 0)"},                                          \
        {"weight_decay", "of AdamW, for matrices, 0 or more (default 0.1)"},                       \
        {"clip",                                                                                   \
         "largest norm of all gradients together, above which they are scaled down to it; 0: any " \
         "(default 0)"},                                                                           \
        {"dropout", "share of the outputs of embedding and blocks that GELU models drop, 0 or "    \
                    "more and below 1 "                                                            \
                    "(default 0)"},                                                                \
        {"rounded", "\"true\": parameters start as numbers that bf16 holds, in every precision "   \
                    "the same (default \"false\")"},                                               \
        {"text", "a file whose bytes are the tokens (default: random tokens)"},                    \
        {"attention",                                                                              \
         "of packs that several ranks share: \"gathered\" (default), keys and values of all "      \
         "ranks at once, or \"ring\", one rank's after the other's; on the CPU also "              \
         "\"routed:N\", a "                                                                        \
         "ring whose hops between nodes of N ranks go over the others of both, too"},              \
        {"links",                                                                                  \
         "between pipeline ranks: \"off\" (default), as the machine is, or \"emulated\", hidden "  \
         "states arrive as late as predicted, on the virtual clock alone; on a GPU also "          \
         "\"predicted\": exchanges of tensor- and context-parallel ranks take as long as "         \
         "predicted, too"},                                                                        \
        {"bytes",                                                                                  \
         "that memory is counted and limited in: \"table\", as the saved-tensor table counts "     \
         "mixed-precision training, \"real\", or \"taken\", of the device, blocks that are kept "  \
         "too (default: real in bf16 where the stack has device_bytes)"},                          \
        {"fail", "ACTION@DP.PP, such as F3.1@0.2: the action fails"},                              \
        {"stall", "ACTION@DP.PP: the action never ends"},                                          \
        {"exhaust", "ACTION@DP.PP: the action finds no memory"},                                   \
    {                                                                                              \
        "fault_step", "in which of the three above happen, from 1 (default 1)"                     \
    }

// The operations that it runs again. A recompute mode, or a module of a set, of these alone, of
// `more` that a backend adds, or of whole layers is a bit of its capabilities.
#define SP_I_EXEC_REPEATS                                                                      \
    (SP_LAYER_NORM1 | SP_LAYER_NORM2 | SP_LAYER_ROUTER | SP_LAYER_PERMUTATION | SP_LAYER_FC1 | \
     SP_LAYER_ACTIVATION | SP_LAYER_FC2 | SP_LAYER_SHARED | SP_LAYER_JOINED | SP_LAYER_CORE)
#define SP_I_EXEC_MODE(identifier, operations, more)                                       \
    | (((operations) & ~(SP_I_EXEC_REPEATS | (more))) == 0 || (operations) == SP_LAYER_ALL \
           ? SP_CAN(RECOMPUTE_##identifier) & SP_CAN_EVERYTHING                            \
           : 0)
#define SP_I_EXEC_OWN_MODE(identifier, name, operations, ...) \
    SP_I_EXEC_MODE(identifier, operations, 0)
#define SP_I_EXEC_OWN_MODULE(identifier, name, needed, capability, first, needs, lacks, second, \
                             others)                                                            \
    SP_I_EXEC_MODE(capability, (first) | (second), 0)
// Its capabilities (backends/api/backend.h), but for precisions.
#define SP_I_EXEC_CAPABILITIES                                                              \
    (SP_CAN(PIPELINE) | SP_CAN(DATA_PARALLEL) | SP_CAN(TENSOR_PARALLEL) |                   \
     SP_CAN(SEQUENCE_PARALLEL) | SP_CAN(CONTEXT_PARALLEL) | SP_CAN(VOCAB_PARALLEL) |        \
     SP_CAN(DP_MERGE) | SP_CAN(ZERO_1) | SP_CAN(ZERO_2) | SP_CAN(ZERO_3) | SP_CAN(CHUNKS) | \
     SP_CAN(SLICES) | SP_CAN(REGROUPED) | SP_CAN(SPLIT_BACKWARD) | SP_CAN(PAIRS) |          \
     SP_CAN(OFFLOAD) |                                                                      \
     SP_CAN(RECOMPUTE_ACTION) SP_RECOMPUTE_ROWS(SP_I_EXEC_OWN_MODE)                         \
         SP_MODULE_ROWS(SP_I_EXEC_OWN_MODULE) |                                             \
     SP_CAN(CLOCK_VIRTUAL) | SP_CAN(CLOCK_WALL) | SP_CAN(STEPS) | SP_CAN(MEMORY_POINTS))

// Where a run works: for the backend of this name, on a device, with numbers of one precision.
typedef struct sp_i_exec_site {
    const char *backend;
    sp_runtime *runtime;
    const sp_i_exec_math *math;
    sp_transport *transport; // of a rank alone, whose device this is; NULL: all ranks work here
} sp_i_exec_site;

// Layers that the operations of one device compute and those of another do not, as bits.
typedef enum sp_i_exec_layers {
    SP_I_EXEC_WINDOWS = 1 << 0, // attention to the last tokens, or to those of a chunk
    SP_I_EXEC_KINDS = 1 << 1,   // layers of several kinds
    SP_I_EXEC_EXPERTS = 1 << 2,
    SP_I_EXEC_LATENTS = 1 << 3 // latent attention
} sp_i_exec_layers;

// Finds all options that are wrong and all shapes that the executor does not compute, of which no
// capability tells; `backend` names it in messages, `layers` (sp_i_exec_layers) are what it
// computes.
sp_status sp_i_exec_check(const sp_run_request *request, const char *backend, unsigned layers,
                          sp_error *err);
// What the last finds of a model alone, whose longest sample has so many tokens.
sp_status sp_i_exec_check_model(const char *backend, unsigned layers, const sp_model *model,
                                int64_t longest, sp_error *err);
// Refuses what a transport cannot do, and one that is not for the plan; nothing without one.
sp_status sp_i_exec_check_transport(const sp_run_request *request, const sp_i_exec_site *site,
                                    sp_error *err);

// Refuses what needs more bytes than the runtime has free, before any are taken; nothing where the
// runtime does not know. `what` says what needs them, `advice` what to do.
sp_status sp_i_exec_check_memory(const sp_i_exec_site *site, int64_t bytes, const char *what,
                                 const char *advice, sp_error *err);

typedef struct sp_i_exec_run sp_i_exec_run;

// The request must have passed the checks of the wrapper and sp_i_exec_check; the site's
// math is that of its precision. The device runtime outlives the run. *run is NULL on failure.
sp_status sp_i_exec_run_new(const sp_run_request *request, const sp_i_exec_site *site,
                            sp_i_exec_run **run, sp_error *err);
void sp_i_exec_run_free(sp_i_exec_run *run);

// Runs one optimizer step over the plan. With a transport every rank makes this call and those of
// tensors below in the same order, and gets the same from them.
sp_status sp_i_exec_run_step(sp_i_exec_run *run, sp_measured_step *step, sp_error *err);

// Parameters and gradients by name, as on one rank that holds the whole model.
size_t sp_i_exec_tensor_count(const sp_i_exec_run *run);
void sp_i_exec_tensor_info(const sp_i_exec_run *run, size_t index, sp_tensor_info *info);
sp_status sp_i_exec_tensor_read(const sp_i_exec_run *run, size_t index, double *values,
                                sp_error *err);

#endif
