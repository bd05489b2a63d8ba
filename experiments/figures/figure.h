// A published figure or table (slimpack/figure/1): scenarios, what is read from their results, and
// what was published of it; and the figure beside what is computed for it.
#ifndef SLIMPACK_EXPERIMENTS_FIGURES_FIGURE_H
#define SLIMPACK_EXPERIMENTS_FIGURES_FIGURE_H

#include <jansson.h>
#include <stdbool.h>
#include <stddef.h>

#include "experiments/measure/measurements.h"
#include "experiments/measure/published.h"
#include "sim/base/status.h"

#define FIGURE_SCHEMA "slimpack/figure/1"

enum { FIGURE_NAME = 64, FIGURE_SOURCE = 256, FIGURE_COMBINATIONS = 4096 };

// How the value of a point comes from the results of its scenario and of its baseline.
typedef enum figure_measure {
    FIGURE_VALUE,      // the key of the result
    FIGURE_RATIO,      // over that of the baseline
    FIGURE_DIFFERENCE, // less that of the baseline
    FIGURE_REDUCTION,  // 1 less the ratio
    FIGURE_LONGEST,    // the key is a setting: its largest value with which a scenario fits
} figure_measure;

// Where a setting has several values, each combination has a value, and the point has one of these.
typedef enum figure_take { FIGURE_MEAN, FIGURE_MAX, FIGURE_MIN } figure_take;

// The published number is the value, or a bound on it.
typedef enum figure_claim { FIGURE_EQUAL, FIGURE_AT_LEAST, FIGURE_AT_MOST } figure_claim;

extern const char *const figure_claim_names[]; // "equal", ..., NULL

// Largest error: a share of what was published, or a difference.
typedef struct figure_bar {
    bool relative;
    double size;
} figure_bar;

// Texts belong to the document.
typedef struct figure_point {
    const char *label, *key;
    const char *why;   // the cause of a miss, where it is known; NULL
    const char *panel; // the title of the panel that draws it; NULL: by its key
    figure_measure measure;
    figure_take take;
    figure_claim claim;
    figure_bar bar;
    double published;
    double per;    // what the value is divided by: hops of a step, say
    bool fitted;   // a setting, or a constant of the program, was fitted to this number
    bool headline; // the number by which the publication is known
    int combinations;
    int *scenarios; // [combinations], of figure_spec.scenarios; owned
    int *baselines; // NULL: none
} figure_point;

typedef struct figure_spec {
    char name[FIGURE_NAME];
    char file[FIGURE_SOURCE]; // for messages
    json_t *document;         // owned
    const char *title, *source;
    const json_t *assumptions; // texts
    const char *table;         // of measurements that are the points; NULL: none
    bool fitted;               // the table's profile was fitted to it
    bool changed;              // its scenario is another than the published one
    figure_point *points;      // [count], owned
    size_t count, capacity;
    json_t **scenarios; // [scenario_count], no two equal; owned
    size_t scenario_count, scenario_capacity;
} figure_spec;

// Up to ten errors of a file are collected. Overrides are `path=value` texts for the scenario that
// its points have in common (`base`).
sp_status figure_spec_read(const char *path, const char *const *overrides, int count,
                           figure_spec *spec, sp_error *err);
// Takes over the document.
sp_status figure_spec_from_json(json_t *document, const char *file, figure_spec *spec,
                                sp_error *err);
void figure_spec_fini(figure_spec *spec);

// ---- a figure beside what is computed for it ----

enum { FIGURE_LABEL = 160, FIGURE_NOTE = 256, FIGURE_PANEL = 128 };

// One point, or one row of a table. The error is computed / published - 1, or (not relative)
// computed - published.
typedef struct figure_outcome {
    char label[FIGURE_LABEL];
    char note[FIGURE_NOTE];   // what is to be known of its scenarios: out of memory, say; ""
    char panel[FIGURE_PANEL]; // what its value is, for the panel that draws it
    double published;
    double computed; // NAN: there is none, the note says why
    double error;    // NAN with it
    double limit;    // of memory, in the unit of both; NAN: the value is none of a step's memory
    bool relative;
    figure_claim claim;
    bool has_bar; // rows of a table have one together
    double bar;
    bool within; // true where it has no bar of its own
    bool fitted; // to what was published: its error is that of the fit
    bool headline;
    const char *why; // it misses, where that was found or the point is a headline, else NULL;
                     // belongs to the spec
} figure_outcome;

typedef struct figure_reproduction {
    const figure_spec *spec;
    figure_outcome *outcomes; // [count], owned
    size_t count;
    size_t within_count; // of points
    size_t fitted_count; // of those within, the fitted ones
    // A table's error is the size of the errors on which its bar is, in the mean or (differences)
    // the largest.
    bool of_table, relative;
    const char *unit; // of a table: "iteration_ms", say
    double table_error, table_bar;
    bool within; // all of it
} figure_reproduction;

// Evaluates all scenarios of a figure, or its table. A scenario that cannot be read is an error,
// one that cannot be run is an outcome. The outcome does not depend on the number of threads.
sp_status figure_reproduce(const figure_spec *spec, int threads, bool quiet,
                           figure_reproduction *reproduction, sp_error *err);
void figure_reproduction_fini(figure_reproduction *reproduction);

// {"name": ..., "points": [...], "within": ...}.
json_t *figure_reproduction_json(const figure_reproduction *reproduction);

// ---- the figures that travel with the program ----

extern const sp_published_kind figure_published;

// The file of a name; what ends in ".json" is a file itself. SP_ERR_USAGE with the nearest name
// where there is none.
sp_status figure_file(const sp_published *figures, const char *name, char path[SP_DATA_PATH],
                      sp_error *err);

#endif
