// What the CPU executor holds, beside what the predictor says for the very same timeline.
#ifndef SLIMPACK_TESTS_SUPPORT_HOST_HELD_H
#define SLIMPACK_TESTS_SUPPORT_HOST_HELD_H

#include "tests/support/host_run.h"

// Executes the plans of a scenario (' for ") and fails the test case unless parameters, gradients,
// optimizer states, activations, keys and values, logits and what is offloaded are equal to the
// byte after every action, and what is offloaded also when each copy begins and ends. Returns the
// most that was offloaded at once on any rank.
int64_t host_held_must_agree(const host_device *device, const char *scenario, sp_clock clock);

#endif
