// The slices of a packing as one rank holds them: how many rows of each are its own, where they
// stand in its forward pack and in its backward pack, and each slice's neighbours in its sample.
//
// The tokens of a slice are cut into zig-zag shards (backends/ranks/zigzag.h) over the ranks that
// share its pack: those of context parallelism, times the data-parallel ranks of a merged pack. A
// rank's shard are its rows of the slice. Sequence parallelism cuts the rows of every slice once
// more, into parts, one for each tensor-parallel rank. The rows of a pack stand part by part, in
// each part slice by slice: so a rank's own part of a pack is one run of rows, and what all parts
// gather is the pack.
#ifndef SLIMPACK_BACKENDS_EXECUTOR_SLICES_H
#define SLIMPACK_BACKENDS_EXECUTOR_SLICES_H

#include "backends/ranks/zigzag.h"
#include "sim/plan/packing.h"

enum { SP_I_EXEC_NONE = -1, SP_I_EXEC_MOST_PARTS = 64 };

// Which of the ranks that compute the same layers this one is.
typedef struct sp_i_exec_place {
    int dp;
    int cp, cp_rank;
    int parts, part; // parts 1 without sequence parallelism
    int tp, tp_rank;
} sp_i_exec_place;

typedef struct sp_i_exec_slice {
    int32_t sample;
    int64_t begin, tokens, computed; // positions in the sample; computed with padding
    int32_t earlier, later;          // the slices next to it in its sample, or SP_I_EXEC_NONE
    int32_t forward_pack;
    int shards, shard; // ranks that share its tokens, and which of them this one is
    // The shards that run its attention begin with zone_shard; zone_shards 0: all do.
    int zone_shard, zone_shards;
    int64_t rows; // this rank's
} sp_i_exec_slice;

// Rows of a pack that are tokens of one slice at positions one after another.
typedef struct sp_i_exec_piece {
    int32_t slice;
    int part;
    int64_t at;    // its first row among this rank's rows of the slice
    int64_t begin; // its first position in the sample
    int64_t rows;
    int64_t row; // its first row in the pack
} sp_i_exec_piece;

// One pack: `count` slices by their numbers, and the pieces of the i-th, part after part:
// piece[first_piece[i]] to piece[first_piece[i + 1] - 1].
typedef struct sp_i_exec_pack {
    const int32_t *slice;
    int32_t count;
    int64_t all_rows; // of all ranks that share it
    int64_t rows;     // this rank's
    int64_t own_rows; // of its part
    int64_t own_row;  // the first of them
    const sp_i_exec_piece *piece;
    const size_t *first_piece; // [count + 1]
    int32_t same_as;   // the forward pack with the same slices in the same order, or SP_I_EXEC_NONE
    int64_t packed_at; // where its numbers begin in tables of all packs' rows
} sp_i_exec_pack;

typedef struct sp_i_exec_slices {
    sp_i_exec_place place;
    sp_i_exec_slice *slice; // in the order of the forward packs
    size_t count;
    sp_i_exec_pack *forward, *backward; // as the packing's lists
    size_t forward_count, backward_count;
    int32_t *store;          // numbers, forward then backward
    sp_i_exec_piece *pieces; // of all packs
    size_t *first_pieces;
    int64_t *forward_row; // [slices][parts]: in its forward pack, of each part's first row
    int64_t positions;    // beyond the last position of any slice
    int64_t trained;      // tokens of all slices, padding left out
} sp_i_exec_slices;

// The packing must hold every slice on both sides (sp_plan_check). O(slices * (parts + log
// slices)).
void sp_i_exec_slices_init(sp_i_exec_slices *slices, const sp_packing *packing,
                           const sp_i_exec_place *place);
void sp_i_exec_slices_fini(sp_i_exec_slices *slices);

// The positions in its sample that a shard of a slice is made of, in the order of its rows: two
// runs, of which either may be empty, or one where nobody shares the slice. Returns how many.
int sp_i_exec_shard_runs(const sp_i_exec_slice *slice, int shard,
                         sp_token_run runs[SP_ZIGZAG_RUNS]);

// Rows of part `part` of this rank's rows of a slice, and where the part begins among them.
int64_t sp_i_exec_part_rows(const sp_i_exec_slices *slices, int32_t slice, int part);
// Where the rows of a part begin in the slice's forward pack.
int64_t sp_i_exec_forward_row(const sp_i_exec_slices *slices, int32_t slice, int part);

static inline const sp_i_exec_pack *sp_i_exec_pack_at(const sp_i_exec_slices *slices, bool backward,
                                                      int32_t pack)
{
    return (backward ? slices->backward : slices->forward) + pack;
}

#endif
