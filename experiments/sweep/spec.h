// A sweep (slimpack/sweep/1): a base scenario, a grid of settings that take its place, and a
// condition that chooses among the combinations.
#ifndef SLIMPACK_EXPERIMENTS_SWEEP_SPEC_H
#define SLIMPACK_EXPERIMENTS_SWEEP_SPEC_H

#include <jansson.h>

#include "experiments/sweep/where.h"

#define SWEEP_SCHEMA "slimpack/sweep/1"

enum {
    SWEEP_AXES = 32,
    SWEEP_AXIS_VALUES = 1000000,
    SWEEP_COMBINATIONS = 100000000, // looked at one by one where there is a condition
    SWEEP_BASE_TAG = 17,
    SWEEP_SOURCE = 256,
};

typedef struct sweep_axis {
    const char *path; // "parallel.tp"; belongs to the document, as do the values
    const json_t *values;
    int64_t count;
} sweep_axis;

typedef struct sweep_spec {
    char source[SWEEP_SOURCE]; // file name, for messages
    json_t *document;          // owned
    const json_t *base;
    sweep_axis axes[SWEEP_AXES]; // in the order of the file; the last one varies fastest
    int axis_count;
    int64_t combinations;
    sweep_symbols symbols;
    sweep_where *where;            // NULL: every combination is a point
    char base_tag[SWEEP_BASE_TAG]; // tells results of one base from those of another
} sweep_spec;

sp_status sweep_spec_read(const char *path, sweep_spec *spec, sp_error *err);
// Takes over the document.
sp_status sweep_spec_from_json(json_t *document, const char *source, sweep_spec *spec,
                               sp_error *err);
void sweep_spec_fini(sweep_spec *spec);

// Walks the points in order: row-major over the axes, the first one slowest.
typedef struct sweep_cursor {
    const sweep_spec *spec;
    int64_t next;              // combination to look at
    int64_t combination;       // of the current point
    int64_t digit[SWEEP_AXES]; // its value's number on each axis
} sweep_cursor;

void sweep_cursor_begin(sweep_cursor *cursor, const sweep_spec *spec);
// Goes to the next point; *found is false after the last one.
sp_status sweep_cursor_next(sweep_cursor *cursor, bool *found, sp_error *err);

// The digits of a combination.
void sweep_spec_digits(const sweep_spec *spec, int64_t combination, int64_t digit[SWEEP_AXES]);

// Points in all. O(combinations).
sp_status sweep_spec_count(const sweep_spec *spec, int64_t *points, sp_error *err);

// {"parallel.tp": 1, ...}. NULL when memory ran out.
json_t *sweep_spec_point(const sweep_spec *spec, const int64_t digit[SWEEP_AXES]);

// The scenario of a point: the base with the axes' values in their places, from `document`, the
// spec's own or a deep copy of it. The result shares parts with it: threads must not have one
// document in common. NULL when memory ran out.
json_t *sweep_spec_scenario(const sweep_spec *spec, const json_t *document,
                            const int64_t digit[SWEEP_AXES]);

#endif
