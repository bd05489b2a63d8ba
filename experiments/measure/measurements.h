// Tables of measured steps, and how well they are predicted.
#ifndef SLIMPACK_EXPERIMENTS_MEASURE_MEASUREMENTS_H
#define SLIMPACK_EXPERIMENTS_MEASURE_MEASUREMENTS_H

#include <jansson.h>
#include <stdbool.h>
#include <stddef.h>

#include "sim/base/data_folder.h"
#include "sim/base/status.h"
#include "sim/cost/profile.h"
#include "sim/metrics/result.h"
#include "sim/scenario/scenario.h"
#include "sim/workload/batch.h"

// The quantity of the measured column; always compared in this unit.
typedef enum sp_measured {
    SP_MEASURED_ITERATION_MS,
    SP_MEASURED_TOKENS_PER_S,              // of all GPUs together
    SP_MEASURED_TOKENS_PER_GPU_S,          // of one GPU
    SP_MEASURED_ALLOCATOR_PEAK_BYTES,      // PyTorch's max_memory_allocated, largest rank
    SP_MEASURED_FIRST_RANK_RESERVED_BYTES, // PyTorch's max_memory_reserved of rank 0
    SP_MEASURED_LAST_RANK_BYTES,           // its max_memory_allocated of the last rank
    SP_MEASURED_BUBBLE_RATE, // as the zero-bubble papers count it: of the longest stage,
                             // interleaved schedules by their closed form
    SP_MEASURED_SPEEDUP,     // time of the baseline's step over that of the case's
    SP_MEASURED_FITS,        // 1: ran, 0: did not; predicted: fits in memory, if tightly
} sp_measured;

extern const char *const sp_measured_names[]; // "iteration_ms", ..., NULL

static inline bool sp_measured_is_throughput(sp_measured kind)
{
    return kind == SP_MEASURED_TOKENS_PER_S || kind == SP_MEASURED_TOKENS_PER_GPU_S;
}

static inline bool sp_measured_is_memory(sp_measured kind)
{
    return kind == SP_MEASURED_ALLOCATOR_PEAK_BYTES ||
           kind == SP_MEASURED_FIRST_RANK_RESERVED_BYTES || kind == SP_MEASURED_LAST_RANK_BYTES;
}

enum {
    SP_MEASURED_COLUMNS = 16, // of one table
    SP_MEASUREMENTS_NAME = 64,
    SP_MEASUREMENTS_FILE = 1024,
};

typedef struct sp_measured_case sp_measured_case;
struct sp_measured_case {
    int line, column; // of the measured cell in the CSV file
    size_t row;       // of the table, without the header
    char label[96];   // its cells that are settings, for tables and messages
    char cell[96];    // its cells in the map's `cells`: rows of equal text are ranked; "": none
    char measured_column[48];
    sp_scenario scenario; // as read, with the profile that the map or an override names
    bool assumes_replica; // it states neither parallel.dp nor nodes, and fills no node
    sp_batches batches;
    double measured;
    bool at_most;               // measured is an upper bound: less is no error
    sp_measured_case *baseline; // of a speed-up: scenario and batches of what it is over; owned
    // The bytes that PyTorch would reserve, where the row is one of a cell and
    // sp_measured_case_count has counted it; else 0. No constant of a profile changes it.
    int64_t reserved_bytes;
};

typedef struct sp_measurements {
    char name[SP_MEASUREMENTS_NAME]; // of the table, see sp_measurements_name
    char file[SP_MEASUREMENTS_FILE]; // that the table was read from; "": from memory
    char path[224];                  // of the table, for messages
    char source[512], licence[256];
    sp_measured kind;
    double less;  // taken off a measured cell
    double scale; // from the rest of it to the kind's unit
    // The map's bound of mean |predicted / measured - 1| at most this, for bubble rates the
    // largest |predicted - measured|. Negative: nothing.
    double bound;
    double published_error; // such a mean as others published it; negative: not known
    char published_by[128];
    sp_measured_case *cases; // [count], owned; do not move them (scenarios point into themselves)
    size_t count;
} sp_measurements;

