// A sweep (slimpack/sweep/1): a base scenario, a grid of settings that take its place, and a
// condition that chooses among the combinations. The points are the combinations for which the
// condition holds; they are walked, counted and drawn without looking at every combination.
#ifndef SLIMPACK_EXPERIMENTS_SWEEP_SPEC_H
#define SLIMPACK_EXPERIMENTS_SWEEP_SPEC_H

#include <jansson.h>

#include "experiments/sweep/where.h"
#include "sim/base/prng.h"

#define SWEEP_SCHEMA "slimpack/sweep/1"

#define SWEEP_COMBINATIONS ((int64_t)1 << 53) // exact as numbers of JSON

enum {
    SWEEP_AXES = 32,
    SWEEP_AXIS_VALUES = 1000000,
    SWEEP_TAG = 17,
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
    sweep_where *where;       // NULL: every combination is a point
    char base_tag[SWEEP_TAG]; // of the base and of what the files that are named hold
} sweep_spec;

// Tells a text from another: FNV-1a (Fowler, Noll, Vo; 64 bits) in hexadecimal.
void sweep_tag(const char *text, size_t bytes, char tag[SWEEP_TAG]);

sp_status sweep_spec_read(const char *path, sweep_spec *spec, sp_error *err);
// Takes over the document.
sp_status sweep_spec_from_json(json_t *document, const char *source, sweep_spec *spec,
                               sp_error *err);
void sweep_spec_fini(sweep_spec *spec);

// {"parallel.tp": 1, ...}; the caller owns it.
json_t *sweep_spec_point(const sweep_spec *spec, const int64_t digit[SWEEP_AXES]);

// The scenario of a point: the base with the axes' values in their places, from `document`, the
// spec's own or a deep copy of it. The result shares parts with it: threads must not have one
// document in common. The caller owns it.
json_t *sweep_spec_scenario(const sweep_spec *spec, const json_t *document,
                            const int64_t digit[SWEEP_AXES]);

// ---- points ----

enum { SWEEP_PARTS = 64 };

// Walks the points in order: row-major over the axes, the first one slowest. Values that a part of
// the condition rules out whatever the later axes hold are passed over at once.
typedef struct sweep_cursor {
    const sweep_spec *spec;
    sweep_where_part parts[SWEEP_PARTS];
    int part_count;
    bool begun;
    bool ended;
    int64_t combination;       // of the current point
    int64_t digit[SWEEP_AXES]; // its value's number on each axis
} sweep_cursor;

void sweep_cursor_begin(sweep_cursor *cursor, const sweep_spec *spec);
// Goes to the next point; *found is false after the last one.
sp_status sweep_cursor_next(sweep_cursor *cursor, bool *found, sp_error *err);

// The digits of a combination, and back.
void sweep_spec_digits(const sweep_spec *spec, int64_t combination, int64_t digit[SWEEP_AXES]);
int64_t sweep_spec_combination(const sweep_spec *spec, const int64_t digit[SWEEP_AXES]);

// Points in all. O(combinations of the axes that the condition names), at most
// SWEEP_LOOKED_AT of them: SP_ERR_LIMIT beyond.
enum { SWEEP_LOOKED_AT = 100000000 };
sp_status sweep_spec_count(const sweep_spec *spec, int64_t *points, sp_error *err);

// Draws `count` of the `points` points, each set of so many with equal chance, and writes their
// combinations in ascending order; all where there are no more. As costly as counting them.
sp_status sweep_spec_draw(const sweep_spec *spec, int64_t points, int64_t count, sp_prng *prng,
                          int64_t *combinations, sp_error *err);

#endif
