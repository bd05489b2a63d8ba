// Jobs on machines of equal or different speed so that the last machine ends early: P||Cmax and
// Q||Cmax of scheduling theory. Private to solver.
#ifndef SLIMPACK_SOLVER_SLIMPACK_MAKESPAN_H
#define SLIMPACK_SOLVER_SLIMPACK_MAKESPAN_H

#include <stddef.h>

#include "sim/base/status.h"

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
sp_status sp_i_makespan_exchange(sp_i_makespan *m, double stop_s, sp_error *err);

double sp_i_makespan_largest_s(const sp_i_makespan *m);

// No assignment of jobs to machines of equal speed ends earlier: the mean, the longest job, and for
// every k the k + 1 smallest of the k * machines + 1 longest jobs, of which one machine has to take
// as many. O(jobs).
double sp_i_makespan_bound_s(const double *work_s, size_t jobs, int machines);

#endif
