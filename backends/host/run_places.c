// Places of a run, its clocks, and its words when a rank cannot go on.
#include <time.h>

#include "backends/comm/clock.h"
#include "backends/host/run.h"

const sp_layout *sp_i_host_layout(const sp_i_host_run *run)
{
    return &run->request->plan->layout;
}

size_t sp_i_host_vstages(const sp_i_host_run *run)
{
    return (size_t)sp_layout_vstages(sp_i_host_layout(run));
}

int sp_i_host_members(const sp_i_host_run *run)
{
    return sp_i_host_layout(run)->cp * sp_i_host_layout(run)->tp;
}

size_t sp_i_host_rank_count(const sp_i_host_run *run)
{
    return (size_t)sp_layout_ranks(sp_i_host_layout(run));
}

int sp_i_host_rank_number(const sp_i_host_run *run, int dp, int pp, int member)
{
    return (dp * sp_i_host_layout(run)->pp + pp) * sp_i_host_members(run) + member;
}

sp_i_host_rank *sp_i_host_rank_at(const sp_i_host_run *run, int dp, int pp, int member)
{
    return &run->ranks[sp_i_host_rank_number(run, dp, pp, member)];
}

sp_i_host_stage *sp_i_host_stage_of(const sp_i_host_run *run, const sp_i_host_rank *rank, int chunk)
{
    return &run->stages[(rank - run->ranks) * sp_i_host_layout(run)->chunks + chunk];
}

int sp_i_host_member(const sp_i_host_run *run, const sp_i_host_rank *rank)
{
    return rank->cp * sp_i_host_layout(run)->tp + rank->tp;
}

int sp_i_host_seat(const sp_i_host_run *run, const sp_i_host_rank *rank)
{
    return rank->dp * sp_i_host_members(run) + sp_i_host_member(run, rank);
}

int sp_i_host_replica(const sp_i_host_run *run, const sp_i_host_rank *rank)
{
    return rank->dp * sp_i_host_layout(run)->cp + rank->cp;
}

sp_i_host_replicas *sp_i_host_replicas_of(const sp_i_host_run *run, const sp_i_host_rank *rank)
{
    return &run->replicas[rank->pp * sp_i_host_layout(run)->tp + rank->tp];
}

static bool shards(const sp_i_host_run *run, int zero)
{
    const sp_layout *layout = sp_i_host_layout(run);
    return layout->zero >= zero && layout->dp * layout->cp > 1;
}

bool sp_i_host_shards_gradients(const sp_i_host_run *run)
{
    return shards(run, 2);
}

bool sp_i_host_shards_values(const sp_i_host_run *run)
{
    return shards(run, 3);
}

void *sp_i_host_value_at(const sp_i_host_run *run, const sp_i_host_rank *rank, int64_t element)
{
    return (char *)rank->values + (element - rank->values_at.begin) * run->math->real_bytes;
}

void *sp_i_host_gradient_at(const sp_i_host_run *run, const sp_i_host_rank *rank, int64_t element)
{
    return (char *)rank->gradients + (element - rank->gradients_at.begin) * run->math->real_bytes;
}

static int64_t read_clock(clockid_t clock)
{
    struct timespec now;
    clock_gettime(clock, &now);
    return (int64_t)now.tv_sec * 1000000000 + now.tv_nsec;
}

int64_t sp_i_host_now_ns(void)
{
    return read_clock(CLOCK_THREAD_CPUTIME_ID);
}

int64_t sp_i_host_wall_ns(void)
{
    return read_clock(CLOCK_MONOTONIC);
}

int64_t sp_i_host_rank_ns(const sp_i_host_run *run, sp_i_host_rank *rank)
{
    return run->request->clock == SP_CLOCK_WALL ? sp_i_host_wall_ns() - run->step_began_ns
                                                : sp_comm_clock_read(rank->links.me);
}

sp_status sp_i_host_rank_failure(const sp_i_host_run *run, sp_i_host_rank *rank,
                                 const sp_plan_place *place, sp_error *err)
{
    char text[SP_ERROR_TEXT / 2];
    if (rank->links.status != SP_OK) {
        for (int i = 0; i < rank->links.err.count; i++) {
            sp_error_set(err, rank->links.status, "%s", rank->links.err.message[i]);
        }
        return rank->links.status;
    }
    sp_status status = sp_i_host_arena_failure(rank->arena, text, sizeof text);
    return place != NULL
               ? sp_error_at_action(err, status, run->request->plan, place, "%s", text)
               : sp_error_set(err, status, "parameters, gradients and optimizer: %s", text);
}
