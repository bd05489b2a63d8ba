// What packs hold on every virtual stage, and the room that leaves for activations. Private to
// solver.
#ifndef SLIMPACK_SOLVER_PACK_MEMORY_H
#define SLIMPACK_SOLVER_PACK_MEMORY_H

#include <stdbool.h>

#include "sim/cost/step_costs.h"
#include "sim/model/layout.h"
#include "sim/schedule/packing.h"

// In bytes for each token of a pack; of merged ranks, of each one's share.
typedef struct sp_i_pack_memory {
    bool known;            // false: the costs have no memory
    double *whole, *split; // [virtual stages] held until the backward, until the weight gradient
    double *running;       // [virtual stages] while the largest pack runs, beside what is held
    double *states;        // [pp] bytes, whatever the packs
    int64_t largest;       // tokens of the largest pack
} sp_i_pack_memory;

// The most per token of the packs of a packing. O(packs * virtual stages).
sp_status sp_i_pack_memory_measure(const sp_step_costs *costs, const sp_packing *packing,
                                   const sp_layout *layout, sp_i_pack_memory *memory,
                                   sp_error *err);
void sp_i_pack_memory_fini(sp_i_pack_memory *memory);

// Room for activations in `limit_bytes` on every pipeline rank [pp], at least 0, when the largest
// pack has so many tokens, and the bytes of a token on every virtual stage; `split`: held until the
// weight gradient.
void sp_i_pack_memory_room(const sp_i_pack_memory *memory, const sp_layout *layout, bool split,
                           int64_t limit_bytes, int64_t largest, int64_t *token_bytes,
                           int64_t *room_bytes);

#endif
