// One virtual stage of one data-parallel rank: its parameters, and what its actions hold for each
// other. Tensors are of the run's precision; what computes with them (typed/) is compiled for each.
#ifndef SLIMPACK_BACKENDS_EXECUTOR_STAGE_H
#define SLIMPACK_BACKENDS_EXECUTOR_STAGE_H

#include "backends/api/device_runtime.h"
#include "backends/comm/attention.h"
#include "backends/executor/arena.h"
#include "backends/executor/links.h"
#include "backends/executor/replicas.h"
#include "backends/executor/slices.h"
#include "backends/executor/tensors.h"
#include "backends/executor/weights.h"
#include "sim/model/layout.h"

#define SP_I_EXEC_NORM_EPSILON 1e-5
#define SP_I_EXEC_ROPE_BASE 10000.0

// A number that each row of a pack has.
typedef enum sp_i_exec_number {
    SP_I_EXEC_TOKENS,
    SP_I_EXEC_TARGETS,       // negative: padding
    SP_I_EXEC_POSITIONS,     // where the model has a table of them
    SP_I_EXEC_OWN_POSITIONS, // of the rank's part, in its order
    SP_I_EXEC_NUMBERS
} sp_i_exec_number;

// What all stages of a rank share in a step.
typedef struct sp_i_exec_job {
    sp_machine *machine; // that the run's ranks work on
    const sp_model *model;
    sp_i_shard shard;
    sp_i_exec_specs specs;
    sp_i_exec_slices slices;
    // Of each of the rank's rows, slice after slice in the order of the forward packs: token, token
    // to be predicted (negative: padding) and position. token_at[slice] is the place of its first.
    int64_t *token, *target, *position;
    int64_t *token_at;
    // The same row by row of every pack, from `packed_at` on. They stay where they are while the
    // run lasts: a machine that repeats a step reads them again (machine.h).
    int64_t *packed[SP_I_EXEC_NUMBERS];
    const int64_t *ids;                  // of the batch's samples
    sp_comm_attention_way attention_way; // of packs that several ranks share
    double dropout;                      // probability that an output of a block is dropped
    uint64_t dropout_seed;               // of the step
} sp_i_exec_job;

// What the weight gradients of a layer read: inputs of its products and gradients of their outputs.
typedef enum sp_i_exec_deferred {
    SP_I_EXEC_QKV_IN,
    SP_I_EXEC_QKV_OUT,
    SP_I_EXEC_PROJECTION_IN,
    SP_I_EXEC_PROJECTION_OUT,
    SP_I_EXEC_FC1_IN,
    SP_I_EXEC_FC1_OUT,
    SP_I_EXEC_FC2_IN,
    SP_I_EXEC_FC2_OUT,
    SP_I_EXEC_DEFERRED,
    // Of the head.
    SP_I_EXEC_HEAD_IN = 0,
    SP_I_EXEC_HEAD_OUT = 1
} sp_i_exec_deferred;

// Among the rank's flat parameters.
typedef struct sp_i_exec_range {
    int64_t begin, count;
} sp_i_exec_range;

// Tables hold blocks of the arena, NULL where there is none. The head's tensors stand behind those
// of the last layer.
typedef struct sp_i_exec_stage {
    const sp_i_exec_job *job;
    sp_i_exec_arena *arena; // of its rank
    sp_i_exec_links *links; // of its rank
    sp_stage part;
    int first_layer;          // in the model
    bool first, last;         // of all virtual stages
    int vocab_rank;           // which share of the vocabulary it has, if any
    void **value, **gradient; // by slot; borrowed from the rank, or of an open unit (unit.h)
    sp_i_exec_range *range;   // by slot; count 0: there is none
    bool gathers, scatters;   // parameters, gradients: the rank has its share of them alone
    sp_i_exec_replicas *replicas;
    int member;                // of them, this rank
    const void *cosine, *sine; // [positions, head_dim / 2]; borrowed from the rank
    void **saved;              // [forward packs][layers + 1][SP_I_EXEC_TENSORS]
    void **input;              // [forward packs]: of a forward that runs again
    void **kv;                 // [slices][layers]: keys | values, turned by their positions
    void **kv_gradient;        // [slices][layers]: sum so far over later slices
    void **deferred;           // [backward packs][layers + 1][SP_I_EXEC_DEFERRED]
    double *loss;              // [forward packs], in the machine's memory
} sp_i_exec_stage;

// Tables, all empty, and a loss that is not yet set. Places, value, gradient, range and what
// follows, cosine and sine are the caller's to fill in.
sp_status sp_i_exec_stage_init(sp_i_exec_stage *stage, const sp_i_exec_job *job,
                               sp_i_exec_arena *arena, sp_i_exec_links *links, sp_stage part,
                               sp_error *err);
void sp_i_exec_stage_fini(sp_i_exec_stage *stage);

void **sp_i_exec_saved(const sp_i_exec_stage *stage, int32_t forward_pack, int layer,
                       sp_i_exec_tensor tensor);
void **sp_i_exec_kv(const sp_i_exec_stage *stage, int32_t slice, int layer);
void **sp_i_exec_kv_gradient(const sp_i_exec_stage *stage, int32_t slice, int layer);
// SP_I_EXEC_DEFERRED entries.
void **sp_i_exec_deferred_of(const sp_i_exec_stage *stage, int32_t backward_pack, int layer);

// The rows of a backward pack of a tensor that forwards saved, as a block of the caller's: the
// saved one itself where the pack is a forward pack, else a copy, whose rows are given back where
// they came from. False when memory ran out.
bool sp_i_exec_fetch(const sp_i_exec_stage *stage, const sp_i_exec_pack *pack, int layer,
                     sp_i_exec_tensor tensor, void **block);

// Fills in the numbers of all packs from token, target and position.
void sp_i_exec_pack_numbers(sp_i_exec_job *job);

#endif
