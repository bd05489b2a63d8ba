// What actions take in the fake backend, and which of them fail.
#ifndef SLIMPACK_BACKENDS_FAKE_FAKE_TIME_H
#define SLIMPACK_BACKENDS_FAKE_FAKE_TIME_H

#include "backends/fake/fake_options.h"
#include "sim/plan/walk.h"

typedef struct sp_i_fake_time {
    const sp_run_request *request;
    const sp_i_fake_options *options;
    int step;
} sp_i_fake_time;

// Drives a run in virtual time; `context` of both is an sp_i_fake_time.
sp_status sp_i_fake_action(void *context, const sp_walk_action *action, sp_walk_outcome *outcome,
                           sp_error *err);
int64_t sp_i_fake_transfer_ns(void *context, const sp_plan_place *from, int to);

// Is there a time for every action of the plan?
sp_status sp_i_fake_time_check(const sp_run_request *request, const sp_i_fake_options *options,
                               sp_error *err);

#endif
