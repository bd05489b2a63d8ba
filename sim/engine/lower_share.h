// Lowering of the shares of a vocabulary (sim/plan/vocab_shares.h): tasks of their own.
#ifndef SLIMPACK_SIM_ENGINE_LOWER_SHARE_H
#define SLIMPACK_SIM_ENGINE_LOWER_SHARE_H

#include "sim/engine/lowering.h"

// Has what a share of the lane reads been lowered? A share of the head reads the last stage's
// hidden states, one of its backward every rank's share of the head, one of the embedding's
// gradient what the first stage leaves; one of the embedding reads tokens alone.
bool sp_i_lower_share_ready(const sp_i_lowering *low, size_t lane, const sp_share *share);
uint32_t sp_i_lower_share(sp_i_lowering *low, size_t lane, const sp_share *share);

// The same for the stage's action that needs all shares: the first stage's forward those of the
// embedding, the last stage's backward those of the head's.
bool sp_i_lower_end_ready(const sp_i_lowering *low, sp_action action, int dp, int pp_rank);
void sp_i_lower_end_edges(sp_i_lowering *low, sp_action action, int dp, int pp_rank);
// Notes the task of an action that shares wait for.
void sp_i_lower_end_input(sp_i_lowering *low, sp_action action, int dp, int pp_rank, uint32_t task);

#endif
