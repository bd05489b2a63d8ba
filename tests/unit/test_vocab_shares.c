// At which places pipeline ranks do their shares of a vocabulary.
#include "sim/plan/walk.h"

#include "sim/simulate/memory.h"
#include "tests/support/plan_sample.h"
#include "tests/support/random_plan.h"
#include "tests/support/scenario_run.h"
#include "tests/support/test_main.h"

static sp_status take_no_time(void *context, const sp_walk_action *action, sp_walk_outcome *outcome,
                              sp_error *err)
{
    const sp_plan *plan = context;
    for (int p = 0; action->shares != NULL && p < plan->layout.pp; p++) {
        outcome->shares[p] = (sp_action_cost){0};
    }
    return SP_OK;
}

// Does the plan end? With shares, all ranks have to stand before theirs for an action to run.
static bool all_end(const sp_plan *plan, bool shared)
{
    sp_plan bare = *plan;
    AUTO(sp_shares) shares;
    bare.layout.vocab_parallel = shared;
    must_succeed(sp_shares_make(&bare, &shares, ERR));
    const sp_walk_driver driver = {.context = &bare, .run = take_no_time, .shares = &shares};
    sp_status status = sp_walk(&bare, &driver, NULL, NULL, NULL);
    return status == SP_OK;
}

// How often a rank has a share of an end for a pack; of the head's repeats those of R.
static int count_of(const sp_share *shares, size_t count, sp_share_part part, int32_t pack,
                    bool again)
{
    int times = 0;
    for (size_t i = 0; i < count; i++) {
        times += shares[i].part == part && shares[i].action.pack == pack &&
                 (shares[i].action.kind == SP_ACTION_R) == again;
    }
    return times;
}

// Every rank of a pack has one share of each end; of the embedding the first stage's rank none.
static void each_once(const sp_plan *plan)
{
    AUTO(sp_shares) shares;
    must_succeed(sp_shares_make(plan, &shares, ERR));
    for (int d = 0; d < plan->layout.dp; d++) {
        for (int p = 0; p < plan->layout.pp; p++) {
            size_t count;
            const sp_share *of = sp_shares_of(&shares, &plan->layout, d, p, &count);
            for (size_t i = 1; i < count; i++) {
                assert_true(of[i - 1].before <= of[i].before);
            }
            for (int side = 0; side < 2; side++) {
                const sp_pack_list *list =
                    side == 0 ? &plan->packing->forward : sp_packing_backward(plan->packing);
                for (size_t k = 0; k < list->count; k++) {
                    const sp_pack *pack = &list->packs[k];
                    bool mine = pack->dp_first <= d && d < pack->dp_first + pack->dp_count &&
                                pack->computed > 0;
                    assert_int_equal(count_of(of, count,
                                              side == 0 ? SP_SHARE_HEAD : SP_SHARE_HEAD_BACKWARD,
                                              (int32_t)k, false),
                                     mine);
                    assert_int_equal(
                        count_of(of, count,
                                 side == 0 ? SP_SHARE_EMBEDDING : SP_SHARE_EMBEDDING_BACKWARD,
                                 (int32_t)k, false),
                        mine && p > 0);
                }
            }
        }
    }
}

TEST(random_plans_have_each_share_once_and_no_circle)
{
    sp_prng prng = prng_seeded(11);
    int ended = 0;
    for (int i = 0; i < 400; i++) {
        AUTO(random_plan) r;
        random_plan_make(&prng, 3, 2, &r);
        random_agreed_actions(&prng, &r);
        r.plan.layout.vocab_parallel = true;
        if (r.plan.layout.pp > 1 && all_end(&r.plan, false)) {
            each_once(&r.plan);
            assert_true(all_end(&r.plan, true));
            ended++;
        }
    }
    assert_true(ended >= 100);
}

