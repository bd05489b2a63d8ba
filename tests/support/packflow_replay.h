// An independent replay of PackFlow's orders, and its rules checked decision by decision.
#ifndef SLIMPACK_TESTS_SUPPORT_PACKFLOW_REPLAY_H
#define SLIMPACK_TESTS_SUPPORT_PACKFLOW_REPLAY_H

#include "tests/support/packflow_case.h"

typedef struct packflow_run {
    sp_packflow_step steps[PACKFLOW_RANKS * PACKFLOW_STEPS];
    int64_t makespan_ns, lacking_bytes;
    int64_t most_bytes[PACKFLOW_RANKS]; // held at any time, by the replay
} packflow_run;

// Runs the job and fails the running test unless the order is complete and waits for nothing of its
// own, times and memory are those of the replay, every decision keeps the rules of packflow.h, no
// order of the packs could lack less memory, and a run that is asked for times alone gives the
// same.
void packflow_run_checked(const packflow_case *c, packflow_run *run);

void packflow_assert_same_steps(const packflow_case *c, const packflow_run *a,
                                const packflow_run *b);

#endif
