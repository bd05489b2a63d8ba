// Measured times of collectives by group size (profile.h, sp_collective_table). Shared inside
// sim/cost.
#ifndef SLIMPACK_SIM_COST_COLLECTIVE_TIMES_H
#define SLIMPACK_SIM_COST_COLLECTIVE_TIMES_H

#include "sim/cost/op_time.h"

bool sp_i_has_collective_times(const sp_op_timer *timer, sp_collective kind);

// Of a kind that has tables: seconds over `ranks` of one node. Between the group sizes of two
// tables times are linear in log2 of the ranks; beyond them the nearest table's goes with the share
// (n-1)/n of a tensor that a rank gets from others. Below a table's points the time stays, above
// them it is in proportion to the bytes. O(tables).
double sp_i_collective_times(const sp_op_timer *timer, sp_collective kind, int ranks, double bytes);

// Seconds per byte below which it does not get.
double sp_i_collective_times_least(const sp_op_timer *timer, sp_collective kind, int ranks);

#endif
