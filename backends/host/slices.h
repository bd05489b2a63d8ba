// The slices of a packing, each with its place on both sides: its rows in its forward pack and in
// its backward pack, and its neighbours in its sample.
#ifndef SLIMPACK_BACKENDS_HOST_SLICES_H
#define SLIMPACK_BACKENDS_HOST_SLICES_H

#include "sim/schedule/packing.h"

enum { SP_I_HOST_NONE = -1 };

typedef struct sp_i_host_slice {
    int32_t sample;
    int64_t begin, tokens, computed; // positions in the sample; computed with padding
    int32_t earlier, later;          // the slices next to it in its sample, or SP_I_HOST_NONE
    int32_t forward_pack;
    int64_t forward_row; // its first row in that pack
} sp_i_host_slice;

// One pack: `count` slices one behind the other, by their numbers.
typedef struct sp_i_host_pack {
    const int32_t *slice;
    int32_t count;
    int64_t rows; // computed tokens of all
    // The forward pack that holds the same slices in the same order, or SP_I_HOST_NONE.
    int32_t same_as;
} sp_i_host_pack;

typedef struct sp_i_host_slices {
    sp_i_host_slice *slice; // in the order of the forward packs
    size_t count;
    sp_i_host_pack *forward, *backward; // as the packing's lists
    size_t forward_count, backward_count;
    int32_t *store;    // numbers, forward then backward
    int64_t positions; // beyond the last position of any slice
    int64_t trained;   // tokens of all slices, padding left out
} sp_i_host_slices;

// The packing must hold every slice on both sides (sp_plan_check). O(slices * log slices).
sp_status sp_i_host_slices_init(sp_i_host_slices *slices, const sp_packing *packing, sp_error *err);
void sp_i_host_slices_fini(sp_i_host_slices *slices);

#endif
