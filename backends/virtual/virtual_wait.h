// What an action waits for in virtual time.
#ifndef SLIMPACK_BACKENDS_VIRTUAL_VIRTUAL_WAIT_H
#define SLIMPACK_BACKENDS_VIRTUAL_VIRTUAL_WAIT_H

#include "backends/virtual/virtual_state.h"

// Did everything end that the action reads from actions before it, on its rank and on its
// neighbours? Where not, *awaited is the first that did not.
bool sp_i_virtual_ready(const sp_i_virtual_state *state, const sp_plan_place *place,
                        sp_plan_place *awaited);

// The action on the stage before (forward) or behind (backward) whose output this one reads; false
// where there is none.
bool sp_i_virtual_source(const sp_i_virtual_state *state, const sp_plan_place *place,
                         sp_plan_place *from);
// When such an action ended.
int64_t sp_i_virtual_source_ns(const sp_i_virtual_state *state, const sp_plan_place *from);

// Moves the start behind what the rank does before, and behind what the action reads; where not
// `own`, the rank is another one of the same merged pack. O(slices).
void sp_i_virtual_wait_rank(const sp_i_virtual_state *state, const sp_plan_place *place, bool own,
                            sp_i_virtual_start *start);
void sp_i_virtual_wait_inputs(const sp_i_virtual_state *state, const sp_plan_place *place, bool own,
                              sp_i_virtual_start *start);
// Start of a copy.
int64_t sp_i_virtual_copy_start(const sp_i_virtual_state *state, const sp_plan_place *place);

// Were all forward packs that a B or I reads recomputed by actions R?
bool sp_i_virtual_recomputed(const sp_i_virtual_state *state, const sp_plan_place *place);
// How long the rank waits for what the action sends; 0 where transfers do not block.
int64_t sp_i_virtual_sending_ns(const sp_i_virtual_state *state, const sp_plan_place *place);

#endif
