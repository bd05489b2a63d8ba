// From a packing to a plan: packs cut into slices, in the schedule's order, with what the schedule
// lets ranks exchange and copy.
#include <math.h>
#include <string.h>

#include "sim/base/alloc.h"
#include "sim/base/units.h"
#include "sim/cost/step_costs.h"
#include "sim/memory/saved_tensors.h"
#include "sim/plan/packing.h"
#include "sim/schedule/schedule.h"
#include "solver/slicing.h"
#include "solver/step/step.h"
#include "solver/strategy.h"

#define BYTES_BF16 2.0

static sp_status packflow_choose(const sp_scenario *scenario, const sp_cost_model *cost,
                                 const sp_plan *plan, const sp_step_costs *costs,
                                 sp_schedule_costs *times, sp_schedule_spec *spec, sp_arena *work,
                                 sp_error *err);

static int64_t pack_time_ns(void *context, const sp_pack_list *list);
static sp_status offload_activations(const sp_i_steps *steps, sp_plan *plan, sp_error *err);

sp_status sp_i_step_rows(sp_i_steps *steps, sp_packing *packing, sp_error *err)
{
    SP_TRY(sp_i_step_check_count(steps, packing, err));
    return sp_i_step_cut(steps, packing, err);
}

sp_status sp_i_step_cut(sp_i_steps *steps, sp_packing *packing, sp_error *err)
{
    const sp_scenario *scenario = steps->scenario;
    const sp_schedule_spec *schedule = &scenario->schedule;
    if (!sp_schedule_traits_of(schedule->kind).sliced || schedule->slices <= 1) {
        return SP_OK;
    }
    return schedule->slice_rule == SP_SLICE_SHORTEST
               ? sp_slice_rows_shortest(packing, scenario->layout.pp, pack_time_ns, &steps->trial,
                                        err)
               : sp_slice_rows(packing, schedule->slices, schedule->slice_rule, &scenario->model,
                               scenario->source, err);
}

sp_status sp_i_step_schedule(const sp_i_steps *steps, sp_plan *plan, sp_step_costs *costs,
                             sp_error *err)
{
    const sp_scenario *scenario = steps->scenario;
    sp_schedule_spec spec = scenario->schedule;
    const sp_schedule_spec *schedule = &spec;
    sp_schedule_costs *means = NULL;
    sp_arena work = {0};
    sp_status status = SP_OK;
    if (sp_schedule_traits_of(schedule->kind).timed) {
        means = sp_step_costs_means(costs, plan);
    }
    if (sp_schedule_traits_of(schedule->kind).by_pack) {
        sp_step_costs_by_pack(costs, plan, means);
        status = packflow_choose(scenario, &steps->cost, plan, costs, means, &spec, &work, err);
    }
    if (status == SP_OK) {
        status = sp_schedule_generate(schedule, means, scenario->source, plan, err);
    }
    sp_schedule_costs_free(means);
    sp_arena_free(&work);
    if (status == SP_OK) {
        status = sp_i_step_exchange(steps, plan, costs, err);
    }
    return status == SP_OK ? offload_activations(steps, plan, err) : status;
}

sp_status sp_i_step_exchange(const sp_i_steps *steps, const sp_plan *plan, sp_step_costs *costs,
                             sp_error *err)
{
    const sp_scenario *scenario = steps->scenario;
    bool pool = scenario->memory.stack.cp_overlap == SP_CP_TASKS && scenario->layout.pp > 1;
    bool hands_over =
        scenario->schedule.kind == SP_SCHEDULE_SLIMPIPE && scenario->schedule.exchange;
    if (!pool && !hands_over) {
        return SP_OK;
    }
    sp_exchange_report report;
    SP_TRY(pool ? sp_pool_apply(plan, costs, &report, err)
                : sp_exchange_apply(plan, costs, &report, err));
    double layers = scenario->uniform
                        ? 0.0
                        : (double)scenario->model.layers / sp_layout_vstages(&scenario->layout);
    // The mean of what goes there and comes back, of queries and outputs, and of keys and values.
    double features = (double)sp_model_pair_features(&scenario->model, 2) / 2.0;
    double head_bytes = BYTES_BF16 * features / scenario->layout.tp;
    steps->result->has_exchange = true;
    steps->result->exchange_before = report.imbalance_before;
    steps->result->exchange_after = report.imbalance_after;
    steps->result->exchange_messages += report.messages;
    steps->result->exchange_bytes +=
        sp_exchange_bytes(&report, layers * scenario->model.heads * head_bytes,
                          layers * 2.0 * scenario->model.kv_heads * head_bytes) /
        scenario->layout.cp;
    return SP_OK;
}

