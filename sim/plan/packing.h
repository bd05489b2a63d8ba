// A packing: the samples of a batch as slices, grouped into forward packs and backward packs. The
// two are different partitions of the same slices (SlimPack, arXiv 2509.26246); most strategies use
// equal ones. Made by a strategy, read by the schedule, the cost model and the engine.
#ifndef SLIMPACK_SIM_PLAN_PACKING_H
#define SLIMPACK_SIM_PLAN_PACKING_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "sim/base/status.h"
#include "sim/workload/batch.h"

// [begin, begin+tokens) of one sample, computed as computed_tokens >= tokens (padding at the end).
typedef struct sp_slice {
    int32_t sample; // index into the batch
    int32_t zone;   // of its attention (sp_zone_of); 0: all ranks of its pack
    int64_t begin;
    int64_t tokens;
    int64_t computed_tokens;
} sp_slice;

// Slices that run together as one variable-length micro-batch on dp ranks [dp_first,
// dp_first+dp_count) (more than one: DP-Merge, the tokens sharded over them by context
// parallelism).
typedef struct sp_pack {
    int32_t dp_first, dp_count;
    int32_t microbatch; // packs of one number are slices of one row; a pack's own index by default
    size_t first_slice; // into slices[] of its side
    size_t slice_count;
    int64_t tokens;     // trained
    int64_t computed;   // with padding
    int64_t pairs2;     // twice the causal pairs computed: sum of 2*l*o + l*l over computed lengths
    int64_t full_pairs; // sum of l*(o+l): what an attention without causal mask covers
    int64_t kv_tokens;  // computed tokens of slices whose sample has later slices
    // A forward pack that runs again (R) before the backward that reads it, and till then keeps its
    // input, and keys and values that later slices read. For schedules that order by pack; a plan
    // says it by its actions.
    bool runs_again;
    // Its context-parallel ranks, merged or of one, gather keys and values before the attention,
    // whatever else stack.cp_overlap says of them. Not of slices with zones, nor where ranks
    // exchange heads.
    bool gathers;
} sp_pack;

// A zone: the data-parallel ranks of a pack that run the attention of a slice, a power of two of
// them from a multiple of it on. All other modules run on the equal shares that the pack's ranks
// hold; queries, keys and values are sent into the zone, and what the attention gives back
// (Zeppelin's remapping layer, arXiv 2509.21841).
static inline int32_t sp_zone_of(int first, int ranks)
{
    return (int32_t)(2 * (int64_t)first + ranks);
}

static inline int sp_zone_ranks(int32_t zone)
{
    return (int)(zone & -zone);
}

static inline int sp_zone_first(int32_t zone)
{
    return (zone - sp_zone_ranks(zone)) / 2;
}

typedef struct sp_pack_list {
    sp_pack *packs;
    size_t count, capacity;
    sp_slice *slices;
    size_t slice_count, slice_capacity;
    sp_padding padding; // of slices that are added
} sp_pack_list;

typedef struct sp_packing {
    const sp_batch *batch; // not owned; NULL for uniform costs
    int dp;                // data-parallel ranks
    sp_pack_list forward;
    sp_pack_list backward; // empty: the forward packs, one to one
    int64_t *dropped;      // sample indices a strategy dropped or delayed
    size_t dropped_count;
    int64_t *delayed;
    size_t delayed_count;
    int64_t spare_bytes;  // of memory that an order by room (packflow) leaves unused on every rank
    bool whole_backwards; // packflow runs no input gradients apart where it might
    bool in_1f1b;         // packflow runs them in the order of 1F1B (packflow.h)
    // The strategy chose so many tokens for a row, or for what a data-parallel rank takes of a
    // pack; 0: the scenario states them, or they follow from it.
    int64_t row_tokens;
} sp_packing;

// Slices that are added are padded as the batch says.
void sp_packing_init(sp_packing *packing, const sp_batch *batch, int dp);
void sp_packing_fini(sp_packing *packing);

// Starts a new pack on a list; add its slices next.
void sp_pack_list_begin(sp_pack_list *list, int dp_first, int dp_count);
// Adds a slice to the last pack and to its sums, padded as the list says, unless its attention is
// in a zone. `last` says that no slice of the sample follows.
void sp_pack_list_add(sp_pack_list *list, sp_slice slice, bool last);

// The backward packs: `backward`, or `forward` where there are no others.
const sp_pack_list *sp_packing_backward(const sp_packing *packing);

// Tokens of the batch's cut_tokens that are trained: less those of pieces that the strategy dropped
// or delayed.
int64_t sp_packing_cut_tokens(const sp_packing *packing);

// Are the backward packs the forward packs, one to one, in a list of their own? Their memory is
// counted by slices then, and forwards that run again keep nothing.
bool sp_packing_repeats_sides(const sp_packing *packing);
// Drops such backward packs: none means the forward packs.
void sp_packing_merge_sides(sp_packing *packing);

// Equal packs for uniform costs, in slices: micro-batch m is one sample of `slices` tokens on rank
// m % dp, each pack one token of it; the backward packs hold them in reverse. Fills *batch, which
// the caller frees after the packing.
sp_status sp_packing_uniform_sliced(sp_packing *packing, sp_batch *batch, int dp,
                                    int64_t microbatches, int slices, sp_error *err);

// ---- how the two sides of a packing, which cut the same samples into packs, lie to each other
// ----

// Gives, for every slice of the backward list, the forward pack that holds the same slice, in an
// array the caller frees with sp_free; *pack is NULL where the packing has no backward packs of
// its own. The packing must hold every slice on both sides (sp_plan_check). O(slices * log slices).
void sp_regroup(const sp_packing *packing, int32_t **pack);

// Finds for each pack of packing->backward the forward pack with the same slices in the same order,
// -1 where there is none, in an array that the caller frees with sp_free. Neither side need be
// complete. O(slices), and the square of the packs that begin with one sample.
void sp_same_packs(const sp_packing *packing, int32_t **forward);

// The sums that the backward packs of a packing leave for each other. The gradients of a slice's
// keys and values are summed over its own backward and those of all later slices of its sample; the
// backward of the last slice begins the sums of all, and each slice's own backward ends its own.
// Tokens of slices, each rounded up to whole rows of the ranks that share its pack.
typedef struct sp_slice_sums {
    int64_t begun_tokens; // of slices in other packs whose sums this pack begins
    int64_t found_tokens; // of own slices whose sums another pack began
} sp_slice_sums;

// For every backward pack, in an array that the caller frees with sp_free; `cp` ranks share each
// pack of one data-parallel rank. A packing without samples has no sums. O(slices + samples).
void sp_slice_sums_make(const sp_packing *packing, int cp, sp_slice_sums **sums);

// The begin of each sample's last slice in the list, -1 where it has none; the caller frees the
// array. O(slices + samples).
int64_t *sp_last_begins(const sp_packing *packing, const sp_pack_list *list);

#endif
