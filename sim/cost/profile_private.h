// What sim/cost shares of a profile: its curves' memory and evaluation, and the fields that the
// readers of its sections have in common. Private to sim/cost.
#ifndef SLIMPACK_SIM_COST_PROFILE_PRIVATE_H
#define SLIMPACK_SIM_COST_PROFILE_PRIVATE_H

#include <math.h>
#include <stdbool.h>
#include <stddef.h>

#include "sim/base/json.h"
#include "sim/cost/profile.h"

// Numbers in files: wide enough for every unit, narrow enough that products stay finite.
#define SP_I_PROFILE_LEAST 1e-9
#define SP_I_PROFILE_MOST 1e18

#define SP_I_FLOPS_PER_TFLOP 1e12
#define SP_I_BYTES_PER_GB 1e9
#define SP_I_S_PER_US 1e-6

// "level" and "source" of a section, both required. source has SP_I_PROFILE_SOURCE bytes or is
// NULL.
enum { SP_I_PROFILE_SOURCE = sizeof(((sp_curve *)0)->source) };
sp_level sp_i_profile_provenance(sp_object *object, char *source);

// A number that must be given.
double sp_i_profile_number(sp_object *object, const char *key, double least, double most);

// Fills the curve from `key` [[x, y], ...], y multiplied by y_unit. Content errors go to
// object->err.
void sp_i_profile_points(sp_object *object, const char *key, double y_unit, sp_curve *curve);

// Slopes of a filled curve. Times must not fall as work grows, whatever the noise of a measurement
// says: a rate may grow at most with the `power` of x with which the work grows, and a table of
// times (power 0, floor true) may not fall.
void sp_i_profile_monotone(sp_curve *curve, double power, bool floor);

// The optional sections that describe a model in place of a table: gemm_model, host,
// unfused_attention, loss, node_collectives, and the links' own keys for pipeline transfers.
void sp_i_profile_read_models(sp_object *root, sp_profile *profile);

// A profile's curve: memory and evaluation.

// Room for so many points, freed through curve->x.
void sp_i_curve_allocate(sp_curve *curve, size_t points);

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
