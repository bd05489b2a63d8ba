// Clocks of virtual time against a model that goes through the ranks' script in one thread: own
// computing and waiting in collectives, for messages and for flags. Processor time
// within its bounds.
#include <stdatomic.h>
#include <time.h>

#include "backends/host/cpu_runtime.h"
#include "backends/ranks/comm.h"
#include "sim/base/units.h"
#include "tests/support/comm_ranks.h"
#include "tests/support/test_main.h"

enum { RANKS = 4, STEPS = 600, GROUPS = 4 };

typedef enum kind { COMPUTE, BARRIER, ALL_REDUCE, MESSAGE, FLAG, KINDS } kind;

typedef struct step {
    kind kind;
    int from, to; // who computes is `from`
    int group;
    int64_t ns;
} step;

typedef struct script {
    int groups[GROUPS];
    step steps[STEPS];
    int64_t start[RANKS], expected[STEPS][RANKS];
    sp_comm_flag flags[STEPS];
} script;

// What this rank's thread has computed, as a processor's clock would say.
static _Thread_local int64_t computed_ns;

static int64_t scripted_now_ns(sp_runtime *runtime)
{
    return computed_ns;
}

// The CPU with another clock.
static void set_clock(sp_runtime *runtime, sp_runtime_ops *ops, int64_t (*now_ns)(sp_runtime *))
{
    *ops = *sp_runtime_cpu()->ops;
    ops->now_ns = now_ns;
    runtime->ops = ops;
}

// ---- The model ----

static void meet(const sp_comm_world *world, int group, int64_t *clock)
{
    int64_t latest = INT64_MIN;
    for (int i = 0; i < sp_comm_group_size(world, group); i++) {
        latest = sp_larger(latest, clock[sp_comm_group_rank(world, group, i)]);
    }
    for (int i = 0; i < sp_comm_group_size(world, group); i++) {
        clock[sp_comm_group_rank(world, group, i)] = latest;
    }
}

static void expect(const sp_comm_world *world, script *s)
{
    int64_t clock[RANKS];
    memcpy(clock, s->start, sizeof clock);
    for (int i = 0; i < STEPS; i++) {
        const step *now = &s->steps[i];
        switch (now->kind) {
        case COMPUTE:
            clock[now->from] += now->ns;
            break;
        case BARRIER:
        case ALL_REDUCE:
            meet(world, s->groups[now->group], clock);
            break;
        case MESSAGE:
        case FLAG:
        case KINDS:
            clock[now->to] = sp_larger(clock[now->to], clock[now->from]);
            break;
        }
        memcpy(s->expected[i], clock, sizeof clock);
    }
}

// ---- The ranks ----

static sp_status run_step(sp_comm *me, script *s, int i, sp_error *err)
{
    const step *now = &s->steps[i];
    int rank = sp_comm_rank(me);
    int group = s->groups[now->group];
    bool member = sp_comm_member(me, group) >= 0;
    double x = 1;
    double y = 2;
    sp_status status = SP_OK;
    switch (now->kind) {
    case COMPUTE:
        if (rank == now->from) {
            computed_ns += now->ns;
        }
        return SP_OK;
    case BARRIER:
        return member ? sp_comm_barrier(me, group, err) : SP_OK;
    case ALL_REDUCE:
        return member ? sp_comm_all_reduce(me, group, SP_ELEMENT_F64, SP_COMM_SUM, &x, &y, 1, err)
                      : SP_OK;
    case MESSAGE:
        if (rank == now->from) {
            status = sp_comm_send(me, now->to, 0, &x, sizeof x, err);
        }
        return status == SP_OK && rank == now->to
                   ? sp_comm_receive(me, now->from, 0, &y, sizeof y, err)
                   : status;
    case FLAG:
    case KINDS:
        if (rank == now->from) {
            sp_comm_flag_raise(me, now->to, &s->flags[i]);
        }
        return rank == now->to ? sp_comm_flag_wait(me, &s->flags[i], now->from, "a flag", err)
                               : SP_OK;
    }
    return SP_ERR_INTERNAL;
}

static sp_status run_script(sp_comm *me, void *data, sp_error *err)
{
    script *s = data;
    int rank = sp_comm_rank(me);
    sp_prng prng = prng_seeded(9 + (uint64_t)rank);
    computed_ns = 123456 * (rank + 1); // what a thread did before does not count
    sp_comm_clock_start(me, s->start[rank]);
    for (int i = 0; i < STEPS; i++) {
        sleep_sometimes(&prng, 50, 100);
        SP_TRY(run_step(me, s, i, err));
        // Not reading after every step leaves it to the calls.
        if (i % 3 == 0) {
            RANK_MUST(sp_comm_clock_read(me) == s->expected[i][rank]);
        }
    }
    return RANK_CHECK(sp_comm_clock_read(me) == s->expected[STEPS - 1][rank]);
}

