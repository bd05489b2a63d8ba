// PackFlow: the order of SlimPack's packs (arXiv 2509.26246; a one-forward-one-backward order over
// forward packs and backward packs that are different partitions of the same slices). Each stage
// runs a backward as soon as one is ready, else the next forward as far as memory allows, and,
// where the backward is split, weight gradients while it would be idle.
#ifndef SLIMPACK_SIM_SCHEDULE_PACKFLOW_H
#define SLIMPACK_SIM_SCHEDULE_PACKFLOW_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "sim/base/status.h"

// One data-parallel rank: its forward packs and its backward packs, both in the order in which
// every stage runs them. Times at [pack * stages + stage].
typedef struct sp_packflow_job {
    int stages;
    size_t forward, backward; // packs
    const int64_t *f_ns;
    const int64_t *b_ns; // full backward, or the input gradient where w_ns is given
    const int64_t *w_ns; // weight gradient; NULL: backwards are not split
    int64_t p2p_ns;      // between neighbouring stages; the sender does not wait
    // [backward]: the last forward pack that a backward pack reads; never falls along the list.
    const int32_t *need;
    const int64_t *tokens; // [forward]
    // [backward] tokens whose activations go when it ends (its weight gradient, where split).
    const int64_t *freed;
    // Tokens whose activations a stage may hold; 0: any. A forward that the next backward needs
    // runs all the same, so that no order can wait for itself.
    int64_t token_limit;
} sp_packflow_job;

typedef enum sp_packflow_kind { SP_PACKFLOW_F, SP_PACKFLOW_B, SP_PACKFLOW_W } sp_packflow_kind;

typedef struct sp_packflow_step {
    int32_t pack;
    uint8_t kind; // sp_packflow_kind
} sp_packflow_step;

// What a run of it gives. `steps` has room for stages * sp_packflow_length(job) entries, stage by
// stage; NULL: only the times are asked for.
typedef struct sp_packflow_result {
    sp_packflow_step *steps;
    int64_t makespan_ns;
    int64_t most_tokens; // held by any stage at any time
} sp_packflow_result;

// Actions of one stage.
size_t sp_packflow_length(const sp_packflow_job *job);

// O(stages * actions). SP_ERR_NO_MEMORY is the only error.
sp_status sp_packflow_run(const sp_packflow_job *job, sp_packflow_result *result, sp_error *err);

#endif
