// A timeline: what each rank did and when. Made by the engine (predicted) or by a backend
// (measured); read by sim/metrics.
#ifndef SLIMPACK_SIM_PLAN_TIMELINE_H
#define SLIMPACK_SIM_PLAN_TIMELINE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "sim/memory/footprint.h"
#include "sim/plan/depends.h"

// One action as it ran. tp_ns, cp_ns, dp_ns and ep_ns are the parts of [start, end) in which
// communication blocked the rank (sp_action_cost), launch_ns that in which the GPU waited for
// launches, again_ns that in which it computed a forward again; wait_p2p_ns is the part of the idle
// time just before start that was spent on a transfer in flight, or on sending.
typedef struct sp_span {
    int64_t start_ns, end_ns;
    int64_t tp_ns, cp_ns, dp_ns, ep_ns;
    int64_t dp_wait_ns, ep_wait_ns; // parts of dp_ns and ep_ns
    int64_t ep_hidden_ns;           // no part of the span: behind the other action of a pair
    int64_t launch_ns, again_ns;
    int64_t wait_p2p_ns;
    sp_action action;
} sp_span;

// A rank's share of a vocabulary's work (walk.h) as it ran. Nothing is idle in
// it; a rank's shares and its actions follow one another.
typedef struct sp_share_span {
    sp_span span; // its action is sp_share's
    sp_share_part part;
    bool own;
} sp_share_span;

// Spans of one rank in order of time. Ranks that are provably alike share one entry: `alike` counts
// the data-parallel ranks it stands for, dp_alike[0..alike) names them. Copies to and from host
// memory (O and L) run beside the others, on a stream of their own in each direction.
typedef struct sp_rank_timeline {
    int dp, pp;
    int alike;
    const int *dp_alike; // owned by the timeline
    sp_span *spans;      // owned by the timeline; one after another
    size_t count;
    // Where transfers share a network: when what each span's action gave was at another pipeline
    // rank, SP_NOT_YET for none; owned by the timeline. NULL: transfers take what they cost.
    int64_t *there_ns;
    sp_span *copies; // owned by the timeline; in order of their starts
    size_t copy_count;
    sp_share_span *shares; // owned by the timeline; in order of time
    size_t share_count;
    // The epilogue after the last action: gradient reduction, optimizer, parameter gather; the
    // parts that nothing hides.
    int64_t reduce_start_ns, reduce_end_ns, optimizer_end_ns, gather_end_ns;
} sp_rank_timeline;

typedef struct sp_timeline {
    const sp_plan *plan;     // not owned
    sp_rank_timeline *ranks; // ordered by dp, then pp
    size_t rank_count;
    int64_t makespan_ns;  // end of the last action other than a copy, and of the last share
    int64_t iteration_ns; // end of the epilogue
    // Actions and transfers took other times than their costs say (a network that is shared,
    // jitter); every rank then has an entry of its own.
    bool varies;
    sp_span *span_store;
    int64_t *there_store;
    sp_share_span *share_store;
    int *alike_store;
} sp_timeline;

// Data-parallel ranks by kind: those of one kind are alike, and the first of them stands for all.
typedef struct sp_alike_ranks {
    int kinds;
    int *members; // [dp]: ranks by kind, ascending inside a kind
    int *first;   // [kinds + 1]: members of kind k are members[first[k] .. first[k+1])
} sp_alike_ranks;

// A timeline to be filled by whoever runs the plan: one entry per rank, with room for each of its
// actions and shares, none of them there yet. O(actions).
void sp_timeline_init(sp_timeline *timeline, const sp_plan *plan);
// With entries for the first rank of each kind alone.
void sp_timeline_init_alike(sp_timeline *timeline, const sp_plan *plan,
                            const sp_alike_ranks *alike);
// Lets it keep arrivals over a network that transfers share.
void sp_timeline_keep_arrivals(sp_timeline *timeline);
// When the rank's last action, and its last share, is over; 0 of a rank that ran none.
int64_t sp_rank_last_ns(const sp_rank_timeline *rank);
// When spans, copies and epilogues are there: orders the copies by their starts and takes
// makespan_ns and iteration_ns from the ranks. A rank without an epilogue (gather_end_ns 0) gets
// one of no length at its last action. O(actions * log copies).
void sp_timeline_finish(sp_timeline *timeline);
void sp_timeline_fini(sp_timeline *timeline);

// A point of a rank's memory over time: the bytes held from `time_ns` on.
typedef struct sp_memory_point {
    int64_t time_ns;
    sp_bytes bytes;
} sp_memory_point;

// Memory of one rank entry of a timeline.
typedef struct sp_rank_memory {
    sp_bytes peak; // by category at the moment of the largest total
    // Most bytes at a time with what copies to the host had taken, and without their buffers.
    int64_t uncopied_peak_bytes;
    int64_t peak_ns;
    sp_action peak_action;   // that ran then; of none, the copy that began or ended
    bool has_peak_action;    // false: before the first
    double units_peak;       // most activation units held
    sp_memory_point *points; // only where asked for; owned
    size_t point_count, point_capacity;
} sp_rank_memory;

typedef struct sp_memory_timeline {
    sp_rank_memory *ranks; // as the timeline's ranks
    size_t rank_count;
} sp_memory_timeline;

// As many empty entries as the timeline has ranks.
void sp_memory_timeline_init(sp_memory_timeline *memory, const sp_timeline *timeline);
// From `time_ns` on the rank holds `bytes`; times never fall. `action` is what runs, or NULL before
// the first. Keeps the peak, and where `points` the point itself unless it changes nothing.
void sp_rank_memory_note(sp_rank_memory *memory, int64_t time_ns, const sp_bytes *bytes,
                         const sp_action *action, bool points);
void sp_memory_timeline_fini(sp_memory_timeline *memory);

#endif
