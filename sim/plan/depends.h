// The rules of a plan, which stand here and nowhere else: what an action reads, on its own rank and
// from another one, what it leaves and releases, which ranks run it together, and which actions
// need a share of the vocabulary of every pipeline rank. The walk (walk.h), the memory timeline and
// the executors follow them; dependencies.h enumerates by them what each action waits for, by which
// the walk is checked.
#ifndef SLIMPACK_SIM_PLAN_DEPENDS_H
#define SLIMPACK_SIM_PLAN_DEPENDS_H

#include "sim/base/alloc.h"
#include "sim/plan/plan.h"

// Beside the rules their index: tables of what actions gave have an entry for each pack on each of
// its data-parallel ranks (a slot) and virtual stage.
typedef struct sp_depends {
    const sp_plan *plan;          // not owned
    const sp_pack_list *packs[2]; // forward packs, backward packs
    int vstages;
    int *vstage_of;          // [pp * chunks], by rank, then chunk
    int *rank_of, *chunk_of; // [vstages]
    int32_t *forward_pack; // of each slice of regrouped backward packs; NULL: they are the forward
    size_t slots[2];
    size_t *base[2]; // of each pack: the slot that data-parallel rank 0 would have
    bool merged;     // some pack lies on several data-parallel ranks
    sp_arena work;   // holds the tables but forward_pack
} sp_depends;

enum { SP_NOT_YET = -1 }; // in a table of ends: not known

// The plan must have passed sp_plan_check. Packs of data-parallel ranks of which `runs`, [dp], is 0
// get no slots; NULL: all run. O(packs), and O(slices * log slices) where packs are regrouped.
void sp_depends_init(sp_depends *depends, const sp_plan *plan, const uint8_t *runs);
void sp_depends_fini(sp_depends *depends);

// A table for the forward packs (0) or the backward packs (1), SP_NOT_YET everywhere; freed with
// sp_free.
int64_t *sp_depends_timestamps(const sp_depends *depends, int side);

static inline const sp_pack *sp_depends_pack(const sp_depends *depends, sp_action action)
{
    return &depends->packs[sp_action_is_backward(action)]->packs[action.pack];
}

static inline int sp_depends_vstage(const sp_depends *depends, int pp, sp_action action)
{
    return depends->vstage_of[pp * depends->plan->layout.chunks + action.chunk];
}

// Where a pack on a data-parallel rank stands in the tables of its side: its slot, and with a
// virtual stage its entry.
static inline size_t sp_depends_slot(const sp_depends *depends, sp_action action, int dp)
{
    return depends->base[sp_action_is_backward(action)][action.pack] + (size_t)dp;
}

static inline size_t sp_depends_entry(const sp_depends *depends, sp_action action, int dp,
                                      int vstage)
{
    return sp_depends_slot(depends, action, dp) * (size_t)depends->vstages + (size_t)vstage;
}

// Do the ranks that share the tokens of a pack run the action together? They do forwards, backwards
// and repeats, whose attention exchanges keys and values; they copy their parts, and make weight
// gradients of them, each at its own time.
static inline bool sp_depends_is_joint(sp_action action)
{
    return !sp_action_is_copy(action) && action.kind != SP_ACTION_W;
}

// Does each data-parallel rank of the pack run it by itself: is it not joint, or has the pack one
// rank alone?
static inline bool sp_depends_alone(const sp_pack *pack, sp_action action)
{
    return pack->dp_count == 1 || !sp_depends_is_joint(action);
}

// Neighbouring data-parallel ranks.
typedef struct sp_dp_ranks {
    int first, count;
} sp_dp_ranks;

// The data-parallel ranks that run an action of the pack together with rank `dp`: all of the pack
// or this one alone.
static inline sp_dp_ranks sp_depends_together(const sp_pack *pack, sp_action action, int dp)
{
    bool joint = sp_depends_is_joint(action);
    sp_dp_ranks ranks = {joint ? pack->dp_first : dp, joint ? pack->dp_count : 1};
    return ranks;
}

// The forward packs whose units a B, I, R, O or L touches on its own rank and virtual stage: how
// many, and the i-th. A B or I reads what their F gave, a repeat and a copy to the host too. An F
// reads none, nor does a W, which takes what the I before it left.
static inline size_t sp_depends_reads(const sp_depends *depends, sp_action action)
{
    if (action.kind == SP_ACTION_F || action.kind == SP_ACTION_W) {
        return 0;
    }
    bool regrouped = depends->forward_pack != NULL && sp_action_is_backward(action);
    return regrouped ? sp_depends_pack(depends, action)->slice_count : 1;
}

static inline int32_t sp_depends_read(const sp_depends *depends, sp_action action, size_t i)
{
    bool regrouped = depends->forward_pack != NULL && sp_action_is_backward(action);
    return regrouped ? depends->forward_pack[sp_depends_pack(depends, action)->first_slice + i]
                     : action.pack;
}

// Does the action pass hidden states on, or their gradients back?
static inline bool sp_depends_passes(sp_action action)
{
    return action.kind == SP_ACTION_F || action.kind == SP_ACTION_B || action.kind == SP_ACTION_I;
}

// The virtual stage whose output an action of stage `vstage` reads: for F the stage before, for B
// and I, which stand for each other, the stage behind; -1: none.
static inline int sp_depends_source(const sp_depends *depends, sp_action action, int vstage)
{
    bool backward = action.kind == SP_ACTION_B || action.kind == SP_ACTION_I;
    int source = action.kind == SP_ACTION_F ? vstage - 1 : backward ? vstage + 1 : -1;
    return source < depends->vstages ? source : -1;
}

