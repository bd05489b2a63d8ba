// SlimPack (arXiv 2509.26246), SlimPack with symmetric packs, and SlimPack with split backwards.
#include "solver/slimpack/slimpack_search.h"
#include "solver/strategy_list.h"
#include "solver/time_limit.h"

// Part of the time in which packs are searched for before nested groups are tried.
#define SEARCHING 0.5
// Part of the work before nested groups, and packs of all ranks, are tried.
#define PACKING_WORK 0.6

static sp_status pack_pooled(const sp_strategy_input *input, sp_packing *packing, sp_error *err)
{
    return sp_i_pack_pooled(input, sp_i_pack_slimpack_symmetric, packing, err);
}

static bool runs_again(const sp_packing *packing)
{
    bool again = false;
    for (size_t k = 0; k < packing->forward.count; k++) {
        again = again || packing->forward.packs[k].runs_again;
    }
    return again;
}

// A rank holds least of a pack that all ranks share, and few samples mostly leave ranks uneven that
// run packs of their own. With a pipeline blocks are not counted, and a tight step may fit well.
static sp_status try_pooled(const sp_strategy_input *input, sp_packing *packing,
                            sp_packflow_outcome *outcome, sp_error *err)
{
    bool is_short = outcome->lacking_bytes > 0 || runs_again(packing) ||
                    (outcome->tight && sp_i_may_nest(input->scenario));
    if (!(is_short || sp_i_has_few_samples(input->batch)) || !sp_i_may_pool(input->scenario)) {
        return SP_OK;
    }
    sp_status status = sp_i_try_packs(input, pack_pooled, packing, outcome, err);
    return status == SP_OK ? sp_i_try_packs(input, sp_i_pack_zeppelin, packing, outcome, err)
                           : status;
}

static sp_status search(const sp_strategy_input *input, bool asymmetric, sp_packing *packing,
                        sp_error *err)
{
    sp_packflow_outcome outcome;
    sp_i_slimpack_options options = sp_i_slimpack_options_of(input, asymmetric, false);
    if (sp_i_may_nest(input->scenario)) {
        options.deadline_s = sp_i_deadline_part_s(options.deadline_s, SEARCHING);
    }
    const int64_t limit = sp_i_begin_part(input->scenario, PACKING_WORK);
    sp_status status = sp_i_slimpack_search(input, &options, packing, &outcome, err);
    sp_i_end_part(input->scenario, limit);
    if (status == SP_OK) {
        status = sp_i_try_nested_groups(input, packing, &outcome, err);
        if (status == SP_OK) {
            status = try_pooled(input, packing, &outcome, err);
        }
        if (status != SP_OK) {
            sp_packing_fini(packing);
        }
    }
    return status;
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

// Actions timed to see whether gradients should run apart.
enum { GLANCE = 15000 };

// Part of the time in which that is done.
#define GLANCING 0.3

// Weight gradients of their own hold activations for longer, and some ranks have no idle time for
// them: packs are searched for whole backwards instead where those look faster. The order runs the
// packs either way, as it is faster (packflow.h), but reckons memory less closely than the whole
// step: where that is short of memory, the plan of slimpack is there as well. Without a pipeline
// nothing is idle that weight gradients could fill.
sp_status sp_i_pack_slimpack_zb(const sp_strategy_input *input, sp_packing *packing, sp_error *err)
{
    sp_packflow_outcome outcome[2];
    sp_i_slimpack_options options = sp_i_slimpack_options_of(input, true, true);
    sp_i_slimpack_options glance = options;
    sp_status status = SP_OK;
    if (input->scenario->layout.pp == 1) {
        return search(input, true, packing, err);
    }
    glance.effort = sp_i_slimpack_effort(&input->scenario->strategy, GLANCE);
    glance.deadline_s = sp_i_deadline_part_s(options.deadline_s, GLANCING);
    outcome[0] = outcome[1] = SP_PACKFLOW_WORST;
    for (int split = 1;
         status == SP_OK && split >= 0 && !sp_i_is_late(input->scenario, glance.deadline_s);
         split--) {
        glance.split = split != 0;
        status = sp_i_slimpack_search(input, &glance, NULL, &outcome[split], err);
    }
    if (status != SP_OK) {
        return status;
    }
    options.split = !sp_packflow_is_better(&outcome[0], &outcome[1]);
    status = sp_i_slimpack_search(input, &options, packing, &outcome[0], err);
    if (status != SP_OK || !sp_packflow_is_short(&outcome[0]) ||
        sp_i_is_late(input->scenario, options.deadline_s)) {
        return status;
    }
    sp_packing other;
    options.split = false;
    options.whole = true;
    status = sp_i_slimpack_search(input, &options, &other, &outcome[1], err);
    if (status != SP_OK) {
        sp_packing_fini(packing);
        return status;
    }
    sp_i_keep_better(packing, &outcome[0], &other, &outcome[1]);
    return SP_OK;
}
