#include "solver/evaluate/step_judge.h"

#include "solver/evaluate/evaluate_private.h"

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

static sp_status settle(sp_i_evaluation *ev, sp_status status, const sp_error *own,
                        sp_packflow_outcome *outcome, sp_error *err)
{
    *outcome = (sp_packflow_outcome){.makespan_ns = INT64_MAX};
    if (status == SP_OK) {
        sp_result_add_stalls(ev->result, ev->scenario->profile.interference.tight_microbatch_s);
        outcome->makespan_ns = ev->result->batches[0].iteration_ns;
        outcome->fits = !sp_result_is_oom(ev->result);
    }
    sp_result_fini(ev->result);
    return sp_status_is_fatal(status) ? sp_error_set(err, status, "%s", own->message[0]) : SP_OK;
}

sp_status sp_step_judge(const sp_strategy_input *input, const sp_packing *packing,
                        sp_packflow_outcome *outcome, sp_error *err)
{
    sp_error own;
    sp_error_clear(&own);
    sp_result alone = {0};
    sp_i_evaluation ev = evaluation_of(input, &alone);
    sp_status status = sp_i_evaluate_alone(&ev, packing, &own);
    return settle(&ev, status, &own, outcome, err);
}

sp_status sp_step_judge_rows(const sp_strategy_input *input, sp_packing *packing,
                             sp_packflow_outcome *outcome, sp_error *err)
{
    sp_error own;
    sp_error_clear(&own);
    sp_result alone = {0};
    sp_i_evaluation ev = evaluation_of(input, &alone);
    sp_status status = sp_i_evaluate_rows(&ev, packing, &own);
    if (status == SP_OK) {
        status = sp_i_evaluate_alone(&ev, packing, &own);
    }
    return settle(&ev, status, &own, outcome, err);
}
