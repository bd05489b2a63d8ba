#include "solver/evaluate/packflow_choice.h"

#include "sim/base/alloc.h"
#include "sim/schedule/packflow.h"
#include "solver/evaluate/pack_memory.h"

// Of all data-parallel ranks.
static sp_status outcome_of(const sp_scenario *scenario, const sp_schedule_costs *times,
                            const sp_packing *packing, bool split, sp_packflow_outcome *outcome,
                            sp_error *err)
{
    sp_schedule_spec spec = scenario->schedule;
    spec.split_backward = split;
    *outcome = (sp_packflow_outcome){.fits = true};
    sp_status status = SP_OK;
    for (int d = 0; status == SP_OK && d < scenario->layout.dp; d++) {
        sp_packflow_result result = {0};
        status = sp_packflow_rank(&spec, times, packing, &scenario->layout, d, &result, err);
        outcome->makespan_ns =
            result.makespan_ns > outcome->makespan_ns ? result.makespan_ns : outcome->makespan_ns;
        outcome->fits = outcome->fits && result.lacking_bytes == 0;
    }
    return status;
}

// What ranks have for activations, with whole and with split backwards.
typedef struct memory_tables {
    int64_t *token_bytes[2], *room_bytes[2]; // by `split`, of all data-parallel ranks; one block
} memory_tables;

// As the search for packs reckons it (rank_score.h), so that the order is the one it has judged:
// near the limit a little more or less room makes another order.
static sp_status measure(const sp_scenario *scenario, const sp_cost_model *cost,
                         const sp_plan *plan, const sp_fullest_pack *fullest,
                         sp_pack_memory *memory, memory_tables *tables, sp_error *err)
{
    const sp_layout *layout = &plan->layout;
    size_t dp = (size_t)layout->dp;
    size_t pp = (size_t)layout->pp;
    size_t vstages = (size_t)sp_layout_vstages(layout);
    int64_t *block = sp_i_calloc(2 * dp * (vstages + pp), sizeof *block);
    if (block == NULL) {
        return sp_error_no_memory(err, "the memory of packs");
    }
    for (int split = 0; split < 2; split++) {
        tables->token_bytes[split] = block + (size_t)split * dp * (vstages + pp);
        tables->room_bytes[split] = tables->token_bytes[split] + dp * vstages;
    }
    for (size_t d = 0; d < dp; d++) {
        if (fullest[d].dp_count == 0) {
            continue;
        }
        sp_pack_memory_measure(memory, cost, &fullest[d]);
        for (int split = 0; split < 2; split++) {
            sp_pack_memory_room(memory, layout, split != 0, scenario->memory_limit_bytes,
                                tables->token_bytes[split] + d * vstages,
                                tables->room_bytes[split] + d * pp);
        }
    }
    return SP_OK;
}

static sp_status fill_memory(const sp_scenario *scenario, const sp_cost_model *cost,
                             const sp_plan *plan, const sp_step_costs *costs, memory_tables *tables,
                             sp_error *err)
{
    const sp_layout *layout = &plan->layout;
    sp_pack_memory memory = {.states = NULL};
    *tables = (memory_tables){0};
    if (costs->unit == NULL) {
        return SP_OK; // uniform costs
    }
    sp_fullest_pack *fullest = sp_i_malloc((size_t)layout->dp * sizeof *fullest);
    sp_status status = fullest != NULL ? sp_fullest_packs(plan->packing, layout->cp, fullest, err)
                                       : sp_error_no_memory(err, "the memory of packs");
    if (status == SP_OK) {
        status = sp_pack_memory_init(&memory, layout, costs, err);
    }
    if (status == SP_OK) {
        status = measure(scenario, cost, plan, fullest, &memory, tables, err);
    }
    sp_pack_memory_fini(&memory);
    sp_i_free(fullest);
    return status;
}

static void use_memory(const memory_tables *tables, bool split, sp_schedule_costs *times)
{
    times->token_bytes = tables->token_bytes[split];
    times->room_bytes = tables->room_bytes[split];
}

// Gradients are run apart only where that is faster, or fits where whole backwards do not.
static sp_status settle_split(const sp_scenario *scenario, const sp_plan *plan,
                              const memory_tables *tables, sp_schedule_costs *times,
                              sp_schedule_spec *spec, sp_error *err)
{
    sp_packflow_outcome whole = {0};
    sp_packflow_outcome apart = {0};
    sp_status status = SP_OK;
    if (spec->split_backward) {
        use_memory(tables, false, times);
        status = outcome_of(scenario, times, plan->packing, false, &whole, err);
    }
    if (status == SP_OK && spec->split_backward) {
        use_memory(tables, true, times);
        status = outcome_of(scenario, times, plan->packing, true, &apart, err);
        spec->split_backward = !sp_packflow_is_better(&whole, &apart);
    }
    use_memory(tables, spec->split_backward, times);
    return status;
}

sp_status sp_i_packflow_choose(const sp_scenario *scenario, const sp_cost_model *cost,
                               const sp_plan *plan, const sp_step_costs *costs,
                               sp_schedule_costs *times, sp_schedule_spec *spec, int64_t **memory,
                               sp_error *err)
{
    memory_tables tables;
    sp_status status = fill_memory(scenario, cost, plan, costs, &tables, err);
    *memory = tables.token_bytes[0];
    return status == SP_OK ? settle_split(scenario, plan, &tables, times, spec, err) : status;
}

bool sp_packflow_is_better(const sp_packflow_outcome *a, const sp_packflow_outcome *b)
{
    return a->fits != b->fits ? a->fits : a->makespan_ns < b->makespan_ns;
}
