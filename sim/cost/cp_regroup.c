#include "sim/cost/cp_regroup.h"

#include "sim/base/alloc.h"
#include "sim/plan/regroup.h"

static bool is_cut(const sp_layout *layout, const sp_pack *pack)
{
    return pack->slice_count > 0 && (layout->cp > 1 || pack->dp_count > 1);
}

// Each slice stands in one forward pack: as many slices of it are all of it.
static bool is_forward_pack(const sp_pack_list *forward, const sp_pack *pack,
                            const int32_t *forward_pack)
{
    int32_t of = forward_pack[pack->first_slice];
    for (size_t s = 1; s < pack->slice_count; s++) {
        if (forward_pack[pack->first_slice + s] != of) {
            return false;
        }
    }
    return forward->packs[of].slice_count == pack->slice_count;
}

sp_status sp_i_cp_regroup(const sp_layout *layout, const sp_packing *packing, const char *source,
                          int32_t **forward_pack, sp_error *err)
{
    const sp_pack_list *backward = &packing->backward;
    *forward_pack = NULL;
    if (layout->cp_sharding == SP_SHARD_EVEN || layout->cp_sharding == SP_SHARD_DOCUMENT) {
        return SP_OK;
    }
    sp_status status = sp_regroup(packing, forward_pack, err);
    for (size_t k = 0; status == SP_OK && k < backward->count; k++) {
        const sp_pack *pack = &backward->packs[k];
        if (is_cut(layout, pack) && !is_forward_pack(&packing->forward, pack, *forward_pack)) {
            status = sp_error_in(err, SP_ERR_CONTENT, source, "strategy.cp_sharding",
                                 "\"%s\" cuts whole packs over CP ranks, but backward pack %zu "
                                 "regroups slices of forward packs; \"document\" cuts each slice",
                                 sp_cp_sharding_names[layout->cp_sharding], k);
        }
    }
    if (status != SP_OK) {
        sp_i_free(*forward_pack);
        *forward_pack = NULL;
    }
    return status;
}

sp_i_cp_row sp_i_cp_row_of(const sp_layout *layout, const sp_packing *packing,
                           const int32_t *forward_pack, const sp_pack *pack)
{
    if (forward_pack == NULL || !is_cut(layout, pack)) {
        return (sp_i_cp_row){sp_packing_backward(packing), pack};
    }
    const sp_pack_list *forward = &packing->forward;
    return (sp_i_cp_row){forward, &forward->packs[forward_pack[pack->first_slice]]};
}
