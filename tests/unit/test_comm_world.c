// Collectives in special cases: large sums, NaN, bytes, groups side by side; worlds and groups that
// cannot be made.
#include "backends/host/cpu_runtime.h"
#include "backends/ranks/comm.h"
#include "tests/support/comm_ranks.h"
#include "tests/support/test_main.h"

// ---- A larger all-reduce: shares of all members, equal bits at all of them ----

enum { LARGE = 100003 };

static sp_status reduce_large(sp_comm *me, void *data, sp_error *err)
{
    AUTO_FREE float *x = sp_malloc(LARGE * sizeof *x);
    for (int64_t i = 0; i < LARGE; i++) {
        x[i] = (float)number_at(1, (uint64_t)sp_comm_rank(me), (uint64_t)i);
    }
    SP_TRY(sp_comm_all_reduce(me, *(int *)data, SP_ELEMENT_F32, SP_COMM_SUM, x, x, LARGE, err));
    for (int64_t i = 0; i < LARGE; i++) {
        float sum = (float)number_at(1, 0, (uint64_t)i);
        for (uint64_t m = 1; m < 3; m++) {
            sum += (float)number_at(1, m, (uint64_t)i);
        }
        RANK_MUST(memcmp(&sum, &x[i], sizeof sum) == 0);
    }
    return SP_OK;
}

TEST(large_sum)
{
    OWNED(sp_comm_world) world = world_of(3);
    int group = group_of_all(world);
    assert_ranks(world, reduce_large, &group);
}

// ---- Bytes, in numbers that do not divide by two ----

enum { BYTES = 5001 };

static unsigned char byte_at(int rank, int i)
{
    return (unsigned char)(rank * 53 + i * 7 + i / 256);
}

static sp_status move_bytes(sp_comm *me, void *data, sp_error *err)
{
    int group = *(int *)data;
    int rank = sp_comm_rank(me);
    unsigned char *all = sp_malloc(3 * BYTES);
    const int64_t rows[3] = {1, 1, 1};
    unsigned char *mine = all != NULL ? all + rank * BYTES : NULL;
    for (int i = 0; i < BYTES; i++) {
        mine[i] = byte_at(rank, i);
    }
    SP_TRY(sp_comm_all_gather(me, group, SP_ELEMENT_BYTE, mine, all, rows, BYTES, err));
    for (int i = 0; i < 3 * BYTES; i++) {
        RANK_MUST(all[i] == byte_at(i / BYTES, i % BYTES));
    }
    sp_free(all);
    return SP_OK;
}

TEST(odd_bytes)
{
    OWNED(sp_comm_world) world = world_of(3);
    int group = group_of_all(world);
    for (int i = 0; i < 50; i++) {
        assert_ranks(world, move_bytes, &group);
    }
}

static sp_status reduce_nan(sp_comm *me, void *data, sp_error *err)
{
    double x[3] = {sp_comm_rank(me), sp_comm_rank(me) == 1 ? (double)NAN : -1, -HUGE_VAL};
    SP_TRY(sp_comm_all_reduce(me, *(int *)data, SP_ELEMENT_F64, SP_COMM_MAX, x, x, 3, err));
    return RANK_CHECK(x[0] == 2 && isnan(x[1]) && x[2] < 0 && isinf(x[2]));
}

TEST(maximum_of_nan_and_infinity)
{
    OWNED(sp_comm_world) world = world_of(3);
    int group = group_of_all(world);
    assert_ranks(world, reduce_nan, &group);
}

// Ranks 2 and 3 pass a thousand meetings while 0 stands in another group's barrier, which 1 enters
// only after rank 3 has counted them all.
typedef struct two_groups {
    int held, busy, across;
} two_groups;

static sp_status meet_apart(sp_comm *me, void *data, sp_error *err)
{
    const two_groups *g = data;
    int rank = sp_comm_rank(me);
    for (int i = 0; i < 1000 && rank >= 2; i++) {
        SP_TRY(sp_comm_barrier(me, g->busy, err));
    }
    if (rank == 1 || rank == 3) {
        SP_TRY(sp_comm_barrier(me, g->across, err));
    }
    return rank <= 1 ? sp_comm_barrier(me, g->held, err) : SP_OK;
}

TEST(groups_do_not_hold_each_other)
{
    OWNED(sp_comm_world) world = world_of(4);
    two_groups g = {.held = group_of(world, "held", (const int[]){0, 1}, 2),
                    .busy = group_of(world, "busy", (const int[]){2, 3}, 2),
                    .across = group_of(world, "across", (const int[]){3, 1}, 2)};
    assert_int_equal(sp_comm_group_find(world, (const int[]){3, 1}, 2), g.across);
    assert_int_equal(sp_comm_group_find(world, (const int[]){1, 3}, 2), -1);
    assert_ranks(world, meet_apart, &g);
}

// ---- What cannot be made ----

TEST(wrong_groups)
{
    const sp_comm_options on_cpu = {.runtime = sp_runtime_cpu()};
    sp_comm_world *world = NULL;
    int group;
    assert_int_equal(sp_comm_world_new(0, &on_cpu, &world, ERR), SP_ERR_USAGE);
    assert_null(world);
    world = world_of(2);
    assert_int_equal(sp_comm_group_new(world, "a", (const int[]){0, 2}, 2, &group, NULL),
                     SP_ERR_USAGE);
    assert_int_equal(sp_comm_group_new(world, "a", (const int[]){1, 1}, 2, &group, NULL),
                     SP_ERR_USAGE);
    assert_int_equal(sp_comm_group_new(world, "a", NULL, 0, &group, NULL), SP_ERR_USAGE);
    sp_comm_world_free(world);
    sp_comm_world_free(NULL);
}
