// Rows: samples side by side in one sequence of up to `context` tokens. What the strategies without
// slices have in common.
#ifndef SLIMPACK_SOLVER_ROWS_H
#define SLIMPACK_SOLVER_ROWS_H

#include <stddef.h>
#include <stdint.h>

#include "sim/base/status.h"
#include "sim/workload/batch.h"
#include "solver/strategy.h"

// Samples grouped by row: row r holds sample[first[r] .. first[r+1]).
typedef struct sp_i_rows {
    int32_t *sample; // [batch->count]
    size_t *first;   // [count + 1]
    size_t count;
} sp_i_rows;

// Both arrays sized for a batch; count 0.
sp_status sp_i_rows_init(sp_i_rows *rows, const sp_batch *batch, sp_error *err);
void sp_i_rows_fini(sp_i_rows *rows);

// Fills rows in the given order of samples: a new row when the next sample does not fit.
void sp_i_rows_fill_in_order(sp_i_rows *rows, const sp_batch *batch, const int32_t *order,
                             int64_t context);

// Sample indices by descending length, equal lengths in batch order; *order is freed with
// sp_i_free.
sp_status sp_i_order_descending(const sp_batch *batch, int32_t **order, sp_error *err);

// First-fit decreasing bin packing of all samples into rows of input->context.
sp_status sp_i_rows_first_fit(sp_i_rows *rows, const sp_strategy_input *input, sp_error *err);

// Fills the rows from the row of each sample: row_of[i] < count for order[i]; inside a row the
// samples stand in that order.
void sp_i_rows_gather(sp_i_rows *rows, const sp_batch *batch, const int32_t *order,
                      const size_t *row_of, size_t count);

// A packing of the rows: scenario->strategy.microbatch_samples rows to a micro-batch, micro-batch k
// on rank k % dp.
typedef sp_status (*sp_i_make_rows)(sp_i_rows *rows, const sp_strategy_input *input, sp_error *err);
sp_status sp_i_pack_rows(const sp_strategy_input *input, sp_i_make_rows make, sp_packing *packing,
                         sp_error *err);

#endif
