#include "solver/step/packflow.h"

#include <math.h>

#include "sim/base/alloc.h"
#include "sim/schedule/schedule.h"
#include "solver/step/pack_memory.h"

// What ranks have for activations, with whole and with split backwards.
typedef struct memory_tables {
    double kept_share;
    sp_pack_room of[2]; // by `split`, of all data-parallel ranks
} memory_tables;

// As the search for packs reckons it (rank_score.c), so that the order is the one it has judged:
// near the limit a little more or less room makes another order.
static void measure(const sp_scenario *scenario, const sp_cost_model *cost, const sp_plan *plan,
                    const sp_fullest_pack *fullest, sp_pack_memory *memory, sp_arena *work,
                    memory_tables *tables)
{
    const sp_layout *layout = &plan->layout;
    int64_t limit_bytes = scenario->memory_limit_bytes - plan->packing->spare_bytes;
    size_t dp = (size_t)layout->dp;
    size_t pp = (size_t)layout->pp;
    size_t vstages = (size_t)sp_layout_vstages(layout);
    for (int split = 0; split < 2; split++) {
        tables->of[split] =
            (sp_pack_room){.token_bytes = sp_arena_take(work, dp * vstages, sizeof(int64_t)),
                           .room_bytes = sp_arena_take(work, dp * pp, sizeof(int64_t)),
                           .again_bytes = sp_arena_take(work, dp * pp, sizeof(int64_t))};
    }
    for (size_t d = 0; d < dp; d++) {
        if (fullest[d].dp_count == 0) {
            continue;
        }
        sp_pack_memory_measure(memory, cost, &fullest[d]);
        tables->kept_share = fmax(tables->kept_share, sp_pack_memory_kept_share(memory, layout));
        for (int split = 0; split < 2; split++) {
            const sp_pack_room *of = &tables->of[split];
            const sp_pack_room room = {of->token_bytes + d * vstages, of->room_bytes + d * pp,
                                       of->again_bytes + d * pp};
            sp_pack_memory_room(memory, layout, split != 0, limit_bytes, &room);
        }
    }
}

static void fill_memory(const sp_scenario *scenario, const sp_cost_model *cost, const sp_plan *plan,
                        const sp_step_costs *costs, sp_arena *work, memory_tables *tables)
{
    const sp_layout *layout = &plan->layout;
    *tables = (memory_tables){0};
    if (costs->unit == NULL) {
        return; // uniform costs
    }
    sp_pack_memory memory;
    sp_fullest_pack *fullest = sp_malloc((size_t)layout->dp * sizeof *fullest);
    sp_fullest_packs(plan->packing, layout->cp, fullest);
    sp_pack_memory_init(&memory, layout, costs);
    measure(scenario, cost, plan, fullest, &memory, work, tables);
    sp_pack_memory_fini(&memory);
    sp_free(fullest);
}

static void use_memory(const memory_tables *tables, bool split, sp_schedule_costs *times)
{
    times->token_bytes = tables->of[split].token_bytes;
    times->room_bytes = tables->of[split].room_bytes;
    times->again_bytes = tables->of[split].again_bytes;
    times->kept_share = tables->kept_share;
}

// Finds the orders of a step with gradients whole or apart.
static sp_status order_step(const sp_scenario *scenario, const sp_plan *plan, bool split,
                            const memory_tables *tables, const sp_packflow_outcome *beaten,
                            sp_schedule_costs *times, sp_arena *work, sp_packflow_outcome *outcome,
                            sp_error *err)
{
    sp_schedule_spec spec = scenario->schedule;
    spec.split_backward = split;
    use_memory(tables, split, times);
    times->orders = sp_arena_take(work, (size_t)plan->layout.dp, sizeof *times->orders);
    return sp_packflow_slowest(&spec, times, plan->packing, &plan->layout, beaten, work,
                               times->orders, outcome, err);
}

// Gradients are run apart only where that is no slower, or fits where whole backwards do not.
// Without a pipeline no rank waits for an input gradient.
static sp_status choose_split(const sp_scenario *scenario, const sp_plan *plan,
                              const memory_tables *tables, sp_schedule_costs *times,
                              sp_schedule_spec *spec, sp_arena *work, sp_error *err)
{
    sp_packflow_outcome whole;
    sp_packflow_outcome apart;
    spec->split_backward =
        spec->split_backward && plan->layout.pp > 1 && !plan->packing->whole_backwards;
    if (!spec->split_backward) {
        use_memory(tables, false, times);
        return SP_OK;
    }
    sp_status status = order_step(scenario, plan, true, tables, NULL, times, work, &apart, err);
    const sp_schedule_costs with_apart = *times;
    if (status == SP_OK) {
        status = order_step(scenario, plan, false, tables, &apart, times, work, &whole, err);
    }
    if (status == SP_OK && !sp_packflow_is_better(&whole, &apart)) {
        *times = with_apart;
    } else {
        spec->split_backward = false;
    }
    return status;
}

sp_status sp_i_packflow_choose(const sp_scenario *scenario, const sp_cost_model *cost,
                               const sp_plan *plan, const sp_step_costs *costs,
                               sp_schedule_costs *times, sp_schedule_spec *spec, sp_arena *work,
                               sp_error *err)
{
    memory_tables tables;
    fill_memory(scenario, cost, plan, costs, work, &tables);
    return choose_split(scenario, plan, &tables, times, spec, work, err);
}
