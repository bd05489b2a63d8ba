// Time of an inventory's operators that depend on the token count alone: GEMMs, kernels bound by
// memory and TP collectives. Shared inside sim/cost.
#ifndef SLIMPACK_SIM_COST_TOKEN_TIME_H
#define SLIMPACK_SIM_COST_TOKEN_TIME_H

#include "sim/cost/op_time.h"
#include "sim/model/inventory.h"
#include "sim/model/stack.h"

// Seconds for the tokens of one rank. Of a collective counts what the stack does not hide: what is
// left to hide behind a GEMM goes down with each collective that does.
void sp_i_token_time(const sp_op_timer *timer, const sp_stack *stack, sp_group tp,
                     const sp_inventory *inventory, sp_pass pass, double local_tokens,
                     double *compute_s, double *tp_s);

// The QKV projection among them.
double sp_i_qkv_s(const sp_op_timer *timer, const sp_inventory *inventory, double local_tokens);

// Seconds per token below which no size of pack gets. Collectives that the stack may hide count
// nothing, and a profile may state the loss apart.
double sp_i_token_least_s(const sp_op_timer *timer, const sp_stack *stack, sp_group tp,
                          const sp_inventory *inventory, sp_pass pass);

#endif
