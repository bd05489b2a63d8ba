// Which data-parallel ranks run their packs together (DP-Merge), and what no choice of them can
// beat. Private to solver.
#ifndef SLIMPACK_SOLVER_SLIMPACK_RANK_GROUPS_H
#define SLIMPACK_SOLVER_SLIMPACK_RANK_GROUPS_H

#include <stdbool.h>
#include <stddef.h>

#include "sim/base/status.h"
#include "sim/cost/cost_model.h"
#include "solver/work.h"

// What it costs that data-parallel ranks run their packs together (merge_costs.c).
enum { SP_I_MERGE_LEVELS = 31 }; // powers of two in an int

typedef struct sp_i_merge_costs {
    int levels;                     // groups have 1, 2, 4, ... 2^(levels - 1) ranks
    double cost[SP_I_MERGE_LEVELS]; // rank-seconds for a second of work on one rank; cost[0] = 1
} sp_i_merge_costs;

// Groups of at most `most` ranks, each 5 % dearer than one rank, where nothing is known.
sp_i_merge_costs sp_i_merge_costs_assumed(int most);

// By the cost model, for slices of so many tokens of a sample of `tokens`: the exchange of keys and
// values among the merged ranks, inside a node or beyond, and what short shards lose. Groups of up
// to dp ranks; O(log dp) packs are priced.
sp_status sp_i_merge_costs_measure(sp_cost_model *cost, int64_t tokens, int64_t slice_tokens,
                                   sp_i_merge_costs *costs, sp_error *err);

// Leaves the groups that grow as long as a sample takes at least 5 % less time for it.
void sp_i_merge_costs_keep_worth(sp_i_merge_costs *costs);

// The largest power of two that is not above `number` >= 1.
int sp_i_power_of_two(int number);
int sp_i_merge_level(int ranks); // of a power of two

// Seconds that a group takes for a second of work.
double sp_i_merge_pace(const sp_i_merge_costs *costs, int ranks);

typedef struct sp_i_group_problem {
    const double *work_s; // [count] of the samples, descending
    const int *least;     // [count] ranks that a sample's tokens need, a power of two, descending
    size_t count;
    int dp;
    const sp_i_merge_costs *costs; // of which the largest group has dp ranks at most
    double merge_share; // of a rank's fair share, beyond which a sample is to have several ranks
} sp_i_group_problem;

// Sizes of the groups, powers of two, descending, so that groups side by side from rank 0 on are
// aligned: size [dp], of which as many are filled as it returns. First the longest samples get the
// least group in which none of them exceeds its share. Where the last group would still end late,
// because several such samples meet in a group that is too small for them, sizes are joined and
// split as long as the overload of all groups gets less. O(samples * log samples), in the second
// case times dp.
int sp_i_group_sizes(const sp_i_group_problem *p, int *size);

// No groups and no assignment of samples to them end earlier. To end by T a sample with more work
// than T, or with tokens that ask for it, runs in a group that is large enough, at the cost of
// merging; with these costs all ranks together have to have room for all work until T. The least
// such T, by bisection. Without merging: sp_i_makespan_bound_s.
double sp_i_group_bound_s(const sp_i_group_problem *p);

// ---- Samples to groups of ranks (rank_split.c) ----

// Neighbouring data-parallel ranks that run their packs together (DP-Merge), or one alone.
typedef struct sp_i_rank_group {
    int dp_first, dp_count;
    int32_t *sample; // [count], longest first; owned
    size_t count;
    double work_s; // of all its samples over its ranks
} sp_i_rank_group;

typedef struct sp_i_rank_split {
    sp_i_rank_group *groups;
    int count;
    sp_i_merge_costs costs;
    double bound_s; // no groups and no assignment have a smaller largest work_s
} sp_i_rank_split;

// Forward plus backward work to the ranks: longest processing time first, then exchanges between
// two ranks (makespan.h). A sample that exceeds `merge_share` of a rank's fair share, or has
// more tokens than `token_limit` (0: any), gets a power-of-two aligned group of ranks
// (sp_i_group_sizes) of the sizes and at the costs that are given; merge_share 0: no rank is
// merged. O(samples log samples), and the exchanges.
void sp_i_rank_split_priced(const sp_i_work *work, const sp_batch *batch, int dp,
                            const sp_i_merge_costs *costs, double merge_share, int64_t token_limit,
                            sp_i_rank_split *split);
double sp_i_rank_split_largest_s(const sp_i_rank_split *split);
// The largest group's work over that of a rank if all had the same and none were merged, less 1.
double sp_i_rank_split_excess(const sp_i_rank_split *split, int dp);
// The largest group's work over the bound, less 1.
double sp_i_rank_split_gap(const sp_i_rank_split *split);
// A copy of its own.
void sp_i_rank_split_copy(const sp_i_rank_split *from, sp_i_rank_split *to);
// Moves samples, the longest that fit first, of at most `work_s` seconds from one group to another;
// false where none is so small, or where it would leave the group without a sample.
bool sp_i_rank_split_move(const sp_i_work *work, const sp_batch *batch, sp_i_rank_split *split,
                          int from, int to, double work_s);
void sp_i_rank_split_fini(sp_i_rank_split *split);

// ---- Other groups for the same samples (rank_groupings.c) ----

enum { SP_I_GROUPINGS = 24 };

// Every split has groups with samples that are not those of `first`, nor of the others.
typedef struct sp_i_groupings {
    sp_i_rank_split split[SP_I_GROUPINGS];
    int count;
} sp_i_groupings;

// What merging costs depends on how long the slices are, and that is for a search of packs to find
// out: groups of up to 1, 2, 4, ... ranks at the costs of several lengths, those whose largest
// group has least work first. The other arguments are those of sp_i_rank_split_priced. O(log dp *
// log tokens) splits are made.
sp_status sp_i_groupings_make(sp_cost_model *cost, const sp_i_work *work, const sp_batch *batch,
                              double merge_share, int64_t token_limit, const sp_i_rank_split *first,
                              sp_i_groupings *groupings, sp_error *err);
void sp_i_groupings_fini(sp_i_groupings *groupings);

// Replaces, by integer programming, an assignment without merged ranks by a better one, or raises
// its bound, where there are few enough samples and its gap is larger than `gap` (negative: 1e-3).
// A limit of nodes and iterations ends the search, before it one of time in milliseconds
// (SP_I_NO_TIME_LIMIT: there is none; 0: none is left, and nothing is done).
sp_status sp_i_rank_split_prove(const sp_i_work *work, const sp_batch *batch, int64_t time_limit_ms,
                                double gap, sp_i_rank_split *split, sp_error *err);

#endif
