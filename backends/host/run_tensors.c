#include <stdio.h>

#include "backends/host/run.h"

// The i-th tensor that is no copy of another, in the order of the pipeline ranks.
static const sp_i_host_weight *weight_at(const sp_i_host_run *run, size_t index, int *pp)
{
    for (int p = 0; p < run->request->plan->layout.pp; p++) {
        const sp_i_host_weights *weights = &run->weights[p];
        for (size_t w = 0; w < weights->count; w++) {
            if (weights->items[w].copy) {
                continue;
            }
            if (index == 0) {
                *pp = p;
                return &weights->items[w];
            }
            index--;
        }
    }
    SP_UNREACHABLE("a tensor beyond the last");
}

static size_t weight_count(const sp_i_host_run *run)
{
    size_t count = 0;
    for (int p = 0; p < run->request->plan->layout.pp; p++) {
        for (size_t w = 0; w < run->weights[p].count; w++) {
            count += !run->weights[p].items[w].copy;
        }
    }
    return count;
}

size_t sp_i_host_tensor_count(const sp_i_host_run *run)
{
    return 2 * weight_count(run);
}

void sp_i_host_tensor_info(const sp_i_host_run *run, size_t index, sp_tensor_info *info)
{
    int pp;
    size_t count = weight_count(run);
    bool gradient = index >= count;
    const sp_i_host_weight *weight = weight_at(run, gradient ? index - count : index, &pp);
    *info = (sp_tensor_info){.precision = run->request->precision,
                             .dims = weight->rows > 1 ? 2 : 1,
                             .elements = weight->elements};
    snprintf(info->name, sizeof info->name, "%s/%s", gradient ? "gradients" : "parameters",
             weight->name);
    info->size[0] = info->dims == 2 ? weight->rows : weight->columns;
    info->size[1] = info->dims == 2 ? weight->columns : 0;
}

void sp_i_host_tensor_read(const sp_i_host_run *run, size_t index, double *values)
{
    int pp;
    size_t count = weight_count(run);
    bool gradient = index >= count;
    const sp_i_host_weight *weight = weight_at(run, gradient ? index - count : index, &pp);
    const sp_i_host_rank *rank = sp_i_host_rank_at(run, 0, pp);
    const void *from = gradient ? rank->gradients : rank->values;
    for (int64_t i = 0; i < weight->elements; i++) {
        values[i] = run->request->precision == SP_FP64
                        ? ((const double *)from)[weight->offset + i]
                        : (double)((const float *)from)[weight->offset + i];
    }
}
