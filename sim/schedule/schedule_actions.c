// How families put actions into a plan.
#include "sim/schedule/schedule_family.h"

void sp_i_schedule_add(sp_i_schedule_job *job, int pp_rank, sp_action_kind kind, int chunk,
                       int microbatch, int slice)
{
    bool back = sp_action_is_backward((sp_action){.kind = (uint8_t)kind});
    int place = back ? job->first[microbatch + 1] - 1 - slice : job->first[microbatch] + slice;
    sp_stage_plan *stage = sp_plan_stage(job->plan, job->dp_rank, pp_rank);
    int32_t pack = (back ? job->backward : job->forward)[place];
    sp_stage_plan_add(stage, kind, chunk, pack);
}

void sp_i_schedule_pair(sp_i_schedule_job *job, int pp_rank)
{
    sp_stage_plan *stage = sp_plan_stage(job->plan, job->dp_rank, pp_rank);
    SP_ASSERT(stage->count > 0);
    stage->actions[stage->count - 1].with_next = 1;
}
