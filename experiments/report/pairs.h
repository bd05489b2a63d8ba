// Which executed results are of the plan that another result predicts.
#ifndef SLIMPACK_EXPERIMENTS_REPORT_PAIRS_H
#define SLIMPACK_EXPERIMENTS_REPORT_PAIRS_H

#include <stdbool.h>

#include "experiments/report/inputs.h"

// Is it a result of `run`, measured whatever else it says?
bool report_is_executed(const report_input *input);

// The first prediction of what the input executed; -1: there is none, or nothing was executed. A
// result does not name its plan: it is that of a result of the same model, strategy, schedule,
// ranks, actions and batches.
int report_prediction_of(const report_inputs *inputs, const report_input *input);

// The prediction and the execution that a result is one of; false: it has no counterpart.
bool report_pair_of(const report_inputs *inputs, const report_input *input,
                    const json_t **predicted, const json_t **executed);

#endif
