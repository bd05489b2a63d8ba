// Numbers and tables of a profile, with where they come from.
#include <math.h>
#include <stdio.h>

#include "sim/cost/profile_private.h"

enum { POINTS = 4096 }; // of one table

sp_level sp_i_profile_provenance(sp_object *object, char *source)
{
    sp_object_require(object, "level");
    sp_object_require(object, "source");
    char unused[SP_I_PROFILE_SOURCE];
    sp_object_text(object, "source", "", source != NULL ? source : unused, SP_I_PROFILE_SOURCE);
    return (sp_level)sp_object_enum(object, "level", sp_level_names, SP_LEVEL_ASSUMED);
}

double sp_i_profile_number(sp_object *object, const char *key, double least, double most)
{
    sp_object_require(object, key);
    return sp_object_real(object, key, least, least, most);
}

static bool point_number(const json_t *point, size_t index, double *number)
{
    const json_t *value = json_array_get(point, index);
    *number = json_is_number(value) ? json_number_value(value) : 0.0;
    return *number >= SP_I_PROFILE_LEAST && *number <= SP_I_PROFILE_MOST;
}

static void point_error(sp_object *object, const char *table, size_t index, const char *expected,
                        const json_t *found)
{
    char key[48];
    snprintf(key, sizeof key, "%s[%zu]", table, index);
    sp_object_expected(object, key, found, "%s", expected);
}

void sp_i_profile_points(sp_object *object, const char *key, double y_unit, sp_curve *curve)
{
    sp_object_require(object, key);
    const json_t *points = sp_object_get(object, key);
    if (points == NULL) {
        return;
    }
    size_t count = json_array_size(points);
    if (count == 0 || count > POINTS) {
        sp_object_error(object, key, "expected an array of 1 to %d points [x, y]", (int)POINTS);
        return;
    }
    sp_i_curve_allocate(curve, count);
    for (size_t i = 0; i < count; i++) {
        const json_t *point = json_array_get(points, i);
        double y = 0.0;
        if (json_array_size(point) != 2 || !point_number(point, 0, &curve->x[i]) ||
            !point_number(point, 1, &y)) {
            point_error(object, key, i, "[x, y], two numbers from 1e-9 to 1e+18", point);
            return;
        }
        if (i > 0 && curve->x[i] <= curve->x[i - 1]) {
            point_error(object, key, i, "a larger x than the point before", point);
            return;
        }
        curve->y[i] = y * y_unit;
    }
}

void sp_i_profile_monotone(sp_curve *curve, double power, bool floor)
{
    for (int i = 1; i < curve->points; i++) {
        double bound = curve->y[i - 1] * pow(curve->x[i] / curve->x[i - 1], power);
        if (floor ? curve->y[i] < bound : curve->y[i] > bound) {
            curve->y[i] = bound;
        }
    }
    for (int i = 0; i + 1 < curve->points; i++) {
        curve->slope[i] = log(curve->y[i + 1] / curve->y[i]) / log(curve->x[i + 1] / curve->x[i]);
    }
}
