// Clipping by the global norm of the gradients (Pascanu, Mikolov, Bengio, "On the difficulty of
// training recurrent neural networks", arXiv 1211.5063, algorithm 1), over all ranks.
#include <math.h>

#include "backends/executor/run.h"

// Ranks that step the same element: without shares all replicas do, and the first one counts.
static bool counts(const sp_i_exec_run *run, const sp_i_exec_rank *rank)
{
    return sp_i_exec_layout(run)->zero >= 1 || sp_i_exec_replica(run, rank) == 0;
}

// Elements of a tensor that other tensor-parallel ranks have too.
static sp_i_exec_range repeated(const sp_i_exec_weight *weight)
{
    bool all = weight->rows == weight->all_rows && weight->columns == weight->all_columns;
    return all ? (sp_i_exec_range){0, weight->elements}
               : (sp_i_exec_range){weight->shared_first, weight->shared_elements};
}

// Of those the first of the ranks counts.
static bool is_first(const sp_i_exec_run *run, const sp_i_exec_rank *rank,
                     const sp_i_exec_weight *weight)
{
    bool all = weight->rows == weight->all_rows && weight->columns == weight->all_columns;
    int same = all ? sp_i_exec_layout(run)->tp : weight->shared_by;
    return same < 2 || rank->tp % same == 0;
}

// Of the rank's share.
static double sum_range(const sp_i_exec_run *run, const sp_i_exec_rank *rank, int64_t begin,
                        int64_t end)
{
    double sum = 0.0;
    begin = begin > rank->share_begin ? begin : rank->share_begin;
    end = end < rank->share_end ? end : rank->share_end;
    if (begin < end) {
        run->machine->ops->sum_of_squares(run->machine, sp_i_exec_exact_element(run), end - begin,
                                          sp_i_exec_gradient_at(run, rank, begin), &sum);
    }
    return sum;
}

// The second end of a tied table has the gradients of the first.
static double sum_squares(const sp_i_exec_run *run, const sp_i_exec_rank *rank,
                          const sp_i_exec_weight *weight)
{
    sp_i_exec_range twice = repeated(weight);
    if (weight->copy) {
        return 0.0;
    }
    if (is_first(run, rank, weight)) {
        return sum_range(run, rank, weight->offset, weight->offset + weight->elements);
    }
    int64_t from = weight->offset + twice.begin;
    return sum_range(run, rank, weight->offset, from) +
           sum_range(run, rank, from + twice.count, weight->offset + weight->elements);
}

// Of one number at each rank.
static sp_status sum_ranks(const sp_i_exec_run *run, const sp_i_exec_rank *rank, double *x,
                           sp_error *err)
{
    const sp_machine_ops *ops = run->machine->ops;
    void *at = sp_i_exec_take(rank->arena, SP_MEM_WORKSPACE, 1, (sp_i_exec_width){sizeof *x, 0});
    if (at == NULL) {
        return sp_error_no_memory(err, "the norm of gradients");
    }
    ops->upload(run->machine, at, x, sizeof *x);
    sp_status status = sp_comm_all_reduce(rank->links.me, run->all_group, SP_ELEMENT_F64,
                                          SP_COMM_SUM, at, at, 1, err);
    if (status == SP_OK && run->transport != NULL) {
        status = sp_i_exec_settle(run, NULL, err);
    }
    if (status == SP_OK) {
        ops->download(run->machine, x, at, sizeof *x);
    }
    sp_i_exec_give(rank->arena, at);
    return status;
}

sp_status sp_i_exec_clip_scale(const sp_i_exec_run *run, const sp_i_exec_rank *rank, double *scale,
                               sp_error *err)
{
    double squares = 0.0;
    sp_status status = SP_OK;
    *scale = 1.0;
    if (run->options.clip <= 0.0) {
        return SP_OK;
    }
    // The sums wait for work of the rank that may wait for others.
    if (run->transport != NULL) {
        status = sp_i_exec_settle(run, NULL, err);
    }
    for (size_t w = 0; status == SP_OK && counts(run, rank) && w < rank->weights->count; w++) {
        squares += sum_squares(run, rank, &rank->weights->items[w]);
    }
    if (status == SP_OK && run->all_group >= 0) {
        status = sum_ranks(run, rank, &squares, err);
    }
    double norm = sqrt(squares);
    *scale = norm > run->options.clip ? run->options.clip / norm : 1.0;
    return status;
}
