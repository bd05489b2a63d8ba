// A vocabulary spread over the pipeline ranks: all of them embed the tokens of a pack when the
// first virtual stage runs it, and all compute logits and loss when the last one does. A plan has
// no actions for what the others do then. Their time is taken from their next action's: where a
// prediction has it, too (solver/evaluate_provenance.c). So this is for virtual time.
#include "backends/host/run.h"

bool sp_i_host_needs_share(const sp_i_host_run *run, int vstage, sp_action action)
{
    bool first = vstage == 0;
    bool last = vstage + 1 == (int)sp_i_host_vstages(run);
    return run->ranks[0].links.vocab_group >= 0 && (last || (first && action.kind != SP_ACTION_W));
}

static bool share_of(const sp_i_host_run *run, const sp_i_host_rank *rank, int vstage,
                     sp_action action)
{
    bool last = vstage > 0;
    sp_i_host_stage *stage =
        sp_i_host_stage_of(run, rank, last ? sp_i_host_layout(run)->chunks - 1 : 0);
    size_t unit = (size_t)vstage * rank->job->slices.forward_count + (size_t)action.pack;
    switch ((sp_action_kind)action.kind) {
    case SP_ACTION_F:
        return run->math->share(stage, last ? SP_I_HOST_END_HEAD : SP_I_HOST_END_EMBED, action.pack,
                                run->runs_again[unit] == 0);
    case SP_ACTION_R:
        return run->math->share(stage, last ? SP_I_HOST_END_HEAD : SP_I_HOST_END_EMBED, action.pack,
                                true);
    case SP_ACTION_B:
    case SP_ACTION_I:
        return run->math->share(stage,
                                last ? SP_I_HOST_END_HEAD_BACKWARD : SP_I_HOST_END_EMBED_BACKWARD,
                                action.pack, action.kind == SP_ACTION_I);
    case SP_ACTION_W:
        return run->math->share(stage, SP_I_HOST_END_HEAD_WEIGHTS, action.pack, false);
    case SP_ACTION_O:
    case SP_ACTION_L:
    case SP_ACTION_KINDS:
        break;
    }
    SP_UNREACHABLE("an action without a share");
}

sp_status sp_i_host_rank_share(sp_i_host_run *run, sp_i_host_rank *rank, int pp, sp_action action,
                               sp_error *err)
{
    int vstage = sp_layout_vstage(sp_i_host_layout(run), pp, action.chunk);
    const sp_plan_place place = {.dp = rank->dp, .pp = pp, .action = action};
    if (!rank->served) {
        sp_i_host_mark(rank->arena);
        rank->served = true;
    }
    int64_t start_ns = sp_i_host_rank_ns(run, rank);
    if (!share_of(run, rank, vstage, action)) {
        return sp_i_host_rank_failure(run, rank, &place, err);
    }
    rank->owed_ns += sp_i_host_rank_ns(run, rank) - start_ns;
    return SP_OK;
}
