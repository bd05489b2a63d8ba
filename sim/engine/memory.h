// The memory timeline: bytes allocated and freed by the actions of a timeline.
#ifndef SLIMPACK_SIM_ENGINE_MEMORY_H
#define SLIMPACK_SIM_ENGINE_MEMORY_H

#include <stdbool.h>

#include "sim/cost/step_costs.h"
#include "sim/engine/timeline.h"

// Walks every rank entry of the timeline: states all the time; what a unit holds from the start of
// its F to the end of its B; of a split backward what the weight gradient needs to the end of W
// (regrouped packs: all of it); transients while an action runs. What an O copies goes when the
// copy is done, but not before the rank's next forward is over (or its own L starts), so that two
// units are whole on the GPU when a forward ends. An L copies into one of two buffers as large as
// the rank's largest copy, each made by the first L that needs it and kept from then on: workspace.
// Tensors are views of it but for the one that left in part, which is put together again
// (kwai/Megatron-Kwai, branch atc24ae, megatron/core/pipeline_parallel/offload.py). With `points`
// the whole course is kept. Every rank must drain back to its states and buffers, else
// SP_ERR_INTERNAL. O(spans).
sp_status sp_i_memory_replay(const sp_timeline *timeline, const sp_step_costs *costs, bool points,
                             sp_memory_timeline *memory, sp_error *err);

typedef enum sp_i_unit_holds {
    SP_I_HOLDS_NOTHING,
    SP_I_HOLDS_ALL,
    SP_I_HOLDS_REST,   // all but what is offloaded
    SP_I_HOLDS_LOADED, // the same, what came back being in a buffer, and what is rebuilt from that
    SP_I_HOLDS_CACHE,  // keys and values alone, of a forward that runs again
    SP_I_HOLDS_WEIGHTS // what the weight gradient needs
} sp_i_unit_holds;

// One unit of a rank: a forward pack on one of its chunks.
typedef struct sp_i_unit_state {
    int64_t freed_tokens; // of the forward pack's, by regrouped backward packs
    int32_t forward;      // its place among the rank's forwards
    uint8_t holds;        // sp_i_unit_holds
    uint8_t runs_again;
    uint8_t copied;
} sp_i_unit_state;

// What a rank holds at the moment of its peak.
typedef struct sp_i_peak_state {
    sp_i_unit_state *units; // [forward packs * chunks]; owned
    int buffers;
    int64_t buffer_bytes; // of one
    bool running;         // the transients of the peak's action are there
} sp_i_peak_state;

// For rank entry `rank` of a replayed timeline. O(spans of the rank + forward packs * chunks).
sp_status sp_i_memory_at_peak(const sp_timeline *timeline, const sp_step_costs *costs,
                              const sp_memory_timeline *memory, size_t rank, sp_i_peak_state *state,
                              sp_error *err);
void sp_i_peak_state_fini(sp_i_peak_state *state);

// The bytes that a whole unit holds when it holds what `holds` says.
sp_bytes sp_i_unit_held(const sp_step_costs *costs, size_t unit, sp_i_unit_holds holds);

#endif