// 1F1B of two packs on two ranks, in units of a forward: rank 0 runs F0 0-1, F1 1-2, B0 4-6, B1
// 7-9, rank 1 F0 1-2, B0 2-4, F1 4-5, B1 5-7. So rank 0 has the head of pack 0 at 2 and that of
// pack 1 at 5, before its own B0 gives the gradient of the embedding at 6; rank 1 looks up at 0 and
// 1, and adds the gradients at 6 and 9.
static const struct {
    int pp;
    sp_share_part part;
    int pack;
    size_t before;
} by_hand[] = {{0, SP_SHARE_HEAD, 0, 2},
               {0, SP_SHARE_HEAD_BACKWARD, 0, 2},
               {0, SP_SHARE_HEAD, 1, 2},
               {0, SP_SHARE_HEAD_BACKWARD, 1, 2},
               {1, SP_SHARE_EMBEDDING, 0, 0},
               {1, SP_SHARE_EMBEDDING, 1, 0},
               {1, SP_SHARE_HEAD, 0, 1},
               {1, SP_SHARE_HEAD_BACKWARD, 0, 1},
               {1, SP_SHARE_HEAD, 1, 3},
               {1, SP_SHARE_HEAD_BACKWARD, 1, 3},
               {1, SP_SHARE_EMBEDDING_BACKWARD, 0, 4},
               {1, SP_SHARE_EMBEDDING_BACKWARD, 1, 4}};

static sp_status stands_as_by_hand(void *context, const sp_step_view *view, sp_error *err)
{
    bool *seen = context;
    AUTO(sp_shares) shares;
    size_t at = 0;
    must_succeed(sp_shares_make(view->plan, &shares, ERR));
    for (int p = 0; p < 2; p++) {
        size_t count;
        const sp_share *of = sp_shares_of(&shares, &view->plan->layout, 0, p, &count);
        for (size_t i = 0; i < count; i++, at++) {
            assert_true(at < sizeof by_hand / sizeof by_hand[0]);
            assert_int_equal(by_hand[at].pp, p);
            assert_int_equal(by_hand[at].part, of[i].part);
            assert_int_equal(by_hand[at].pack, of[i].action.pack);
            assert_int_equal(by_hand[at].before, of[i].before);
            assert_int_equal(of[i].own, p == 1 && (of[i].part == SP_SHARE_HEAD ||
                                                   of[i].part == SP_SHARE_HEAD_BACKWARD));
        }
    }
    assert_int_equal(at, sizeof by_hand / sizeof by_hand[0]);
    *seen = true;
    return SP_OK;
}

TEST(two_packs_by_hand)
{
    bool seen = false;
    const sp_evaluate_options options = {
        .engine = {.verify = true}, .observer = stands_as_by_hand, .observer_context = &seen};
    SCENARIO_RUN(r,
                 TINY_MODEL "'cluster': 'h800-8', 'parallel': {'pp': 2, 'vocab_parallel': true}, "
                            "'workload': {'lengths': [64, 64], 'context': 64, 'order': 'file', "
                            "'samples_per_batch': 2}}",
                 &options);
    assert_true(seen);
}

// Every simulation beside the longest path in igraph.
TEST(simulations_agree_with_the_longest_path)
{
    static const char *const plans[] = {
        "'pp': 2, 'vocab_parallel': true}, 'schedule': {'kind': 'dualpipe-v'}",
        "'pp': 2, 'vocab_parallel': true, 'chunks_per_rank': 2}, 'schedule': {'kind': "
        "'interleaved'}",
        "'pp': 4, 'vocab_parallel': true}, 'schedule': {'kind': 'zb-h1'}",
        "'pp': 4, 'dp': 2, 'vocab_parallel': true}, 'strategy': {'kind': 'slimpack'}",
        "'pp': 2, 'vocab_parallel': true}, 'strategy': {'kind': 'slimpack-zb'}",
        "'pp': 2, 'vocab_parallel': true}, 'strategy': {'kind': 'chunkflow', 'chunk_tokens': 32}",
        "'pp': 4, 'vocab_parallel': true}, 'memory': {'offload_ratio': 0.5}, 'strategy': {'kind': "
        "'slimpipe'}, 'schedule': {'slices': 4}"};
    for (size_t i = 0; i < sizeof plans / sizeof plans[0]; i++) {
        const char *text = json_text(
            "{'model': {'layers': 4, 'hidden': 512, 'ffn': 1024, 'heads': 8, 'vocab': 1000}, "
            "'cluster': 'h800-8', 'workload': {'lengths': [64, 96, 16, 128, 80, 24, 112, 48], "
            "'context': 128, 'order': 'file', 'samples_per_batch': 8}, 'parallel': {%s}",
            plans[i]);
        SCENARIO_RUN(r, text, &run_verified);
    }
}

