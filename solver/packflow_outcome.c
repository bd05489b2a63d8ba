#include "solver/packflow_outcome.h"

#include "sim/schedule/packflow_plan.h"
#include "solver/token_limit.h"

bool sp_i_packflow_is_better(const sp_i_packflow_outcome *a, const sp_i_packflow_outcome *b)
{
    return a->fits != b->fits ? a->fits : a->makespan_ns < b->makespan_ns;
}

sp_status sp_i_packflow_outcome_of(const sp_scenario *scenario, const sp_step_costs *costs,
                                   const sp_schedule_costs *times, const sp_packing *packing,
                                   bool split, int dp_first, int dp_end,
                                   sp_i_packflow_outcome *outcome, sp_error *err)
{
    sp_schedule_spec spec = scenario->schedule;
    spec.split_backward = split;
    spec.token_limit =
        sp_i_token_limit(costs, packing, &scenario->layout, split, scenario->memory_limit_bytes);
    *outcome = (sp_i_packflow_outcome){.fits = true};
    sp_status status = SP_OK;
    for (int d = dp_first; status == SP_OK && d < dp_end; d++) {
        sp_packflow_result result = {0};
        status = sp_i_packflow_rank(&spec, times, packing, scenario->layout.pp, d, &result, err);
        outcome->makespan_ns =
            result.makespan_ns > outcome->makespan_ns ? result.makespan_ns : outcome->makespan_ns;
        outcome->fits =
            outcome->fits && (spec.token_limit == 0 || result.most_tokens <= spec.token_limit);
    }
    return status;
}
