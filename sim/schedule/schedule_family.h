// Schedule families share this: each writes the action lists of all pipeline ranks of one
// data-parallel rank.
#ifndef SLIMPACK_SIM_SCHEDULE_SCHEDULE_FAMILY_H
#define SLIMPACK_SIM_SCHEDULE_SCHEDULE_FAMILY_H

#include "sim/base/alloc.h"
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
    int dp_rank, pp;
    const int32_t *forward, *backward;
    const int *first; // [microbatches + 1]
    int microbatches;
    const int *counts; // [dp]: micro-batches of all data-parallel ranks
    sp_arena work;     // of the family; whoever asked for the order frees it
    sp_error *err;
    sp_status status; // of a content error at source: schedule.*, or of a limit
} sp_i_schedule_job;

// Slices of a micro-batch.
static inline int sp_i_slices_of(const sp_i_schedule_job *job, int microbatch)
{
    return job->first[microbatch + 1] - job->first[microbatch];
}

// Appends an action of slice `slice` of a micro-batch on a pipeline rank.
static inline void sp_i_schedule_add(sp_i_schedule_job *job, int pp_rank, sp_action_kind kind,
                                     int chunk, int microbatch, int slice)
{
    bool back = sp_action_is_backward((sp_action){.kind = (uint8_t)kind});
    int place = back ? job->first[microbatch + 1] - 1 - slice : job->first[microbatch] + slice;
    int32_t pack = (back ? job->backward : job->forward)[place];
    sp_stage_plan_add(sp_plan_stage(job->plan, job->dp_rank, pp_rank), kind, chunk, pack);
}

// Runs the rank's last action side by side with the one that is added next.
static inline void sp_i_schedule_pair(sp_i_schedule_job *job, int pp_rank)
{
    sp_stage_plan *stage = sp_plan_stage(job->plan, job->dp_rank, pp_rank);
    SP_ASSERT(stage->count > 0);
    stage->actions[stage->count - 1].with_next = 1;
}

// A family.
typedef void (*sp_i_schedule_family)(sp_i_schedule_job *job);

#define X(kind, name, generator, ...) void sp_i_schedule_##generator(sp_i_schedule_job *job);
SP_SCHEDULE_LIST(X)
#undef X

#endif