// The stated number of micro-batches must be what the strategy made, where the batch is stated,
// too.
sp_status sp_i_step_check_count(const sp_i_steps *steps, const sp_packing *packing, sp_error *err)
{
    int64_t dp = steps->scenario->layout.dp;
    int64_t made = sp_i_step_microbatches(packing);
    int64_t wanted = steps->scenario->microbatches;
    if (wanted > 0 && !steps->scenario->uniform && !steps->scenario->fills_microbatches &&
        made != wanted * dp) {
        return sp_error_in(err, SP_ERR_CONTENT, steps->scenario->source, "schedule.microbatches",
                           "is %lld for each of %lld data-parallel ranks, strategy \"%s\" makes "
                           "%lld micro-batches in all of the stated batch: leave out one of both",
                           (long long)wanted, (long long)dp, steps->scenario->strategy.kind,
                           (long long)made);
    }
    return SP_OK;
}

static int64_t pack_time_ns(void *context, const sp_pack_list *list)
{
    return sp_ns_from_s(sp_cost_model_forward_s(context, list, &list->packs[0]));
}

static sp_status offload_activations(const sp_i_steps *steps, sp_plan *plan, sp_error *err)
{
    const sp_scenario *scenario = steps->scenario;
    if (scenario->uniform || scenario->memory.offload_ratio <= 0.0 ||
        scenario->memory_model == SP_MEMORY_SLIMPIPE_PLANNER) {
        return SP_OK;
    }
    if (scenario->schedule.kind == SP_SCHEDULE_DUALPIPE_V) {
        return sp_error_in(err, SP_ERR_CONTENT, scenario->source, "memory.offload_ratio",
                           "\"dualpipe-v\" runs actions side by side, which leaves no place for "
                           "copies between them");
    }
    sp_schedule_add_offload(plan);
    return SP_OK;
}

// ---- the order of PackFlow ----

// The room of ranks for activations, with whole and with split backwards.
typedef struct memory_tables {
    double kept_share;
    sp_pack_room of[2]; // by `split`, of all data-parallel ranks
} memory_tables;

// As the search for packs reckons it (shape_search.c), so that the order is the one it has judged:
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
    if (costs->side[0].unit == NULL) {
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
    SP_TRY(order_step(scenario, plan, true, tables, NULL, times, work, &apart, err));
    const sp_schedule_costs with_apart = *times;
    SP_TRY(order_step(scenario, plan, false, tables, &apart, times, work, &whole, err));
    if (!sp_packflow_is_better(&whole, &apart)) {
        *times = with_apart;
    } else {
        spec->split_backward = false;
    }
    return SP_OK;
}

// Fills in what PackFlow looks at besides the times of every pack (sp_step_costs_by_pack): the
// memory of the plan's packs, and whether gradients run apart: only where that is no slower, or
// fits where whole backwards do not. Where both orders were tried, the better one is there as well.
// All that is in memory of `work`, which the caller frees when the plan is made.
static sp_status packflow_choose(const sp_scenario *scenario, const sp_cost_model *cost,
                                 const sp_plan *plan, const sp_step_costs *costs,
                                 sp_schedule_costs *times, sp_schedule_spec *spec, sp_arena *work,
                                 sp_error *err)
{
    memory_tables tables;
    fill_memory(scenario, cost, plan, costs, work, &tables);
    return choose_split(scenario, plan, &tables, times, spec, work, err);
}

// ---- what packs hold ----

static void add_pack(const sp_pack_list *list, const sp_pack *pack, const sp_slice_sums *sums,
                     sp_fullest_pack *fullest)
{
    int64_t seen = 0;
    for (size_t s = pack->first_slice; s < pack->first_slice + pack->slice_count; s++) {
        seen += list->slices[s].begin + list->slices[s].computed_tokens;
    }
    int64_t tokens = sp_ceil_div(pack->computed, pack->dp_count);
    double pairs = (double)pack->full_pairs / (double)sp_larger(pack->computed, 1);
    for (int d = pack->dp_first; d < pack->dp_first + pack->dp_count; d++) {
        sp_fullest_pack *f = &fullest[d];
        f->dp_count = sp_larger(f->dp_count, pack->dp_count);
        f->packs += sums == NULL;
        f->tokens = sp_larger(f->tokens, tokens);
        f->seen_tokens = sp_larger(f->seen_tokens, seen);
        f->slices = sp_larger(f->slices, (int64_t)pack->slice_count);
        f->pairs_per_token = fmax(f->pairs_per_token, pairs);
        f->again_tokens = sp_larger(f->again_tokens, pack->runs_again ? tokens : 0);
        if (sums != NULL) {
            f->waiting_tokens += sums->begun_tokens / pack->dp_count;
            f->summed_tokens = sp_larger(f->summed_tokens, f->waiting_tokens);
            f->waiting_tokens -= sums->found_tokens / pack->dp_count;
        }
    }
}

