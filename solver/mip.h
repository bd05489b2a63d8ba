// Mixed integer programs, minimised with GLPK: samples to ranks (slimpack/makespan.c) and groups of
// ranks for a micro-batch (flexsp/flexsp.c).
//
// A program is plain data until it is solved. Solving takes a thread of its own: GLPK keeps its
// memory, its output hook and its error hook per thread and shares them with igraph, which contains
// GLPK too, so in a fresh thread neither disturbs the other. Programs may be solved in several
// threads at the same time; one program must not be changed while it is solved.
#ifndef SLIMPACK_SOLVER_MIP_H
#define SLIMPACK_SOLVER_MIP_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "sim/base/status.h"

typedef struct sp_i_mip_column {
    double lower, upper; // HUGE_VAL, -HUGE_VAL: no bound
    double cost;         // in the objective
    bool integer;
} sp_i_mip_column;

typedef struct sp_i_mip_term {
    int row, column;
    double coefficient;
} sp_i_mip_term;

typedef struct sp_i_mip_row {
    double lower, upper;
} sp_i_mip_row;

typedef struct sp_i_mip {
    sp_i_mip_column *columns;
    size_t column_count, column_capacity;
    sp_i_mip_row *rows;
    size_t row_count, row_capacity;
    sp_i_mip_term *terms;
    size_t term_count, term_capacity;
} sp_i_mip;

void sp_i_mip_init(sp_i_mip *mip);
void sp_i_mip_fini(sp_i_mip *mip);

// Index of the new column. Minimised is the sum of cost * value.
int sp_i_mip_add_column(sp_i_mip *mip, double lower, double upper, double cost, bool integer);
// A new row lower <= sum of terms <= upper; its terms follow, each column at most once.
void sp_i_mip_add_row(sp_i_mip *mip, double lower, double upper);
void sp_i_mip_add_term(sp_i_mip *mip, int column, double coefficient);

#define SP_I_NO_TIME_LIMIT INT64_MAX

// Limits of work end a search at one place on every machine, a limit of time does not.
typedef struct sp_i_mip_options {
    int64_t time_limit_ms; // wall time of the whole solve, kept within 50 ms; <= 0: none is left
    double gap;            // stop when (objective - bound) / objective is not larger
    int64_t node_limit;    // branch-and-bound nodes; 0: any
    // Simplex iterations of all relaxations together, overrun by those of one node at most; 0: any.
    int64_t iteration_limit;
} sp_i_mip_options;

typedef enum sp_i_mip_outcome {
    SP_I_MIP_OPTIMAL,    // within the gap
    SP_I_MIP_FEASIBLE,   // the best found when a limit was hit
    SP_I_MIP_INFEASIBLE, // proven
    SP_I_MIP_UNKNOWN,    // nothing found before a limit was hit or GLPK's arithmetic gave up
} sp_i_mip_outcome;

typedef struct sp_i_mip_result {
    sp_i_mip_outcome outcome;
    bool timed_out;     // the limit that was hit is that of time
    double objective;   // of OPTIMAL and FEASIBLE
    double bound;       // no solution has a smaller objective; -HUGE_VAL: nothing is known
    int64_t iterations; // simplex iterations that were made
} sp_i_mip_result;

// Fills `value` [columns] where the outcome is OPTIMAL or FEASIBLE, integer columns with whole
// numbers. A program that GLPK refuses is SP_ERR_INTERNAL with its words, an unbounded one too; one
// whose numbers defeat it is not: its outcome is UNKNOWN, or FEASIBLE with what was found before.
sp_status sp_i_mip_solve(const sp_i_mip *mip, const sp_i_mip_options *options,
                         sp_i_mip_result *result, double *value, sp_error *err);

#endif
