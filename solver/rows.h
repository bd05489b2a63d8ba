// Packs of whole samples: what the strategies without slices have in common. A row is samples side
// by side in one sequence of up to `context` tokens.
#ifndef SLIMPACK_SOLVER_ROWS_H
#define SLIMPACK_SOLVER_ROWS_H

#include <stddef.h>
#include <stdint.h>

#include "sim/base/status.h"
#include "sim/workload/batch.h"
#include "solver/strategy.h"

// A whole sample at the end of the last forward pack.
void sp_i_add_sample(sp_packing *packing, int32_t sample);

// A forward pack of whole samples on the ranks [dp_first, dp_first + dp_count).
void sp_i_add_row(sp_packing *packing, int dp_first, int dp_count, const int32_t *samples,
                  size_t count);

// A slice at the end of a list's last pack; it ends its sample of the batch where its tokens do.
void sp_i_add_slice(const sp_batch *batch, sp_slice slice, sp_pack_list *list);

// A pack of another list, on its ranks, with all its slices; it does not run again.
void sp_i_add_pack(const sp_pack_list *from, const sp_pack *pack, sp_pack_list *list);

// Sample indices by descending length, equal lengths in batch order; freed with sp_free.
int32_t *sp_i_order_descending(const sp_batch *batch);

// ---- rows ----

// Samples grouped by row: row r holds sample[first[r] .. first[r+1]).
typedef struct sp_i_rows {
    int32_t *sample; // [samples]
    size_t *first;   // [count + 1]
    size_t count;
} sp_i_rows;

// Both arrays sized for so many samples; count 0.
void sp_i_rows_init(sp_i_rows *rows, size_t samples);
void sp_i_rows_fini(sp_i_rows *rows);

// Fills rows in the given order of all samples (NULL: that of the batch): a new row when the next
// sample does not fit.
void sp_i_rows_fill_in_order(sp_i_rows *rows, const sp_batch *batch, const int32_t *order,
                             int64_t context);

// First-fit decreasing bin packing of `samples` samples in descending order into rows of `context`.
void sp_i_rows_first_fit(sp_i_rows *rows, const sp_batch *batch, const int32_t *order,
                         size_t samples, int64_t context);

// Fills `count` rows from the row of each sample: row_of[i] < count for order[i]; inside a row the
// samples stand in that order.
void sp_i_rows_gather(sp_i_rows *rows, const int32_t *order, const size_t *row_of, size_t samples,
                      size_t count);

// A packing of the rows that `make` fills from the samples in descending order (NULL: the samples
// fill rows in batch order): scenario->strategy.microbatch_samples rows to a micro-batch,
// micro-batch k on rank k % dp.
typedef void (*sp_i_make_rows)(sp_i_rows *rows, const sp_strategy_input *input,
                               const int32_t *order);
void sp_i_pack_rows(const sp_strategy_input *input, sp_i_make_rows make, sp_packing *packing);

// ---- DP-Merge: whole samples on blocks of data-parallel ranks ----

// The ranks of a block shard the tokens of their samples by context parallelism. A block of
// `degree` ranks begins at a multiple of its degree, and degrees are powers of two or all ranks, so
// any two blocks are nested or apart.

// The sample's tokens that one data-parallel rank takes at most: strategy.rank_tokens, or the
// context over all ranks (rounded up), so that all ranks together hold the longest sample.
int64_t sp_i_merged_rank_tokens(const sp_strategy_input *input);

// The next larger degree; that of all ranks has none larger and is its own.
int sp_i_merged_next(int degree, int dp);

// The smallest degree that holds the tokens; 0: not even all ranks do.
int sp_i_merged_degree(int64_t tokens, int64_t rank_tokens, int dp);

typedef struct sp_i_block {
    int first, degree;
} sp_i_block;

// Whole samples in micro-batches of at most rank_tokens tokens a rank, of each block in the order
// given: order[i] for i >= from in block[i]. Wider blocks come first, so that the packs are in an
// order that pipelines can run (sp_i_merged_order). O(dp * samples).
void sp_i_add_blocks(sp_packing *packing, const int32_t *order, const sp_i_block *block,
                     size_t from, int64_t rank_tokens);

// SP_ERR_INFEASIBLE with the reason where a sample does not fit all ranks.
sp_status sp_i_merged_check(const sp_strategy_input *input, sp_error *err);

// Puts the finished packs into an order that pipelines can run. Without a pipeline every common
// order is free of deadlock: a rank runs a pack forward and backward before its next one. With one,
// two ranks must also agree on which backwards stand between the forwards of two packs they share.
// They do if a shared pack has the same place among the packs of all its ranks, and the order of
// descending degree gives it that: whoever shares a pack shares all packs of larger degree, for the
// blocks are nested. Within a degree the packs stay in order.
void sp_i_merged_order(const sp_strategy_input *input, sp_packing *packing);

#endif
