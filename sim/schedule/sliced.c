#include "sim/schedule/sliced.h"

#include "sim/base/alloc.h"

bool sp_i_sliced_init(sp_i_sliced *order, const sp_i_schedule_job *job)
{
    size_t slices = (size_t)job->first[job->microbatches];
    size_t units = slices * (size_t)job->plan->layout.chunks;
    *order = (sp_i_sliced){.slices = slices};
    order->forward = sp_i_calloc(units, sizeof *order->forward);
    order->backward = sp_i_calloc(units, sizeof *order->backward);
    order->place = sp_i_calloc(units, sizeof *order->place);
    if (order->forward == NULL || order->backward == NULL || order->place == NULL) {
        sp_i_sliced_fini(order);
        return false;
    }
    return true;
}

void sp_i_sliced_fini(sp_i_sliced *order)
{
    sp_i_free(order->forward);
    sp_i_free(order->backward);
    sp_i_free(order->place);
    *order = (sp_i_sliced){0};
}

static size_t place_index(const sp_i_sliced *order, const sp_i_schedule_job *job, sp_i_unit unit)
{
    return (size_t)unit.chunk * order->slices + (size_t)job->first[unit.microbatch] +
           (size_t)unit.slice;
}

void sp_i_sliced_forward(sp_i_sliced *order, const sp_i_schedule_job *job, sp_i_unit unit)
{
    order->place[place_index(order, job, unit)] = (int64_t)order->forwards;
    order->forward[order->forwards++] = unit;
}

void sp_i_sliced_backward(sp_i_sliced *order, sp_i_unit unit)
{
    order->backward[order->backwards++] = unit;
}

static bool add(const sp_i_schedule_job *job, int pp_rank, sp_action_kind kind, sp_i_unit unit)
{
    return sp_i_schedule_add(job, pp_rank, kind, unit.chunk, unit.microbatch, unit.slice);
}

bool sp_i_sliced_rank(const sp_i_sliced *order, const sp_i_schedule_job *job, int pp_rank, int lag,
                      int retained)
{
    SP_ASSERT(order->forwards == order->backwards);
    int64_t units = (int64_t)order->forwards;
    int64_t done = 0;
    int64_t target = -1;
    bool ok = true;
    for (size_t k = 0; ok && k < order->backwards; k++) {
        sp_i_unit unit = order->backward[k];
        int64_t needed = order->place[place_index(order, job, unit)] + 1 + lag;
        target = target + 1 > needed ? target + 1 : needed;
        target = target < units ? target : units;
        while (ok && done < target) {
            ok = add(job, pp_rank, SP_ACTION_F, order->forward[done++]);
        }
        if (unit.slice < sp_i_slices_of(job, unit.microbatch) - retained) {
            ok = ok && add(job, pp_rank, SP_ACTION_R, unit);
        }
        ok = ok && add(job, pp_rank, SP_ACTION_B, unit);
    }
    return ok;
}
