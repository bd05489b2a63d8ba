#include "sim/engine/memory.h"

#include "sim/base/alloc.h"
#include "sim/engine/memory_walk.h"

sp_status sp_memory_replay(const sp_timeline *timeline, const sp_step_costs *costs, bool points,
                           sp_memory_timeline *memory, sp_error *err)
{
    sp_i_memory_walks shared;
    sp_status status = SP_OK;
    sp_i_memory_walks_init(&shared, timeline, costs, points);
    sp_memory_timeline_init(memory, timeline, NULL);
    for (size_t r = 0; status == SP_OK && r < timeline->rank_count; r++) {
        sp_i_memory_walk w = {
            .shared = &shared, .rank = &timeline->ranks[r], .out = &memory->ranks[r]};
        status = sp_i_walk_rank(&w, err);
    }
    sp_i_memory_walks_fini(&shared);
    if (status != SP_OK) {
        sp_memory_timeline_fini(memory);
    }
    return status;
}

sp_status sp_memory_at_peak(const sp_timeline *timeline, const sp_step_costs *costs,
                            const sp_memory_timeline *memory, size_t rank, sp_peak_state *state,
                            sp_error *err)
{
    sp_i_memory_walks shared;
    sp_rank_memory again = {.points = NULL};
    sp_i_memory_walk w = {.shared = &shared,
                          .rank = &timeline->ranks[rank],
                          .out = &again,
                          .peak = state,
                          .peak_bytes = sp_bytes_total(&memory->ranks[rank].peak)};
    sp_i_memory_walks_init(&shared, timeline, costs, false);
    *state = (sp_peak_state){.parts = shared.parts,
                             .units = sp_malloc(shared.unit_count * sizeof *state->units),
                             .deferred = sp_malloc(shared.deferred_count)};
    sp_status status = sp_i_walk_rank(&w, err);
    SP_ASSERT(status != SP_OK || w.peak_noted);
    sp_i_memory_walks_fini(&shared);
    if (status != SP_OK) {
        sp_peak_state_fini(state);
    }
    return status;
}

void sp_peak_state_fini(sp_peak_state *state)
{
    sp_free(state->units);
    sp_free(state->deferred);
    *state = (sp_peak_state){0};
}
