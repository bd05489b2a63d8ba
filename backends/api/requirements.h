// What a run asks of a device.
#ifndef SLIMPACK_BACKENDS_API_REQUIREMENTS_H
#define SLIMPACK_BACKENDS_API_REQUIREMENTS_H

#include "backends/api/backend.h"
#include "sim/plan/plan.h"

typedef struct sp_requirements {
    uint64_t needed; // SP_CAN(...) | ...
    // The first action that needs a capability, for those that an action needs.
    uint64_t at_action;
    sp_plan_place first[SP_CAPABILITIES];
} sp_requirements;

// O(actions + slices).
void sp_requirements_find(const sp_run_request *request, sp_requirements *requirements);

#endif
