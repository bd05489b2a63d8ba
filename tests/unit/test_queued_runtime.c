// The queued machine that other tests trust: a missing fence shows, a fence is kept, and its other
// calls do what backends/api/device_runtime.h says.
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
    queued_runtime_finish(runtime);
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

// Work waits for work that waits: 3 behind 2 behind 1 behind 0.
TEST(chains_of_fences)
{
    for (uint64_t seed = 0; seed < SEEDS; seed++) {
        sp_runtime *runtime = runtime_of(4, seed, false);
        const sp_runtime_ops *ops = runtime->ops;
        double *x = ops->allocate(runtime, 4 * sizeof *x);
        double found[4];
        sp_fence fence = {0};
        const double first = 3;
        for (int rank = 0; rank < 4; rank++) {
            ops->enter(runtime, rank);
            ops->wait(runtime, fence);
            if (rank == 0) {
                ops->upload(runtime, x, &first, sizeof first);
            } else {
                const void *in[] = {x + rank - 1, x};
                void *out[] = {x + rank};
                ops->reduce(runtime, SP_ELEMENT_F64, false, 1, in, 2, out, 1);
                in[0] = in[1] = out[0] = NULL;
            }
            fence = ops->mark(runtime);
        }
        ops->download(runtime, found, x, sizeof found);
        for (int rank = 0; rank < 4; rank++) {
            assert_true(found[rank] == 3 * (rank + 1));
        }
        ops->release(runtime, x);
        queued_runtime_free(runtime);
    }
}

TEST(rows_zeros_and_sums)
{
    sp_runtime *runtime = runtime_of(1, 1, true);
    const sp_runtime_ops *ops = runtime->ops;
    const float given[] = {1, 2, 3, 4, 5, 6};
    float found[6];
    double sum;
    float *x = ops->allocate(runtime, sizeof given);
    float *y = ops->allocate(runtime, sizeof given);
    assert_int_equal((uintptr_t)x % SP_RUNTIME_ALIGNMENT, 0);
    ops->enter(runtime, 0);
    ops->upload(runtime, x, given, sizeof given);
    ops->zero(runtime, y, sizeof given);
    // The second and third of each row of three, to the beginnings of rows.
    ops->copy_rows(runtime, 2, 8, y, 12, x + 1, 12);
    ops->sum_of_squares(runtime, SP_ELEMENT_F32, 6, x, &sum);
    ops->download(runtime, found, y, sizeof found);
    assert_true(sum == 91);
    const float right[] = {2, 3, 0, 5, 6, 0};
    assert_memory_equal(found, right, sizeof right);
    ops->release(runtime, x);
    ops->release(runtime, y);
    queued_runtime_free(runtime);
}

TEST(stamps_follow_fences)
{
    for (uint64_t seed = 0; seed < SEEDS; seed++) {
        sp_runtime *runtime = runtime_of(2, seed, false);
        const sp_runtime_ops *ops = runtime->ops;
        char *x = ops->allocate(runtime, 10);
        ops->enter(runtime, 0);
        uint64_t begin = ops->stamp(runtime);
        ops->zero(runtime, x, 10);
        uint64_t end = ops->stamp(runtime);
        sp_fence fence = ops->mark(runtime);
        ops->enter(runtime, 1);
        ops->wait(runtime, fence);
        uint64_t after = ops->stamp(runtime);
        assert_int_equal(ops->now_ns(runtime), 0); // it has only waited
        assert_true(ops->stamp_ns(runtime, end) - ops->stamp_ns(runtime, begin) >= 1010);
        assert_true(ops->stamp_ns(runtime, after) > ops->stamp_ns(runtime, end));
        ops->enter(runtime, 0);
        assert_int_equal(ops->now_ns(runtime), 1010);
        ops->release(runtime, x);
        queued_runtime_free(runtime);
    }
}

TEST(synchronize_says_what_went_wrong)
{
    sp_runtime *runtime = runtime_of(1, 1, false);
    const sp_runtime_ops *ops = runtime->ops;
    char *x = ops->allocate(runtime, 3);
    char found[3];
    ops->enter(runtime, 0);
    queued_runtime_fail(runtime, 0, 1);
    for (int i = 0; i < 3; i++) {
        ops->zero(runtime, x + i, 1);
    }
    must_fail(ops->synchronize(runtime, ERR), SP_ERR_INTERNAL, "queued work went wrong");
    ops->download(runtime, found, x, sizeof found);
    assert_true(found[0] == 0 && found[1] != 0 && found[2] != 0);
    ops->zero(runtime, x, 3);
    assert_int_equal(ops->synchronize(runtime, NULL), SP_OK);
    ops->download(runtime, found, x, sizeof found);
    assert_true(found[1] == 0 && found[2] == 0);
    ops->release(runtime, x);
    queued_runtime_free(runtime);
}

typedef struct addend {
    double *x;
    double y;
} addend;

static void add(sp_runtime *runtime, const void *arguments)
{
    const addend *a = arguments;
    double *x = queued_runtime_reach(runtime, a->x, sizeof *x);
    *x += a->y;
}

TEST(calls_are_work_too)
{
    sp_runtime *runtime = runtime_of(1, 1, true);
    const sp_runtime_ops *ops = runtime->ops;
    addend a = {.x = ops->allocate(runtime, sizeof *a.x), .y = 2.5};
    double found;
    ops->enter(runtime, 0);
    ops->zero(runtime, a.x, sizeof *a.x);
    queued_runtime_put(runtime, add, &a, sizeof a);
    a.y = 1;
    queued_runtime_put(runtime, add, &a, sizeof a);
    assert_int_equal(queued_runtime_left(runtime, 0), 3);
    ops->download(runtime, &found, a.x, sizeof found);
    assert_true(found == 3.5);
    ops->release(runtime, a.x);
    queued_runtime_free(runtime);
}
