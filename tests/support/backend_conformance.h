// What every backend must do, whatever it runs on. Each function fails the running test case.
#ifndef SLIMPACK_TESTS_SUPPORT_BACKEND_CONFORMANCE_H
#define SLIMPACK_TESTS_SUPPORT_BACKEND_CONFORMANCE_H

#include "backends/api/device.h"

// A device of a backend, and how to reach its failures.
typedef struct conformance_device {
    const sp_backend *backend;
    int device;
    // All of a request but plan and costs.
    sp_run_request request;
    bool takes_costs; // the backend is driven by the simulator's costs
    // Options that make an action fail, stall or run out of memory: their values are the action's
    // name, '@' and its rank (dp.pp); NULL where the backend has no such option.
    const char *fail, *stall, *exhaust;
} conformance_device;

// Runs the plan and holds what came back against the definition of an execution, pair by pair
// (O(actions^2)): every action once, each rank in the plan's order and one after another; every
// action after those it reads (the stage before, the stage behind, backward after the forwards of
// its slices, slices of a sample in order, W after I, O after F, L after O, readers after L);
// epilogues after the last action; memory that drains, with its peak among its points; metrics that
// measure it. `costs` may be NULL.
void conformance_runs(const conformance_device *device, const sp_plan *plan,
                      const sp_step_costs *costs);

// A schedule, or every one, on so many ranks, micro-batches a rank and slices (of schedules that
// have them).
void conformance_runs_schedule(const conformance_device *device, sp_schedule_kind kind, int pp,
                               int dp, int microbatches, int slices);
void conformance_runs_every_schedule(const conformance_device *device, int pp, int dp,
                                     int microbatches, int slices);

// Plans of many kinds likewise, drawn by the seed: those that the device can execute run, the
// others are refused. Which is which is worked out here.
void conformance_runs_random_plans(const conformance_device *device, uint64_t seed, int count);

// For each capability a run that needs it: one that the device lacks is refused with its name
// before anything runs, one that it has is not.
void conformance_refuses(const conformance_device *device);

// Every action of a plan made to fail in each way that the device knows: the run ends by itself,
// gives no result, and names rank, action and a reason.
void conformance_fails(const conformance_device *device);

// An executor of models, in virtual time or on the wall clock, and the small one that it runs: of
// as many layers as any of the suite's layouts divides.
conformance_device conformance_of(const sp_backend *backend, const sp_model *model, sp_clock clock,
                                  sp_precision precision);
sp_model conformance_model(void);

#endif
