#include "solver/step_judge.h"

#include "solver/evaluate_private.h"

static const sp_evaluate_options plain = {.no_bounds = true};

// With the strategy's cost model, which goes on from what it has priced.
static sp_i_evaluation evaluation_of(const sp_strategy_input *input, sp_result *alone)
{
    return (sp_i_evaluation){.scenario = input->scenario,
                             .options = &plain,
                             .cost = *input->cost,
                             .trial = *input->cost,
                             .result = alone};
}

static sp_status judge(sp_i_evaluation *ev, const sp_packing *packing,
                       sp_i_packflow_outcome *outcome, sp_error *err)
{
    sp_status status = sp_i_evaluate_alone(ev, packing, err);
    if (status == SP_OK) {
        outcome->makespan_ns = ev->result->batches[0].iteration_ns;
        outcome->fits = !sp_result_is_oom(ev->result);
    }
    return status;
}

sp_status sp_i_step_judge(const sp_strategy_input *input, const sp_packing *packing,
                          sp_i_packflow_outcome *outcome, sp_error *err)
{
    sp_result alone = {0};
    sp_i_evaluation ev = evaluation_of(input, &alone);
    sp_status status = judge(&ev, packing, outcome, err);
    sp_result_fini(&alone);
    return status;
}

sp_status sp_i_step_judge_rows(const sp_strategy_input *input, sp_packing *packing,
                               sp_i_packflow_outcome *outcome, sp_error *err)
{
    sp_result alone = {0};
    sp_i_evaluation ev = evaluation_of(input, &alone);
    sp_status status = sp_i_evaluate_rows(&ev, packing, err);
    if (status == SP_OK) {
        status = judge(&ev, packing, outcome, err);
    }
    sp_result_fini(&alone);
    return status;
}
