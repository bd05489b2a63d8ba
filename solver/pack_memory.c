#include "solver/pack_memory.h"

#include <math.h>

#include "sim/base/alloc.h"

static int64_t larger(int64_t a, int64_t b)
{
    return a > b ? a : b;
}

static void measure_forward(const sp_step_costs *costs, const sp_pack_list *list, size_t vstage,
                            sp_i_pack_memory *m, int64_t *running)
{
    size_t class = (size_t)costs->class_of_vstage[vstage];
    for (size_t k = 0; k < list->count; k++) {
        const sp_unit_bytes *unit = &costs->unit[k * (size_t)costs->classes + class];
        const sp_pack *pack = &list->packs[k];
        double share = (double)larger(pack->computed, 1) / pack->dp_count;
        int64_t whole = sp_bytes_total(&unit->held);
        m->whole[vstage] = fmax(m->whole[vstage], (double)whole / share);
        m->split[vstage] =
            fmax(m->split[vstage], (double)larger(whole, sp_bytes_total(&unit->weights)) / share);
        m->largest = larger(m->largest, (int64_t)ceil(share));
        *running = larger(*running, sp_bytes_total(&unit->forward));
        *running = larger(*running, sp_bytes_total(&unit->backward));
    }
}

static void measure_backward(const sp_step_costs *costs, const sp_pack_list *list, size_t vstage,
                             sp_i_pack_memory *m, int64_t *running)
{
    size_t class = (size_t)costs->class_of_vstage[vstage];
    for (size_t k = 0; costs->backward_unit != NULL && k < list->count; k++) {
        const sp_unit_bytes *unit = &costs->backward_unit[k * (size_t)costs->classes + class];
        const sp_pack *pack = &list->packs[k];
        m->largest = larger(m->largest, (pack->computed + pack->dp_count - 1) / pack->dp_count);
        *running = larger(*running, sp_bytes_total(&unit->backward));
    }
}

sp_status sp_i_pack_memory_measure(const sp_step_costs *costs, const sp_packing *packing,
                                   const sp_layout *layout, sp_i_pack_memory *memory, sp_error *err)
{
    *memory = (sp_i_pack_memory){.known = costs->unit != NULL && costs->states != NULL};
    if (!memory->known) {
        return SP_OK;
    }
    size_t vstages = (size_t)sp_layout_vstages(layout);
    double *table = sp_i_calloc(3 * vstages + (size_t)layout->pp, sizeof *table);
    if (table == NULL) {
        return sp_error_no_memory(err, "the memory of packs");
    }
    memory->whole = table;
    memory->split = table + vstages;
    memory->running = table + 2 * vstages;
    memory->states = table + 3 * vstages;
    for (size_t s = 0; s < vstages; s++) {
        int64_t running = 0;
        measure_forward(costs, &packing->forward, s, memory, &running);
        measure_backward(costs, &packing->backward, s, memory, &running);
        memory->running[s] = (double)running;
    }
    for (size_t s = 0; s < vstages; s++) {
        memory->running[s] /= (double)larger(memory->largest, 1);
    }
    for (int r = 0; r < layout->pp; r++) {
        memory->states[r] = (double)sp_bytes_total(&costs->states[r]);
    }
    return SP_OK;
}

void sp_i_pack_memory_fini(sp_i_pack_memory *memory)
{
    sp_i_free(memory->whole);
    *memory = (sp_i_pack_memory){0};
}

void sp_i_pack_memory_room(const sp_i_pack_memory *memory, const sp_layout *layout, bool split,
                           int64_t limit_bytes, int64_t largest, int64_t *token_bytes,
                           int64_t *room_bytes)
{
    for (int s = 0; s < sp_layout_vstages(layout); s++) {
        token_bytes[s] = (int64_t)ceil(split ? memory->split[s] : memory->whole[s]);
    }
    for (int r = 0; r < layout->pp; r++) {
        double running = 0.0;
        for (int chunk = 0; chunk < layout->chunks; chunk++) {
            running = fmax(running, memory->running[sp_layout_vstage(layout, r, chunk)]);
        }
        double room = (double)limit_bytes - memory->states[r] - ceil(running * (double)largest);
        room_bytes[r] = room > 0.0 ? (int64_t)room : 0;
    }
}
