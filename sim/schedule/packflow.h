// PackFlow: the order of SlimPack's packs (arXiv 2509.26246; a one-forward-one-backward order over
// forward packs and backward packs that are different partitions of the same slices). Each rank
// runs a backward and the next forward in turn where both are ready and memory allows, else the one
// that is, and, where the backward is split, weight gradients while it would be idle. Of several
// chunks on a rank the one nearer to the loss goes first.
#ifndef SLIMPACK_SIM_SCHEDULE_PACKFLOW_H
#define SLIMPACK_SIM_SCHEDULE_PACKFLOW_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "sim/base/alloc.h"
#include "sim/base/status.h"
#include "sim/model/layout.h"
#include "sim/schedule/schedule.h"

typedef enum sp_packflow_kind { SP_PACKFLOW_F, SP_PACKFLOW_B, SP_PACKFLOW_W } sp_packflow_kind;

typedef struct sp_packflow_step {
    int32_t pack;
    int16_t chunk;
    uint8_t kind; // sp_packflow_kind
} sp_packflow_step;

// The step that an order of packs gives.
typedef struct sp_packflow_outcome {
    int64_t makespan_ns;   // of the slowest rank
    int64_t lacking_bytes; // the most by which a rank exceeds its room, as in any order; 0: it fits
    bool tight;            // it fits, with less than a tenth to spare; known of whole steps only
    bool overfull; // tight, by the blocks of PyTorch's allocator, which were counted (result.h)
} sp_packflow_outcome;

// The outcome before anything was tried: every other one is better.
#define SP_PACKFLOW_WORST ((sp_packflow_outcome){INT64_MAX, INT64_MAX, false, false})

// Fitting goes before time, lacking less before lacking more, and steps whose blocks are known not
// to fit well come behind all others that fit: such logged steps ran several times slower. Where
// blocks were not counted, a step that fits tightly counts as 5 % longer: most packs can do without
// that memory for less.
bool sp_packflow_is_better(const sp_packflow_outcome *a, const sp_packflow_outcome *b);

// It does not fit, or tightly.
static inline bool sp_packflow_is_short(const sp_packflow_outcome *outcome)
{
    return outcome->lacking_bytes > 0 || outcome->tight;
}

// One data-parallel rank: its forward packs and its backward packs, both in the order in which
// every virtual stage runs them. Times at [pack * virtual stages + virtual stage].
typedef struct sp_packflow_job {
    const sp_layout *layout;  // pp, chunks and placement are read
    size_t forward, backward; // packs
    const int64_t *f_ns;
    const int64_t *b_ns; // full backward, or the input gradient where w_ns is given
    const int64_t *w_ns; // weight gradient; NULL: backwards are not split
    // [forward], [backward] between virtual stages on different ranks; the sender does not wait.
    const int64_t *p2p_f_ns, *p2p_b_ns;
    // [backward]: the last forward pack that a backward pack reads; never falls along the list,
    // which ends with the last forward pack.
    const int32_t *need;
    const int64_t *tokens; // [forward]
    // [backward] tokens whose activations go when it ends (its weight gradient, where split).
    const int64_t *freed;
    // [backward] tokens whose activations are there again while it runs, of a forward that runs
    // again before it; NULL: there is none.
    const int64_t *again;
    // With one chunk, and backward packs that are the forward packs: forwards and backwards in turn
    // as 1F1B has them, behind pp - rank forwards, and whatever room there is.
    bool in_1f1b;
    // Memory; room NULL: there is always some. A forward that the next backward needs runs all the
    // same, so that no order can wait for itself; other forwards leave it its room.
    const int64_t *token_bytes; // [virtual stages] activations of a token
    const int64_t *room_bytes;  // [pp]
    // [pp] room that such forwards leave for the most that is there again of any pack; NULL: none.
    const int64_t *again_bytes;
    // A run that is no better than this may end early, with an outcome between the two. NULL: every
    // run goes to its end.
    const sp_packflow_outcome *beaten;
} sp_packflow_job;

// The tokens whose activations would be as much as a pack keeps whose forward runs again.
static inline int64_t sp_packflow_kept(int64_t tokens, double kept_share)
{
    return (int64_t)((double)tokens * kept_share) + 1;
}

// Actions of one rank.
size_t sp_packflow_length(const sp_packflow_job *job);

// `steps` has room for pp * sp_packflow_length(job) entries, rank by rank; NULL: only the outcome
// is asked for. O(pp * actions of a rank * (pp + chunks)). SP_ERR_LIMIT where all actions take over
// 285 years.
sp_status sp_packflow_run(const sp_packflow_job *job, sp_packflow_step *steps,
                          sp_packflow_outcome *outcome, sp_error *err);

// Runs over the costs of the packs, without making a plan: the largest makespan and the most
// lacking bytes of all data-parallel ranks; `beaten` as in sp_packflow_job: no rank is run any more
// that cannot change that it is better. orders [dp] gets the steps of each rank that is run, in
// memory of `work`, for costs->orders.
sp_status sp_packflow_slowest(const sp_schedule_spec *spec, const sp_schedule_costs *costs,
                              const sp_packing *packing, const sp_layout *layout,
                              const sp_packflow_outcome *beaten, sp_arena *work,
                              sp_packflow_step **orders, sp_packflow_outcome *outcome,
                              sp_error *err);

#endif
