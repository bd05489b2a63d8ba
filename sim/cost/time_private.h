// What the time functions share inside sim/cost.
#ifndef SLIMPACK_SIM_COST_TIME_PRIVATE_H
#define SLIMPACK_SIM_COST_TIME_PRIVATE_H

#include <math.h>

#include "sim/base/units.h"
#include "sim/cost/op_time.h"
#include "sim/model/inventory.h"
#include "sim/model/stack.h"

// Times stop here (three years), so that sums of nanoseconds fit int64_t whatever a profile says.
#define SP_I_MOST_S 1e8

static inline int64_t sp_i_cut_ns(double s)
{
    return sp_ns_from_s(fmin(s, SP_I_MOST_S));
}

// FLOPs per pair and element of a head: QK^T and PV forward; backward QK^T again, dV, dP, dQ, dK.
#define SP_I_FORWARD_FLOPS_PER_PAIR 4.0
#define SP_I_BACKWARD_FLOPS_PER_PAIR 10.0

// Notes x for the `uncalibrated` list if it lies outside [first, last].
void sp_i_note_range(const sp_op_timer *timer, sp_range_kind kind, double x, double first,
                     double last);

// The table of times for this n and k, or NULL.
const sp_gemm_table *sp_i_gemm_table(const sp_profile *profile, sp_gemm_pass pass, double n,
                                     double k);

// Seconds per byte below which no collective of this kind over this group gets, however large:
// without latency, at the best bus bandwidth of the table.
double sp_i_collective_least_s_per_byte(const sp_op_timer *timer, sp_collective kind,
                                        sp_group group);

static inline bool sp_i_has_algorithm(const sp_profile *profile, sp_collective kind)
{
    return profile->algorithm != SP_ALGORITHM_PROFILE && kind != SP_ALL_TO_ALL;
}

// sp_time_collective and the one above of a group of several, by the algorithm that a scenario
// chose (collective_algorithm.c).
double sp_i_time_by_algorithm(const sp_op_timer *timer, sp_collective kind, sp_group group,
                              double bytes);
double sp_i_algorithm_least_s_per_byte(const sp_op_timer *timer, sp_collective kind,
                                       sp_group group);

// A time that is linear in bytes.
typedef struct sp_i_line {
    double latency_s, s_per_byte;
} sp_i_line;

// Collectives by algorithm as flows that meet no other, where a spine or PCIe slows those
// (lone_lines.c).
typedef struct sp_i_lone_lines {
    bool is_slowed[SP_COLLECTIVES][SP_ALGORITHM_AUTO];
    sp_i_line of[SP_COLLECTIVES][SP_ALGORITHM_AUTO];
} sp_i_lone_lines;

// The ring of a group of several by rates of links alone (collective.c).
sp_i_line sp_i_ring_line(const sp_op_timer *timer, sp_collective kind, sp_group group);
// Up and down a tree over the nodes, a chain inside each.
double sp_i_tree_latency_s(const sp_op_timer *timer, sp_group group);

// sp_time_collective as the profile has it, whatever algorithm a scenario chose: of what goes round
// a ring by sends.
double sp_i_time_by_profile(const sp_op_timer *timer, sp_collective kind, sp_group group,
                            double bytes);

// One GPU's share of the NICs of its node; 0: the cluster names none.
double sp_i_nic_share_bytes_per_s(const sp_op_timer *timer);

// The last TP collective of each kind that was timed for a token count; NULL: none was. Parts and
// passes have the same ones.
typedef struct sp_i_timed_collectives {
    const sp_op *op[SP_COLLECTIVES];
    double once_s[SP_COLLECTIVES];
} sp_i_timed_collectives;

// Time of an inventory's operators that depend on the token count alone: GEMMs, kernels bound by
// memory and TP collectives (token_time.c). Seconds for the tokens of one rank. Of a collective
// counts what the stack does not hide: what is left to hide behind a GEMM goes down with each
// collective that does.
void sp_i_token_time(const sp_op_timer *timer, const sp_stack *stack, sp_group tp,
                     const sp_inventory *inventory, sp_pass pass, double local_tokens,
                     sp_i_timed_collectives *timed, double *compute_s, double *tp_s);

// The QKV projection among them.
double sp_i_qkv_s(const sp_op_timer *timer, const sp_inventory *inventory, double local_tokens);

// Seconds per token below which no size of pack gets. Collectives that the stack may hide count
// nothing, and a profile may state the loss apart.
double sp_i_token_least_s(const sp_op_timer *timer, const sp_stack *stack, sp_group tp,
                          const sp_inventory *inventory, sp_pass pass);

#endif
