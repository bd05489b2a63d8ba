// What it costs that data-parallel ranks run their packs together (DP-Merge). Private to solver.
#ifndef SLIMPACK_SOLVER_MERGE_COSTS_H
#define SLIMPACK_SOLVER_MERGE_COSTS_H

#include "sim/cost/cost_model.h"

enum { SP_I_MERGE_LEVELS = 31 }; // powers of two in an int

typedef struct sp_i_merge_costs {
    int levels;                     // groups have 1, 2, 4, ... 2^(levels - 1) ranks
    double cost[SP_I_MERGE_LEVELS]; // rank-seconds for a second of work on one rank; cost[0] = 1
} sp_i_merge_costs;

// Groups of at most `most` ranks, each 5 % dearer than one rank, where nothing is known.
sp_i_merge_costs sp_i_merge_costs_assumed(int most);

// By the cost model, for slices of a sample of so many tokens: the exchange of keys and values
// among the merged ranks, inside a node or beyond, and what short shards lose. Groups grow as long
// as a sample takes at least 5 % less time for it. O(log dp) packs are priced.
sp_status sp_i_merge_costs_measure(sp_cost_model *cost, int64_t tokens, sp_i_merge_costs *costs,
                                   sp_error *err);

// The largest power of two that is not above `number` >= 1.
int sp_i_power_of_two(int number);
int sp_i_merge_level(int ranks); // of a power of two

// Seconds that a group takes for a second of work.
double sp_i_merge_pace(const sp_i_merge_costs *costs, int ranks);

#endif
