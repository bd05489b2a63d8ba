// Calibration of the executor on the CPU: single operators on one core (products, attention,
// copies), then whole actions of small steps, whose remainder beyond products and attention is put
// over the bytes that the cost model counts. The result is a profile (sim/cost/profile.h) that
// predicts the executor's steps on its virtual clock.
#ifndef SLIMPACK_BACKENDS_HOST_CALIBRATE_CALIBRATE_H
#define SLIMPACK_BACKENDS_HOST_CALIBRATE_CALIBRATE_H

#include <jansson.h>

#include "backends/api/backend.h"

// The slot of the backend's table.
sp_status sp_i_host_calibrate(int device, const sp_calibration_request *request, json_t **profile,
                              sp_error *err);

#endif
