// A profile's curve: memory and evaluation.
#ifndef SLIMPACK_SIM_COST_CURVE_H
#define SLIMPACK_SIM_COST_CURVE_H

#include <math.h>
#include <stdbool.h>
#include <stddef.h>

#include "sim/cost/profile.h"

// Room for so many points, freed through curve->x; false when memory runs out.
bool sp_i_curve_allocate(sp_curve *curve, size_t points);

static inline double sp_i_curve_first(const sp_curve *curve)
{
    return curve->x[0];
}

static inline double sp_i_curve_last(const sp_curve *curve)
{
    return curve->x[curve->points - 1];
}

// Largest y: between points log y is linear in log x, so no value in between is larger.
static inline double sp_i_curve_most(const sp_curve *curve)
{
    double most = curve->y[0];
    for (int i = 1; i < curve->points; i++) {
        most = curve->y[i] > most ? curve->y[i] : most;
    }
    return most;
}

// y at x, the end values outside the points. O(log points).
static inline double sp_i_curve_hold(const sp_curve *curve, double x)
{
    int low = 0;
    int high = curve->points - 1;
    if (x <= curve->x[low]) {
        return curve->y[low];
    }
    if (x >= curve->x[high]) {
        return curve->y[high];
    }
    while (high - low > 1) {
        int middle = (low + high) / 2;
        if (curve->x[middle] <= x) {
            low = middle;
        } else {
            high = middle;
        }
    }
    return curve->y[low] * pow(x / curve->x[low], curve->slope[low]);
}

#endif
