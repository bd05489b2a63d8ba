// A published figure beside what is computed for it.
#ifndef SLIMPACK_EXPERIMENTS_FIGURES_REPRODUCTION_H
#define SLIMPACK_EXPERIMENTS_FIGURES_REPRODUCTION_H

#include "experiments/figures/figure.h"
#include "sim/base/progress.h"

enum { FIGURE_LABEL = 160, FIGURE_NOTE = 256 };

// One point, or one row of a table. The error is computed / published - 1, or (not relative)
// computed - published.
typedef struct figure_outcome {
    char label[FIGURE_LABEL];
    char note[FIGURE_NOTE]; // what is to be known of its scenarios: out of memory, say; ""
    double published;
    double computed; // NAN: there is none, the note says why
    double error;    // NAN with it
    bool relative;
    figure_claim claim;
    bool has_bar; // rows of a table have one together
    double bar;
    bool within;     // true where it has no bar of its own
    bool fitted;     // to what was published: its error is that of the fit
    const char *why; // belongs to the spec; NULL
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

#endif
