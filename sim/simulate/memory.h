// The memory timeline: bytes allocated and freed by the actions of a timeline.
#ifndef SLIMPACK_SIM_SIMULATE_MEMORY_H
#define SLIMPACK_SIM_SIMULATE_MEMORY_H

#include <stdbool.h>

#include "sim/cost/step_costs.h"
#include "sim/plan/depends.h"
#include "sim/plan/timeline.h"

typedef struct sp_unit_state {
    // Of the forward pack's, by regrouped backward packs; those of slices with later slices.
    int64_t freed_tokens, freed_kv_tokens;
    int32_t forward; // its place among the rank's forwards
    uint8_t holds;   // sp_unit_holds
    uint8_t runs_again;
    uint8_t copied;
} sp_unit_state;

// Returns what a forward pack, of which backward packs have freed slices, still holds of `bytes` of
// one category. `is_kv` says that they are keys and values: those of the cache belong to slices
// with later slices, those among the activations to the others; all else belongs to all of its
// tokens.
int64_t sp_unit_left(const sp_pack *pack, const sp_unit_state *state, sp_memory_category category,
                     bool is_kv, int64_t bytes);

// Walks every rank entry of the timeline: states all the time; what a unit holds from the start of
// its F to the end of its B or I; of a split backward what the weight gradient needs to the end of
// W; of a forward that runs again what its repeat needs, until then; the sums of gradients of keys
// and values from the end of the backward that begins them to the end of each slice's own;
// transients while an action runs. What an O copies goes when the copy is done, but not before the
// rank's next forward is over (or its own L starts), so that two units are whole on the GPU when a
// forward ends. An L copies into one of two buffers as large as the rank's largest copy, each made
// by the first L that needs it and kept from then on: workspace. Tensors are views of it but for
// the one that left in part, which is put together again (kwai/Megatron-Kwai, branch atc24ae,
// megatron/core/pipeline_parallel/offload.py). A share of a
// head holds like a unit of its own from the share to that of its backward, but on the last stage's
// rank, whose actions hold all of it. With `points` the whole course is kept. Every rank must drain
// back to its states and buffers and hold no less than nothing of any category at any time, else
// SP_ERR_INTERNAL. O(spans).
sp_status sp_memory_replay(const sp_timeline *timeline, const sp_step_costs *costs, bool points,
                           sp_memory_timeline *memory, sp_error *err);

// The order in which a rank's memory changes: its spans, its shares of a vocabulary between them,
// and the copies of both directions beside them; at one time what ends comes first. Spans, shares
// and copies go by their numbers in the timeline.
typedef struct sp_memory_order {
    void *context;
    void (*span)(void *context, size_t span, bool ends);
    void (*share)(void *context, size_t share, bool ends);
    // Returns when what an O has copied goes; INT64_MAX: that is not yet known.
    int64_t (*gone_ns)(const void *context, size_t copy);
    void (*gone)(void *context, size_t copy, int64_t at_ns);
    void (*back)(void *context, size_t copy, int64_t at_ns); // an L begins
} sp_memory_order;

void sp_memory_in_order(const sp_rank_timeline *rank, const sp_memory_order *order);

// The bytes that a rank holds at the moment of its peak.
typedef struct sp_peak_state {
    // Chunks, and behind them the rank's share of a head that pipeline ranks share.
    int parts;
    sp_unit_state *units; // [forward packs * parts]; owned
    // [backward packs * parts] of regrouped packs: they hold what the weight gradient needs; owned.
    uint8_t *deferred;
    int64_t gradient_sums; // bytes of gradients of keys and values between actions
    int buffers;
    int64_t buffer_bytes; // of one
    sp_bytes running;     // transients of the peak's action
} sp_peak_state;

// For rank entry `rank` of a replayed timeline. O(spans of the rank + forward packs * chunks).
sp_status sp_memory_at_peak(const sp_timeline *timeline, const sp_step_costs *costs,
                            const sp_memory_timeline *memory, size_t rank, sp_peak_state *state,
                            sp_error *err);
void sp_peak_state_fini(sp_peak_state *state);

#endif
