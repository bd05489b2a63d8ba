// Global batches: ordered samples of one optimizer step, drawn by seed or in file order.
#ifndef SLIMPACK_SIM_WORKLOAD_BATCH_H
#define SLIMPACK_SIM_WORKLOAD_BATCH_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "sim/base/status.h"
#include "sim/workload/distribution.h"
#include "sim/workload/lengths.h"

typedef enum sp_over_length {
    SP_OVER_DROP,
    SP_OVER_TRUNCATE,
    SP_OVER_ERROR,
    SP_OVER_SPLIT // pieces of up to the context, each a sample that does not see the others
} sp_over_length;
typedef enum sp_order { SP_ORDER_SHUFFLED, SP_ORDER_FILE } sp_order;

// Exactly one source: lengths (a list, not owned), distribution, or uniform_tokens > 0.
typedef struct sp_workload_spec {
    const sp_lengths *lengths;
    const sp_distribution *distribution;
    int64_t uniform_tokens;
    int64_t context; // 0: the longest sample (no limit)
    sp_over_length over_length;
    int64_t samples_per_batch; // one of the three is positive
    bool samples_assumed;      // nothing states them or fills micro-batches with them
    int64_t tokens_per_batch;  // samples are taken while the sum stays at or below (at least one)
    int64_t rows_per_batch;    // samples are taken while they fill no more rows of the context, or
                               // of the longest sample, one after the other ...
    bool best_fit;             // ... or by best fit, the longest first
    int batches;
    uint64_t seed;
    sp_order order;
    const char *source; // names the list in messages
} sp_workload_spec;

// To what a stack pads a sample, or a slice of one, in a packed row that several GPUs share: to a
// multiple of `each` tokens for each of them. cp GPUs share what one data-parallel rank has.
typedef struct sp_padding {
    int cp;
    int each; // 0: it pads none
} sp_padding;

// The tokens with padding, of a pack on so many data-parallel ranks.
int64_t sp_padded_tokens(const sp_padding *padding, int64_t tokens, int dp_count);

typedef struct sp_batch {
    int64_t *ids;    // position of the sample in the list (drawn samples: running number)
    int64_t *tokens; // after truncation
    size_t count;
    int64_t total_tokens;
    bool *goes_on;      // [count] of a document whose beginning it does not see; NULL: none
    size_t documents;   // that sp_batch_concatenate made these of; 0: each sample is one
    int64_t cut_tokens; // of them, of pieces that do not see the beginning of their document
    sp_padding padding; // of its samples in packs
    const struct sp_batch *unpadded; // that this is a view of (sp_batch_view); NULL: it is none
} sp_batch;

void sp_batch_fini(sp_batch *batch);

// The batch with another padding of its samples in packs. It owns nothing.
sp_batch sp_batch_view(const sp_batch *batch, sp_padding padding);

// What a batch is a view of, or itself.
const sp_batch *sp_batch_unpadded(const sp_batch *batch);

// Tokens of the longest sample; 0: no samples.
int64_t sp_batch_longest(const sp_batch *batch);

// The samples of `front` and behind them those of `back`, or those at `index`: copies, ids kept.
// The caller frees them.
void sp_batch_join(const sp_batch *front, const sp_batch *back, sp_batch *joined);
void sp_batch_pick(const sp_batch *batch, const int64_t *index, size_t count, sp_batch *picked);

// The samples joined one after the other and cut into rows of `context` tokens, as pretraining
// does: what is cut off a sample is one of its own in the next row, which does not see the first
// part. No token is lost. `across`: each row is one sample, with the id of the first in it. The
// caller frees them.
void sp_batch_concatenate(const sp_batch *batch, int64_t context, bool across, sp_batch *cut);

typedef struct sp_batches {
    sp_batch *batch;
    int count;
    int64_t context; // as given, or the longest sample drawn
    int64_t dropped; // samples over the context, dropped before batches were formed
    int64_t truncated;
    int64_t split; // samples over the context, in pieces
    // Tokens that the context drops or truncates, and of how many: of the whole list that samples
    // are dropped from, else of the samples that were drawn for the batches.
    int64_t lost_tokens, source_tokens;
    // Samples that no batch took, or not to their end: of a list those of its first pass, and of
    // any source the rest of a sample in pieces.
    int64_t left_samples, left_tokens;
    bool wrapped; // the list was shorter than the batches: it was started again (reshuffled)
} sp_batches;

SP_API void sp_batches_fini(sp_batches *batches);

// Lost tokens over those of the source; NAN where samples were lost and their tokens are not known.
double sp_batches_over_length_share(const sp_batches *batches);

// Are batches as large, from the same source?
bool sp_workload_fills_alike(const sp_workload_spec *a, const sp_workload_spec *b);

// Samples that one pass over the list makes: what is not dropped, and every piece of what is split.
int64_t sp_workload_samples(const sp_workload_spec *spec);

// Tokens of one pass over the list: what is not dropped or truncated; 0: there is no list.
int64_t sp_workload_tokens(const sp_workload_spec *spec);

// Forms spec->batches batches. A list is shuffled by the seed (each further pass over it again) and
// cut into consecutive pieces; over_length "error" names the first sample that is too long. A list
// in which nothing is left after dropping is a content error.
sp_status sp_batches_make(const sp_workload_spec *spec, sp_batches *batches, sp_error *err);

#endif
