// SlimPack's planner (arXiv 2509.26246): samples are given to data-parallel ranks or to groups of
// them, then the samples of each are cut and packed.
#ifndef SLIMPACK_SOLVER_SLIMPACK_SLIMPACK_SEARCH_H
#define SLIMPACK_SOLVER_SLIMPACK_SLIMPACK_SEARCH_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "sim/base/alloc.h"
#include "sim/base/status.h"
#include "sim/cost/cost_model.h"
#include "sim/plan/packing.h"
#include "sim/scenario/scenario.h"
#include "sim/schedule/packflow.h"
#include "solver/mip.h"
#include "solver/rows.h"
#include "solver/step/step.h"
#include "solver/strategy.h"

// Samples are weighed by the time of a token in packs of so many.
enum { SP_I_TYPICAL_TOKENS = 4096 };

// ---- jobs on machines ----

// Jobs are samples, machines are data-parallel ranks or groups of them.
//
// The last of machines of equal or different speed ends as early as can be: P||Cmax and Q||Cmax of
// scheduling theory.
typedef struct sp_i_makespan {
    const double *work_s; // [jobs] >= 0, descending
    const int *least;     // [jobs]: size of the smallest machine that may take it; NULL: any
    size_t jobs;
    const int *size;    // [machines], descending; the largest machines take every job
    const double *pace; // [machines]: seconds for a second of work, the same for the same size
    int machines;
    int *machine_of; // [jobs], result
    double *load_s;  // [machines], result: when each machine ends
} sp_i_makespan;

// Longest processing time first (R. L. Graham, SIAM J. Appl. Math. 17 (1969); for machines of
// different speed T. Gonzalez, O. Ibarra and S. Sahni, SIAM J. Comput. 6 (1977)): each job goes
// where it ends first, of equal places to the smallest machine, then to the first. `heap`
// [machines] is working memory. O(jobs * sizes * log machines).
void sp_i_makespan_longest_first(sp_i_makespan *m, int *heap);

// Local search from the machine_of that is there: jobs of the machine that ends last are moved to
// or exchanged with those of another, always the exchange that levels the two best, until none
// helps (G. Finn and E. Horowitz, BIT 19 (1979), for moves) or the last machine ends by `stop_s`.
// Never worse than before. O(jobs) memory; an exchange is O(jobs of the two machines) to find.
void sp_i_makespan_exchange(sp_i_makespan *m, double stop_s);

double sp_i_makespan_largest_s(const sp_i_makespan *m);

// No assignment of jobs to machines of equal speed ends earlier: the mean, the longest job, and for
// every k the k + 1 smallest of the k * machines + 1 longest jobs, of which one machine has to take
// as many. O(jobs).
double sp_i_makespan_bound_s(const double *work_s, size_t jobs, int machines);

// ---- samples to ranks of equal speed by an integer program (makespan.c) ----

// Improves what longest-first and exchanges find for a few dozen samples, or proves that little or
// nothing is left to win.

typedef struct sp_i_assignment_options {
    int64_t time_limit_ms;               // of the integer program; <= 0: none is solved
    int64_t node_limit, iteration_limit; // as in sp_i_mip_options
    double gap;                          // (largest - bound) / largest that is good enough
} sp_i_assignment_options;

typedef struct sp_i_assignment {
    // OPTIMAL: within the gap, or 1e-6 where that is smaller. FEASIBLE: a limit was hit before.
    sp_i_mip_outcome outcome;
    bool timed_out;
    double heuristic_s; // largest work of the heuristic
    double largest_s;   // of what is returned, never more than that
    double bound_s;     // no assignment has a smaller largest work
} sp_i_assignment;

// Fills rank [count] for samples of work_s [count] >= 0 in any order. First the heuristic; the
// program is solved where its result is not within the gap of the bound, and asked only for what
// is better by at least the gap. Where it ends by time its result is still valid, but not the same
// on every machine. Beyond 32,767 variables the heuristic's result is returned.
// Errors: what sp_i_mip_solve says.
sp_status sp_i_assignment_solve(const double *work_s, size_t count, int ranks,
                                const sp_i_assignment_options *options, int *rank,
                                sp_i_assignment *result, sp_error *err);

