// Fields that the sections of a profile have in common. Shared by the readers of a profile.
#ifndef SLIMPACK_SIM_COST_PROFILE_FIELDS_H
#define SLIMPACK_SIM_COST_PROFILE_FIELDS_H

#include <stdbool.h>

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

// Fills the curve from `key` [[x, y], ...], y multiplied by y_unit. SP_ERR_NO_MEMORY is the only
// error returned; content errors go to object->err and leave the curve empty.
sp_status sp_i_profile_points(sp_object *object, const char *key, double y_unit, sp_curve *curve);

// Slopes of a filled curve. Times must not fall as work grows, whatever the noise of a measurement
// says: a rate may grow at most with the `power` of x with which the work grows, and a table of
// times (power 0, floor true) may not fall.
void sp_i_profile_monotone(sp_curve *curve, double power, bool floor);

#endif
