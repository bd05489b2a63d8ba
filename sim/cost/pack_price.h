// What the actions of one pack take on one virtual stage, from the times of its parts. Shared
// inside sim/cost.
#ifndef SLIMPACK_SIM_COST_PACK_PRICE_H
#define SLIMPACK_SIM_COST_PACK_PRICE_H

#include "sim/cost/cost_model.h"
#include "sim/cost/pack_time.h"

// Whole backward, input gradient, weight gradient, and the recomputation that b and i contain.
typedef struct sp_i_backward_price {
    sp_action_cost b, i, w, r;
} sp_i_backward_price;

sp_action_cost sp_i_price_forward(const sp_cost_model *cost, const sp_op_timer *timer,
                                  const sp_pack *pack, const sp_i_pack_time *time,
                                  const sp_stage *stage);
sp_i_backward_price sp_i_price_backward(const sp_cost_model *cost, const sp_op_timer *timer,
                                        const sp_pack *pack, const sp_i_pack_time *time,
                                        const sp_stage *stage);

// The time of its whole backward (w_ns: 0) alone or, `split`, of both gradients.
void sp_i_price_backward_ns(const sp_cost_model *cost, const sp_op_timer *timer,
                            const sp_pack *pack, const sp_i_pack_time *time, const sp_stage *stage,
                            bool split, int64_t *b_ns, int64_t *w_ns);

// Seconds of an action that runs these passes (bits 1 << pass), without what sharded parameters
// (ZeRO) add.
double sp_i_price_passes_s(const sp_cost_model *cost, const sp_i_pack_time *time,
                           const sp_stage *stage, unsigned passes);

#endif
