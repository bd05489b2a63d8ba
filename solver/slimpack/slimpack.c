// SlimPack (arXiv 2509.26246), the same with symmetric packs, and with split backwards.
#include "sim/base/progress.h"
#include "solver/slimpack/slimpack_search.h"
#include "solver/strategy_list.h"

static sp_status search(const sp_strategy_input *input, bool asymmetric, sp_packing *packing,
                        sp_error *err)
{
    sp_packflow_outcome outcome;
    const sp_i_slimpack_options options =
        sp_i_slimpack_options_of(&input->scenario->strategy, asymmetric, false);
    return sp_i_slimpack_search(input, &options, packing, &outcome, err);
}

sp_status sp_i_pack_slimpack_symmetric(const sp_strategy_input *input, sp_packing *packing,
                                       sp_error *err)
{
    return search(input, false, packing, err);
}

sp_status sp_i_pack_slimpack(const sp_strategy_input *input, sp_packing *packing, sp_error *err)
{
    return search(input, true, packing, err);
}

// Weight gradients of their own hold activations for longer, and some ranks have no idle time for
// them: with one chunk a rank, whole backwards are searched as well, in the same time limit. The
// order runs the packs either way, as it is faster (packflow_outcome.h).
sp_status sp_i_pack_slimpack_zb(const sp_strategy_input *input, sp_packing *packing, sp_error *err)
{
    bool both = input->scenario->layout.chunks == 1;
    sp_packflow_outcome apart;
    sp_i_slimpack_options options =
        sp_i_slimpack_options_of(&input->scenario->strategy, true, true);
    double deadline_s = options.deadline_s;
    if (both && deadline_s > 0.0) {
        options.deadline_s = 0.5 * (sp_clock_s() + deadline_s);
    }
    sp_status status = sp_i_slimpack_search(input, &options, packing, &apart, err);
    if (status != SP_OK || !both) {
        return status;
    }
    sp_packflow_outcome whole;
    sp_packing other;
    options.split = false;
    options.deadline_s = deadline_s;
    status = sp_i_slimpack_search(input, &options, &other, &whole, err);
    if (status != SP_OK) {
        sp_packing_fini(packing);
        return status;
    }
    bool better = sp_packflow_is_better(&whole, &apart);
    sp_packing_fini(better ? packing : &other);
    *packing = better ? other : *packing;
    return SP_OK;
}