// Reads csv_path with its map: map_path, or (NULL) the file of the same name ending in ".json"
// beside it; a csv_path that itself ends in ".json" is the map, which names its table; or, where
// there is none, columns named by scenario paths ("parallel.tp"). The overrides (path=value) apply
// to every row's scenario. Errors name file, row and column; up to ten are collected.
sp_status sp_measurements_read(const char *csv_path, const char *map_path,
                               const char *const *overrides, int override_count,
                               sp_measurements *measurements, sp_error *err);
// Reads a table from memory; `map` is taken over, NULL: columns named by scenario paths.
sp_status sp_measurements_from_text(const char *csv_text, size_t bytes, const char *csv_source,
                                    json_t *map, const char *map_source,
                                    const char *const *overrides, int override_count,
                                    sp_measurements *measurements, sp_error *err);
void sp_measurements_fini(sp_measurements *measurements);

// The name of a table: its file's without folder and ending, "a100" of "tables/a100.csv".
void sp_measurements_name(const char *csv_path, char name[SP_MEASUREMENTS_NAME]);

// Simulates one case with its own profile or (not NULL) another one, which is only read. Times and
// throughputs outside cells do not ask for the allocator's peak. The software stack stays that of
// the scenario.
sp_status sp_measured_case_predict(const sp_measured_case *measured, sp_measured kind,
                                   const sp_profile *profile, double *predicted, sp_error *err);

// Fills in reserved_bytes, which predictions of a cell's row otherwise count each time to tell
// whether the row fits well.
sp_status sp_measured_case_count(sp_measured_case *measured, sp_measured kind, sp_error *err);

// The prediction with all else that the simulation of the case found; the caller frees the result.
// A speed-up takes a second simulation, of the baseline.
sp_status sp_measured_case_evaluate(const sp_measured_case *measured, sp_measured kind,
                                    const sp_profile *profile, double *predicted, sp_result *result,
                                    sp_error *err);

// Refuses a table in which most measured values are off by more than a factor of 100 from what was
// predicted for them (one for each case), with the unit that they may be in. A factor of 100 is
// beyond what any mistake in a profile does, and below the 1000 of a wrong unit. A throughput that
// in every row of four GPUs or more is off by about their number is refused as well: it is of one
// GPU in place of all, or of all in place of one.
sp_status sp_measurements_check_units(const sp_measurements *measurements, const double *predicted,
                                      sp_error *err);

// ---- documents that travel with the program ----

enum { SP_PUBLISHED_TABLES = 64, SP_PUBLISHED_NAME = 64, SP_PUBLISHED_PATH = SP_DATA_PATH };

typedef struct sp_published_kind {
    const char *noun, *plural; // for messages
    const char *folder;        // of the program (sp_data_folder())
    // Is a document of the folder one of the kind? NULL: all are.
    bool (*holds)(const char *folder, const char *name);
    bool brief; // the message of an unknown name lists the names only where none is near
} sp_published_kind;

// Tables of published measurements.
extern const sp_published_kind sp_published_tables;

typedef struct sp_published {
    const sp_published_kind *kind;
    char folder[SP_DATA_PATH];
    char names[SP_PUBLISHED_TABLES][SP_PUBLISHED_NAME]; // without ".json", ascending
    int count;
} sp_published;

// Lists those of the first folder of the program that has some.
sp_status sp_published_list(const sp_published_kind *kind, sp_published *published, sp_error *err);

// The document of a name. SP_ERR_USAGE with the nearest name where there is none.
sp_status sp_published_file(const sp_published *published, const char *name,
                            char path[SP_PUBLISHED_PATH], sp_error *err);

// ---- how well tables are predicted ----

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
