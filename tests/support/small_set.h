// The committed scenarios for GPUs (experiments/validate_gpu.json), each with its strategy,
// schedule and layout, and with a model and lengths that the emulated device is fast enough for.
#ifndef SLIMPACK_TESTS_SUPPORT_SMALL_SET_H
#define SLIMPACK_TESTS_SUPPORT_SMALL_SET_H

#include <stdint.h>

#include "experiments/execution/execution.h"

// By what sizes are divided; heads likewise.
typedef struct small_sizes {
    int64_t features, heads, tokens;
    int64_t step; // lengths are multiples of it
} small_sizes;

// Fails the test case where the set cannot be read.
void small_set_read(const small_sizes *by, sp_scenario_set *set);

#endif