// The program itself, for samples in descending order: column 0 is the largest work over `unit_s`,
// bounded by least and most; then for every class of equal samples and every rank that it may go to
// how many of them go there.
//
// Ranks are alike, so they can be numbered by their longest sample: the k-th longest goes to one of
// the first k ranks, which leaves one of most solutions' ranks! copies.
typedef struct sp_i_assignment_model {
    const double *work_s; // [count], descending
    size_t count;
    int ranks;
    double unit_s, least, most;
} sp_i_assignment_model;

void sp_i_assignment_write(const sp_i_assignment_model *model, sp_i_mip *mip);

// rank [count] of the samples in descending order, from the columns' values.
void sp_i_assignment_read(const sp_i_assignment_model *model, const double *value, int *rank);

// ---- groups of ranks ----

// Which data-parallel ranks run their packs together (DP-Merge), and what no choice of them can
// beat.

// The costs of data-parallel ranks that run their packs together.
enum { SP_I_MERGE_LEVELS = 31 }; // powers of two in an int

typedef struct sp_i_merge_costs {
    int levels;                     // groups have 1, 2, 4, ... 2^(levels - 1) ranks
    double cost[SP_I_MERGE_LEVELS]; // rank-seconds for a second of work on one rank; cost[0] = 1
} sp_i_merge_costs;

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
// two ranks (slimpack_search.h). A sample that exceeds `merge_share` of a rank's fair share, or has
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

// ---- other groups for the same samples (rank_split.c) ----

enum { SP_I_GROUPINGS = 24 };

// Every split has groups with samples that are not those of `first`, nor of the others.
typedef struct sp_i_groupings {
    sp_i_rank_split split[SP_I_GROUPINGS];
    int count;
} sp_i_groupings;

// The cost of merging depends on how long the slices are, which a search of packs has to find out:
// groups of up to 1, 2, 4, ... ranks at the costs of several lengths, those whose largest group has
// least work first. The other arguments are those of sp_i_rank_split_priced. O(log dp * log tokens)
// splits are made.
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

// ---- micropacks ----

// MicroPacks of one data-parallel rank (SlimPack, arXiv 2509.26246): samples, the long ones cut
// into slices, in packs of prescribed work that grow at the start and shrink at the end.

// ---- The shape of one rank's packs: how much work each of them has ----

// The work of packs in a row, relative to the largest: `rise` packs that grow by `grow` each,
// `flat` largest ones, and `fall` packs that shrink by `shrink` each. At least one in all.
typedef struct sp_i_taper {
    int rise, flat, fall;
    double grow, shrink;
} sp_i_taper;

enum { SP_I_RETAINS_NONE = -1 };

// The shape of a rank's packs.
typedef struct sp_i_shape {
    sp_i_taper forward;
    bool regrouped;       // backward packs are a partition of their own, by backward work
    sp_i_taper backward;  // its taper
    int doublings;        // samples up to the work of 2^doublings mean packs stay whole
    double shorts_first;  // share of the short samples' work that comes before the long samples
    int64_t slice_tokens; // long samples are cut at multiples of it
    // Packs at the end of each block (below) that keep their activations; the forwards of the
    // others run again before their backwards, which mirror the forward packs. 0: all keep them,
    // SP_I_RETAINS_NONE: no pack does.
    int retained;
} sp_i_shape;

// Cumulative targets of packs by a taper, in the unit of `total`: target[packs of the taper].
int sp_i_taper_packs(const sp_i_taper *taper);
void sp_i_taper_targets(const sp_i_taper *taper, double total, double *target);

// ---- backward packs, from the forward packs ----

// For each backward pack of one rank the last forward pack, counted on the rank, that it waits for.
typedef struct sp_i_needs {
    int32_t *pack;
    size_t count, capacity;
} sp_i_needs;

// Forward pack k and the next one belong to one block where tied[k]: a sample continues from one
// into the other. Both append what the backward packs wait for to `needs` unless that is NULL.