void sp_fullest_packs(const sp_packing *packing, int cp, sp_fullest_pack *fullest)
{
    const sp_pack_list *backward = sp_packing_backward(packing);
    sp_slice_sums *sums = NULL;
    sp_slice_sums_make(packing, cp, &sums);
    memset(fullest, 0, (size_t)packing->dp * sizeof *fullest);
    for (size_t k = 0; k < packing->forward.count; k++) {
        add_pack(&packing->forward, &packing->forward.packs[k], NULL, fullest);
    }
    for (size_t k = 0; k < backward->count; k++) {
        add_pack(backward, &backward->packs[k], &sums[k], fullest);
    }
    sp_free(sums);
}

// ---- their memory ----

void sp_pack_memory_init(sp_pack_memory *memory, const sp_layout *layout,
                         const sp_step_costs *costs)
{
    size_t vstages = (size_t)sp_layout_vstages(layout);
    *memory = (sp_pack_memory){
        .states = sp_calloc(6 * vstages + (size_t)layout->pp, sizeof *memory->states),
        .units = sp_malloc(2 * vstages * sizeof *memory->units)};
    memory->whole = memory->states + layout->pp;
    memory->split = memory->whole + vstages;
    memory->running = memory->split + vstages;
    memory->sums = memory->running + vstages;
    memory->kept = memory->sums + vstages;
    memory->again = memory->kept + vstages;
    for (int r = 0; r < layout->pp; r++) {
        memory->states[r] = (double)sp_bytes_total(&costs->ranks[r].states);
    }
}

void sp_pack_memory_fini(sp_pack_memory *memory)
{
    sp_free(memory->states);
    sp_free(memory->units);
    for (size_t i = 0; i < sizeof memory->held / sizeof memory->held[0]; i++) {
        sp_free(memory->held[i].most);
    }
    *memory = (sp_pack_memory){.states = NULL};
}

// What a rank holds is linear in 1 / sqrt(tokens), so that the fullest holds no more than with the
// power of two below or above.
static double most_held_rows(sp_pack_memory *memory, const sp_cost_model *cost, int64_t packs,
                             int64_t tokens)
{
    int power = 0;
    while (tokens >> (power + 1) > 0) {
        power++;
    }
    sp_held_rows *held = &memory->held[power];
    while (held->count < (size_t)sp_larger(packs, 1)) {
        double most = held->count > 0 ? held->most[held->count - 1] : 1.0;
        double rows = 0.0;
        for (int p = power; p <= power + 1; p++) {
            rows = fmax(rows, sp_cost_model_held_rows(cost, (int64_t)held->count, INT64_C(1) << p));
        }
        SP_RESERVE(held->most, held->capacity, held->count + 1);
        held->most[held->count++] = fmax(most, rows);
    }
    return held->most[sp_larger(packs, 1) - 1];
}

// A pack of so many tokens on each rank that is the fullest in all else.
static sp_unit_load load_of(sp_pack_memory *memory, const sp_cost_model *cost,
                            const sp_fullest_pack *fullest, int64_t tokens)
{
    int64_t all = tokens * fullest->dp_count;
    double rows = cost->load != NULL ? most_held_rows(memory, cost, fullest->packs, tokens) : 0.0;
    return (sp_unit_load){.tokens = all,
                          .kv_tokens = all,
                          .pairs = sp_whole(ceil(fullest->pairs_per_token * (double)all)),
                          .seen_tokens = fullest->seen_tokens,
                          .slices = fullest->slices,
                          .collects = true,
                          .expert_tokens = sp_whole(ceil(rows * (double)all))};
}

static double running_bytes(const sp_unit_bytes *unit)
{
    const sp_bytes *passes[] = {&unit->forward, &unit->backward, &unit->input_gradient,
                                &unit->loaded_backward, &unit->loaded_input_gradient};
    int64_t most = 0;
    for (size_t p = 0; p < sizeof passes / sizeof passes[0]; p++) {
        most = sp_larger(most, sp_bytes_total(passes[p]));
    }
    return (double)most;
}

