// Equal packs without samples.
#ifndef SLIMPACK_TESTS_SUPPORT_UNIFORM_PACKING_H
#define SLIMPACK_TESTS_SUPPORT_UNIFORM_PACKING_H

#include "sim/plan/packing.h"

// As many packs per data-parallel rank, with no slices: pack k runs on rank k % dp.
static inline sp_status uniform_packing(sp_packing *packing, int dp, int64_t microbatches,
                                        sp_error *err)
{
    sp_packing_init(packing, NULL, dp);
    for (int64_t k = 0; k < dp * microbatches; k++) {
        if (!sp_pack_list_begin(&packing->forward, (int)(k % dp), 1)) {
            sp_packing_fini(packing);
            return sp_error_no_memory(err, "packing");
        }
    }
    return SP_OK;
}

#endif
