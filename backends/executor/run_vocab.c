// A vocabulary spread over the pipeline ranks: all of them embed the tokens of a pack for the first
// virtual stage, and compute logits and loss for the last one. Each does its share at the place
// among its actions that sim/plan/vocab_shares.h names; there all ranks meet, because sums go
// over all of them. On the virtual clock a share takes what its rank computes, as if sums were
// under way while others go on; on the wall clock ranks wait for each other.
#include "backends/comm/comm.h"
#include "backends/executor/run.h"

static bool is_split(const sp_share *share)
{
    return share->action.kind == SP_ACTION_I;
}

// Of a forward: does what it keeps stay? What will run again keeps nothing the first time.
static bool keeps(const sp_i_exec_run *run, const sp_i_exec_rank *rank, const sp_share *share)
{
    int vstage = sp_share_stage(sp_i_exec_layout(run), share->end);
    size_t unit = (size_t)vstage * rank->job->slices.forward_count + (size_t)share->action.pack;
    return share->action.kind == SP_ACTION_R || run->runs_again[unit] == 0;
}

static bool run_share(const sp_i_exec_run *run, const sp_i_exec_rank *rank, const sp_share *share)
{
    sp_i_exec_stage *stage = sp_i_exec_stage_of(run, rank, share->action.chunk);
    switch (share->end) {
    case SP_SHARE_EMBEDDING:
        return run->math->share(stage, SP_I_EXEC_END_EMBED, share->action.pack,
                                keeps(run, rank, share));
    case SP_SHARE_EMBEDDING_BACKWARD:
        return run->math->share(stage, SP_I_EXEC_END_EMBED_BACKWARD, share->action.pack,
                                is_split(share));
    case SP_SHARE_HEAD:
        return run->math->share(stage, SP_I_EXEC_END_HEAD, share->action.pack,
                                keeps(run, rank, share));
    case SP_SHARE_HEAD_BACKWARD:
        return run->math->share(stage, SP_I_EXEC_END_HEAD_BACKWARD, share->action.pack,
                                is_split(share));
    }
    SP_UNREACHABLE("a share of no end");
}

sp_status sp_i_exec_rank_share(sp_i_exec_run *run, sp_i_exec_rank *rank, const sp_share *share,
                               sp_error *err)
{
    const sp_plan_place place = {.dp = rank->dp, .pp = rank->pp, .action = share->action};
    sp_i_exec_log *log = &rank->share_log[rank->shares_logged++];
    sp_i_exec_mark(rank->arena);
    int64_t own_ns = sp_comm_clock_own(rank->links.me);
    log->first_exchange = rank->links.exchange_count;
    log->start = sp_i_exec_moment(run, rank);
    if (!run_share(run, rank, share)) {
        return sp_i_exec_rank_failure(run, rank, &place, err);
    }
    log->end = sp_i_exec_moment(run, rank);
    log->end_exchange = rank->links.exchange_count;
    rank->share_ns = sp_comm_clock_own(rank->links.me) - own_ns;
    log->during = *sp_i_exec_high(rank->arena, run->options.measure);
    log->after = sp_i_exec_rank_held(run, rank);
    return SP_OK;
}

sp_status sp_i_exec_rank_shares(sp_i_exec_run *run, sp_i_exec_rank *rank, size_t place,
                                size_t *done, sp_error *err)
{
    size_t count;
    const sp_share *shares =
        sp_shares_of(&run->shares, sp_i_exec_layout(run), rank->dp, rank->pp, &count);
    sp_status status = SP_OK;
    for (; status == SP_OK && *done < count && shares[*done].before <= place; (*done)++) {
        if (!shares[*done].own) {
            status = sp_i_exec_rank_share(run, rank, &shares[*done], err);
        }
    }
    return status;
}
