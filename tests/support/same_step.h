// Two steps that must be the same, to the nanosecond and the byte.
#ifndef SLIMPACK_TESTS_SUPPORT_SAME_STEP_H
#define SLIMPACK_TESTS_SUPPORT_SAME_STEP_H

#include "sim/plan/timeline.h"

// Fail the test case unless all spans, copies, shares and epilogues are equal; unless peaks and all
// points of memory are.
void must_be_same_timeline(const sp_timeline *a, const sp_timeline *b);
void must_be_same_memory(const sp_memory_timeline *a, const sp_memory_timeline *b);

#endif
