// What the schedule families share: each writes the action lists of all pipeline ranks of one
// data-parallel rank.
#ifndef SLIMPACK_SIM_SCHEDULE_SCHEDULE_FAMILY_H
#define SLIMPACK_SIM_SCHEDULE_SCHEDULE_FAMILY_H

#include "sim/schedule/schedule.h"

// One data-parallel rank to be scheduled; all of them, without packs and micro-batches here, where
// the schedule orders by pack. Its packs, ascending, belong to micro-batches: slice s of
// micro-batch m is forward pack forward[first[m] + s], for s below first[m + 1] - first[m]. Slices
// run backward in reverse, so its backward pack is backward[first[m + 1] - 1 - s]. Where no
// micro-batch has several slices the two arrays are the same.
typedef struct sp_i_schedule_job {
    const sp_schedule_spec *spec;
    const sp_schedule_costs *costs; // NULL unless the family is timed
    const char *source;
    sp_plan *plan;
    int dp_rank;
    const int32_t *forward, *backward;
    const int *first; // [microbatches + 1]
    int microbatches;
} sp_i_schedule_job;

// Slices of a micro-batch.
static inline int sp_i_slices_of(const sp_i_schedule_job *job, int microbatch)
{
    return job->first[microbatch + 1] - job->first[microbatch];
}

// Appends an action of slice `slice` of a micro-batch on a pipeline rank; false when memory runs
// out.
bool sp_i_schedule_add(const sp_i_schedule_job *job, int pp_rank, sp_action_kind kind, int chunk,
                       int microbatch, int slice);

// Runs the rank's last action side by side with the one that is added next.
void sp_i_schedule_pair(const sp_i_schedule_job *job, int pp_rank);

// A family: SP_OK, SP_ERR_NO_MEMORY (without a message), or a content error at source: schedule.*.
typedef sp_status (*sp_i_schedule_family)(const sp_i_schedule_job *job, sp_error *err);

#define X(kind, name, generator, ...) \
    sp_status sp_i_schedule_##generator(const sp_i_schedule_job *job, sp_error *err);
SP_SCHEDULE_LIST(X)
#undef X

#endif
