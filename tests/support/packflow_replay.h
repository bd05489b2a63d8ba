// An independent replay of PackFlow's orders, and its rules checked decision by decision.
#ifndef SLIMPACK_TESTS_SUPPORT_PACKFLOW_REPLAY_H
#define SLIMPACK_TESTS_SUPPORT_PACKFLOW_REPLAY_H

#include "sim/base/prng.h"
#include "sim/schedule/packflow.h"

// ---- jobs ----

// PackFlow jobs for tests: drawn at random, or uniform ones that have closed forms.

enum {
    PACKFLOW_RANKS = 6,
    PACKFLOW_CHUNKS = 5,
    PACKFLOW_STAGES = PACKFLOW_RANKS * PACKFLOW_CHUNKS,
    PACKFLOW_PACKS = 24,
    PACKFLOW_STEPS = 3 * PACKFLOW_PACKS * PACKFLOW_CHUNKS // of a rank
};

// `job` points into the rest of it.
typedef struct packflow_case {
    sp_packflow_job job;
    sp_layout layout;
    int64_t f_ns[PACKFLOW_PACKS * PACKFLOW_STAGES];
    int64_t b_ns[PACKFLOW_PACKS * PACKFLOW_STAGES];
    int64_t w_ns[PACKFLOW_PACKS * PACKFLOW_STAGES];
    int64_t p2p_f_ns[PACKFLOW_PACKS], p2p_b_ns[PACKFLOW_PACKS];
    int32_t need[PACKFLOW_PACKS];
    int64_t tokens[PACKFLOW_PACKS], freed[PACKFLOW_PACKS], token_bytes[PACKFLOW_STAGES];
    int64_t again[PACKFLOW_PACKS];
    int64_t room_bytes[PACKFLOW_RANKS], again_bytes[PACKFLOW_RANKS];
} packflow_case;

// A random job on up to PACKFLOW_RANKS ranks of `chunks` chunks, two of them as a V; half of the
// jobs split their backwards, a quarter have any room, others down to none; in half of them some
// forwards run again.
void packflow_case_draw(packflow_case *c, sp_prng *prng, int chunks);

// `packs` packs of 10 tokens, a byte each; forward f, backward b and weight gradient w on every
// virtual stage (w 0: not split); backward k after forward k; no transfer time, any room.
void packflow_case_uniform(packflow_case *c, int pp, int chunks, int packs, int64_t f, int64_t b,
                           int64_t w);

void packflow_case_split(packflow_case *c, bool split);
void packflow_case_transfer(packflow_case *c, int64_t p2p_ns);
void packflow_case_room(packflow_case *c, int64_t bytes); // the same for all ranks; < 0: any

// ---- their orders ----

typedef struct packflow_run {
    sp_packflow_step steps[PACKFLOW_RANKS * PACKFLOW_STEPS];
    int64_t makespan_ns, lacking_bytes;
    int64_t most_bytes[PACKFLOW_RANKS]; // held at any time, by the replay
} packflow_run;

// Runs the job and fails the running test unless the order is complete and waits for nothing of its
// own, times and memory are those of the replay, every decision keeps the rules of packflow.h, no
// order of the packs could lack less memory, and a run that is asked for times alone gives the
// same.
void packflow_run_checked(const packflow_case *c, packflow_run *run);

void packflow_assert_same_steps(const packflow_case *c, const packflow_run *a,
                                const packflow_run *b);

#endif