// Peaks of a timeline without the shares that take no time.
static void peaks_without_idle_shares(const sp_step_view *view, int64_t *peak_bytes, size_t *idle)
{
    size_t ranks = view->timeline->rank_count;
    sp_timeline timeline = *view->timeline;
    AUTO(sp_memory_timeline) memory;
    timeline.ranks = sp_calloc(ranks, sizeof *timeline.ranks);
    for (size_t r = 0; r < ranks; r++) {
        sp_rank_timeline *rank = &timeline.ranks[r];
        *rank = view->timeline->ranks[r];
        rank->shares = sp_calloc(rank->share_count + 1, sizeof *rank->shares);
        rank->share_count = 0;
        for (size_t i = 0; i < view->timeline->ranks[r].share_count; i++) {
            const sp_share_span *share = &view->timeline->ranks[r].shares[i];
            bool idles = share->span.start_ns == share->span.end_ns;
            *idle += idles;
            if (!idles) {
                rank->shares[rank->share_count++] = *share;
            }
        }
    }
    must_succeed(sp_memory_replay(&timeline, view->costs, false, &memory, ERR));
    for (size_t r = 0; r < ranks; r++) {
        peak_bytes[r] = sp_bytes_total(&memory.ranks[r].peak);
        free(timeline.ranks[r].shares);
    }
    free(timeline.ranks);
}

static sp_status shares_without_work_hold_nothing(void *context, const sp_step_view *view,
                                                  sp_error *err)
{
    enum { MOST_RANKS = 16 };
    int64_t peak_bytes[MOST_RANKS];
    assert_true(view->timeline->rank_count <= MOST_RANKS);
    peaks_without_idle_shares(view, peak_bytes, context);
    for (size_t r = 0; r < view->timeline->rank_count; r++) {
        assert_int_equal(sp_bytes_total(&view->memory->ranks[r].peak), peak_bytes[r]);
    }
    return SP_OK;
}

// Without tensor parallelism the input gradient of an embedding has no work: its memory is that of
// a step without it. The table is large beside all that a rank holds for its packs.
TEST(shares_without_work)
{
    static const char *const plans[] = {
        "'schedule': {'kind': 'zb-h1'}", "'schedule': {'kind': 'zb-v'}",
        "'schedule': {'kind': 'dualpipe-v'}", "'strategy': {'kind': 'slimpack-zb'}",
        "'strategy': {'kind': 'slimpack-zb', 'slice_tokens': 4}"};
    for (size_t i = 0; i < sizeof plans / sizeof plans[0]; i++) {
        size_t idle = 0;
        const sp_evaluate_options options = {.observer = shares_without_work_hold_nothing,
                                             .observer_context = &idle};
        for (int pp = 2; pp <= 4; pp *= 2) {
            char text[RUN_TEXT] = "";
            put_json(
                text,
                "{'model': {'layers': 8, 'hidden': 1024, 'ffn': 512, 'heads': 4, 'vocab': "
                "200000}, 'cluster': 'h800-8', 'profile': 'linear', 'workload': {'lengths': "
                "[8, 12, 2, 16, 10, 3, 14, 6, 16, 16, 13], 'context': 16, 'order': "
                "'file', "
                "'samples_per_batch': 11}, 'parallel': {'pp': %d, 'vocab_parallel': true}, %s}",
                pp, plans[i]);
            SCENARIO_RUN(r, text, &options);
        }
        assert_true(idle > 0);
    }
}
