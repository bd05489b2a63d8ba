#include <stdio.h>
#include <string.h>

#include "backends/host/run.h"

static bool is_named_before(const sp_i_host_weight *weight)
{
    return weight->copy || weight->continued;
}

// The i-th tensor, in the order of the pipeline ranks.
static size_t weight_at(const sp_i_host_run *run, size_t index, int *pp)
{
    for (int p = 0; p < sp_i_host_layout(run)->pp; p++) {
        const sp_i_host_weights *weights = sp_i_host_rank_at(run, 0, p, 0)->weights;
        for (size_t w = 0; w < weights->count; w++) {
            if (is_named_before(&weights->items[w])) {
                continue;
            }
            if (index == 0) {
                *pp = p;
                return w;
            }
            index--;
        }
    }
    SP_UNREACHABLE("a tensor beyond the last");
}

static size_t weight_count(const sp_i_host_run *run)
{
    size_t count = 0;
    for (int p = 0; p < sp_i_host_layout(run)->pp; p++) {
        const sp_i_host_weights *weights = sp_i_host_rank_at(run, 0, p, 0)->weights;
        for (size_t w = 0; w < weights->count; w++) {
            count += !is_named_before(&weights->items[w]);
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
    size_t w = weight_at(run, gradient ? index - count : index, &pp);
    const sp_i_host_weight *weight = &sp_i_host_rank_at(run, 0, pp, 0)->weights->items[w];
    *info = (sp_tensor_info){.precision = run->request->precision,
                             .dims = weight->all_rows > 1 && weight->all_columns > 1 ? 2 : 1,
                             .elements = weight->all_rows * weight->all_columns};
    snprintf(info->name, sizeof info->name, "%s/%s", gradient ? "gradients" : "parameters",
             weight->name);
    info->size[0] = info->dims == 2 ? weight->all_rows : info->elements;
    info->size[1] = info->dims == 2 ? weight->all_columns : 0;
}

// At the rank itself, or where its replicas keep the element.
static const void *element_at(const sp_i_host_run *run, const sp_i_host_rank *rank, bool gradient,
                              int64_t element)
{
    bool sharded = gradient ? sp_i_host_shards_gradients(run) : sp_i_host_shards_values(run);
    if (!sharded) {
        return gradient ? sp_i_host_gradient_at(run, rank, element)
                        : sp_i_host_value_at(run, rank, element);
    }
    const sp_i_host_share *share = sp_i_host_share_of(sp_i_host_replicas_of(run, rank), element);
    return (const char *)(gradient ? share->gradients : share->values) +
           (element - share->begin) * run->math->real_bytes;
}

// Copies what a rank has of a tensor to its places in the whole.
static void read_part(const sp_i_host_run *run, const sp_i_host_rank *rank,
                      const sp_i_host_weight *weight, bool gradient, double *values)
{
    for (int64_t i = 0; i < weight->elements; i++) {
        int64_t place = sp_i_host_weight_index(weight, i);
        if (place >= 0) {
            const void *at = element_at(run, rank, gradient, weight->offset + i);
            values[place] = run->request->precision == SP_FP64 ? *(const double *)at
                                                               : (double)*(const float *)at;
        }
    }
}

void sp_i_host_tensor_read(const sp_i_host_run *run, size_t index, double *values)
{
    int pp;
    size_t count = weight_count(run);
    bool gradient = index >= count;
    size_t w = weight_at(run, gradient ? index - count : index, &pp);
    const char *name = sp_i_host_rank_at(run, 0, pp, 0)->weights->items[w].name;
    for (; pp < sp_i_host_layout(run)->pp; pp++) {
        for (int t = 0; t < sp_i_host_layout(run)->tp; t++) {
            const sp_i_host_rank *rank = sp_i_host_rank_at(run, 0, pp, t);
            for (w = 0; w < rank->weights->count; w++) {
                const sp_i_host_weight *weight = &rank->weights->items[w];
                if (strcmp(weight->name, name) == 0) {
                    read_part(run, rank, weight, gradient, values);
                }
            }
        }
    }
}
