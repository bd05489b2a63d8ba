// The ranks of a run: where each stands, the groups that they exchange in, bodies that run on them,
// and the words when one cannot go on.
#include "backends/executor/run.h"

#include <stdio.h>
#include <time.h>

#include "sim/base/alloc.h"

sp_status sp_i_exec_rank_failure(const sp_i_exec_run *run, sp_i_exec_rank *rank,
                                 const sp_plan_place *place, sp_error *err)
{
    char text[SP_ERROR_TEXT / 2];
    if (rank->links.status != SP_OK) {
        // The world's message names rank and action, this rank's or another's.
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

// ---- Groups of ranks, and bodies that run on them ----

// The group of these ranks, made unless it is there; -1 for one rank alone.
static sp_status group_of(sp_i_exec_run *run, const char *name, const int *ranks, int count,
                          int *group, sp_error *err)
{
    *group = -1;
    if (count < 2) {
        return SP_OK;
    }
    *group = sp_comm_group_find(run->world, ranks, count);
    return *group >= 0 ? SP_OK : sp_comm_group_new(run->world, name, ranks, count, group, err);
}

// Ranks [first, first + count) of the tensor-parallel ones that stand beside this one.
static sp_status tp_group(sp_i_exec_run *run, const sp_i_exec_rank *rank, int first, int count,
                          int *scratch, int *group, sp_error *err)
{
    int tp = sp_i_exec_layout(run)->tp;
    for (int t = 0; t < count; t++) {
        scratch[t] = sp_i_exec_rank_number(run, rank->dp, rank->pp, rank->cp * tp + first + t);
    }
    return group_of(run, "TP", scratch, count, group, err);
}

// The ranks of `dp_count` data-parallel ranks that hold the same parameters as this one.
static sp_status token_group(sp_i_exec_run *run, const char *name, const sp_i_exec_rank *rank,
                             int dp_first, int dp_count, int *scratch, int *group, sp_error *err)
{
    const sp_layout *layout = sp_i_exec_layout(run);
    int count = 0;
    for (int d = dp_first; d < dp_first + dp_count; d++) {
        for (int c = 0; c < layout->cp; c++) {
            scratch[count++] = sp_i_exec_rank_number(run, d, rank->pp, c * layout->tp + rank->tp);
        }
    }
    return group_of(run, name, scratch, count, group, err);
}

static sp_status pack_groups(sp_i_exec_run *run, const sp_i_exec_rank *rank, int *scratch,
                             int *groups, sp_error *err)
{
    const sp_pack_list *packs = &run->request->plan->packing->forward;
    for (size_t p = 0; p < packs->count; p++) {
        const sp_pack *pack = &packs->packs[p];
        int among = rank->dp - pack->dp_first;
        groups[p] = -1;
        if (among >= 0 && among < pack->dp_count) {
            SP_TRY(token_group(run, "CP", rank, pack->dp_first, pack->dp_count, scratch, &groups[p],
                               err));
        }
    }
    return SP_OK;
}

// Neighbours that hold the same heads of keys and values, where those are fewer than the ranks.
static sp_status kv_group(sp_i_exec_run *run, sp_i_exec_rank *rank, int *scratch, sp_error *err)
{
    int tp = sp_i_exec_layout(run)->tp;
    int64_t heads = run->request->model->kv_heads;
    int same = heads < tp ? (int)(tp / heads) : 1;
    return tp_group(run, rank, rank->tp / same * same, same, scratch, &rank->kv_group, err);
}

// Neighbours that share the experts, and the ranks that hold the same of them.
static sp_status expert_groups(sp_i_exec_run *run, sp_i_exec_rank *rank, int *scratch,
                               sp_error *err)
{
    const int ranks = sp_i_exec_expert_ranks(run);
    const int own = sp_i_exec_expert_rank(run, rank);
    const int dp = sp_i_exec_layout(run)->dp;
    rank->links.expert_group = -1;
    rank->replica_group = rank->data_group;
    if (ranks == 1) {
        return SP_OK;
    }
    for (int e = 0; e < ranks; e++) {
        scratch[e] = sp_i_exec_rank_number(run, rank->dp - own + e, rank->pp, 0);
    }
    sp_status status = group_of(run, "EP", scratch, ranks, &rank->links.expert_group, err);
    for (int d = own; d < dp; d += ranks) {
        scratch[d / ranks] = sp_i_exec_rank_number(run, d, rank->pp, 0);
    }
    return status == SP_OK ? group_of(run, "EDP", scratch, dp / ranks, &rank->replica_group, err)
                           : status;
}

// The two ranks that hold a tied table, for the embedding and for the LM head.
static sp_status tied_group(sp_i_exec_run *run, sp_i_exec_rank *rank, sp_error *err)
{
    const sp_layout *layout = sp_i_exec_layout(run);
    const int *rank_of = run->depends.rank_of;
    int holders[2] = {rank_of[0], rank_of[sp_i_exec_vstages(run) - 1]};
    rank->tied_group = -1;
    if (!run->request->model->tied_embeddings || layout->vocab_parallel ||
        holders[0] == holders[1] || (rank->pp != holders[0] && rank->pp != holders[1])) {
        return SP_OK;
    }
    for (int e = 0; e < 2; e++) {
        holders[e] = sp_i_exec_rank_number(run, rank->dp, holders[e], sp_i_exec_member(run, rank));
    }
    return group_of(run, "tied table", holders, 2, &rank->tied_group, err);
}

// The pipeline ranks that share the vocabulary.
static sp_status vocab_group(sp_i_exec_run *run, sp_i_exec_rank *rank, int *scratch, sp_error *err)
{
    const sp_layout *layout = sp_i_exec_layout(run);
    const int *rank_of = run->depends.rank_of;
    rank->links.vocab_group = -1;
    if (!layout->vocab_parallel) {
        return SP_OK;
    }
    for (int p = 0; p < layout->pp; p++) {
        scratch[p] = sp_i_exec_rank_number(run, rank->dp, p, sp_i_exec_member(run, rank));
    }
    rank->links.vocab_root[0] = rank_of[0];
    rank->links.vocab_root[1] = rank_of[sp_i_exec_vstages(run) - 1];
    return group_of(run, "vocabulary", scratch, layout->pp, &rank->links.vocab_group, err);
}

static sp_status make_groups(sp_i_exec_run *run, sp_error *err)
{
    const sp_layout *layout = sp_i_exec_layout(run);
    size_t packs = run->request->plan->packing->forward.count;
    size_t ranks = sp_i_exec_rank_count(run);
    int *scratch = sp_calloc(ranks, sizeof *scratch);
    sp_status status = SP_OK;
    for (size_t r = 0; status == SP_OK && r < ranks; r++) {
        sp_i_exec_rank *rank = &run->ranks[r];
        int *groups = run->token_groups + r * packs;
        rank->links.token_group = groups;
        status = tp_group(run, rank, 0, layout->tp, scratch, &rank->links.tp_group, err);
        status = status == SP_OK ? kv_group(run, rank, scratch, err) : status;
        status = status == SP_OK ? vocab_group(run, rank, scratch, err) : status;
        status = status == SP_OK ? pack_groups(run, rank, scratch, groups, err) : status;
        status = status == SP_OK
                     ? token_group(run, "DP", rank, 0, layout->dp, scratch, &rank->data_group, err)
                     : status;
        status = status == SP_OK ? expert_groups(run, rank, scratch, err) : status;
        status = status == SP_OK ? tied_group(run, rank, err) : status;
    }
    for (size_t r = 0; status == SP_OK && r < ranks; r++) {
        scratch[r] = (int)r;
    }
    if (status == SP_OK) {
        status = group_of(run, "all", scratch, (int)ranks, &run->all_group, err);
    }
    sp_free(scratch);
    return status;
}

// "dp 0 pp 1", and before it which of several ranks there: "cp 1 tp 0 of dp 0 pp 1".
static void name_rank(const sp_i_exec_run *run, const sp_i_exec_rank *rank)
{
    const sp_layout *layout = sp_i_exec_layout(run);
    char cp[16] = "";
    char tp[16] = "";
    char name[SP_COMM_RANK_NAME];
    if (layout->cp > 1) {
        snprintf(cp, sizeof cp, "cp %d ", rank->cp);
    }
    if (layout->tp > 1) {
        snprintf(tp, sizeof tp, "tp %d ", rank->tp);
    }
    snprintf(name, sizeof name, "%s%s%sdp %d pp %d", cp, tp,
             cp[0] != '\0' || tp[0] != '\0' ? "of " : "", rank->dp, rank->pp);
    sp_comm_set_name(rank->links.me, name);
}

sp_status sp_i_exec_world_make(sp_i_exec_run *run, sp_error *err)
{
    bool wall = run->wall;
    const sp_comm_options options = {
        .one_at_a_time = !wall, .runtime = run->runtime, .transport = run->transport};
    int ranks = (int)sp_i_exec_rank_count(run);
    SP_TRY(sp_comm_world_new(ranks, &options, &run->world, err));
    for (int r = 0; r < ranks; r++) {
        run->ranks[r].links.me = sp_comm_of(run->world, r);
        run->ranks[r].links.runtime = run->runtime;
        run->ranks[r].links.stamps = wall;
        name_rank(run, &run->ranks[r]);
    }
    return make_groups(run, err);
}

// The reason of the rank that failed first, in its own words.
static sp_status first_failure(sp_i_exec_run *run, sp_error *err)
{
    int failed = sp_comm_failed_rank(run->world);
    const sp_error *own = failed >= 0 ? &run->ranks[failed].err : NULL;
    if (own == NULL || own->count == 0) {
        return sp_comm_world_failure(run->world, err);
    }
    return sp_error_add(err, own);
}

int64_t sp_i_exec_wall_ns(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (int64_t)now.tv_sec * 1000000000 + now.tv_nsec;
}

// The rest of the request's time in the step that runs; 0: no limit.
static int64_t time_left_ns(const sp_i_exec_run *run)
{
    if (!run->wall || run->request->timeout_ns == 0) {
        return 0;
    }
    int64_t passed_ns = run->elapsed_ns + sp_i_exec_wall_ns() - run->wall_began_ns;
    return passed_ns < run->request->timeout_ns ? run->request->timeout_ns - passed_ns : 1;
}

sp_status sp_i_exec_on_ranks(sp_i_exec_run *run, const int *ranks, int count, sp_comm_body *body,
                             void *data, sp_error *err)
{
    sp_error first = {0};
    sp_status status =
        sp_comm_run_ranks(run->world, ranks, count, body, data, time_left_ns(run), &first);
    if (status == SP_OK || sp_comm_world_failure(run->world, NULL) != SP_OK) {
        return status == SP_OK ? SP_OK : first_failure(run, err);
    }
    return sp_error_set(err, status, "%s", first.message[0]); // the threads could not start
}