// The action of another virtual stage for the same pack, as `place` has its kind.
static inline sp_plan_place sp_depends_at(const sp_depends *depends, const sp_plan_place *place,
                                          int vstage)
{
    sp_plan_place at = *place;
    at.pp = depends->rank_of[vstage];
    at.action.chunk = (uint16_t)depends->chunk_of[vstage];
    return at;
}

// The action whose output an action reads; false: none.
static inline bool sp_depends_from(const sp_depends *depends, const sp_plan_place *place,
                                   sp_plan_place *from)
{
    int vstage = sp_depends_vstage(depends, place->pp, place->action);
    int source = sp_depends_source(depends, place->action, vstage);
    if (source >= 0) {
        *from = sp_depends_at(depends, place, source);
    }
    return source >= 0;
}

// The i-th action whose end `place` waits for beside the order of its rank's list; false: there are
// no more. A copy waits for what it copies; a B, I or R for the copies back of what it reads, of
// which the plan may have none, and a pass for the output of another virtual stage.
bool sp_depends_input(const sp_depends *depends, const sp_plan_place *place, size_t i,
                      sp_plan_place *input);

// The virtual stage that reads what the action gives; -1: none.
static inline int sp_depends_target(const sp_depends *depends, sp_action action, int vstage)
{
    bool backward = action.kind == SP_ACTION_B || action.kind == SP_ACTION_I;
    int target = action.kind == SP_ACTION_F ? vstage + 1 : backward ? vstage - 1 : -1;
    return target < depends->vstages ? target : -1;
}

// ---- What an action leaves ----

// The activations that one unit of a rank (a forward pack on one of its chunks) holds between
// actions.
typedef enum sp_unit_holds {
    SP_HOLDS_NOTHING,
    SP_HOLDS_ALL,
    SP_HOLDS_RESIDENT, // all but what is offloaded
    SP_HOLDS_LOADED,   // what came back being in a buffer, beside what is rebuilt from that
    SP_HOLDS_REPEAT,   // what the repeat of a forward that runs again needs
    SP_HOLDS_WEIGHTS   // what the weight gradient needs
} sp_unit_holds;

// The activations that a unit holds after an action: as soon as an F, R or L begins, when a B, I, W
// or O ends. A forward of which the plan has an R `runs_again`.
static inline sp_unit_holds sp_depends_left(sp_action action, bool runs_again)
{
    switch (action.kind) {
    case SP_ACTION_F:
        return runs_again ? SP_HOLDS_REPEAT : SP_HOLDS_ALL;
    case SP_ACTION_R:
        return SP_HOLDS_ALL;
    case SP_ACTION_I:
        return SP_HOLDS_WEIGHTS;
    case SP_ACTION_O:
        return SP_HOLDS_RESIDENT;
    case SP_ACTION_L:
        return SP_HOLDS_LOADED;
    default: // B and W
        return SP_HOLDS_NOTHING;
    }
}

// Does a backward leave the weight gradients, and what they need, to a W?
static inline bool sp_depends_splits(sp_action action)
{
    return sp_depends_left(action, false) == SP_HOLDS_WEIGHTS;
}

// ---- A vocabulary that pipeline ranks share (walk.h) ----

typedef enum sp_share_part {
    SP_SHARE_HEAD,               // logits and loss
    SP_SHARE_EMBEDDING_BACKWARD, // gradient of the table
    SP_SHARE_EMBEDDING,
    SP_SHARE_HEAD_BACKWARD // gradients of the hidden states and of the table
} sp_share_part;

// One rank's share of the work for one pack. Of the embedding the first stage's rank has its share
// in that stage's actions; of the head the last stage's rank has it beside its actions, just behind
// the forward and just before the backward. Weight gradients of the head that are split off are
// part of each rank's own W of the pack.
typedef struct sp_share {
    sp_share_part part;
    // The stage's action, with the chunk in which this rank has its share, and as B or I what this
    // rank does on that chunk.
    sp_action action;
    bool own;      // the rank runs the stage's action itself
    size_t before; // it stands before this one of the rank's actions; their number: at the end
} sp_share;

typedef struct sp_shares {
    sp_share *items; // rank after rank, by place; NULL: none
    size_t *first;   // [dp * pp + 1]
} sp_shares;

// Do pipeline ranks share a vocabulary?
bool sp_shares_are(const sp_layout *layout);

// The shares of one rank.
const sp_share *sp_shares_of(const sp_shares *shares, const sp_layout *layout, int dp, int pp,
                             size_t *count);

// The work for which an action of this virtual stage needs all ranks; false where it needs none.
bool sp_share_part_of(const sp_layout *layout, int vstage, sp_action action, sp_share_part *part);
// For an action of the plan; false also where its pack has no tokens, for then there are no shares.
bool sp_action_is_shared(const sp_plan *plan, int pp, sp_action action, sp_share_part *part);
// The virtual stage whose actions these are.
int sp_share_stage(const sp_layout *layout, sp_share_part part);

// Does the stage's action wait for the shares (embedding, head backward), or they for it?
static inline bool sp_share_comes_first(sp_share_part part)
{
    return part == SP_SHARE_EMBEDDING || part == SP_SHARE_HEAD_BACKWARD;
}

#endif
