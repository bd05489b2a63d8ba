#include "experiments/execution/held_memory.h"

static void raise(sp_bytes *most, const sp_bytes *bytes)
{
    for (int c = 0; c < SP_MEM_CATEGORIES; c++) {
        most->of[c] = bytes->of[c] > most->of[c] ? bytes->of[c] : most->of[c];
    }
}

// The first point of the moment in which an action ends is what it left; later ones of the same
// moment belong to the action that follows at once. An action without length (of a stage that holds
// nothing) begins in that moment, too: what it left is the last point.
static sp_bytes held_by_rank(const sp_rank_timeline *rank, const sp_rank_memory *memory)
{
    sp_bytes most = {{0}};
    size_t point = 0;
    for (size_t a = 0; a < rank->count; a++) {
        int64_t end_ns = rank->spans[a].end_ns;
        while (point + 1 < memory->point_count && memory->points[point].time_ns < end_ns &&
               memory->points[point + 1].time_ns <= end_ns) {
            point++;
        }
        while (rank->spans[a].start_ns == end_ns && point + 1 < memory->point_count &&
               memory->points[point + 1].time_ns == end_ns) {
            point++;
        }
        if (point < memory->point_count) {
            raise(&most, &memory->points[point].bytes);
        }
    }
    return most;
}

void sp_held_memory_add(sp_held_memory *held, int pp, const sp_timeline *timeline,
                        const sp_memory_timeline *memory, bool measured)
{
    for (size_t r = 0; r < timeline->rank_count; r++) {
        const sp_rank_timeline *rank = &timeline->ranks[r];
        sp_bytes most = held_by_rank(rank, &memory->ranks[r]);
        for (int i = 0; i < rank->alike; i++) {
            sp_held_memory *place =
                &held[(size_t)rank->dp_alike[i] * (size_t)pp + (size_t)rank->pp];
            raise(measured ? &place->measured : &place->predicted, &most);
        }
    }
}
