// Gradients at the end of a step: sums over the ranks that hold the same parameters. Where ZeRO
// shards them the actions have given each share what it sums (replicas.h).
#include <string.h>

#include "backends/executor/run.h"
#include "sim/base/alloc.h"

static sp_element type_of(const sp_i_exec_run *run)
{
    return sp_i_exec_exact_element(run);
}

// Elements of a tensor, or of all, that lie in a range.
static sp_i_exec_range meet(sp_i_exec_range a, int64_t begin, int64_t end)
{
    int64_t from = a.begin > begin ? a.begin : begin;
    int64_t to = a.begin + a.count < end ? a.begin + a.count : end;
    return (sp_i_exec_range){from, from < to ? to - from : 0};
}

// Those of which this rank holds the gradients.
static sp_i_exec_range held(const sp_i_exec_rank *rank, int64_t first, int64_t count)
{
    return meet((sp_i_exec_range){first, count}, rank->gradients_at.begin,
                rank->gradients_at.begin + rank->gradients_at.count);
}

static sp_status sum(const sp_i_exec_run *run, const sp_i_exec_rank *rank, int group,
                     sp_i_exec_range of, sp_error *err)
{
    void *at = sp_i_exec_gradient_at(run, rank, of.begin);
    return group < 0 || of.count == 0 ? SP_OK
                                      : sp_comm_all_reduce(rank->links.me, group, type_of(run),
                                                           SP_COMM_SUM, at, at, of.count, err);
}

// Where tensor-parallel ranks hold the same elements and each has seen a part of what they did.
// Their shares of the same replica are the same.
static sp_status sum_shared(const sp_i_exec_run *run, const sp_i_exec_rank *rank, sp_error *err)
{
    sp_status status = SP_OK;
    for (size_t w = 0; status == SP_OK && w < rank->weights->count; w++) {
        const sp_i_exec_weight *weight = &rank->weights->items[w];
        bool all = weight->shared_by == sp_i_exec_layout(run)->tp;
        if (weight->shared_by > 1) {
            status = sum(run, rank, all ? rank->links.tp_group : rank->kv_group,
                         held(rank, weight->offset + weight->shared_first, weight->shared_elements),
                         err);
        }
    }
    return status;
}

// The two ends cut the table into other shares: both put it together, sum it and keep their own.
static sp_status sum_tied_shares(const sp_i_exec_run *run, const sp_i_exec_rank *rank,
                                 const sp_i_exec_weight *table, sp_error *err)
{
    const sp_i_exec_replicas *replicas = sp_i_exec_replicas_of(run, rank);
    const sp_i_exec_range all = {table->offset, table->elements};
    sp_i_exec_range own = held(rank, table->offset, table->elements);
    void *sums =
        sp_i_exec_take(rank->arena, SP_MEM_WORKSPACE, table->elements, rank->job->specs.statistic);
    int64_t *rows = sp_i_calloc((size_t)replicas->count, sizeof *rows);
    sp_status status =
        sums != NULL && rows != NULL ? SP_OK : sp_error_no_memory(err, "a tied table");
    for (int m = 0; status == SP_OK && m < replicas->count; m++) {
        rows[m] = meet(all, replicas->shares[m].begin, replicas->shares[m].end).count;
    }
    void *at = own.count > 0 ? sp_i_exec_gradient_at(run, rank, own.begin) : rank->gradients;
    if (status == SP_OK) {
        status = sp_comm_all_gather_rows(rank->links.me, rank->data_group, type_of(run), at, sums,
                                         rows, 1, err);
    }
    if (status == SP_OK) {
        status = sp_comm_all_reduce(rank->links.me, rank->tied_group, type_of(run), SP_COMM_SUM,
                                    sums, sums, table->elements, err);
    }
    if (status == SP_OK && own.count > 0) {
        run->machine->ops->copy(run->machine, at,
                                (char *)sums + (own.begin - all.begin) * run->math->exact_bytes,
                                own.count * run->math->exact_bytes);
    }
    sp_i_exec_give(rank->arena, sums);
    sp_i_free(rows);
    return status;
}

// A tied table with its ends on two ranks has the sum of both gradients on both.
static sp_status sum_tied(const sp_i_exec_run *run, const sp_i_exec_rank *rank, sp_error *err)
{
    for (size_t w = 0; rank->tied_group >= 0 && w < rank->weights->count; w++) {
        const sp_i_exec_weight *weight = &rank->weights->items[w];
        if (strcmp(weight->name, "embedding.tokens") == 0) {
            return sp_i_exec_shards_gradients(run)
                       ? sum_tied_shares(run, rank, weight, err)
                       : sum(run, rank, rank->tied_group,
                             (sp_i_exec_range){weight->offset, weight->elements}, err);
        }
    }
    return SP_OK;
}

static sp_status sum_replicas(const sp_i_exec_run *run, const sp_i_exec_rank *rank, sp_error *err)
{
    if (!sp_i_exec_shards_gradients(run)) {
        return sum(run, rank, rank->data_group, (sp_i_exec_range){0, rank->weights->elements}, err);
    }
    sp_i_exec_scatter_end(sp_i_exec_replicas_of(run, rank), sp_i_exec_replica(run, rank));
    sp_status status = sp_comm_barrier(rank->links.me, rank->data_group, err);
    sp_i_exec_scatter_wait(sp_i_exec_replicas_of(run, rank));
    return status;
}

sp_status sp_i_exec_reduce(const sp_i_exec_run *run, const sp_i_exec_rank *rank, sp_error *err)
{
    sp_status status = sum_replicas(run, rank, err);
    status = status == SP_OK ? sum_shared(run, rank, err) : status;
    return status == SP_OK ? sum_tied(run, rank, err) : status;
}
