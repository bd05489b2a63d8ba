// How the two sides of a packing, which cut the same samples into packs, lie to each other.
#ifndef SLIMPACK_SIM_PLAN_REGROUP_H
#define SLIMPACK_SIM_PLAN_REGROUP_H

#include "sim/plan/packing.h"

// Gives, for every slice of the backward list, the forward pack that holds the same slice, in an
// array the caller frees with sp_free; *pack is NULL where the packing has no backward packs of
// its own. The packing must hold every slice on both sides (sp_plan_check). O(slices * log slices).
// Always SP_OK, as are the others.
sp_status sp_regroup(const sp_packing *packing, int32_t **pack, sp_error *err);

// Of each pack of packing->backward the forward pack with the same slices in the same order, -1
// where there is none, in an array that the caller frees with sp_free. Neither side need be
// complete. O(slices), and the square of the packs that begin with one sample.
sp_status sp_same_packs(const sp_packing *packing, int32_t **forward, sp_error *err);

// What the backward packs of a packing leave for each other. The gradients of a slice's keys and
// values are summed over its own backward and those of all later slices of its sample; the backward
// of the last slice begins the sums of all, and each slice's own backward ends its own.
// Tokens of slices, each rounded up to whole rows of the ranks that share its pack.
typedef struct sp_slice_sums {
    int64_t begun_tokens; // of slices in other packs whose sums this pack begins
    int64_t found_tokens; // of own slices whose sums another pack began
} sp_slice_sums;

// For every backward pack, in an array that the caller frees with sp_free; `cp` ranks share each
// pack of one data-parallel rank. A packing without samples has no sums. O(slices + samples).
sp_status sp_slice_sums_make(const sp_packing *packing, int cp, sp_slice_sums **sums,
                             sp_error *err);

// Of each sample of the batch the begin of its last slice in the list, -1 where it has none; freed
// by the caller. O(slices + samples).
int64_t *sp_last_begins(const sp_packing *packing, const sp_pack_list *list);

#endif
