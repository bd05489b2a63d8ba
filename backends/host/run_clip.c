// Clipping by the global norm of the gradients (Pascanu, Mikolov, Bengio, "On the difficulty of
// training recurrent neural networks", arXiv 1211.5063, algorithm 1), over all ranks.
#include <math.h>

#include "backends/host/run.h"

// Ranks that step the same element: without shares all replicas do, and the first one counts.
static bool counts(const sp_i_host_run *run, const sp_i_host_rank *rank)
{
    return sp_i_host_layout(run)->zero >= 1 || sp_i_host_replica(run, rank) == 0;
}

// Elements of a tensor that other tensor-parallel ranks have too.
static sp_i_host_range repeated(const sp_i_host_weight *weight)
{
    bool all = weight->rows == weight->all_rows && weight->columns == weight->all_columns;
    return all ? (sp_i_host_range){0, weight->elements}
               : (sp_i_host_range){weight->shared_first, weight->shared_elements};
}

// Of those the first of the ranks counts.
static bool is_first(const sp_i_host_run *run, const sp_i_host_rank *rank,
                     const sp_i_host_weight *weight)
{
    bool all = weight->rows == weight->all_rows && weight->columns == weight->all_columns;
    int same = all ? sp_i_host_layout(run)->tp : weight->shared_by;
    return same < 2 || rank->tp % same == 0;
}

// The second end of a tied table has the gradients of the first.
static double sum_squares(const sp_i_host_run *run, const sp_i_host_rank *rank,
                          const sp_i_host_weight *weight)
{
    sp_i_host_range twice = repeated(weight);
    bool first = is_first(run, rank, weight);
    double sum = 0.0;
    for (int64_t i = 0; !weight->copy && i < weight->elements; i++) {
        int64_t at = weight->offset + i;
        bool here = first || i < twice.begin || i >= twice.begin + twice.count;
        if (here && at >= rank->share_begin && at < rank->share_end) {
            const void *place = sp_i_host_gradient_at(run, rank, at);
            double gradient = run->request->precision == SP_FP64 ? *(const double *)place
                                                                 : (double)*(const float *)place;
            sum += gradient * gradient;
        }
    }
    return sum;
}

sp_status sp_i_host_clip_scale(const sp_i_host_run *run, const sp_i_host_rank *rank, double *scale,
                               sp_error *err)
{
    double squares = 0.0;
    sp_status status = SP_OK;
    *scale = 1.0;
    if (run->options.clip <= 0.0) {
        return SP_OK;
    }
    for (size_t w = 0; counts(run, rank) && w < rank->weights->count; w++) {
        squares += sum_squares(run, rank, &rank->weights->items[w]);
    }
    if (run->all_group >= 0) {
        status = sp_comm_all_reduce(rank->links.me, run->all_group, SP_COMM_F64, SP_COMM_SUM,
                                    &squares, &squares, 1, err);
    }
    double norm = sqrt(squares);
    *scale = norm > run->options.clip ? run->options.clip / norm : 1.0;
    return status;
}
