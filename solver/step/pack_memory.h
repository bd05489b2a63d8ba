// What packs hold on every virtual stage, and the room that leaves for activations: a bound on what
// the memory timeline counts (sim/engine/memory.h), term by term. Private to solver.
#ifndef SLIMPACK_SOLVER_STEP_PACK_MEMORY_H
#define SLIMPACK_SOLVER_STEP_PACK_MEMORY_H

#include <stdbool.h>
#include <stdint.h>

#include "sim/cost/cost_model.h"
#include "sim/plan/packing.h"

// The most that any pack of one data-parallel rank asks for. Of a pack that ranks share, tokens are
// those of each one's share.
typedef struct sp_fullest_pack {
    int64_t dp_count; // ranks that share it; 0: the rank has no packs
    int64_t tokens;
    int64_t seen_tokens; // of its samples up to the ends of its slices
    int64_t slices;
    double pairs_per_token; // full (query, key) pairs
    // The most tokens of slices for which sums of gradients of keys and values are there at a time:
    // from the backward of their sample's last slice to their own.
    int64_t summed_tokens;
    int64_t waiting_tokens; // of them after the last pack so far: 0 in the end
    int64_t again_tokens;   // of a pack whose forward runs again
} sp_fullest_pack;

// Of every data-parallel rank, [packing->dp]; `cp` ranks share each pack of one of them.
// O(slices + samples).
void sp_fullest_packs(const sp_packing *packing, int cp, sp_fullest_pack *fullest);

// In bytes.
typedef struct sp_pack_memory {
    double *states;        // [pp] whatever the packs
    double *whole, *split; // [virtual stages] for each token of a pack: held until the backward,
                           // until the weight gradient
    double *running;       // [virtual stages] while any pack runs, beside what packs hold
    double *sums;          // [virtual stages] the sums of gradients of keys and values
    double *kept;          // [virtual stages] for each token of a pack whose forward runs again
    double *again;         // [virtual stages] what is there again of any pack while it runs back
    sp_fullest_pack packs; // what the tables of virtual stages are of
    sp_unit_bytes *units;  // [2 * classes of stages] working memory
} sp_pack_memory;

// Takes the states of a step's costs; the other tables are unset.
void sp_pack_memory_init(sp_pack_memory *memory, const sp_layout *layout,
                         const sp_step_costs *costs);
void sp_pack_memory_fini(sp_pack_memory *memory);

// Of packs that ask for no more than the fullest. O(virtual stages), nothing where the tables are
// of these packs already.
void sp_pack_memory_measure(sp_pack_memory *memory, const sp_cost_model *cost,
                            const sp_fullest_pack *fullest);

// Room for activations in `limit_bytes` on every pipeline rank, at least 0, what of it forwards
// that run again may need, and the bytes of a token on every virtual stage.
typedef struct sp_pack_room {
    int64_t *token_bytes;              // [virtual stages]
    int64_t *room_bytes, *again_bytes; // [pp]
} sp_pack_room;

// `split`: held until the weight gradient.
void sp_pack_memory_room(const sp_pack_memory *memory, const sp_layout *layout, bool split,
                         int64_t limit_bytes, const sp_pack_room *room);

// Of the bytes of a token, what packs keep whose forward runs again; the most of all stages.
double sp_pack_memory_kept_share(const sp_pack_memory *memory, const sp_layout *layout);

#endif
