// How well tables of measured steps are predicted: errors, and which layout would be picked.
#ifndef SLIMPACK_EXPERIMENTS_MEASURE_VALIDATION_H
#define SLIMPACK_EXPERIMENTS_MEASURE_VALIDATION_H

#include "experiments/measure/measurements.h"

// Errors of predictions, as fractions or differences of ratios.
typedef struct sp_prediction_errors {
    bool known;
    double mean, median, p90; // of absolute errors; p90: nine in ten are at most so large
    double bias;              // mean error
    double worst;             // the error that is largest in size, the first of equal ones
    size_t worst_row;
} sp_prediction_errors;

// Sums up `count` errors; unknown where there are none. Leaves their sorted sizes in `errors`.
// O(n log n).
void sp_prediction_errors_of(double *errors, size_t count, sp_prediction_errors *found);

// The prediction of one row.
typedef struct sp_ranked {
    double computed;
    bool fits_well; // in memory
    double chance;  // that it runs (sp_fit_chance)
} sp_ranked;

// Over all cells of a table (the map's `cells`) with at least two rows. The rank correlation is
// Spearman's, equal values with their mean rank. The regret of a cell is how much slower the
// measured step of the row is that would be picked than the fastest measured one of the cell:
// of those that fit well the one with the least predicted time over the probability that it runs,
// as tune picks. A cell with no row that fits well has none.
typedef struct sp_ranked_cell {
    const char *name; // of the measurements
    size_t rows;
    double correlation;
    double regret; // negative: no row fits well
} sp_ranked_cell;

typedef struct sp_ranking {
    int cells, picks;
    sp_ranked_cell *cell; // [cells], in the order of the table; owned
    double correlation;   // mean
    double regret;        // mean
    double worst_regret;
    const char *worst_cell; // of the measurements; NULL: no cell
} sp_ranking;

// rows: one for each case. O(rows * cells + rows * log rows).
void sp_ranking_of(const sp_measurements *measurements, const sp_ranked *rows, sp_ranking *ranking);
void sp_ranking_fini(sp_ranking *ranking);

// Errors are computed / measured - 1, of bubble rates computed - measured. What stays below a
// measured upper bound has none.
typedef struct sp_validated_case {
    double computed, error;
    sp_fits fits;              // in memory, as predicted
    double memory_share;       // sp_result_memory_share
    double fit_probability;    // sp_result_fit_probability
    double measured_mfu;       // of times with a model: of all pairs, as Megatron counts; else 0
    double plain, plain_error; // memory: of plain bytes in place of allocator blocks
    sp_step_error step_error;
    double compute_share;  // of the predicted step
    double layer_ms;       // of it: sp_result_layer_ms
    double microbatches;   // of its batch, all replicas
    sp_warnings *warnings; // of its prediction; NULL: none
} sp_validated_case;

typedef struct sp_validation {
    const sp_measurements *measurements; // not owned
    sp_validated_case *cases;            // one for each of the measurements; owned
    sp_prediction_errors errors, plain_errors;
    sp_ranking ranking;
    bool within_bound; // true where there is no bound
    json_t *warnings;  // sp_measurements_warnings() of its cases; owned
} sp_validation;

// What the rows of a table warn of, each kind once with its number, as texts ("2 of 3 rows: ...");
// first of all rows that state no GPUs. Takes over `kinds`.
json_t *sp_measurements_warnings(const sp_measurements *measurements, sp_warning_kinds *kinds);

// Simulates every case with its own profile; the outcome does not depend on the number of threads.
// An error is that of the first case that has one, or a measured value in a wrong unit.
sp_status sp_validation_run(const sp_measurements *measurements, int threads,
                            sp_validation *validation, sp_error *err);
void sp_validation_fini(sp_validation *validation);

// Is the error a difference of ratios, and not a share of what was measured?
bool sp_validation_is_difference(sp_measured kind);

#endif
