// Times of a run. On the virtual clock a timestamp is what the rank's clock shows, on the wall
// clock a stamp of its device, whose time is known when the rank's work is done.
#include <time.h>

#include "backends/comm/comm.h"
#include "backends/executor/run.h"

int64_t sp_i_exec_wall_ns(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (int64_t)now.tv_sec * 1000000000 + now.tv_nsec;
}

uint64_t sp_i_exec_timestamp(const sp_i_exec_run *run, sp_i_exec_rank *rank)
{
    return run->request->clock == SP_CLOCK_WALL ? run->runtime->ops->stamp(run->runtime)
                                                : (uint64_t)sp_comm_clock_read(rank->links.me);
}

int64_t sp_i_exec_timestamp_ns(const sp_i_exec_run *run, uint64_t timestamp)
{
    return run->request->clock == SP_CLOCK_WALL
               ? run->runtime->ops->stamp_ns(run->runtime, timestamp) - run->step_began_ns
               : (int64_t)timestamp;
}

void sp_i_exec_fill_times(const sp_i_exec_run *run, const sp_i_exec_rank *rank, sp_i_exec_log *log)
{
    int64_t spent_ns[SP_I_EXEC_EXCHANGE_KINDS] = {0};
    for (size_t e = log->first_exchange; e < log->end_exchange; e++) {
        const sp_i_exec_exchange *exchange = &rank->links.exchanges[e];
        spent_ns[exchange->kind] += sp_i_exec_timestamp_ns(run, exchange->end) -
                                    sp_i_exec_timestamp_ns(run, exchange->begin);
    }
    log->start_ns = sp_i_exec_timestamp_ns(run, log->start);
    log->end_ns = sp_i_exec_timestamp_ns(run, log->end);
    log->tp_ns = spent_ns[SP_I_EXEC_TP];
    log->dp_ns = spent_ns[SP_I_EXEC_DP];
}
