// Places of a run, and its words when a rank cannot go on.
#include "backends/comm/comm.h"
#include "backends/executor/run.h"

const sp_layout *sp_i_exec_layout(const sp_i_exec_run *run)
{
    return &run->request->plan->layout;
}

size_t sp_i_exec_vstages(const sp_i_exec_run *run)
{
    return (size_t)sp_layout_vstages(sp_i_exec_layout(run));
}

int sp_i_exec_members(const sp_i_exec_run *run)
{
    return sp_i_exec_layout(run)->cp * sp_i_exec_layout(run)->tp;
}

size_t sp_i_exec_rank_count(const sp_i_exec_run *run)
{
    return (size_t)sp_layout_ranks(sp_i_exec_layout(run));
}

int sp_i_exec_rank_number(const sp_i_exec_run *run, int dp, int pp, int member)
{
    return (dp * sp_i_exec_layout(run)->pp + pp) * sp_i_exec_members(run) + member;
}

sp_i_exec_rank *sp_i_exec_rank_at(const sp_i_exec_run *run, int dp, int pp, int member)
{
    return &run->ranks[sp_i_exec_rank_number(run, dp, pp, member)];
}

sp_i_exec_stage *sp_i_exec_stage_of(const sp_i_exec_run *run, const sp_i_exec_rank *rank, int chunk)
{
    return &run->stages[(rank - run->ranks) * sp_i_exec_layout(run)->chunks + chunk];
}

int sp_i_exec_member(const sp_i_exec_run *run, const sp_i_exec_rank *rank)
{
    return rank->cp * sp_i_exec_layout(run)->tp + rank->tp;
}

int sp_i_exec_pipeline(const sp_i_exec_run *run, const sp_i_exec_rank *rank)
{
    return rank->dp * sp_i_exec_members(run) + sp_i_exec_member(run, rank);
}

int sp_i_exec_replica(const sp_i_exec_run *run, const sp_i_exec_rank *rank)
{
    return rank->dp * sp_i_exec_layout(run)->cp + rank->cp;
}

sp_i_exec_replicas *sp_i_exec_replicas_of(const sp_i_exec_run *run, const sp_i_exec_rank *rank)
{
    return &run->replicas[rank->pp * sp_i_exec_layout(run)->tp + rank->tp];
}

static bool shards(const sp_i_exec_run *run, int zero)
{
    const sp_layout *layout = sp_i_exec_layout(run);
    return layout->zero >= zero && layout->dp * layout->cp > 1;
}

bool sp_i_exec_shards_gradients(const sp_i_exec_run *run)
{
    return shards(run, 2);
}

bool sp_i_exec_shards_values(const sp_i_exec_run *run)
{
    return shards(run, 3);
}

static sp_element element_of(int64_t bytes)
{
    return bytes == sp_element_bytes(SP_ELEMENT_F64)   ? SP_ELEMENT_F64
           : bytes == sp_element_bytes(SP_ELEMENT_F32) ? SP_ELEMENT_F32
                                                       : SP_ELEMENT_BF16;
}

sp_element sp_i_exec_value_element(const sp_i_exec_run *run)
{
    return element_of(run->math->real_bytes);
}

sp_element sp_i_exec_exact_element(const sp_i_exec_run *run)
{
    return element_of(run->math->exact_bytes);
}

sp_i_exec_rank *sp_i_exec_rank_here(const sp_i_exec_run *run)
{
    return &run->ranks[run->here];
}

bool sp_i_exec_is_here(const sp_i_exec_run *run, const sp_i_exec_rank *rank)
{
    size_t number = (size_t)(rank - run->ranks);
    return number >= run->here && number < run->end_here;
}

void sp_i_exec_enter(const sp_i_exec_run *run, const sp_i_exec_rank *rank)
{
    run->runtime->ops->enter(run->runtime, (int)(rank - run->ranks));
}

void *sp_i_exec_value_at(const sp_i_exec_run *run, const sp_i_exec_rank *rank, int64_t element)
{
    return (char *)rank->values + (element - rank->values_at.begin) * run->math->real_bytes;
}

void *sp_i_exec_gradient_at(const sp_i_exec_run *run, const sp_i_exec_rank *rank, int64_t element)
{
    return (char *)rank->gradients + (element - rank->gradients_at.begin) * run->math->exact_bytes;
}

void *sp_i_exec_master_at(const sp_i_exec_run *run, const sp_i_exec_rank *rank, int64_t element)
{
    return rank->masters == NULL
               ? sp_i_exec_value_at(run, rank, element)
               : (char *)rank->masters + (element - rank->share_begin) * run->math->exact_bytes;
}

sp_status sp_i_exec_rank_failure(const sp_i_exec_run *run, sp_i_exec_rank *rank,
                                 const sp_plan_place *place, sp_error *err)
{
    char text[SP_ERROR_TEXT / 2];
    if (rank->links.status != SP_OK) {
        // What the world says names rank and action, this rank's or another's.
        bool own = place != NULL && sp_comm_world_failure(run->world, NULL) == SP_OK;
        for (int i = 0; own && i < rank->links.err.count; i++) {
            sp_error_at_action(err, rank->links.status, run->request->plan, place, "%s",
                               rank->links.err.message[i]);
        }
        return own ? rank->links.status : sp_error_add(err, &rank->links.err);
    }
    sp_status status = sp_i_exec_arena_failure(rank->arena, text, sizeof text);
    return place != NULL
               ? sp_error_at_action(err, status, run->request->plan, place, "%s", text)
               : sp_error_set(err, status, "parameters, gradients and optimizer: %s", text);
}

sp_status sp_i_exec_synchronize_rank(const sp_i_exec_run *run, const sp_i_exec_rank *rank,
                                     sp_error *err)
{
    sp_error own = {0};
    sp_status status = sp_i_exec_synchronize(run, NULL, &own);
    if (status == SP_OK) {
        return SP_OK;
    }
    return sp_error_set(err, status, "dp %d pp %d cp %d tp %d: %s", rank->dp, rank->pp, rank->cp,
                        rank->tp, own.message[0]);
}

sp_status sp_i_exec_synchronize(const sp_i_exec_run *run, const sp_plan_place *place, sp_error *err)
{
    sp_error own = {0};
    sp_status status = run->transport == NULL || run->world == NULL
                           ? run->runtime->ops->synchronize(run->runtime, &own)
                           : run->transport->ops->synchronize(run->transport, &own);
    if (status == SP_OK) {
        return SP_OK;
    }
    const char *text = own.count > 0 ? own.message[0] : sp_status_text(status);
    return place != NULL ? sp_error_at_action(err, status, run->request->plan, place, "%s", text)
                         : sp_error_set(err, status, "%s", text);
}

sp_status sp_i_exec_synchronize_last(const sp_i_exec_run *run, const sp_i_exec_rank *rank,
                                     sp_error *err)
{
    const sp_stage_plan *stage = sp_plan_stage(run->request->plan, rank->dp, rank->pp);
    sp_plan_place last = {.dp = rank->dp, .pp = rank->pp};
    if (stage->count > 0) {
        last.action = stage->actions[stage->count - 1];
    }
    return sp_i_exec_synchronize(run, stage->count > 0 ? &last : NULL, err);
}
