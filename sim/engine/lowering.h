// The state of a lowering (lower.h).
#ifndef SLIMPACK_SIM_ENGINE_LOWERING_H
#define SLIMPACK_SIM_ENGINE_LOWERING_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "sim/cost/step_costs.h"
#include "sim/engine/fold.h"
#include "sim/engine/task_graph.h"
#include "sim/plan/plan.h"
#include "sim/plan/vocab_shares.h"

enum { SP_I_NONE = -1 }; // no task, no simulated rank

// The state of a lowering. Tables of lowered tasks are indexed by slot, one per pack and simulated
// data-parallel rank that runs it, and virtual stage.
typedef struct sp_i_lowering {
    const sp_plan *plan;
    const sp_step_costs *costs;
    const sp_i_folding *folding;
    sp_i_task_graph *graph;
    const sp_pack_list *backward;
    size_t vstages;
    size_t *forward_slot;  // [packs]: slot of the pack on its first rank
    size_t *backward_slot; // [backward packs]
    int32_t *forward_task; // [slots * vstages]: task or SP_I_NONE
    int32_t *backward_task;
    uint8_t *recomputed; // [forward slots * vstages]: an explicit R ran
    bool copies;         // some rank has an O or L
    int32_t *out_task;   // [forward slots * vstages]: its O; NULL without copies
    int32_t *back_task;  // its L
    int32_t *last_out;   // [lanes]: the lane's last O, or SP_I_NONE; NULL without copies
    int32_t *last_back;  // its last L
    int32_t *leaving;    // [lanes]: the O that the lane's next task waits for, or SP_I_NONE
    int *kind_of_dp;     // [dp]: simulated rank, or SP_I_NONE
    size_t *done;        // [lanes]: actions lowered
    uint32_t *last;      // [lanes]: the lane's last task other than a copy
    uint8_t *computed;   // [lanes]: it has one
    int64_t *sending_ns; // [lanes]: how long the lane then waits for its sends
    size_t *queue;       // ring of lanes to visit
    uint8_t *queued;     // [lanes]
    size_t queue_begin, queue_count;
    // Where a vocabulary is shared, else empty or NULL. Tables of shares are indexed by
    // sp_i_lowering_share.
    sp_shares shares;
    size_t *shares_done;    // [lanes]
    int32_t *head_input[2]; // [forward slots]: what gave the last hidden states: F, R; or SP_I_NONE
    int32_t *table_input;   // [backward slots]: what gave the gradient of the embedding
    int32_t *head_task;     // [forward slots * pp]: the rank's last share of the head
    uint8_t *head_runs;     // how many there were
    int32_t *embed_task[2]; // of the embedding: for F, R
    int32_t *gradient_task; // [backward slots * pp]: of the head's backward
    int32_t *needs;         // regrouped backward packs: the forward pack of each backward slice
} sp_i_lowering;

// Makes the tables of a lowering whose plan, costs, folding, graph and needs are set, and those of
// the graph; false when memory ran out or there are too many edges.
bool sp_i_lowering_allocate(sp_i_lowering *low);
void sp_i_lowering_fini(sp_i_lowering *low);

static inline size_t sp_i_lowering_lane(const sp_i_lowering *low, int kind, int pp_rank)
{
    return (size_t)kind * (size_t)low->plan->layout.pp + (size_t)pp_rank;
}

static inline const sp_stage_plan *sp_i_lowering_stage(const sp_i_lowering *low, size_t lane)
{
    size_t pp = (size_t)low->plan->layout.pp;
    return sp_plan_stage(low->plan, low->folding->rank[lane / pp], (int)(lane % pp));
}

static inline const sp_share *sp_i_lowering_shares(const sp_i_lowering *low, size_t lane,
                                                   size_t *count)
{
    size_t pp = (size_t)low->plan->layout.pp;
    return sp_shares_of(&low->shares, &low->plan->layout, low->folding->rank[lane / pp],
                        (int)(lane % pp), count);
}

// The share that the lane runs before its next action, or NULL.
static inline const sp_share *sp_i_lowering_next_share(const sp_i_lowering *low, size_t lane)
{
    size_t count;
    const sp_share *shares = sp_i_lowering_shares(low, lane, &count);
    bool next = count > 0 && low->shares_done[lane] < count &&
                shares[low->shares_done[lane]].before <= low->done[lane];
    return next ? &shares[low->shares_done[lane]] : NULL;
}

static inline bool sp_i_is_backward(sp_action action)
{
    return action.kind == SP_ACTION_B || action.kind == SP_ACTION_I || action.kind == SP_ACTION_W;
}

static inline const sp_pack *sp_i_lowering_pack(const sp_i_lowering *low, sp_action action)
{
    return sp_i_is_backward(action) ? &low->backward->packs[action.pack]
                                    : &low->plan->packing->forward.packs[action.pack];
}

// The first entry of a pack's shares on its rank `dp`, those of pipeline rank 0.
static inline size_t sp_i_lowering_share(const sp_i_lowering *low, sp_action action, int dp)
{
    size_t slot =
        sp_i_is_backward(action) ? low->backward_slot[action.pack] : low->forward_slot[action.pack];
    size_t member = (size_t)(dp - sp_i_lowering_pack(low, action)->dp_first);
    return (slot + member) * (size_t)low->plan->layout.pp;
}

static inline size_t sp_i_lowering_index(const sp_i_lowering *low, sp_action action, int dp,
                                         int vstage)
{
    const sp_pack *pack = sp_i_lowering_pack(low, action);
    size_t slot =
        sp_i_is_backward(action) ? low->backward_slot[action.pack] : low->forward_slot[action.pack];
    return (slot + (size_t)(dp - pack->dp_first)) * low->vstages + (size_t)vstage;
}

#endif
