#include "experiments/sweep/points.h"

#include <stdlib.h>

#include "sim/base/order.h"

// ---- combinations ----

void sweep_spec_digits(const sweep_spec *spec, int64_t combination, int64_t digit[SWEEP_AXES])
{
    for (int a = spec->axis_count - 1; a >= 0; a--) {
        digit[a] = combination % spec->axes[a].count;
        combination /= spec->axes[a].count;
    }
}

int64_t sweep_spec_combination(const sweep_spec *spec, const int64_t digit[SWEEP_AXES])
{
    int64_t combination = 0;
    for (int a = 0; a < spec->axis_count; a++) {
        combination = combination * spec->axes[a].count + digit[a];
    }
    return combination;
}

// ---- the walk ----

void sweep_cursor_begin(sweep_cursor *cursor, const sweep_spec *spec)
{
    *cursor = (sweep_cursor){.spec = spec, .combination = -1};
    if (spec->where != NULL) {
        cursor->part_count = sweep_where_parts(spec->where, cursor->parts, SWEEP_PARTS);
    }
}

// Does a part rule out the digits up to this axis? Parts are asked at the last axis that they read.
static bool excluded(const sweep_cursor *cursor, int axis)
{
    for (int p = 0; p < cursor->part_count; p++) {
        const sweep_where_part *part = &cursor->parts[p];
        bool decided = part->axes >> axis == 1 || (axis == 0 && part->axes == 0);
        if (decided && sweep_where_excludes(cursor->spec->where, part, cursor->digit)) {
            return true;
        }
    }
    return false;
}

// To the next combination that no part of the condition rules out; false, also from then on, where
// there is none.
static bool advance(sweep_cursor *cursor, int64_t *looked_at)
{
    const sweep_spec *spec = cursor->spec;
    int axes = spec->axis_count;
    if (axes == 0) {
        bool first = !cursor->begun;
        cursor->begun = true;
        return first;
    }
    int axis = !cursor->begun ? 0 : cursor->ended ? -1 : axes - 1;
    if (axis >= 0) {
        cursor->digit[axis] = cursor->begun ? cursor->digit[axis] + 1 : 0;
    }
    cursor->begun = true;
    while (axis >= 0) {
        if (cursor->digit[axis] == spec->axes[axis].count) {
            if (--axis >= 0) {
                cursor->digit[axis]++;
            }
        } else if (++*looked_at, excluded(cursor, axis)) {
            cursor->digit[axis]++;
        } else if (axis + 1 == axes) {
            return true;
        } else {
            cursor->digit[++axis] = 0;
        }
    }
    cursor->ended = true;
    return false;
}

static sp_status next_of(sweep_cursor *cursor, int64_t *looked_at, bool *found, sp_error *err)
{
    const sweep_spec *spec = cursor->spec;
    sp_status status = SP_OK;
    *found = false;
    while (status == SP_OK && !*found && *looked_at <= SWEEP_LOOKED_AT &&
           advance(cursor, looked_at)) {
        *found = spec->where == NULL;
        if (spec->where != NULL) {
            status = sweep_where_holds(spec->where, cursor->digit, found, err);
        }
    }
    return status == SP_OK && *looked_at > SWEEP_LOOKED_AT
               ? sp_error_in(err, SP_ERR_LIMIT, spec->source, "where",
                             "more than %d combinations of the axes that it reads would have to be "
                             "looked at: give these fewer values, or join conditions on few axes "
                             "each with &&",
                             (int)SWEEP_LOOKED_AT)
               : status;
}

sp_status sweep_cursor_next(sweep_cursor *cursor, bool *found, sp_error *err)
{
    int64_t looked_at = 0;
    sp_status status = next_of(cursor, &looked_at, found, err);
    cursor->combination =
        *found ? sweep_spec_combination(cursor->spec, cursor->digit) : cursor->combination;
    return status;
}

// ---- the axes that the condition reads, apart from the others ----

typedef struct apart {
    sweep_spec read; // the spec with one value on every axis that the condition does not read
    sweep_cursor cursor;
    int64_t others; // combinations of those axes
    int64_t looked_at;
} apart;

static void apart_begin(apart *walk, const sweep_spec *spec)
{
    uint32_t read = 0;
    walk->read = *spec;
    walk->others = 1;
    walk->looked_at = 0;
    sweep_cursor_begin(&walk->cursor, &walk->read);
    for (int p = 0; p < walk->cursor.part_count; p++) {
        read |= walk->cursor.parts[p].axes;
    }
    for (int a = 0; a < spec->axis_count; a++) {
        if ((read >> a & 1u) == 0) {
            walk->others *= spec->axes[a].count;
            walk->read.axes[a].count = 1;
        }
    }
}

static sp_status apart_next(apart *walk, bool *found, sp_error *err)
{
    return next_of(&walk->cursor, &walk->looked_at, found, err);
}

sp_status sweep_spec_count(const sweep_spec *spec, int64_t *points, sp_error *err)
{
    apart walk;
    apart_begin(&walk, spec);
    bool found = true;
    sp_status status = SP_OK;
    *points = 0;
    while (status == SP_OK && found) {
        status = apart_next(&walk, &found, err);
        *points += status == SP_OK && found ? walk.others : 0;
    }
    return status;
}

// ---- drawing ----

// `count` different numbers below `bound`, ascending.
static void draw_numbers(sp_prng *prng, int64_t bound, int64_t count, int64_t *numbers)
{
    int64_t have = 0;
    if (count > bound / 2) {
        // Knuth, The Art of Computer Programming 2, 3.4.2, algorithm S.
        for (int64_t number = 0; have < count; number++) {
            uint64_t left = (uint64_t)(bound - number);
            if (sp_prng_below(prng, left) < (uint64_t)(count - have)) {
                numbers[have++] = number;
            }
        }
        return;
    }
    while (have < count) {
        for (int64_t i = have; i < count; i++) {
            numbers[i] = (int64_t)sp_prng_below(prng, (uint64_t)bound);
        }
        qsort(numbers, (size_t)count, sizeof *numbers, sp_ascending_int64s);
        have = 0;
        for (int64_t i = 0; i < count; i++) {
            if (i == 0 || numbers[i] != numbers[i - 1]) {
                numbers[have++] = numbers[i];
            }
        }
    }
}

// The combination with the digits of the walk and number `other` of those that it leaves out.
static int64_t with_other(const sweep_spec *spec, const apart *walk, int64_t other)
{
    int64_t digit[SWEEP_AXES];
    for (int a = spec->axis_count - 1; a >= 0; a--) {
        int64_t count = walk->read.axes[a].count == 1 ? spec->axes[a].count : 1;
        digit[a] = walk->cursor.digit[a] + other % count;
        other /= count;
    }
    return sweep_spec_combination(spec, digit);
}

sp_status sweep_spec_draw(const sweep_spec *spec, int64_t points, int64_t count, sp_prng *prng,
                          int64_t *combinations, sp_error *err)
{
    apart walk;
    int64_t walked = -1;
    bool found = true;
    sp_status status = SP_OK;
    count = count < points ? count : points;
    draw_numbers(prng, points, count, combinations);
    apart_begin(&walk, spec);
    for (int64_t i = 0; status == SP_OK && i < count; i++) {
        int64_t wanted = combinations[i] / walk.others;
        while (status == SP_OK && found && walked < wanted) {
            status = apart_next(&walk, &found, err);
            walked++;
        }
        if (status == SP_OK) {
            combinations[i] = with_other(spec, &walk, combinations[i] % walk.others);
        }
    }
    qsort(combinations, (size_t)count, sizeof *combinations, sp_ascending_int64s);
    return status;
}
