// Steps so small that every packing and every order of them can be tried.
#ifndef SLIMPACK_TESTS_SUPPORT_TINY_STEP_H
#define SLIMPACK_TESTS_SUPPORT_TINY_STEP_H

#include <stdbool.h>
#include <stdint.h>

#include "solver/bounds/bounds.h"

enum { TINY_UNITS = 4, TINY_STAGES = 3 }; // at most

// A sample of n tokens is n slices of one token.
typedef struct tiny_step {
    int64_t samples[TINY_UNITS];
    int count, units, sample_of[TINY_UNITS], place_of[TINY_UNITS];
    const sp_bound_costs *costs;
} tiny_step;

tiny_step tiny_step_make(const sp_bound_costs *costs, const int64_t *samples, int count);

// The least makespan of one rank. `whole`: samples are not cut.
double tiny_step_least_s(const tiny_step *t, bool whole);

// The least of the longest rank's over all ways to spread the samples over two.
double tiny_step_least_of_two_s(const tiny_step *t, bool whole);

#endif
