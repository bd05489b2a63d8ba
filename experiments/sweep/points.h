// The points of a sweep: the combinations of its grid for which its condition holds, walked,
// counted and drawn without looking at every combination.
#ifndef SLIMPACK_EXPERIMENTS_SWEEP_POINTS_H
#define SLIMPACK_EXPERIMENTS_SWEEP_POINTS_H

#include "experiments/sweep/spec.h"
#include "sim/base/prng.h"

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
