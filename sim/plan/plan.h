// The plan: per pipeline rank of each data-parallel rank the ordered actions over a packing. The
// one object that is both simulated and executed.
#ifndef SLIMPACK_SIM_PLAN_PLAN_H
#define SLIMPACK_SIM_PLAN_PLAN_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "sim/base/status.h"
#include "sim/model/layout.h"
#include "sim/plan/packing.h"

// F forward, B full backward, I input gradient, W weight gradient, R recompute, O offload, L load.
typedef enum sp_action_kind {
    SP_ACTION_F,
    SP_ACTION_B,
    SP_ACTION_I,
    SP_ACTION_W,
    SP_ACTION_R,
    SP_ACTION_O,
    SP_ACTION_L,
    SP_ACTION_KINDS
} sp_action_kind;

SP_API_DATA const char sp_action_letters[SP_ACTION_KINDS + 1]; // "FBIWROL"

// pack indexes the forward packs (F, R, O, L) or the backward packs (B, I, W) of the whole packing.
typedef struct sp_action {
    uint8_t kind; // sp_action_kind
    // 1: a forward and a full backward that run side by side, this action and the next (DualPipe's
    // overlapped pair): both wait for the inputs of both, and both are done when the second is.
    uint8_t with_next;
    uint16_t chunk;
    int32_t pack;
} sp_action;

// Is it an action of a backward pack: B, I or W?
static inline bool sp_action_is_backward(sp_action action)
{
    return action.kind == SP_ACTION_B || action.kind == SP_ACTION_I || action.kind == SP_ACTION_W;
}

static inline bool sp_action_is_same(sp_action a, sp_action b)
{
    return a.kind == b.kind && a.chunk == b.chunk && a.pack == b.pack;
}

// O and L: they run on the copy streams of their rank, beside what computes.
static inline bool sp_action_is_copy(sp_action action)
{
    return action.kind == SP_ACTION_O || action.kind == SP_ACTION_L;
}

// One action's time: what the GPU computes and the communication that blocks it.
typedef struct sp_action_cost {
    int64_t compute_ns, tp_ns, cp_ns;
    int64_t dp_ns;        // parameters gathered, gradients scattered by ZeRO 2 and 3, and waiting
    int64_t dp_wait_ns;   // part of it: longer actions of the ranks that gather parameters (3)
    int64_t ep_ns;        // tokens sent to experts on other ranks and back, and waiting for these
    int64_t ep_wait_ns;   // part of it: longer actions of the ranks that share experts
    int64_t ep_hidden_ns; // no part of it: exchanges behind the other action of a pair
    int64_t ep_beside_ns; // no part of it: exchanges behind the stage's shared experts
    int64_t attention_ns; // part of compute_ns: the attention core
    int64_t launch_ns;    // part of compute_ns: the GPU waits for launches
    int64_t again_ns;     // part of compute_ns beside launch_ns: a forward runs again
} sp_action_cost;

static inline int64_t sp_action_cost_ns(const sp_action_cost *cost)
{
    return cost->compute_ns + cost->tp_ns + cost->cp_ns + cost->dp_ns + cost->ep_ns;
}

// After something was taken out of ep_ns: where ep_ns held less, out of the computation.
static inline void sp_action_cost_keep_above_zero(sp_action_cost *cost)
{
    int64_t *const parts[][2] = {{&cost->ep_ns, &cost->ep_wait_ns},
                                 {&cost->dp_ns, &cost->dp_wait_ns}};
    for (int i = 0; i < 2; i++) {
        int64_t *all_ns = parts[i][0];
        int64_t *wait_ns = parts[i][1];
        if (*all_ns < 0) {
            cost->compute_ns += *all_ns;
            *all_ns = 0;
        }
        *wait_ns = *wait_ns < 0 ? 0 : *wait_ns > *all_ns ? *all_ns : *wait_ns;
    }
}

// The actions of one pipeline rank of one data-parallel rank, in order.
typedef struct sp_stage_plan {
    sp_action *actions;
    size_t count, capacity;
} sp_stage_plan;

// The action beside which action `at` runs, NULL where it is in no pair.
static inline const sp_action *sp_stage_partner(const sp_stage_plan *stage, size_t at)
{
    const sp_action *actions = stage->actions;
    return actions[at].with_next                 ? &actions[at + 1]
           : at > 0 && actions[at - 1].with_next ? &actions[at - 1]
                                                 : NULL;
}

typedef struct sp_plan {
    sp_layout layout;
    const sp_packing *packing; // not owned
    sp_stage_plan *stages;     // [dp rank * pp + pp rank]
} sp_plan;

// An action of one rank of a plan.
typedef struct sp_plan_place {
    int dp, pp;
    sp_action action;
} sp_plan_place;

// An empty plan for the layout and packing, which agree in dp. stages has layout.dp * layout.pp
// entries.
void sp_plan_init(sp_plan *plan, const sp_layout *layout, const sp_packing *packing);
void sp_plan_fini(sp_plan *plan);

SP_API sp_stage_plan *sp_plan_stage(const sp_plan *plan, int dp_rank, int pp_rank);

// Appends an action.
void sp_stage_plan_add(sp_stage_plan *stage, sp_action_kind kind, int chunk, int64_t pack);

// The first action of a kind, rank after rank; NULL: the plan has none.
const sp_action *sp_plan_find(const sp_plan *plan, sp_action_kind kind);

// Writes an action as in plan.json: "F3", with the chunk where a rank has several ("F3.1").
// Needs 32 bytes.
SP_API void sp_action_name(sp_action action, int chunks, char name[32]);

// Adds "dp 0 pp 1: F3.1: <text>" to the record and returns the status, as sp_error_set does.
sp_status sp_error_at_action(sp_error *err, sp_status status, const sp_plan *plan,
                             const sp_plan_place *place, const char *format, ...) SP_PRINTF(5, 6);

// Checks the rules of a plan, independent of how it was made: every slice of every sample that is
// not dropped or delayed in exactly one forward and one backward pack, both on the same ranks; pack
// order of each sample's slices (forward ascending, backward descending); slices cover [0, tokens)
// of the sample; each rank has for each of its packs and chunks one F, and one B or one I and one
// W; only known packs and chunks; each action after those it needs on its rank (F before the B, I,
// R, O of its slices, I before W, O before L before B; earlier slices of a sample first forward and
// last backward). Packs without slices only where the backward packs are the forward packs. A
// broken rule is a content error at `source` that names rule, pack and slice. Time and memory
// O(slices + actions), up to the sorting of the slices of one sample inside a pack.
SP_API sp_status sp_plan_check(const sp_plan *plan, const char *source, sp_error *err);
// The same with the JSON path of the plan inside `source` ("batches[0]"; "" for none).
sp_status sp_i_plan_check_at(const sp_plan *plan, const char *source, const char *path,
                             sp_error *err);

#endif
