#include "solver/slimpack/rank_groups.h"

#include <math.h>

#define ASSUMED 1.05

// Of the time on half as many ranks, so that more of them are worth while.
#define WORTH 0.95

enum { SLICE_TOKENS = 8192 };

int sp_i_power_of_two(int number)
{
    int power = 1;
    while (power <= number / 2) {
        power *= 2;
    }
    return power;
}

int sp_i_merge_level(int ranks)
{
    int level = 0;
    for (; ranks > 1; ranks /= 2) {
        level++;
    }
    return level;
}

double sp_i_merge_pace(const sp_i_merge_costs *costs, int ranks)
{
    return costs->cost[sp_i_merge_level(ranks)] / ranks;
}

sp_i_merge_costs sp_i_merge_costs_assumed(int most)
{
    sp_i_merge_costs costs = {.levels = sp_i_merge_level(sp_i_power_of_two(most)) + 1};
    for (int l = 0; l < costs.levels; l++) {
        costs.cost[l] = l == 0 ? 1.0 : ASSUMED;
    }
    return costs;
}

// Packs of a slice from the middle of a sample, which has the mean of all slices' pairs, on 1, 2,
// 4, ... ranks; false when memory runs out.
static bool add_packs(const sp_layout *layout, int64_t tokens, sp_pack_list *list)
{
    int64_t length = tokens < SLICE_TOKENS ? tokens : SLICE_TOKENS;
    const sp_slice slice = {
        .begin = (tokens - length) / 2, .tokens = length, .computed_tokens = length};
    bool ok = true;
    for (int ranks = 1; ok && ranks <= sp_i_power_of_two(layout->dp); ranks *= 2) {
        ok = sp_pack_list_begin(list, 0, ranks) && sp_pack_list_add(list, slice, true);
    }
    return ok;
}

// Forward and backward, summed over the virtual stages.
static double pack_s(const sp_step_costs *costs, const sp_layout *layout, size_t pack)
{
    double sum_s = 0.0;
    for (int v = 0; v < sp_layout_vstages(layout); v++) {
        size_t at = pack * (size_t)costs->classes + (size_t)costs->class_of_vstage[v];
        sum_s += 1e-9 * (double)sp_action_cost_ns(&costs->f[at]);
        sum_s += 1e-9 * (double)sp_action_cost_ns(&costs->b[at]);
    }
    return sum_s;
}

sp_status sp_i_merge_costs_measure(sp_cost_model *cost, int64_t tokens, sp_i_merge_costs *costs,
                                   sp_error *err)
{
    sp_packing packing;
    sp_step_costs priced = {0};
    *costs = sp_i_merge_costs_assumed(1);
    sp_packing_init(&packing, NULL, cost->layout->dp);
    sp_status status = add_packs(cost->layout, tokens, &packing.forward)
                           ? sp_cost_model_build(cost, &packing, &priced, err)
                           : sp_error_no_memory(err, "the cost of merged ranks");
    double alone_s = status == SP_OK ? pack_s(&priced, cost->layout, 0) : 0.0;
    double half_s = alone_s;
    for (size_t l = 1; status == SP_OK && l < packing.forward.count; l++) {
        double merged_s = pack_s(&priced, cost->layout, l);
        if (!(merged_s < WORTH * half_s)) {
            break;
        }
        // Work that is less in sum on several ranks is none that they save.
        costs->cost[costs->levels++] = fmax(1.0, ldexp(merged_s, (int)l) / alone_s);
        half_s = merged_s;
    }
    sp_step_costs_fini(&priced);
    sp_packing_fini(&packing);
    return status;
}
