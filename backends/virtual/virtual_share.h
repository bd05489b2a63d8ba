// Shares of a vocabulary (sim/plan/vocab_shares.h) in virtual time. All ranks compute theirs
// when the stage's action runs, each at its own place among its actions; when each would have run
// follows from how long it took.
#ifndef SLIMPACK_BACKENDS_VIRTUAL_VIRTUAL_SHARE_H
#define SLIMPACK_BACKENDS_VIRTUAL_VIRTUAL_SHARE_H

#include "backends/virtual/virtual_state.h"

// Does the rank stand before a share of another rank's action? *awaited is that action.
bool sp_i_virtual_share_pending(const sp_i_virtual_state *state, int dp, int pp,
                                sp_plan_place *awaited);
// Do all other pipeline ranks stand before their shares of an action, where it has any?
bool sp_i_virtual_share_ready(const sp_i_virtual_state *state, const sp_plan_place *place,
                              sp_plan_place *awaited);
// Takes the shares of an action about to run; they are there until the last call below.
void sp_i_virtual_share_take(sp_i_virtual_state *state, const sp_plan_place *place);
// Those taken, [pp], behind them those of the next data-parallel rank; NULL: there are none.
const sp_share **sp_i_virtual_share_taken(const sp_i_virtual_state *state,
                                          const sp_plan_place *place);

// Once it has run: what shares took, [pp], goes to the timeline. First those that the action waits
// for, moving its rank behind its own; then the start of the action moves behind all of them; when
// its end is known, those that wait for it.
void sp_i_virtual_share_before(sp_i_virtual_state *state, const sp_plan_place *place,
                               const sp_action_cost *took);
void sp_i_virtual_share_wait(const sp_i_virtual_state *state, const sp_plan_place *place,
                             sp_i_virtual_start *start);
void sp_i_virtual_share_after(sp_i_virtual_state *state, const sp_plan_place *place,
                              const sp_action_cost *took);

#endif
