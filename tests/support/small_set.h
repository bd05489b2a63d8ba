// The committed scenarios for GPUs (experiments/validate_gpu.json), each with its strategy,
// schedule and layout, and with a model and lengths that the emulated device is fast enough for.
#ifndef SLIMPACK_TESTS_SUPPORT_SMALL_SET_H
#define SLIMPACK_TESTS_SUPPORT_SMALL_SET_H

#include <stdint.h>

#include "experiments/execution/execution.h"
#include "solver/evaluate/evaluate.h"

// By what sizes are divided; heads likewise.
typedef struct small_sizes {
    int64_t features, heads, tokens;
    int64_t step; // lengths are multiples of it
} small_sizes;

// Hands the cases of a group to `run` with their numbers, `most` of them; returns how many there
// were. Fails the test case where the set cannot be read.
int small_set_each(const small_sizes *by, const char *group, int most,
                   void (*run)(const sp_scenario_case *c, int number));

// Shows the steps of a case to `see`.
void small_case_evaluate(const sp_scenario_case *c, sp_step_observer see, void *context);

#endif
