// Slicing: rows of whole samples cut into slices by token position, for the sliced schedules.
#ifndef SLIMPACK_SOLVER_SLICING_H
#define SLIMPACK_SOLVER_SLICING_H

#include <stddef.h>
#include <stdint.h>

#include "sim/base/status.h"
#include "sim/model/model.h"
#include "sim/plan/packing.h"
#include "sim/schedule/schedule.h"

// Cuts every forward pack, a row of whole samples (the packing has no backward packs), into
// `slices` packs of one micro-batch on the same ranks, and adds the backward packs of each row in
// reverse. A sample that a cut crosses becomes slices; its padding stays with its last token.
//
// SP_SLICE_TOKENS: cut k lies at floor(computed tokens * k / slices). SP_SLICE_FLOPS: at equal
// shares of the FLOPs of a layer, linear per token and 4*a*d per causal pair within a sample
// (uniform_comp of Seq1F1B, arXiv 2406.03488); reads `model`, which may be NULL otherwise. A cut
// inside padding moves to its end, and every slice keeps at least one token: a row with fewer
// tokens than slices is SP_ERR_INFEASIBLE at `source`: schedule.slices. O((samples + rows * slices)
// log tokens).
sp_status sp_slice_rows(sp_packing *packing, int slices, sp_slice_rule rule, const sp_model *model,
                        const char *source, sp_error *err);

// As sp_slice_rows, with a cut at every multiple of `tokens` of a row: slices of that length, and
// what is left as the last one.
sp_status sp_slice_rows_every(sp_packing *packing, int64_t tokens, sp_error *err);

// As sp_slice_rows, with the slices of each row that TeraPipe's dynamic programme finds for
// `stages` pipeline stages: cuts at multiples of a 64th of the row. `time_ns` is the forward time
// of a pack (the only one of the list) on one stage.
typedef int64_t (*sp_pack_time)(void *context, const sp_pack_list *list);
sp_status sp_slice_rows_shortest(sp_packing *packing, int stages, sp_pack_time time_ns,
                                 void *context, sp_error *err);

// ---- Where to cut a sequence for a token-level pipeline (slicing.c) ----

// TeraPipe (Li et al., arXiv 2102.07988, section 3.3). DynaPipe (Jiang et al., arXiv 2311.10418)
// cuts a list of samples by the same programme.

// Time in ns of a slice of `tokens` tokens after `prefix` earlier ones, on one stage; negative:
// there must be no such slice.
typedef int64_t (*sp_slice_time)(const void *context, int64_t tokens, int64_t prefix);

typedef struct sp_terapipe_problem {
    int64_t tokens;
    int64_t granularity; // slices begin at its multiples
    int64_t most_tokens; // of a slice; 0: any
    int64_t stages;      // K
    // Longest slices closer than this are tried as one: at most (K-1) times it above the optimum.
    int64_t tolerance_ns;
    double deadline_s; // of sp_clock_s(): the best so far is taken then; 0: none
    sp_slice_time time;
    const void *context;
} sp_terapipe_problem;

typedef struct sp_terapipe_slices {
    int64_t *tokens; // [count]
    size_t count;
    int64_t total_ns; // sum t_i + (K-1) max t_j
} sp_terapipe_slices;

// The slices that minimise the forward time of the sequence over all stages, by a dynamic programme
// for each longest slice; none (count 0) where no slices cover it. With N = tokens / granularity
// positions and slices of at most M of them O(N M) memory and O(C N M) time for C longest slices
// tried, at most N M.
void sp_terapipe_slices_find(const sp_terapipe_problem *problem, sp_terapipe_slices *slices);
void sp_terapipe_slices_fini(sp_terapipe_slices *slices);

#endif
