// Plans on the emulated CUDA backend beside the same plans on the CPU: gradients and loss within
// what bf16 explains of the plain step in fp64, memory to the byte that of the CPU executor, the
// timeline that of an execution.
//
// What bf16 explains comes from fp64 alone: gradients of the plain step change by some distance
// when its parameters are rounded to bf16. Each product of a layer then reads one tensor that was
// rounded, 4 forward and the same 4 backward. A step in bf16 rounds about 12 tensors of hidden
// states in a layer forward and 13 backward, every one by the same relative error, and errors that
// know nothing of each other add in squares: the step is off by sqrt(25/8) = 1.8 times that
// distance, for each tensor its own. The bound is 3 times it for weights. Biases are sums over
// tokens that nearly cancel, while rounded parameters are off by the same for all tokens: 5 times.
//
// The loss is a mean over tokens, whose logits have a spread of about a tenth (tables start with
// 0.02 in 32 features) and are off by a hundredth of that: 1e-3, less by the square root of their
// number, of a loss of about 4.
#ifndef SLIMPACK_TESTS_GPU_SUPPORT_EMULATED_PLANS_H
#define SLIMPACK_TESTS_GPU_SUPPORT_EMULATED_PLANS_H

#include "backends/api/device.h"

#define EMULATED_WEIGHT_BOUND 3.0 // of the distance that rounded parameters make
#define EMULATED_BIAS_BOUND 5.0
#define EMULATED_LOSS_BOUND 2e-4 // relative

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
