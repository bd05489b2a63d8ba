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

#endif
