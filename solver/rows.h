// Packs of whole samples: what the strategies without slices have in common. A row is samples side
// by side in one sequence of up to `context` tokens.
#ifndef SLIMPACK_SOLVER_ROWS_H
#define SLIMPACK_SOLVER_ROWS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "sim/base/status.h"
#include "sim/cost/cost_model.h"
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

// The budget of a row: strategy.rank_tokens for each context-parallel rank, or the context.
int64_t sp_i_row_tokens(const sp_strategy_input *input);

// Sample indices by descending length, equal lengths in batch order; freed with sp_free.
int32_t *sp_i_order_descending(const sp_batch *batch);

// What a sample takes of a row of one data-parallel rank, with the stack's padding, and what a row
// of so many tokens then holds: a multiple of it, so that a sample as long as the row has room.
int64_t sp_i_row_share(const sp_batch *batch, int32_t sample);
int64_t sp_i_row_room(const sp_batch *batch, int64_t tokens);

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

// ---- keys and values gathered pack by pack ----

// May packs gather keys and values while the job exchanges them in rings? Where another exchange is
// stated or chosen, it is that of all packs.
bool sp_i_may_gather(const sp_scenario *scenario);

// Lets packs of several ranks gather keys and values before the attention, as llama-cp's do: `all`
// of them, or those that take less time so; the attention of zones stays as it is. Packs of the two
// sides with equal slices come out alike. Returns how many gather. O(slices) prices.
size_t sp_i_gather_packs(const sp_strategy_input *input, bool all, sp_packing *packing);

// ---- the work of samples ----

// The planner weighs samples by three numbers a pass before anything is simulated.

// Seconds of one pass on the mean virtual stage: pack_s + token_s * tokens + pair_s * pairs, the
// mean of a layer's (sp_model_pairs2).
typedef struct sp_i_pass_work {
    double pack_s, token_s, pair_s;
} sp_i_pass_work;

typedef struct sp_i_work {
    sp_i_pass_work forward, backward;
    const sp_model *model; // of layers that do not all see all tokens; NULL: they do
} sp_i_work;

// From the cost model's times of three packs: few tokens, many in short samples, and a late slice
// of a long one. `tokens` is a typical pack. Times fall below the line between these packs only by
// the curvature of the profile's tables.
sp_status sp_i_work_measure(sp_cost_model *cost, int64_t tokens, sp_i_work *work, sp_error *err);

// Forward and backward of tokens [begin, begin + tokens) of a sample, without the fixed cost of a
// pack.
double sp_i_slice_work_s(const sp_i_work *work, int64_t begin, int64_t tokens);

// The same of one pass.
double sp_i_slice_pass_s(const sp_i_work *work, bool backward, int64_t begin, int64_t tokens);

// The most tokens from `begin` on whose work is at most work_s.
int64_t sp_i_slice_tokens(const sp_i_work *work, int64_t begin, double work_s);

// ---- ranks by time ----

// Micro-batches assigned to the data-parallel ranks by their time.

// Partitions weights >= 0 into `parts` parts, none of them much heavier than the others: part[i] <
// parts. The differencing method of Karmarkar and Karp (1982): of the two partitions that are most
// uneven one is turned over on the other, heavy parts on light ones, until one partition is left.
// O(n (parts + log n)) time, O(n) memory.
void sp_i_karmarkar_karp(const double *weight, size_t n, int parts, int *part);

// Puts each micro-batch of a packing whose micro-batches are numbered from 0 on the rank that
// sp_i_karmarkar_karp gives it, forward and backward. The weight of a micro-batch is the forward
// and backward time of its forward packs; with `retained` > 0 also the second forward of all packs
// of a micro-batch but the last `retained` (ChunkFlow).
void sp_i_assign_by_time(sp_packing *packing, sp_cost_model *cost, int retained);

// ---- the histogram of lengths ----

// Longest-pack-first histogram packing (Krell et al., "Efficient Sequence Packing without
// Cross-contamination", arXiv 2107.02027): best-fit decreasing on how often each length occurs in
// place of single samples, so that equal packs are made together.

typedef struct sp_i_length_count {
    int64_t tokens;
    int64_t samples; // of that length, > 0
} sp_i_length_count;

// Equal packs: what those of kind `base` hold (-1: nothing) and `repeat` samples of one length.
typedef struct sp_i_pack_kind {
    int32_t base;   // an earlier kind
    int32_t length; // index into the histogram
    int64_t repeat;
    int64_t samples; // in a pack
    int64_t room;    // of a pack
    int64_t packs;   // that no later kind was made from
} sp_i_pack_kind;

typedef struct sp_i_pack_kinds {
    sp_i_pack_kind *kind;
    size_t count, capacity;
} sp_i_pack_kinds;

// Packs a histogram of lengths that descend from at most `context`; max_per_pack samples to a pack
// at most (0: any number). Fills `kinds`, whose kind[] is freed with sp_free.
void sp_i_histogram_pack(const sp_i_length_count *lengths, size_t length_count, int64_t context,
                         int64_t max_per_pack, sp_i_pack_kinds *kinds);

#endif
