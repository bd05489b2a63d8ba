// What a step that is out of memory would have needed: the sample that needs most by itself, with
// its bytes, and how many data-parallel ranks would hold it.
#ifndef SLIMPACK_SOLVER_EVALUATE_OOM_DIAGNOSIS_H
#define SLIMPACK_SOLVER_EVALUATE_OOM_DIAGNOSIS_H

#include "sim/metrics/result.h"
#include "sim/plan/packing.h"
#include "sim/scenario/scenario.h"

typedef struct sp_oom_diagnosis {
    int64_t limit_bytes;
    int64_t plan_bytes; // peak of the whole plan; 0: there is none
    int64_t id, tokens; // of the sample; tokens 0: none could be run alone
    int64_t computed;   // with padding
    int pp, dp_count;   // the fullest pipeline rank, and the data-parallel ranks that share it
    sp_bytes need;      // of that rank at its peak, with no other sample in the step
    // The next more ranks that would hold it, else all of them; 0: there are no more.
    int wider;
    int64_t wider_bytes; // then on each of them
} sp_oom_diagnosis;

// Looks among the samples of a packing (of each number of ranks that share samples the one of most
// tokens) for the one that needs most by itself: a step of this sample alone, on as many ranks, in
// the same slices, in the scenario's schedule, is simulated, and again on more ranks as long as it
// does not fit. A sample that cannot be run alone or so wide says nothing. O(slices) and a few
// small simulations; memory O(samples).
sp_status sp_oom_diagnosis_find(const sp_scenario *scenario, const sp_packing *packing,
                                int64_t plan_bytes, sp_oom_diagnosis *shortage, sp_error *err);

// Does the sample need more than there is?
bool sp_oom_diagnosis_is_of_sample(const sp_oom_diagnosis *shortage);

// Samples that fit nowhere go before plans that hold too many at once.
bool sp_oom_diagnosis_is_worse(const sp_oom_diagnosis *a, const sp_oom_diagnosis *b);

// In one line; a limit (memory.limit_gib) of the figures in it holds what they are said of.
void sp_oom_diagnosis_text(const sp_oom_diagnosis *shortage, char text[SP_WARNING_TEXT]);

#endif
