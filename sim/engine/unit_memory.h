// What one unit of a rank (a forward pack on one of its chunks) holds between actions.
#ifndef SLIMPACK_SIM_ENGINE_UNIT_MEMORY_H
#define SLIMPACK_SIM_ENGINE_UNIT_MEMORY_H

#include "sim/cost/step_costs.h"

typedef enum sp_i_unit_holds {
    SP_I_HOLDS_NOTHING,
    SP_I_HOLDS_ALL,
    SP_I_HOLDS_REST,   // all but what is offloaded
    SP_I_HOLDS_LOADED, // the same, what came back being in a buffer, and what is rebuilt from that
    SP_I_HOLDS_REPEAT, // what the repeat of a forward that runs again needs
    SP_I_HOLDS_WEIGHTS // what the weight gradient needs
} sp_i_unit_holds;

typedef struct sp_i_unit_state {
    // Of the forward pack's, by regrouped backward packs; those of slices with later slices.
    int64_t freed_tokens, freed_kv_tokens;
    int32_t forward; // its place among the rank's forwards
    uint8_t holds;   // sp_i_unit_holds
    uint8_t runs_again;
    uint8_t copied;
} sp_i_unit_state;

// The bytes of a whole unit that holds what `holds` says; `unit` is its place in costs->unit.
sp_bytes sp_i_unit_held(const sp_step_costs *costs, size_t unit, sp_i_unit_holds holds);

// What a forward pack of which backward packs have freed slices still holds of `bytes` of one
// category. `is_kv` says that they are keys and values: those of the cache belong to slices with
// later slices, those among the activations to the others; all else belongs to all of its tokens.
int64_t sp_i_unit_left(const sp_pack *pack, const sp_i_unit_state *state,
                       sp_memory_category category, bool is_kv, int64_t bytes);

// The same of all that it holds. Of a unit that is whole on the GPU keys and values are told from
// other activations.
sp_bytes sp_i_unit_rest(const sp_step_costs *costs, size_t unit, const sp_pack *pack,
                        const sp_i_unit_state *state);

#endif
