#include <stddef.h>
#include <string.h>

#include "kernels/cuda_sample.h"

void sp_cuda_sample_gather_mass(const sp_kernel_sample_options *options,
                                const sp_cuda_sample_bands *bands, const int32_t *position,
                                int64_t head, const sp_cuda_sample_sums *sums,
                                sp_kernel_sample_mass *mass)
{
    int64_t blocks = sp_kernel_sample_blocks(bands->keys);
    mass->window = 0.0;
    mass->total = (double)bands->sampled;
    for (int64_t j = 0; j < bands->keys; j++) {
        mass->column[j] = (double)sums->before[head * bands->keys + j];
        mass->window += (double)sums->inside[head * bands->keys + j];
    }
    if (options->pattern != SP_KERNEL_SAMPLE_SLASHES) {
        return;
    }
    memset(mass->slash, 0, (size_t)blocks * sizeof *mass->slash);
    for (int64_t b = 0; b < blocks; b++) {
        for (int64_t s = 0; s < bands->sampled; s++) {
            int64_t distance = position[s] / SP_KERNEL_SAMPLE_TILE - b;
            if (distance >= 0) {
                mass->slash[distance] +=
                    (double)sums->by_query[(head * blocks + b) * bands->sampled + s];
            }
        }
    }
}

// Single columns that all stand before the run.
static int64_t columns_before(const sp_kernel_sample_mask *mask, int64_t begin)
{
    int64_t low = 0;
    int64_t high = mask->columns;
    while (low < high) {
        int64_t middle = (low + high) / 2;
        if (mask->column[middle] < begin) {
            low = middle + 1;
        } else {
            high = middle;
        }
    }
    return low;
}

// Single columns are gathered from their list; all else comes in runs. Returns the runs.
static int64_t plan_tile(const sp_kernel_sample_mask *mask, sp_kernel_sample_run tile,
                         sp_cuda_sample_item *item, sp_cuda_sample_run *runs)
{
    sp_kernel_sample_mask without = *mask;
    int64_t count = 0;
    if (mask->grain == 1) {
        without.columns = 0;
    }
    sp_kernel_sample_walk walk = sp_kernel_sample_walk_start(&without, tile);
    for (sp_kernel_sample_run run; sp_kernel_sample_walk_next(&walk, &run); count++) {
        if (count == 0) {
            item->columns = mask->grain == 1 ? (int32_t)columns_before(mask, run.begin) : 0;
        }
        if (runs != NULL) {
            runs[count] = (sp_cuda_sample_run){.begin = (int32_t)run.begin,
                                               .keys = (int32_t)(run.end - run.begin)};
        }
    }
    item->runs = (int32_t)count;
    return count;
}

int64_t sp_cuda_sample_plan(int64_t heads, const sp_kernel_sample_mask *masks, int64_t begin,
                            int64_t queries, sp_kernel_sample_item *work,
                            sp_cuda_sample_tables *tables)
{
    int64_t items = heads * sp_kernel_sample_blocks(queries);
    int64_t runs = 0;
    sp_kernel_sample_items(heads, masks, begin, queries, work);
    tables->item_count = items;
    for (int64_t i = 0; i < items; i++) {
        int64_t first = (int64_t)work[i].tile * SP_KERNEL_SAMPLE_TILE;
        int64_t end = first + SP_KERNEL_SAMPLE_TILE;
        sp_kernel_sample_run tile = {begin + first, begin + (end < queries ? end : queries)};
        sp_cuda_sample_item item = {
            .head = work[i].head, .begin = (int32_t)first, .first_run = runs};
        runs += plan_tile(&masks[work[i].head], tile, &item,
                          tables->runs != NULL ? tables->runs + runs : NULL);
        if (tables->items != NULL) {
            tables->items[i] = item;
        }
    }
    return runs;
}