static void random_script(script *s, sp_prng *prng)
{
    for (int rank = 0; rank < RANKS; rank++) {
        s->start[rank] = (int64_t)sp_prng_below(prng, 1000);
    }
    for (int i = 0; i < STEPS; i++) {
        s->steps[i] = (step){.kind = (kind)sp_prng_below(prng, KINDS),
                             .from = prng_below(prng, RANKS),
                             .to = prng_below(prng, RANKS),
                             .group = prng_below(prng, GROUPS),
                             .ns = (int64_t)sp_prng_below(prng, 500)};
        if (sp_prng_below(prng, 2) == 0) {
            s->steps[i].kind = COMPUTE;
        }
    }
}

static void check_script(uint64_t seed)
{
    static script s;
    sp_prng prng = prng_seeded(seed);
    memset(&s, 0, sizeof s);
    sp_runtime runtime;
    sp_runtime_ops ops;
    set_clock(&runtime, &ops, scripted_now_ns);
    sp_comm_options options = {.one_at_a_time = true, .runtime = &runtime};
    OWNED(sp_comm_world) world = world_with(RANKS, &options);
    s.groups[0] = group_of_all(world);
    s.groups[1] = group_of(world, "pair", (const int[]){2, 0}, 2);
    s.groups[2] = group_of(world, "three", (const int[]){1, 3, 0}, 3);
    s.groups[3] = group_of(world, "alone", (const int[]){3}, 1);
    for (int again = 0; again < 2; again++) {
        random_script(&s, &prng);
        expect(world, &s);
        assert_ranks(world, run_script, &s);
        for (int i = 0; i < STEPS; i++) {
            sp_comm_flag_clear(&s.flags[i]);
        }
    }
}

TEST(clocks_that_read)
{
    for (uint64_t seed = 0; seed < 10; seed++) {
        check_script(seed);
    }
}

// ---- What now_ns does while a rank waits is not its computing ----

static _Atomic int64_t common_ns;

static int64_t common_now_ns(sp_runtime *runtime)
{
    return atomic_load(&common_ns);
}

// Time passes for all when rank 1 computes; rank 0 waits meanwhile, three times.
static sp_status wait_meanwhile(sp_comm *me, void *data, sp_error *err)
{
    int rank = sp_comm_rank(me);
    char x = 0;
    sp_comm_flag *flag = data;
    for (int i = 0; i < 3; i++) {
        SP_TRY(sp_comm_barrier(me, 0, err));
        if (rank == 1) {
            sleep_us(20000);
            atomic_fetch_add(&common_ns, 1000);
        }
        if (i == 0) {
            SP_TRY(sp_comm_barrier(me, 0, err));
        } else if (i == 1) {
            SP_TRY(rank == 1 ? sp_comm_send(me, 0, 0, &x, 1, err)
                             : sp_comm_receive(me, 1, 0, &x, 1, err));
        } else if (rank == 0) {
            SP_TRY(sp_comm_flag_wait(me, flag, 1, "the end", err));
        } else {
            sp_comm_flag_raise(me, 0, flag);
        }
    }
    return RANK_CHECK(sp_comm_clock_read(me) == 3000);
}

TEST(waiting_is_not_computing)
{
    sp_runtime runtime;
    sp_runtime_ops ops;
    set_clock(&runtime, &ops, common_now_ns);
    sp_comm_flag flag = {0};
    OWNED(sp_comm_world) world =
        world_with(2, &(sp_comm_options){.one_at_a_time = true, .runtime = &runtime});
    group_of_all(world);
    atomic_store(&common_ns, 77);
    assert_ranks(world, wait_meanwhile, &flag);
}

// ---- Processor time ----

typedef struct load {
    int all;
    double sum[RANKS];
    int64_t computed[RANKS], total[RANKS], clock[RANKS];
} load;

static int64_t processor_ns(void)
{
    struct timespec now;
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
    return (int64_t)now.tv_sec * 1000000000 + now.tv_nsec;
}

static sp_status compute_and_meet(sp_comm *me, void *data, sp_error *err)
{
    load *l = data;
    int rank = sp_comm_rank(me);
    for (int round = 0; round < 20; round++) {
        int64_t begin_ns = processor_ns();
        for (uint64_t i = 0; i < 20000 * (uint64_t)(1 + (rank + round) % RANKS); i++) {
            l->sum[rank] += number_at((uint64_t)round, (uint64_t)rank, i);
        }
        l->computed[rank] += processor_ns() - begin_ns;
        SP_TRY(sp_comm_barrier(me, l->all, err));
        l->clock[rank] = sp_comm_clock_read(me);
    }
    l->total[rank] = processor_ns();
    return SP_OK;
}

// The longest chain of computing is at least what any one rank has computed, and at most what all
// have together.
TEST(processor_time)
{
    load l = {0};
    int64_t total = 0;
    OWNED(sp_comm_world) world = world_with(RANKS, &(sp_comm_options){.one_at_a_time = true});
    l.all = group_of_all(world);
    assert_ranks(world, compute_and_meet, &l);
    for (int rank = 0; rank < RANKS; rank++) {
        assert_true(l.clock[0] >= l.computed[rank]);
        total += l.total[rank];
    }
    assert_true(l.clock[0] <= total);
}