// What a unit needs as it runs is the largest of several phases, each linear in its tokens: the
// most of any pack is that of the fullest or of the emptiest.
static void measure_stage(sp_pack_memory *memory, const sp_cost_model *cost,
                          const sp_layout *layout, const sp_unit_bytes *emptiest,
                          const sp_unit_bytes *unit, int vstage)
{
    const sp_fullest_pack *packs = &memory->packs;
    const sp_stage *stage = &cost->class_stage[cost->class_of_vstage[vstage]];
    double tokens = (double)sp_larger(packs->tokens, 1);
    // An offload takes its part away only after the forward, and brings it back into buffers that
    // stay.
    int64_t copied = unit->held.of[SP_MEM_OFFLOADED];
    int64_t held = sp_bytes_total(&unit->held) + copied;
    memory->whole[vstage] = (double)held / tokens;
    memory->split[vstage] = (double)sp_larger(held, sp_bytes_total(&unit->weights)) / tokens;
    memory->kept[vstage] = (double)sp_bytes_total(&unit->repeated) / tokens;
    memory->again[vstage] =
        (memory->whole[vstage] - memory->kept[vstage]) * (double)packs->again_tokens;
    memory->running[vstage] =
        fmax(running_bytes(emptiest), running_bytes(unit)) + (double)(SP_COPY_BUFFERS * copied);
    memory->sums[vstage] = (double)sp_footprint_gradient_sums(
        cost->model, layout, stage, &cost->memory.stack, packs->summed_tokens * packs->dp_count);
}

static bool is_alike(const sp_fullest_pack *a, const sp_fullest_pack *b)
{
    return a->dp_count == b->dp_count && a->tokens == b->tokens &&
           a->seen_tokens == b->seen_tokens && a->slices == b->slices &&
           !(a->pairs_per_token < b->pairs_per_token || a->pairs_per_token > b->pairs_per_token) &&
           a->summed_tokens == b->summed_tokens && a->again_tokens == b->again_tokens;
}

void sp_pack_memory_measure(sp_pack_memory *memory, const sp_cost_model *cost,
                            const sp_fullest_pack *fullest)
{
    bool known = memory->packs.dp_count > 0 && is_alike(&memory->packs, fullest);
    if (known && (cost->load == NULL || memory->packs.packs == fullest->packs)) {
        return;
    }
    memory->packs = *fullest;
    // Ranks that share a pack shard it as context parallelism does.
    sp_layout layout = *cost->layout;
    layout.cp *= (int)fullest->dp_count;
    layout.dp /= (int)fullest->dp_count;
    const sp_unit_load least = load_of(memory, cost, fullest, 1);
    const sp_unit_load most = load_of(memory, cost, fullest, sp_larger(fullest->tokens, 1));
    sp_unit_bytes *emptiest = memory->units;
    sp_unit_bytes *fullest_units = emptiest + cost->stage_classes;
    sp_saved_parts parts;
    sp_saved_parts_find(cost->model, &layout, &cost->memory, &parts);
    sp_footprint_units(&parts, cost->model, &layout, cost->class_stage, cost->stage_classes,
                       &cost->memory, &least, emptiest);
    sp_footprint_units(&parts, cost->model, &layout, cost->class_stage, cost->stage_classes,
                       &cost->memory, &most, fullest_units);
    for (int v = 0; v < sp_layout_vstages(cost->layout); v++) {
        int u = 0;
        while (cost->class_of_vstage[u] != cost->class_of_vstage[v]) {
            u++;
        }
        if (u == v) {
            int class = cost->class_of_vstage[v];
            measure_stage(memory, cost, &layout, &emptiest[class], &fullest_units[class], v);
        }
        memory->whole[v] = memory->whole[u];
        memory->split[v] = memory->split[u];
        memory->running[v] = memory->running[u];
        memory->sums[v] = memory->sums[u];
        memory->kept[v] = memory->kept[u];
        memory->again[v] = memory->again[u];
    }
}

void sp_pack_memory_room(const sp_pack_memory *memory, const sp_layout *layout, bool split,
                         int64_t limit_bytes, const sp_pack_room *room)
{
    for (int s = 0; s < sp_layout_vstages(layout); s++) {
        room->token_bytes[s] = sp_whole(ceil(split ? memory->split[s] : memory->whole[s]));
    }
    for (int r = 0; r < layout->pp; r++) {
        double running = 0.0;
        double sums = 0.0;
        double again = 0.0;
        for (int chunk = 0; chunk < layout->chunks; chunk++) {
            int v = sp_layout_vstage(layout, r, chunk);
            running = fmax(running, memory->running[v]);
            sums += memory->sums[v];
            again = fmax(again, memory->again[v]);
        }
        double left = (double)limit_bytes - memory->states[r] - running - sums;
        room->room_bytes[r] = left > 0.0 ? (int64_t)left : 0;
        room->again_bytes[r] = sp_whole(ceil(again));
    }
}

double sp_pack_memory_kept_share(const sp_pack_memory *memory, const sp_layout *layout)
{
    double share = 0.0;
    for (int v = 0; v < sp_layout_vstages(layout); v++) {
        share = fmax(share, memory->kept[v] / fmax(memory->whole[v], 1.0));
    }
    return fmin(share, 1.0);
}
