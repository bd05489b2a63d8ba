// The state of a run in virtual time.
#ifndef SLIMPACK_BACKENDS_VIRTUAL_VIRTUAL_STATE_H
#define SLIMPACK_BACKENDS_VIRTUAL_VIRTUAL_STATE_H

#include <stddef.h>

#include "backends/virtual/virtual_clock.h"

enum { SP_I_NOT_YET = -1 }; // an end that is not known

typedef struct sp_i_virtual_lane {
    size_t done; // actions
    size_t shares_done;
    int64_t end_ns;      // of the last action other than a copy
    int64_t sending_ns;  // how long the rank then waits for what it sends
    int64_t last_out_ns; // end of the last O, SP_I_NOT_YET before
    int64_t last_back_ns;
    int64_t leaving_ns; // end of the O that the next action waits for, or SP_I_NOT_YET
    bool computed;      // something other than a copy ran
    bool stalled;       // its next action never ends
    bool queued;
} sp_i_virtual_lane;

// The start of an action as its inputs become known.
typedef struct sp_i_virtual_start {
    int64_t at_ns;
    int64_t sent_ns;    // the rank's own sends
    int64_t awaited_ns; // the transfer in flight that decided the start
} sp_i_virtual_start;

// Tables of ends are indexed by sp_i_virtual_index.
typedef struct sp_i_virtual_state {
    const sp_plan *plan;
    const sp_virtual_driver *driver;
    sp_timeline *timeline; // may be NULL
    const sp_pack_list *backward;
    size_t vstages, lane_count;
    size_t *forward_slot, *backward_slot; // of a pack on its first rank
    int64_t *forward_ns, *backward_ns;
    int64_t *out_ns, *back_ns;  // ends of O and L, by forward slot
    uint8_t *recomputed;        // by forward slot: an R ran
    int32_t *needs;             // of regrouped packs: the forward pack of each backward slice
    sp_i_virtual_lane *lanes;   // [dp * pp]
    sp_i_virtual_start *starts; // [dp]: of the ranks of a merged pack
    size_t *queue;              // ring of lanes to visit
    size_t queue_begin, queue_count;
    // Of a vocabulary that pipeline ranks share; the tables NULL where nothing is shared.
    sp_shares shares;
    const sp_share **found;   // [dp * pp]: of the action that runs
    sp_action_cost *took;     // [dp * pp]
    int64_t *ready_ns;        // [dp]: when it has the shares that it waits for
    int64_t *head_ns;         // [forward slots * pp]: ends of the shares of the head
    sp_virtual_outcome *gave; // [dp]: what running an action gave
    int64_t limit_ns;         // that no end may pass
} sp_i_virtual_state;

sp_status sp_i_virtual_init(sp_i_virtual_state *state, const sp_plan *plan,
                            const sp_virtual_driver *driver, sp_timeline *timeline, sp_error *err);
void sp_i_virtual_fini(sp_i_virtual_state *state);

bool sp_i_virtual_is_backward(sp_action action); // of a backward pack: B, I, W
bool sp_i_virtual_is_copy(sp_action action);
// Does each rank of a pack run it by itself? The ranks of a merged pack copy their shares, and make
// weight gradients of them, each at its own time.
bool sp_i_virtual_is_alone(const sp_pack *pack, sp_action action);
const sp_pack *sp_i_virtual_pack(const sp_i_virtual_state *state, sp_action action);
int sp_i_virtual_vstage(const sp_i_virtual_state *state, const sp_plan_place *place);
// Where a pack on a rank and virtual stage stands in the tables of its side.
size_t sp_i_virtual_index(const sp_i_virtual_state *state, sp_action action, int dp, int vstage);
sp_i_virtual_lane *sp_i_virtual_lane_of(const sp_i_virtual_state *state, int dp, int pp);

// The forward packs whose units an action reads: how many, and the i-th.
size_t sp_i_virtual_reads(const sp_i_virtual_state *state, sp_action action);
int32_t sp_i_virtual_read(const sp_i_virtual_state *state, sp_action action, size_t i);

#endif
