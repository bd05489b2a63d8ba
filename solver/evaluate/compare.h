// Several strategies on the same batches of one scenario.
#ifndef SLIMPACK_SOLVER_EVALUATE_COMPARE_H
#define SLIMPACK_SOLVER_EVALUATE_COMPARE_H

#include "solver/evaluate/evaluate.h"

// One strategy's row. `status` is SP_OK or, where this strategy has no answer, an error that ends
// no other row (sp_status_is_fatal), with its reason; there is no result then.
typedef struct sp_comparison_row {
    const char *strategy; // as named by the caller
    sp_status status;
    char reason[SP_ERROR_TEXT]; // "" where status is SP_OK
    sp_result result;
} sp_comparison_row;

// Fills rows[count] with the scenario under each of the strategies in turn; schedule.kind is for
// the strategies that bring no order of their own. An unknown name is SP_ERR_CONTENT, and after any
// error that is returned no row holds anything. The caller frees the rows with sp_compare_fini().
SP_API sp_status sp_compare(const sp_scenario *scenario, const sp_batches *batches,
                            const char *const *strategies, int count,
                            const sp_evaluate_options *options, sp_comparison_row *rows,
                            sp_error *err);
// Frees what the rows hold; the array is the caller's.
SP_API void sp_compare_fini(sp_comparison_row *rows, int count);

#endif
