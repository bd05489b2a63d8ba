// What ZeRO 2 and 3 exchange between data-parallel ranks inside a step (Rajbhandari et al., ZeRO,
// arXiv 1910.02054, sections 5 and 7; PyTorch FSDP, arXiv 2304.11277, section 3). ZeRO 2 scatters
// the gradients of each unit (embedding, layer, head) after its backward; ZeRO 3 also gathers its
// parameters before every forward and before every backward. Shared inside sim/cost.
#ifndef SLIMPACK_SIM_COST_ZERO_H
#define SLIMPACK_SIM_COST_ZERO_H

#include "sim/cost/cost_model.h"
#include "sim/cost/pack_time.h"
#include "sim/cost/step_costs.h"

// Fill dp_ns of a pack's actions on a stage: what nothing hides. A gather runs behind the unit
// before, a scatter behind the unit after, behind all that the unit takes: computation and the
// exchanges of tensor and context parallelism that it waits for. A gather and a scatter at one time
// share the network; the first gather and the last scatter stand alone. Other data-parallel ranks
// are not waited for. O(layers).
void sp_i_zero_forward(const sp_cost_model *cost, const sp_op_timer *timer, const sp_stage *stage,
                       const sp_i_pack_time *time, sp_action_cost *f);
// The whole backward, its halves, and a recomputation apart, which gathers for itself.
void sp_i_zero_backward(const sp_cost_model *cost, const sp_op_timer *timer, const sp_stage *stage,
                        const sp_i_pack_time *time, sp_action_cost *b, sp_action_cost *i,
                        sp_action_cost *w, sp_action_cost *r);

#endif