// One backward pack for each forward pack.
void sp_i_backward_mirror(const uint8_t *tied, int retained, sp_packing *packing,
                          sp_i_needs *needs);

// Packs of the backward work that the shape's backward taper asks for. Where one ends inside a
// slice of a cut sample, the slice becomes two, in its forward pack as well.
void sp_i_backward_regroup(const sp_i_work *work, const sp_i_shape *shape, const uint8_t *tied,
                           sp_packing *packing, sp_i_needs *needs);

// ---- MicroPacks ----

// One rank's samples, longest first.
typedef struct sp_i_rank_samples {
    const int32_t *sample; // indices into the batch
    size_t count;
    int dp_first, dp_count; // where they run; more than one: merged
} sp_i_rank_samples;

// Fills the forward packs and the backward packs of one rank, and unless it is NULL what these wait
// for, into an initialised packing without packs. Packs that a cut sample ties together form a
// block; the blocks run backward in the order of the forward, the slices of each in reverse, so
// that every backward finds its later slices done. O(samples log samples + packs).
void sp_i_micropacks_make(const sp_i_work *work, const sp_batch *batch,
                          const sp_i_rank_samples *rank, const sp_i_shape *shape,
                          sp_packing *packing, sp_i_needs *needs);

// Appends the packs of one rank to those of a batch.
sp_status sp_i_micropacks_append(const sp_packing *rank, sp_packing *packing, sp_error *err);

// ---- shapes ----

// The search for the shape of one rank's packs: shapes are tried one after the other, each judged
// by a run of PackFlow over the cost model's times, and the fastest that fits in memory is taken.
//

// The score of a packing that was asked for before: shapes that differ often make equal packs.
enum { SP_I_SCORES = 1024 };

typedef struct sp_i_score {
    uint64_t key; // of the packs and of all that is asked; 0: none. Packs of one key count as equal
    bool exact;   // else no better than what it was asked against
    sp_packflow_outcome outcome;
} sp_i_score;

// How long PackFlow takes over the packs of one data-parallel rank, without tables of a whole step:
// what the search judges its candidates by (shape_search.c).
typedef struct sp_i_rank_scorer {
    const sp_scenario *scenario;
    int64_t limit_bytes; // of memory
    sp_cost_model *cost;
    sp_arena arrays;             // those of fixed size
    sp_pack_memory memory;       // of the packs at hand
    sp_fullest_pack *fullest;    // [dp] of the packs at hand
    sp_i_score *scores;          // [SP_I_SCORES] at its key modulo their number, the last
    double p2p_ns, p2p_token_ns; // between pipeline ranks: fixed, and per token of a pack
    int64_t *class_ns;           // [3 * classes]
    sp_pack_room room;
    int64_t *times; // of the packs at hand
    size_t times_capacity;
    int64_t *tokens; // of forward packs, of backward packs, then their transfers
    size_t tokens_capacity;
} sp_i_rank_scorer;

// For samples of up to so many tokens; several that work side by side have a cost model each.
sp_status sp_i_rank_scorer_init(sp_i_rank_scorer *scorer, const sp_scenario *scenario,
                                sp_cost_model *cost, int64_t longest_tokens, sp_error *err);
void sp_i_rank_scorer_fini(sp_i_rank_scorer *scorer);

// Tokens of one sample that every pipeline rank can hold at once, as its backwards begin; 0: any.
int64_t sp_i_rank_scorer_most_tokens(sp_i_rank_scorer *scorer, bool split);

// Scores a packing that holds one rank's packs, or those of ranks that share them all; `need` says
// for each backward pack which forward packs it waits for (packflow.h); `split`: input and weight
// gradients apart. What is no better than `beaten` may come out a little better than it is, but no
// better than that; NULL: all is exact. O(slices + actions).
sp_status sp_i_rank_score(sp_i_rank_scorer *scorer, const sp_packing *packing, const int32_t *need,
                          bool split, const sp_packflow_outcome *beaten,
                          sp_packflow_outcome *outcome, sp_error *err);

