// Random plans whose gradients and loss must be those of the plain step on the CPU:
// slices and padding anywhere, backward packs that have nothing to do with the forward packs,
// forwards that run again, split and whole backwards side by side, recompute modes, copies to host
// memory (of tensors of a MiB or more).
#ifndef SLIMPACK_TESTS_SUPPORT_HOST_RANDOM_H
#define SLIMPACK_TESTS_SUPPORT_HOST_RANDOM_H

#include "backends/api/device.h"
#include "tests/support/random_plan.h"

enum { HOST_STAGES = 6 }; // virtual stages at most

// A plan of one tensor- and context-parallel rank a stage, on up to three data-parallel ranks and
// without copies to host memory, for a model of `layers` layers, whose shares go to stage_layers.
// False where there is nothing to train or a pack is on several ranks; the caller frees the plan in
// any case. `r` must stay where it is.
bool host_random_plan(sp_prng *prng, int layers, int stage_layers[HOST_STAGES], random_plan *r);

// Any mode that a model has; up-projections are dropped of latents alone.
sp_recompute host_random_mode(sp_prng *prng, const sp_model *model);

typedef struct host_random {
    void (*agrees)(
        const sp_run_request *request); // NULL: the CPU executor's gradients are compared
    const sp_model *model;              // NULL: host_llama(), or host_gpt() where `gpt`
    bool gpt;
    const char *dropout; // the executor's option; NULL: none
    uint64_t seed;
    int count;           // plans
    int64_t most_tokens; // of a batch; 0: any
    bool fp32, bf16;     // instead of fp64
    sp_clock clock;
    int most_tp_bits; // tensor-parallel ranks: up to 2 to this
    int most_cp;      // context-parallel ranks; 0: 1
    bool zones;       // of the attention of samples that several data-parallel ranks share
    bool merges;      // packs on several data-parallel ranks
    bool vocab;       // spread over the pipeline ranks
    bool ring;        // keys and values go round, instead of all at once
    bool routed;      // round, and between nodes of two ranks over the other one, too
    int zero;         // 0: optimizer states are sharded
} host_random;

void host_random_agree(host_random draw);

#endif
