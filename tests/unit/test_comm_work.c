// Ranks whose work is done later: what goes wrong in it, what they cannot do, and clocks.
#include "backends/ranks/comm.h"
#include "tests/support/comm_ranks.h"
#include "tests/support/queued_runtime.h"
#include "tests/support/test_main.h"

// ---- What goes wrong ----

typedef struct job {
    sp_runtime *runtime;
    char *memory[3];
} job;

static sp_status write_twice(sp_comm *me, void *data, sp_error *err)
{
    job *j = data;
    for (int i = 0; i < 2; i++) {
        j->runtime->ops->zero(j->runtime, j->memory[sp_comm_rank(me)], 8);
    }
    return SP_OK;
}

// The body knows nothing of it.
TEST(work_goes_wrong)
{
    job j = {.runtime = queued_runtime_new(&(queued_runtime_options){.ranks = 3})};
    sp_comm_world *world = world_with(3, &(sp_comm_options){.runtime = j.runtime});
    for (int r = 0; r < 3; r++) {
        j.memory[r] = j.runtime->ops->allocate(j.runtime, 8);
    }
    queued_runtime_fail(j.runtime, 1, 1);
    must_fail(run_ranks(world, write_twice, &j, ERR), SP_ERR_INTERNAL,
              "rank 1: queued work went wrong");
    for (int r = 0; r < 3; r++) {
        assert_int_equal(queued_runtime_left(j.runtime, r), 0);
        j.runtime->ops->release(j.runtime, j.memory[r]);
    }
    sp_comm_world_free(world);
    queued_runtime_free(j.runtime);
}

static sp_status send(sp_comm *me, void *data, sp_error *err)
{
    return sp_comm_send(me, sp_comm_rank(me), 0, data, 1, err);
}

TEST(messages_only_in_plain_memory)
{
    sp_runtime *runtime = queued_runtime_new(&(queued_runtime_options){.ranks = 1});
    char x = 0;
    sp_comm_world *world = world_with(1, &(sp_comm_options){.runtime = runtime});
    group_of_all(world);
    must_fail(run_ranks(world, send, &x, ERR), SP_ERR_USAGE,
              "rank 0: messages with rank 0, in memory that is not plain");
    sp_comm_world_free(world);
    queued_runtime_free(runtime);
}

// ---- Clocks: the machine's time of each rank's own work, and waiting for that of others ----

typedef struct timed {
    sp_runtime *runtime;
    char *memory; // 100 bytes for each of two ranks
    sp_comm_flag flag;
} timed;

static sp_status work_and_wait(sp_comm *me, void *data, sp_error *err)
{
    timed *t = data;
    int rank = sp_comm_rank(me);
    sp_comm_clock_start(me, 0);
    for (int i = 0; i < (rank == 0 ? 5 : 1); i++) {
        t->runtime->ops->zero(t->runtime, t->memory + 100 * rank, 100);
    }
    sp_status status = SP_OK;
    if (rank == 0) {
        sp_comm_flag_raise(me, 1, &t->flag);
        t->runtime->ops->zero(t->runtime, t->memory, 100);
    } else {
        status = sp_comm_flag_wait(me, &t->flag, 0, "rank 0", err);
        t->runtime->ops->zero(t->runtime, t->memory + 100, 7);
    }
    // A piece takes 1000 ns and its bytes.
    int64_t right_ns = 5 * 1100 + (rank == 0 ? 1100 : 1007);
    return status == SP_OK ? RANK_CHECK(sp_comm_clock_read(me) == right_ns) : status;
}

TEST(clocks_of_work)
{
    timed t = {.runtime = queued_runtime_new(&(queued_runtime_options){.ranks = 2})};
    sp_comm_world *world =
        world_with(2, &(sp_comm_options){.runtime = t.runtime, .one_at_a_time = true});
    t.memory = t.runtime->ops->allocate(t.runtime, 200);
    assert_ranks(world, work_and_wait, &t);
    t.runtime->ops->release(t.runtime, t.memory);
    sp_comm_world_free(world);
    queued_runtime_free(t.runtime);
}