typedef struct sp_i_shape_search {
    sp_i_rank_scorer *scorer;
    const sp_i_work *work;
    const sp_batch *batch;
    bool split;           // input and weight gradients apart
    bool taper;           // packs may grow and shrink; otherwise all have equal work
    bool whole;           // long samples may stay whole where slices cost exchanges
    int64_t slice_tokens; // 0: searched as well
    int retained;         // of the shapes (slimpack_search.h)
    int64_t effort;       // left: actions that may be timed, of all virtual stages
    int64_t spent;        // work so far (solver/search.h)
    uint64_t seed;        // of its random ways
    int64_t enough_ns;    // a shape that is as fast ends the search; 0: none is
    double deadline_s;    // of sp_clock_s(): no more trials after it; 0: none
} sp_i_shape_search;

typedef struct sp_i_best_shape {
    sp_i_shape shape;
    sp_packflow_outcome out;
} sp_i_best_shape;

// Searches samples whose work is work_s on each of their ranks; at least one sample. *best is
// uninitialised, or `warm` the result of a search of nearly the same samples, from which this one
// starts. The search goes down from several shapes, and then again from random ones near the best;
// its sequence is fixed: the result depends on nothing but the arguments, and on the time where
// that runs out. At least one shape is tried. Backward packs mirror the forward packs.
sp_status sp_i_search_shape(sp_i_shape_search *search, const sp_i_rank_samples *samples,
                            double work_s, bool warm, sp_i_best_shape *best, sp_error *err);

// From the best shape on, backward packs that are a partition of their own, as long as that is
// better.
sp_status sp_i_search_regrouped(sp_i_shape_search *search, const sp_i_rank_samples *samples,
                                sp_i_best_shape *best, sp_error *err);

// ---- the search ----

// The two phases of SlimPack's planner (arXiv 2509.26246): samples are given to data-parallel
// ranks, then each rank's samples are cut and packed.

typedef struct sp_i_slimpack_options {
    bool asymmetric;   // backward packs may be a partition of their own
    bool split;        // packs are chosen for input and weight gradients apart
    bool whole;        // no order of them runs gradients apart
    bool proves;       // integer programs give few samples to ranks, for a second of CPU time
    int64_t effort;    // actions timed for all ranks together, about
    double deadline_s; // of sp_clock_s(): the best plan so far is taken then; 0: none
} sp_i_slimpack_options;

// So few that it is worth while to look further for each of them.
bool sp_i_has_few_samples(const sp_batch *batch);

// So much of a usual effort as the settings of a scenario ask for.
int64_t sp_i_slimpack_effort(const sp_strategy_spec *spec, int64_t usual);

// The settings of a scenario for a strategy that would search its batch freely.
sp_i_slimpack_options sp_i_slimpack_options_of(const sp_strategy_input *input, bool asymmetric,
                                               bool split);

// Fills the packing (uninitialised; not with an error) unless it is NULL, and what comes of it: the
// whole step as it is simulated where there is a packing, as predicted by the search where not.
// Ranks are searched on input->threads threads; the plan is the same for any number of them. What
// is better in the prediction but not in the whole step is not taken. Where a few long samples
// leave ranks idle, other groups of ranks are searched as well, as much again at most.
sp_status sp_i_slimpack_search(const sp_strategy_input *input, const sp_i_slimpack_options *options,
                               sp_packing *packing, sp_packflow_outcome *outcome, sp_error *err);

// Takes a packing in the place of the best one where its outcome is better; ends the other one.
void sp_i_keep_better(sp_packing *best, sp_packflow_outcome *outcome, sp_packing *tried,
                      const sp_packflow_outcome *judged);

// Packs by the rules of other strategies, which search nothing, in this order, exchange and cut:
// what the best of them comes to, where that is better than *outcome.
sp_status sp_i_best_rule(const sp_strategy_input *input, sp_packflow_outcome *outcome,
                         sp_error *err);

// Nested groups of ranks need that there is no pipeline.
bool sp_i_may_nest(const sp_scenario *scenario);

#endif
