#include "solver/evaluate/compare.h"

#include <stdio.h>

#include "solver/strategy.h"

static sp_status evaluate_row(const sp_scenario *scenario, const sp_batches *batches,
                              const sp_evaluate_options *options, sp_comparison_row *row,
                              sp_error *err)
{
    // A shallow copy: evaluating changes neither the scenario nor what it owns.
    sp_scenario own = *scenario;
    sp_evaluate_options compared = *options;
    sp_error met;
    compared.compared = true;
    sp_error_clear(&met);
    snprintf(own.strategy.kind, sizeof own.strategy.kind, "%s", row->strategy);
    row->status = sp_evaluate(&own, batches, &compared, &row->result, &met);
    if (row->status == SP_OK) {
        return SP_OK;
    }
    sp_result_fini(&row->result);
    const char *text = met.count > 0 ? met.message[0] : sp_status_text(row->status);
    snprintf(row->reason, sizeof row->reason, "%s", text);
    return sp_status_is_fatal(row->status) ? sp_error_set(err, row->status, "%s", text) : SP_OK;
}

sp_status sp_compare(const sp_scenario *scenario, const sp_batches *batches,
                     const char *const *strategies, int count, const sp_evaluate_options *options,
                     sp_comparison_row *rows, sp_error *err)
{
    sp_status status = SP_OK;
    for (int i = 0; i < count; i++) {
        rows[i] = (sp_comparison_row){.strategy = strategies[i]};
    }
    for (int i = 0; status == SP_OK && i < count; i++) {
        status = sp_strategy_check(strategies[i], scenario->source, err);
    }
    for (int i = 0; status == SP_OK && i < count; i++) {
        status = evaluate_row(scenario, batches, options, &rows[i], err);
    }
    if (status != SP_OK) {
        sp_compare_fini(rows, count);
    }
    return status;
}

void sp_compare_fini(sp_comparison_row *rows, int count)
{
    for (int i = 0; i < count; i++) {
        sp_result_fini(&rows[i].result);
    }
}
