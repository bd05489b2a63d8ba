// Random plans that keep every rule, for property tests of the checker and of plan.json.
#ifndef SLIMPACK_TESTS_SUPPORT_RANDOM_PLAN_H
#define SLIMPACK_TESTS_SUPPORT_RANDOM_PLAN_H

#include "sim/plan/plan.h"
#include "tests/support/test_main.h"

enum { RANDOM_SAMPLES = 8, RANDOM_CUTS = 5 };

typedef struct random_plan {
    sp_layout layout;
    sp_batch batch;
    int64_t ids[RANDOM_SAMPLES], tokens[RANDOM_SAMPLES];
    sp_packing packing;
    sp_plan plan;
} random_plan;

typedef struct random_sample {
    int dp_first, dp_count, slices, taken;
    sp_slice slice[RANDOM_CUTS];
} random_sample;

static inline void random_cut(sp_prng *prng, const random_plan *r, int s, random_sample *sample)
{
    int dp = r->layout.dp;
    sample->dp_first = prng_below(prng, dp);
    sample->dp_count = 1 + prng_below(prng, dp - sample->dp_first);
    int64_t begin = 0;
    while (begin < r->tokens[s]) {
        int64_t left = r->tokens[s] - begin;
        int64_t size = 1 + (int64_t)sp_prng_below(prng, (uint64_t)left);
        if (sample->slices == RANDOM_CUTS - 1) {
            size = left;
        }
        sample->slice[sample->slices++] = (sp_slice){
            .sample = s,
            .begin = begin,
            .tokens = size,
            .computed_tokens = size + (prng_below(prng, 4) == 0 ? prng_below(prng, 9) : 0),
        };
        begin += size;
    }
}

// Deals the slices of all samples to packs, each sample's own in the order of the side.
static inline void random_deal(sp_prng *prng, random_sample *samples, int count, bool backward,
                               sp_pack_list *list)
{
    int left = 0;
    for (int s = 0; s < count; s++) {
        samples[s].taken = 0;
        left += samples[s].slices;
    }
    int dp_first = -1, dp_count = 0;
    while (left > 0) {
        random_sample *sample = &samples[prng_below(prng, count)];
        if (sample->taken == sample->slices) {
            continue;
        }
        if (dp_first != sample->dp_first || dp_count != sample->dp_count ||
            prng_below(prng, 2) == 0) {
            dp_first = sample->dp_first;
            dp_count = sample->dp_count;
            sp_pack_list_begin(list, dp_first, dp_count);
        }
        int k = backward ? sample->slices - 1 - sample->taken : sample->taken;
        sp_pack_list_add(list, sample->slice[k], k == sample->slices - 1);
        sample->taken++;
        left--;
    }
}

static inline bool random_runs_on(const sp_pack *pack, int dp_rank)
{
    return dp_rank >= pack->dp_first && dp_rank < pack->dp_first + pack->dp_count;
}

// All forwards, then loads and recomputations, then all backwards: legal for any packing.
static inline void random_actions(sp_prng *prng, random_plan *r, int dp_rank, int pp_rank)
{
    sp_stage_plan *stage = sp_plan_stage(&r->plan, dp_rank, pp_rank);
    const sp_pack_list *forward = &r->packing.forward;
    const sp_pack_list *backward = sp_packing_backward(&r->packing);
    for (int chunk = 0; chunk < r->layout.chunks; chunk++) {
        for (size_t p = 0; p < forward->count; p++) {
            if (random_runs_on(&forward->packs[p], dp_rank)) {
                sp_stage_plan_add(stage, SP_ACTION_F, chunk, (int64_t)p);
                if (prng_below(prng, 6) == 0) {
                    sp_stage_plan_add(stage, SP_ACTION_O, chunk, (int64_t)p);
                }
            }
        }
    }
    size_t count = stage->count;
    for (size_t i = 0; i < count; i++) {
        sp_action action = stage->actions[i];
        if (action.kind == SP_ACTION_O) {
            sp_stage_plan_add(stage, SP_ACTION_L, action.chunk, action.pack);
        } else if (prng_below(prng, 6) == 0) {
            sp_stage_plan_add(stage, SP_ACTION_R, action.chunk, action.pack);
        }
    }
    for (int chunk = r->layout.chunks - 1; chunk >= 0; chunk--) {
        for (size_t p = 0; p < backward->count; p++) {
            if (random_runs_on(&backward->packs[p], dp_rank)) {
                bool split = prng_below(prng, 3) == 0;
                sp_action_kind kind = split ? SP_ACTION_I : SP_ACTION_B;
                sp_stage_plan_add(stage, kind, chunk, (int64_t)p);
            }
        }
    }
    size_t end = stage->count;
    for (size_t i = count; i < end; i++) {
        sp_action action = stage->actions[i];
        if (action.kind == SP_ACTION_I) {
            sp_stage_plan_add(stage, SP_ACTION_W, action.chunk, action.pack);
        }
    }
}

// `r` must stay where it is: the plan points into it.
static inline void random_plan_make(sp_prng *prng, int max_dp, int max_chunks, random_plan *r)
{
    *r = (random_plan){0};
    r->layout = (sp_layout){.tp = 1,
                            .cp = 1,
                            .pp = 1 + prng_below(prng, 3),
                            .dp = 1 + prng_below(prng, max_dp),
                            .chunks = 1 + prng_below(prng, max_chunks),
                            .zero = 1};
    int count = prng_below(prng, RANDOM_SAMPLES + 1);
    r->batch = (sp_batch){.ids = r->ids, .tokens = r->tokens, .count = (size_t)count};
    random_sample samples[RANDOM_SAMPLES] = {0};
    for (int s = 0; s < count; s++) {
        r->ids[s] = prng_below(prng, 1000);
        r->tokens[s] = 1 + prng_below(prng, 200);
        r->batch.total_tokens += r->tokens[s];
    }
    sp_packing *packing = &r->packing;
    sp_packing_init(packing, count > 0 ? &r->batch : NULL, r->layout.dp);
    packing->dropped = sp_calloc(RANDOM_SAMPLES, sizeof *packing->dropped);
    packing->delayed = sp_calloc(RANDOM_SAMPLES, sizeof *packing->delayed);
    assert_non_null(packing->delayed);
    for (int s = 0; s < count; s++) {
        int fate = prng_below(prng, 10);
        if (fate == 0) {
            packing->dropped[packing->dropped_count++] = s;
        } else if (fate == 1) {
            packing->delayed[packing->delayed_count++] = s;
        } else {
            random_cut(prng, r, s, &samples[s]);
        }
    }
    if (count > 0) {
        random_deal(prng, samples, count, false, &packing->forward);
        random_deal(prng, samples, count, true, &packing->backward);
    } else {
        for (int k = prng_below(prng, 6); k > 0; k--) {
            sp_pack_list_begin(&packing->forward, prng_below(prng, r->layout.dp), 1);
        }
    }
    sp_plan_init(&r->plan, &r->layout, packing);
    for (int d = 0; d < r->layout.dp; d++) {
        for (int p = 0; p < r->layout.pp; p++) {
            random_actions(prng, r, d, p);
        }
    }
}

static inline void random_plan_fini(random_plan *r)
{
    sp_plan_fini(&r->plan);
    sp_packing_fini(&r->packing);
}

#endif
