#include "solver/step/pack_memory.h"

#include <math.h>
#include <string.h>

#include "sim/base/alloc.h"
#include "sim/base/units.h"
#include "sim/plan/packing.h"

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

sp_status sp_fullest_packs(const sp_packing *packing, int cp, sp_fullest_pack *fullest,
                           sp_error *err)
{
    const sp_pack_list *backward = sp_packing_backward(packing);
    sp_slice_sums *sums = NULL;
    (void)err;
    sp_slice_sums_make(packing, cp, &sums);
    memset(fullest, 0, (size_t)packing->dp * sizeof *fullest);
    for (size_t k = 0; k < packing->forward.count; k++) {
        add_pack(&packing->forward, &packing->forward.packs[k], NULL, fullest);
    }
    for (size_t k = 0; k < backward->count; k++) {
        add_pack(backward, &backward->packs[k], &sums[k], fullest);
    }
    sp_free(sums);
    return SP_OK;
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
        memory->states[r] = (double)sp_bytes_total(&costs->states[r]);
    }
}

void sp_pack_memory_fini(sp_pack_memory *memory)
{
    sp_free(memory->states);
    sp_free(memory->units);
    *memory = (sp_pack_memory){.states = NULL};
}

// A pack of so many tokens on each rank that is the fullest in all else.
static sp_unit_load load_of(const sp_fullest_pack *fullest, int64_t tokens)
{
    int64_t all = tokens * fullest->dp_count;
    return (sp_unit_load){.tokens = all,
                          .kv_tokens = all,
                          .pairs = sp_whole(ceil(fullest->pairs_per_token * (double)all)),
                          .seen_tokens = fullest->seen_tokens,
                          .slices = fullest->slices,
                          .collects = true};
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
    if (memory->packs.dp_count > 0 && is_alike(&memory->packs, fullest)) {
        return;
    }
    memory->packs = *fullest;
    // Ranks that share a pack shard it as context parallelism does.
    sp_layout layout = *cost->layout;
    layout.cp *= (int)fullest->dp_count;
    layout.dp /= (int)fullest->dp_count;
    const sp_unit_load least = load_of(fullest, 1);
    const sp_unit_load most = load_of(fullest, sp_larger(fullest->tokens, 1));
    sp_unit_bytes *emptiest = memory->units;
    sp_unit_bytes *fullest_units = emptiest + cost->stage_classes;
    sp_footprint_units(cost->model, &layout, cost->class_stage, cost->stage_classes, &cost->memory,
                       &least, emptiest);
    sp_footprint_units(cost->model, &layout, cost->class_stage, cost->stage_classes, &cost->memory,
                       &most, fullest_units);
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
