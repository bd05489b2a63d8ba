// SlimPack (arXiv 2509.26246), the same with symmetric packs, and with split backwards.
#include "sim/base/alloc.h"
#include "sim/base/json.h"
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

enum { TRIALS = 400 };

static bool may_choose(const sp_scenario *scenario)
{
    const sp_layout *layout = &scenario->layout;
    return !scenario->chunks_given && layout->pp > 1 && scenario->model.layers % layout->pp == 0 &&
           scenario->model.layers / layout->pp >= 2;
}

// Virtual stages r and 2p-1-r lie on one rank and differ in parity.
static void alternate_layers(const sp_scenario *scenario, int *layers)
{
    int each = scenario->model.layers / scenario->layout.pp;
    for (int s = 0; s < 2 * scenario->layout.pp; s++) {
        layers[s] = s % 2 == 0 ? (each + 1) / 2 : each / 2;
    }
}

static sp_status predict(const sp_scenario *scenario, const sp_batches *batches, int chunks,
                         const int *layers, sp_packflow_outcome *outcome, sp_error *err)
{
    sp_scenario tried = *scenario;
    tried.layout.chunks = chunks;
    tried.layout.placement = sp_schedule_placement(tried.schedule.kind, chunks);
    tried.layout.stage_layers = chunks > 1 ? layers : scenario->layout.stage_layers;
    sp_cost_model cost;
    sp_status status = sp_cost_model_init(&cost, &tried.model, &tried.layout, &tried.cluster,
                                          &tried.profile, tried.memory, tried.source, err);
    if (status != SP_OK) {
        return status;
    }
    const sp_strategy_input input = {.scenario = &tried,
                                     .batch = &batches->batch[0],
                                     .context = batches->context,
                                     .cost = &cost};
    sp_i_slimpack_options options = {
        .asymmetric = scenario->strategy.asymmetric, .split = true, .trials = TRIALS};
    status = sp_i_slimpack_search(&input, &options, NULL, outcome, err);
    if (status == SP_OK && chunks == 1) {
        sp_packflow_outcome whole;
        options.split = false;
        status = sp_i_slimpack_search(&input, &options, NULL, &whole, err);
        if (status == SP_OK && sp_packflow_is_better(&whole, outcome)) {
            *outcome = whole;
        }
    }
    sp_cost_model_fini(&cost);
    return status;
}

// How many model chunks each pipeline rank holds, where that is for the strategy to say: one chunk,
// or two in V placement with equally many layers on every rank: what a short search on the first
// batch of the workload predicts to be faster. A job keeps its chunks, whatever its later batches.
// Changes the layout, and the resolved document if there is one, unless the scenario states its
// chunks or the layers do not allow two.
sp_status sp_i_choose_chunks(sp_scenario *scenario, sp_error *err)
{
    if (!may_choose(scenario)) {
        return SP_OK;
    }
    sp_workload_spec first = scenario->workload;
    sp_batches batches = {0};
    sp_packflow_outcome one = {0};
    sp_packflow_outcome two = {0};
    first.batches = 1;
    int *layers = sp_i_malloc(2 * (size_t)scenario->layout.pp * sizeof *layers);
    sp_status status = layers != NULL ? sp_batches_make(&first, &batches, err)
                                      : sp_error_no_memory(err, "model chunks");
    bool any = status == SP_OK && batches.count > 0 && batches.batch[0].count > 0;
    if (any) {
        alternate_layers(scenario, layers);
        status = predict(scenario, &batches, 1, NULL, &one, err);
    }
    if (any && status == SP_OK) {
        status = predict(scenario, &batches, 2, layers, &two, err);
    }
    sp_batches_fini(&batches);
    if (status == SP_OK && any && sp_packflow_is_better(&two, &one)) {
        scenario->layout.chunks = 2;
        scenario->layout.stage_layers = layers;
        scenario->stage_layers = layers;
        layers = NULL;
    }
    sp_i_free(layers);
    return status;
}
