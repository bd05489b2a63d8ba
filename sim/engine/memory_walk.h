// A walk over the actions of one rank: what each of its units holds so far, and the bytes that come
// and go with that.
#ifndef SLIMPACK_SIM_ENGINE_MEMORY_WALK_H
#define SLIMPACK_SIM_ENGINE_MEMORY_WALK_H

#include "sim/base/alloc.h"
#include "sim/engine/memory.h"

// What the walks over all ranks share.
typedef struct sp_i_memory_walks {
    const sp_timeline *timeline;
    const sp_step_costs *costs;
    // Of each slice of regrouped backward packs; NULL: backward packs are the forward packs.
    int32_t *forward_pack;
    int64_t *last_begin; // of each sample's slices, beside forward_pack
    // Chunks of a rank; where a vocabulary is shared its share of the head counts as one more, and
    // that of the embedding, which holds nothing, stands behind it.
    int chunks, parts;
    size_t *class_of;     // [chunks + 2]: of chunks and shares, on the rank being walked
    sp_unit_state *units; // [forward packs * parts], of the rank being walked
    size_t unit_count;
    sp_unit_state *before; // of a regrouped pack's sources, beside forward_pack; scratch
    uint8_t *deferred;     // [backward packs * parts] of regrouped packs, of the same rank
    size_t deferred_count;
    bool points;
    sp_arena work;
} sp_i_memory_walks;

// Of one rank.
typedef struct sp_i_memory_walk {
    const sp_i_memory_walks *shared;
    const sp_rank_timeline *rank;
    sp_rank_memory *out;
    sp_peak_state *peak; // where the state at a known peak goes; NULL otherwise
    int64_t peak_bytes;
    bool peak_noted;
    int64_t most_bytes; // so far
    sp_bytes now;
    double units;
    sp_action action; // the last that began
    bool acted;
    bool running;
    int32_t forwards, forwards_ended;
    int buffers;
    int64_t buffer_bytes;
    int64_t gradient_sums;
    int64_t time_ns;
    size_t share;               // of the rank's, done
    bool share_runs;            // the next one, beside copies
    const sp_bytes *transients; // of the action or share that runs
    sp_bytes limited;           // where they are not those of the tables
    bool below;                 // something was held that is less than nothing: first where
    sp_memory_category below_category;
    int64_t below_bytes;
    sp_action below_action;
} sp_i_memory_walk;

void sp_i_memory_walks_init(sp_i_memory_walks *shared, const sp_timeline *timeline,
                            const sp_step_costs *costs, bool points);
void sp_i_memory_walks_fini(sp_i_memory_walks *shared);

static inline void sp_i_walk_add(sp_bytes *to, const sp_bytes *change, int sign)
{
    for (int c = 0; c < SP_MEM_CATEGORIES; c++) {
        to->of[c] += sign * change->of[c];
    }
}

static inline bool sp_i_falls_below(const sp_bytes *bytes)
{
    int64_t signs = 0;
    for (int c = 0; c < SP_MEM_CATEGORIES; c++) {
        signs |= bytes->of[c];
    }
    return signs < 0;
}

static inline sp_unit_state *sp_i_walk_state(const sp_i_memory_walk *w, int32_t pack, int chunk)
{
    return &w->shared->units[(size_t)pack * (size_t)w->shared->parts + (size_t)chunk];
}

static inline bool sp_i_walk_is_regrouped(const sp_i_memory_walk *w)
{
    return w->shared->forward_pack != NULL;
}

static inline bool sp_i_walk_is_forward(const sp_i_memory_walk *w, sp_action action)
{
    return action.kind == SP_ACTION_F || (action.kind == SP_ACTION_R && sp_i_walk_is_regrouped(w));
}

static inline bool sp_i_walk_runs_again(const sp_i_memory_walk *w, sp_action action)
{
    return action.kind == SP_ACTION_F && action.chunk < w->shared->parts &&
           sp_i_walk_state(w, action.pack, action.chunk)->runs_again != 0;
}

int sp_i_walk_vstage(const sp_i_memory_walk *w, int chunk);

// Before all else of a rank.
void sp_i_walk_find_classes(const sp_i_memory_walk *w);

// Where a forward pack's unit stands in the tables of the costs.
static inline size_t sp_i_walk_unit(const sp_i_memory_walk *w, int32_t pack, int chunk)
{
    return sp_step_costs_units(w->shared->costs, (size_t)pack) + w->shared->class_of[chunk];
}

// The bytes of a backward pack; NULL: uniform costs.
const sp_unit_bytes *sp_i_walk_backward(const sp_i_memory_walk *w, sp_action action);

// What an action needs beyond what units hold, as it begins; NULL: nothing. w->transients until it
// ends. A regrouped backward pack gives back no more than its slices hold: rows of its own shape
// and of the forward packs' are rounded apart.
const sp_bytes *sp_i_walk_begin_transients(sp_i_memory_walk *w, sp_action action);

// From what the unit held so far to what it holds from now on.
void sp_i_walk_hold(sp_i_memory_walk *w, sp_action action, sp_unit_holds holds);

// Frees what the slices of a regrouped backward pack held.
void sp_i_walk_free_slices(sp_i_memory_walk *w, sp_action action);

// What the weight gradient of a regrouped pack needs is there, or goes.
void sp_i_walk_defer(sp_i_memory_walk *w, sp_action action, bool there);

// Notes what is held at a time. Mostly there is nothing to note: it is no new peak.
void sp_i_walk_note_total(sp_i_memory_walk *w, int64_t total);
static inline void sp_i_walk_note(sp_i_memory_walk *w, int64_t time_ns)
{
    int64_t total = sp_bytes_total(&w->now);
    bool may_matter =
        total > w->most_bytes || w->shared->points || w->peak != NULL || sp_i_falls_below(&w->now);
    w->time_ns = time_ns;
    if (may_matter) {
        sp_i_walk_note_total(w, total);
    }
}

// Walks a whole rank (memory_spans.c): what its actions, its shares of a vocabulary and its copies
// take and give back when they begin and end, in order of time; at one time what frees comes before
// what allocates. SP_ERR_INTERNAL where the rank does not drain.
sp_status sp_i_walk_rank(sp_i_memory_walk *w, sp_error *err);

#endif
