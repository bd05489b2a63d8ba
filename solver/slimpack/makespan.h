// Jobs on machines of equal or different speed so that the last machine ends early: P||Cmax and
// Q||Cmax of scheduling theory. Private to solver.
#ifndef SLIMPACK_SOLVER_SLIMPACK_MAKESPAN_H
#define SLIMPACK_SOLVER_SLIMPACK_MAKESPAN_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "sim/base/status.h"
#include "solver/mip.h"

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

// ---- Samples to ranks of equal speed by an integer program (assignment.c) ----

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

#endif
