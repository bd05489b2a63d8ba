// The time that ranks spend in exchanges, on a machine with one clock for all of them.
#include <stdatomic.h>

#include "backends/executor/stage.h"
#include "backends/host/cpu_runtime.h"
#include "backends/ranks/comm.h"
#include "tests/support/test_main.h"

enum { RANKS = 2, SHORT_NS = 1000, LONG_NS = 1000000000 };

// What has been computed by anyone, one rank at a time.
static atomic_llong computed_ns;

static int64_t now_ns(sp_runtime *runtime)
{
    return atomic_load(&computed_ns);
}

typedef struct exchange {
    sp_runtime *runtime;
    int group;
    sp_i_exec_links links[RANKS];
} exchange;

// Rank 0 comes first and waits while the other one computes.
static sp_status body(sp_comm *me, void *data, sp_error *err)
{
    exchange *e = data;
    int rank = sp_comm_rank(me);
    sp_i_exec_links *links = &e->links[rank];
    *links = (sp_i_exec_links){.me = me, .runtime = e->runtime};
    sp_status status = rank == 0 ? SP_OK : sp_comm_barrier(me, e->group, err);
    atomic_fetch_add(&computed_ns, rank == 0 ? SHORT_NS : LONG_NS);
    uint64_t begin = sp_i_exec_exchange_begin(links);
    atomic_fetch_add(&computed_ns, SHORT_NS);
    status = status == SP_OK ? sp_comm_barrier(me, e->group, err) : status;
    status = status == SP_OK && rank == 0 ? sp_comm_barrier(me, e->group, err) : status;
    assert_true(sp_i_exec_exchange_end(links, SP_I_EXEC_TP, begin, status));
    return status;
}

TEST(waits_are_not_an_exchanges_own)
{
    static const int ranks[RANKS] = {0, 1};
    sp_runtime_ops ops = *sp_runtime_cpu()->ops;
    sp_runtime runtime = {.ops = &ops};
    const sp_comm_options options = {.runtime = &runtime, .one_at_a_time = true};
    exchange e = {.runtime = &runtime};
    sp_comm_world *world;
    ops.now_ns = now_ns;
    assert_int_equal(sp_comm_world_new(RANKS, &options, &world, NULL), SP_OK);
    assert_int_equal(sp_comm_group_new(world, "all", ranks, RANKS, &e.group, NULL), SP_OK);
    assert_int_equal(sp_comm_run(world, body, &e, 0, NULL), SP_OK);
    for (int r = 0; r < RANKS; r++) {
        assert_int_equal(e.links[r].exchange_count, 1);
        const sp_i_exec_exchange *took = &e.links[r].exchanges[0];
        assert_int_equal(took->kind, SP_I_EXEC_TP);
        assert_int_equal(took->end - took->begin, SHORT_NS);
        sp_i_exec_links_fini(&e.links[r]);
    }
    sp_comm_world_free(world);
}
