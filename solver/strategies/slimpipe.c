// SlimPipe (Li et al., arXiv 2504.14519): rows in the order of the batch, as Megatron-LM packs
// them, each cut into uniform slices that run through the pipeline one after the other. The paper
// leaves the rows of a data-parallel rank as they come; here they are assigned to the ranks by
// their time, which costs nothing and which it needs on data of varying length.
#include "solver/rows.h"
#include "solver/slicing.h"
#include "solver/strategies/karmarkar_karp.h"
#include "solver/strategy_list.h"

static sp_status slice(const sp_strategy_input *input, sp_packing *packing, sp_error *err)
{
    const sp_scenario *scenario = input->scenario;
    int64_t tokens = scenario->strategy.slice_tokens;
    return tokens > 0 ? sp_slice_rows_every(packing, tokens, err)
                      : sp_slice_rows(packing, scenario->schedule.slices, SP_SLICE_TOKENS, NULL,
                                      scenario->source, err);
}

sp_status sp_i_pack_slimpipe(const sp_strategy_input *input, sp_packing *packing, sp_error *err)
{
    sp_i_pack_rows(input, NULL, packing);
    sp_status status = slice(input, packing, err);
    if (status == SP_OK) {
        sp_i_assign_by_time(packing, input->cost, 0);
    } else {
        sp_packing_fini(packing);
    }
    return status;
}
