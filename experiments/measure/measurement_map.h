// How the columns of a table become settings of a scenario (schema slimpack/measurements/1; the
// format is described in experiments/published/README.md).
#ifndef SLIMPACK_EXPERIMENTS_MEASURE_MEASUREMENT_MAP_H
#define SLIMPACK_EXPERIMENTS_MEASURE_MEASUREMENT_MAP_H

#include "experiments/measure/measurements.h"
#include "sim/base/csv.h"
#include "sim/base/json.h"

#define SP_MAP_SCHEMA "slimpack/measurements/1"

enum { SP_MAP_LIMIT_BYTES = 16 << 20 }; // of a map's file

enum { SP_MAP_TARGETS = 8, SP_MAP_LIST = 200 };

// Checks of a cell, beside or in place of setting something.
typedef enum sp_map_check {
    SP_MAP_NO_CHECK,
    SP_MAP_CHECK_RANKS,             // is tp x cp x pp x dp
    SP_MAP_CHECK_WHOLE_MICROBATCHES // is a multiple of dp x schedule.microbatch_samples
} sp_map_check;

typedef struct sp_map_target {
    const char *path; // of the scenario: "parallel.tp"
    double factor;    // by which the cell's number is multiplied
} sp_map_target;

typedef struct sp_map_column {
    bool is_setting, in_label;
    int measured; // index of the measured column; negative: none
    sp_map_target targets[SP_MAP_TARGETS];
    int target_count;
    const json_t *values; // by cell: the value, or without targets an object of values by path
    sp_map_check check;
    const json_t *taken; // cells of the rows that are taken; NULL: any
    bool in_cell;        // rows that agree in these columns are ranked against each other
} sp_map_column;

typedef struct sp_map_measured {
    const char *column;
    int index;              // of the column
    const json_t *settings; // of its own: an object of values by path; may be NULL
    bool at_most;           // the cell is an upper bound of what is computed
} sp_map_measured;

typedef struct sp_map {
    json_t *document; // owned; all texts below lie in it
    const char *source;
    json_t *base;
    bool of_header; // there is no map: columns have names of settings, and values as their names
    sp_measured kind;
    double less;                   // taken off the cell
    double scale;                  // from the rest of it to the kind's unit
    const json_t *measured_values; // numbers by cell; NULL: the cell is the number
    sp_map_measured measured[SP_MEASURED_COLUMNS];
    int measured_count;
    // A speed-up has settings beside all else in the scenario that it is over.
    struct {
        bool given;
        const json_t *settings; // by path; may be NULL
        sp_map_column columns[SP_CSV_COLUMNS];
    } baseline;
    sp_map_column columns[SP_CSV_COLUMNS]; // in the order of the table
} sp_map;

// Reads a map for a table; takes over `document`. Every column of the table must be named in the
// map and every column named there must be in the table. Up to ten errors are collected.
sp_status sp_map_from_json(json_t *document, const char *source, const char *csv_source,
                           const sp_csv *csv, sp_map *map, sp_error *err);
void sp_map_fini(sp_map *map);

// "Step time (ms)" as step_time_ms, "tokens/s" as tokens_per_s, "SeqLen" as seq_len: letters and
// digits, in lower case, with single underscores.
void sp_plain_name(const char *text, char plain[SP_JSON_PATH]);

// A measured column as its name says it. With a hint it is none: the name leaves open what the
// number is, or gives it in a unit that is not read.
typedef struct sp_measured_name {
    sp_measured kind;
    double scale; // from the cell to the kind's unit
    char hint[SP_MAP_LIST + 128];
} sp_measured_name;

// Reads a plain name. False: it is of nothing that is measured.
bool sp_measured_name_read(const char *plain, sp_measured_name *name);

// The map of a table without one: each column is named by the path that it sets, but for the
// measured one.
sp_status sp_map_of_header(const sp_csv *csv, const char *csv_source, json_t **document,
                           sp_error *err);

// Copies what the map says of the table itself: source, licence, bounds.
void sp_map_describe(const sp_map *map, sp_measurements *measurements);

// Is the row among those that the map takes?
bool sp_map_takes(const sp_map *map, const sp_csv *csv, size_t row);

// The scenario document of a row and one of its measured columns, or of the baseline that this is
// over, with paths placed as of `file` (sp_scenario_place); the caller owns it. Settings inside a
// model, a cluster or a stack change a part of the one that the row or the base names. Errors name
// row and column.
sp_status sp_map_row(const sp_map *map, const sp_csv *csv, const char *csv_source, const char *file,
                     size_t row, int measured, bool baseline, json_t **document, sp_error *err);

// The column that sets `path`, or with `inside` something inside it, in this row; negative where
// none does.
int sp_map_column_of(const sp_map *map, const sp_csv *csv, size_t row, const char *path,
                     bool inside);

// The cells that values are given for, as errors tell of them.
void sp_map_list_values(const json_t *values, char list[SP_MAP_LIST]);

// "column 'tp': expected ..., got ...".
sp_status sp_map_wrong_cell(sp_error *err, const char *csv_source, const char *name,
                            const sp_csv_cell *cell, const char *format, ...) SP_PRINTF(5, 6);

// A finite number with nothing after it.
bool sp_map_number(const char *text, double *number);

#endif
