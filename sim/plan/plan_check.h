// sp_plan_check() for a plan inside a larger file.
#ifndef SLIMPACK_SIM_PLAN_PLAN_CHECK_H
#define SLIMPACK_SIM_PLAN_PLAN_CHECK_H

#include "sim/base/alloc.h"
#include "sim/plan/plan.h"

// sp_plan_check() with the JSON path of the plan inside `source` ("batches[0]"; "" for none).
sp_status sp_i_plan_check_at(const sp_plan *plan, const char *source, const char *path,
                             sp_error *err);

// ---- What the parts of sp_plan_check() share: the slices in order, and the findings ----

// A slice with the pack that holds it.
typedef struct sp_i_placed {
    const sp_slice *slice;
    int32_t pack;
} sp_i_placed;

// The forward or the backward packs, and their slices ordered by sample and begin: those of sample
// s are placed[first[s] .. first[s + 1]).
typedef struct sp_i_side {
    const sp_pack_list *list;
    const char *name; // key in plan.json
    size_t *first;
    sp_i_placed *placed;
} sp_i_side;

// Where the backward packs are the forward packs the two sides share their arrays.
typedef struct sp_i_plan_check {
    const sp_plan *plan;
    const char *source, *path;
    sp_error *err;
    int errors;
    size_t samples;
    sp_i_side forward, backward;
    bool shared;
    sp_arena work;
} sp_i_plan_check;

// Notes a broken rule at `where` (a path below check->path, or NULL).
void sp_i_plan_report(sp_i_plan_check *check, const char *where, const char *format, ...)
    SP_PRINTF(3, 4);

// As many findings as an error record holds: further ones are not looked for.
bool sp_i_plan_check_full(const sp_i_plan_check *check);

// Checks the action lists; the slices have been found in order. Time and memory
// O(slices + actions).
void sp_i_plan_check_actions(sp_i_plan_check *check);

#endif
