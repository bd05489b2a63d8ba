// The queued machine that other tests trust: a missing fence shows, and a fence is
// kept. What its calls compute is held to definitions by test_comm_machine.c.
#include "tests/support/queued_runtime.h"
#include "tests/support/test_main.h"

enum { SEEDS = 64 };

static sp_runtime *runtime_of(int ranks, uint64_t seed, bool guarded)
{
    return queued_runtime_new(
        &(queued_runtime_options){.ranks = ranks, .seed = seed, .guarded = guarded});
}

// Rank 0 writes 7, rank 1 copies it: what it finds, by a thread that stands for both in turn.
static float copied(uint64_t seed, bool fenced)
{
    sp_runtime *runtime = runtime_of(2, seed, true);
    const sp_runtime_ops *ops = runtime->ops;
    float *x = ops->allocate(runtime, 2 * sizeof *x);
    float seven = 7;
    float found;
    ops->enter(runtime, 0);
    ops->upload(runtime, x, &seven, sizeof seven);
    seven = 0;
    sp_fence fence = ops->mark(runtime);
    ops->enter(runtime, 1);
    ops->wait(runtime, (sp_fence){0});
    if (fenced) {
        ops->wait(runtime, fence);
    }
    ops->copy(runtime, x + 1, x, sizeof *x);
    ops->download(runtime, &found, x + 1, sizeof found);
    ops->enter(runtime, 0);
    must_succeed(ops->synchronize(runtime, ERR));
    assert_int_equal(queued_runtime_left(runtime, 0), 0);
    ops->release(runtime, x);
    queued_runtime_free(runtime);
    return found;
}

TEST(fences_are_kept)
{
    for (uint64_t seed = 0; seed < SEEDS; seed++) {
        assert_true(copied(seed, true) == 7);
    }
}

// Mostly too early, now and then in time.
TEST(a_missing_fence_shows)
{
    int early = 0;
    for (uint64_t seed = 0; seed < SEEDS; seed++) {
        float found = copied(seed, false);
        assert_true(isnan(found) || found == 7);
        early += isnan(found) ? 1 : 0;
    }
    assert_in_range(early, SEEDS / 2, SEEDS - 1);
}
