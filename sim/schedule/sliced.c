#include "sim/schedule/sliced.h"

sp_i_sliced sp_i_sliced_begin(sp_i_schedule_job *job)
{
    size_t slices = (size_t)job->first[job->microbatches];
    size_t units = slices * (size_t)job->plan->layout.chunks;
    return (sp_i_sliced){.job = job,
                         .forward = sp_arena_take(&job->work, units, sizeof(sp_i_unit)),
                         .backward = sp_arena_take(&job->work, units, sizeof(sp_i_unit)),
                         .place = sp_arena_take(&job->work, units, sizeof(int64_t)),
                         .slices = slices};
}

static size_t place_index(const sp_i_sliced *order, sp_i_unit unit)
{
    return (size_t)unit.chunk * order->slices + (size_t)order->job->first[unit.microbatch] +
           (size_t)unit.slice;
}

void sp_i_sliced_forward(sp_i_sliced *order, sp_i_unit unit)
{
    order->place[place_index(order, unit)] = (int64_t)order->forwards;
    order->forward[order->forwards++] = unit;
}

void sp_i_sliced_group(sp_i_sliced *order, int begin, int end)
{
    int chunks = order->job->plan->layout.chunks;
    for (int c = 0; c < chunks; c++) {
        for (int m = begin; m < end; m++) {
            int slices = sp_i_slices_of(order->job, m);
            for (int s = 0; s < slices; s++) {
                sp_i_sliced_forward(order, (sp_i_unit){m, c, s});
                order->backward[order->backwards++] =
                    (sp_i_unit){m, chunks - 1 - c, slices - 1 - s};
            }
        }
    }
}

void sp_i_sliced_reverse(sp_i_sliced *order, size_t from)
{
    for (size_t k = order->forwards; k > from; k--) {
        order->backward[order->backwards++] = order->forward[k - 1];
    }
}

static void emit_rank(const sp_i_sliced *order, int pp_rank, int64_t lag, int64_t ahead,
                      int retained)
{
    sp_i_schedule_job *job = order->job;
    int64_t units = (int64_t)order->forwards;
    int64_t done = 0;
    int64_t target = lag + ahead;
    for (size_t k = 0; k < order->backwards; k++) {
        sp_i_unit unit = order->backward[k];
        int64_t needed = order->place[place_index(order, unit)] + 1 + lag;
        target = target + 1 > needed ? target + 1 : needed;
        target = target < units ? target : units;
        for (; done < target; done++) {
            sp_i_unit next = order->forward[done];
            sp_i_schedule_add(job, pp_rank, SP_ACTION_F, next.chunk, next.microbatch, next.slice);
        }
        if (unit.slice < sp_i_slices_of(job, unit.microbatch) - retained) {
            sp_i_schedule_add(job, pp_rank, SP_ACTION_R, unit.chunk, unit.microbatch, unit.slice);
        }
        sp_i_schedule_add(job, pp_rank, SP_ACTION_B, unit.chunk, unit.microbatch, unit.slice);
    }
}

void sp_i_sliced_emit(const sp_i_sliced *order, int slope, int64_t ahead, int retained)
{
    int pp = order->job->pp;
    SP_ASSERT(order->forwards == order->backwards);
    for (int r = 0; r < pp; r++) {
        emit_rank(order, r, slope * (int64_t)(pp - 1 - r), ahead, retained);
    }
}
