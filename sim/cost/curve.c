#include "sim/cost/curve.h"

#include "sim/base/alloc.h"

bool sp_i_curve_allocate(sp_curve *curve, size_t points)
{
    curve->x = sp_i_calloc(3 * points, sizeof *curve->x);
    if (curve->x == NULL) {
        return false;
    }
    curve->y = curve->x + points;
    curve->slope = curve->y + points;
    curve->points = (int)points;
    return true;
}
