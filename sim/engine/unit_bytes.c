// What a unit holds in the states that it passes through.
#include <math.h>

#include "sim/engine/memory_walk.h"

// A forward that runs again keeps nothing the first time but the keys and values that later slices
// read (ChunkFlow, arXiv 2503.02356, section 4), and its input.
const sp_bytes *sp_i_unit_row(const sp_step_costs *costs, size_t unit, sp_unit_holds holds,
                              sp_bytes *own)
{
    const sp_unit_bytes *row = &costs->unit[unit];
    switch (holds) {
    case SP_HOLDS_NOTHING:
        break;
    case SP_HOLDS_ALL:
        return &row->held;
    case SP_HOLDS_RESIDENT:
        *own = row->held;
        own->of[SP_MEM_ACTIVATIONS] -= costs->offloaded_bytes[unit];
        return own;
    case SP_HOLDS_LOADED:
        *own = row->held;
        own->of[SP_MEM_ACTIVATIONS] += row->rebuilt - costs->offloaded_bytes[unit];
        return own;
    case SP_HOLDS_REPEAT:
        return &row->repeated;
    case SP_HOLDS_WEIGHTS:
        return &row->weights;
    }
    return NULL;
}

static sp_bytes unit_held(const sp_step_costs *costs, size_t unit, sp_unit_holds holds)
{
    sp_bytes held = {{0}};
    const sp_bytes *row = sp_i_unit_row(costs, unit, holds, &held);
    return row != NULL ? *row : held;
}

int64_t sp_unit_left(const sp_pack *pack, const sp_unit_state *state, sp_memory_category category,
                     bool is_kv, int64_t bytes)
{
    int64_t freed = state->freed_tokens;
    int64_t total = pack->computed;
    // Rounded so that the last slice frees the last byte.
    if (freed == total) {
        return 0;
    }
    if (category == SP_MEM_KV_CACHE) {
        freed = state->freed_kv_tokens;
        total = pack->kv_tokens;
    } else if (is_kv) {
        freed -= state->freed_kv_tokens;
        total -= pack->kv_tokens;
    }
    return freed == 0 ? bytes
                      : bytes - (int64_t)floor((double)bytes * (double)freed / (double)total);
}

sp_bytes sp_i_unit_left(const sp_step_costs *costs, size_t unit, const sp_pack *pack,
                        const sp_unit_state *state)
{
    sp_bytes bytes = unit_held(costs, unit, (sp_unit_holds)state->holds);
    int64_t kv = state->holds == SP_HOLDS_ALL ? costs->unit[unit].kv_activations : 0;
    bytes.of[SP_MEM_ACTIVATIONS] -= kv;
    for (int c = 0; c < SP_MEM_CATEGORIES; c++) {
        bytes.of[c] = sp_unit_left(pack, state, (sp_memory_category)c, false, bytes.of[c]);
    }
    bytes.of[SP_MEM_ACTIVATIONS] += sp_unit_left(pack, state, SP_MEM_ACTIVATIONS, true, kv);
    return bytes;
}
