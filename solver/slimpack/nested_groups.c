// Packs without a pipeline: ranks merged for each sample by itself.
//
// Ranks that are merged for a long sample run short ones apart, as ByteScale packs them, or each
// sample as a pack of its own, as Megatron's hybrid CP does: with a pipeline they would have to
// agree on an order. Packs of equal tokens, as ChunkFlow makes them, leave PyTorch's allocator no
// holes. Without a pipeline the best is taken, of several budgets of tokens a rank.
#include "sim/base/units.h"
#include "solver/slimpack/slimpack_search.h"
#include "solver/step/step.h"
#include "solver/strategy_list.h"
#include "solver/time_limit.h"

enum {
    LEAST_RANK_TOKENS = 2048,
    FEW_SAMPLES = 32, // a rank, each of which may be a pack of its own
    SIXTEENTHS = 16,
    LEAST_SIXTEENTHS =
        9,              // from here to twice as many: budgets between the powers of two beside one
    MOST_OVERFULL = 32, // then blocks are counted no more
};

// The best packs so far.
typedef struct nested {
    const sp_strategy_input *input;
    sp_packing *packing;
    sp_packflow_outcome *outcome;
    bool lacked;  // memory, the last that was tried
    int overfull; // packings that were found not to fit by their blocks
    // Of a budget of tokens, the best of these: how they are made, and their outcome.
    sp_strategy_pack_function pack;
    int64_t tokens; // 0: none was made
    sp_packflow_outcome of_budget;
} nested;

// Packs as a strategy makes them of a budget of tokens, judged, where it makes any and time is
// left.
static sp_status try_packs(nested *n, sp_strategy_pack_function pack, int64_t tokens, sp_error *err)
{
    sp_error own;
    sp_packing tried;
    sp_packflow_outcome judged;
    sp_scenario scenario = *n->input->scenario;
    sp_strategy_input with = *n->input;
    if (sp_i_is_late(with.scenario, with.deadline_s)) {
        return SP_OK;
    }
    scenario.strategy.rank_tokens = tokens;
    scenario.strategy.chunk_tokens = tokens;
    scenario.strategy.pack_rounds = false;
    scenario.schedule.slices = 1;
    with.scenario = &scenario;
    sp_error_clear(&own);
    sp_status status = pack(&with, &tried, &own);
    if (status != SP_OK) {
        return sp_status_is_fatal(status) ? sp_error_set(err, status, "%s", own.message[0]) : SP_OK;
    }
    status = n->overfull < MOST_OVERFULL
                 ? sp_step_judge_blocks(n->input, &tried, n->outcome, &judged, err)
                 : sp_step_judge(n->input, &tried, &judged, err);
    if (status != SP_OK) {
        sp_packing_fini(&tried);
        return status;
    }
    n->lacked = judged.lacking_bytes > 0;
    n->overfull += judged.overfull;
    if (tokens > 0 && sp_packflow_is_better(&judged, &n->of_budget)) {
        n->pack = pack;
        n->tokens = tokens;
        n->of_budget = judged;
    }
    sp_i_keep_better(n->packing, n->outcome, &tried, &judged);
    return SP_OK;
}

static sp_status try_budget(nested *n, int64_t tokens, sp_error *err)
{
    sp_status status = try_packs(n, sp_i_pack_bytescale, tokens, err);
    if (status == SP_OK) {
        status = try_packs(n, sp_i_pack_chunkflow, tokens, err);
    }
    if (status == SP_OK &&
        n->input->batch->count <= FEW_SAMPLES * (size_t)n->input->scenario->layout.dp) {
        status = try_packs(n, sp_i_pack_hybrid_cp, tokens, err);
    }
    return status;
}

// Budgets beside the best of those that were tried, which are far apart.
static sp_status try_around(nested *n, sp_error *err)
{
    const sp_strategy_pack_function pack = n->pack;
    const int64_t tokens = n->tokens;
    sp_status status = SP_OK;
    for (int i = LEAST_SIXTEENTHS; status == SP_OK && tokens > 0 && i < 2 * SIXTEENTHS; i++) {
        if (i != SIXTEENTHS) {
            status = try_packs(n, pack, sp_ceil_div(tokens * i, SIXTEENTHS), err);
        }
    }
    return status;
}

bool sp_i_may_nest(const sp_scenario *scenario)
{
    return scenario->layout.pp == 1 && scenario->strategy.dp_merge;
}

sp_status sp_i_try_nested_groups(const sp_strategy_input *input, sp_packing *packing,
                                 sp_packflow_outcome *outcome, sp_error *err)
{
    const sp_layout *layout = &input->scenario->layout;
    int64_t longest = sp_batch_longest(input->batch);
    nested n = {
        .input = input, .packing = packing, .outcome = outcome, .of_budget = SP_PACKFLOW_WORST};
    sp_status status = SP_OK;
    if (!sp_i_may_nest(input->scenario)) {
        return SP_OK;
    }
    // Equal cuts of the samples in batch order: packs with long samples among short ones hide more
    // of what context parallelism sends.
    status = try_packs(&n, sp_i_pack_slimpipe, 0, err);
    for (int ranks = 1; status == SP_OK && ranks <= layout->dp; ranks *= 2) {
        status = try_budget(&n, sp_ceil_div(longest, ranks), err);
        if (status == SP_OK && longest > ranks) {
            // A little less, and the longest sample takes more ranks.
            status = try_packs(&n, sp_i_pack_bytescale, (longest - 1) / ranks, err);
        }
    }
    int64_t share = input->batch->total_tokens / layout->dp;
    int64_t most = share > input->context ? share : input->context;
    n.lacked = false;
    for (int64_t tokens = LEAST_RANK_TOKENS;
         status == SP_OK && tokens < 2 * most && (!n.lacked || outcome->lacking_bytes > 0);
         tokens *= 2) {
        status = try_budget(&n, tokens, err);
    }
    return status == SP_OK ? try_around(&n, err) : status;
}
