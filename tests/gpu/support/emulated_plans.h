// Plans on the emulated CUDA backend beside the same plans on the CPU: gradients and loss within
// what bf16 explains of the plain step in fp64 (backends/api/proof.h), memory to the byte that of
// the CPU executor, the timeline that of an execution.
#ifndef SLIMPACK_TESTS_GPU_SUPPORT_EMULATED_PLANS_H
#define SLIMPACK_TESTS_GPU_SUPPORT_EMULATED_PLANS_H

#include "backends/api/device.h"

// The device that a plan runs on: how its backend is made and freed.
typedef struct emulated_device {
    sp_backend *(*make)(void);
    void (*end)(sp_backend *backend);
} emulated_device;

// The backend's option "cudnn" of all plans: "off" at first.
extern const char *emulated_cudnn;

// The key of a scenario and more keys, ' for ".
typedef struct emulated_plan {
    const char *model, *layout, *more;
    const char *dropout; // NULL: none
    sp_clock clock;
    const emulated_device *device; // NULL: that of emulated_backend.h
} emulated_plan;

// Four samples of 7 to 38 tokens. Returns the most that was offloaded at once on any rank.
int64_t emulated_plan_agrees(const emulated_plan *plan);

// The same for a request that is there, of one step in bf16 with memory points. The options that
// both need are added.
int64_t emulated_request_agrees(const sp_run_request *request);
int64_t emulated_request_agrees_on(const emulated_device *device, const sp_run_request *request);

#endif
