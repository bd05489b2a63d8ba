// Places of a run, its clock, and its words when memory runs out.
#include <time.h>

#include "backends/host/run.h"

size_t sp_i_host_vstages(const sp_i_host_run *run)
{
    return (size_t)sp_layout_vstages(&run->request->plan->layout);
}

sp_i_host_rank *sp_i_host_rank_at(const sp_i_host_run *run, int dp, int pp)
{
    return &run->ranks[(size_t)dp * (size_t)run->request->plan->layout.pp + (size_t)pp];
}

sp_i_host_stage *sp_i_host_stage_at(const sp_i_host_run *run, int dp, int vstage)
{
    return &run->stages[(size_t)dp * sp_i_host_vstages(run) + (size_t)vstage];
}

int64_t sp_i_host_now_ns(void)
{
    struct timespec now;
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
    return (int64_t)now.tv_sec * 1000000000 + now.tv_nsec;
}

sp_status sp_i_host_run_out(const sp_i_host_run *run, const sp_i_host_arena *arena,
                            const sp_plan_place *place, sp_error *err)
{
    char text[SP_ERROR_TEXT / 2];
    sp_status status = sp_i_host_arena_failure(arena, text, sizeof text);
    return place != NULL
               ? sp_error_at_action(err, status, run->request->plan, place, "%s", text)
               : sp_error_set(err, status, "parameters, gradients and optimizer: %s", text);
}
