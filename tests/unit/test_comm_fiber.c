// Flows on stacks of their own: they go on where they were left, each with its own variables, use a
// thread's worth of stack, and are used again.
#include <pthread.h>

#include "backends/comm/private.h"
#include "tests/support/test_main.h"

enum { FLOWS = 50, ROUNDS = 20, TRACE = FLOWS * (ROUNDS + 1) };

typedef struct flow {
    sp_i_fiber *fiber;
    int number;
    int *trace, *traced; // shared
} flow;

static void count_rounds(void *data)
{
    const flow *f = data;
    double kept = f->number;
    for (int round = 0; round < ROUNDS; round++) {
        f->trace[(*f->traced)++] = (int)kept;
        sp_i_fiber_park(f->fiber);
        kept = kept == f->number ? f->number : -1.0;
    }
    f->trace[(*f->traced)++] = (int)kept;
}

TEST(flows_go_on_where_they_left)
{
    flow flows[FLOWS];
    int trace[TRACE];
    int traced = 0;
    for (int i = 0; i < FLOWS; i++) {
        flows[i] = (flow){sp_i_fiber_new(), i, trace, &traced};
        assert_non_null(flows[i].fiber);
        sp_i_fiber_start(flows[i].fiber, count_rounds, &flows[i]);
    }
    for (int round = 0; round <= ROUNDS; round++) {
        for (int i = FLOWS - 1; i >= 0; i--) {
            assert_int_equal(sp_i_fiber_resume(flows[i].fiber), round < ROUNDS);
            assert_int_equal(trace[traced - 1], i);
        }
    }
    assert_int_equal(traced, TRACE);
    for (int i = 0; i < FLOWS; i++) {
        sp_i_fiber_free(flows[i].fiber);
    }
    sp_i_fiber_free(NULL);
}

typedef struct deep {
    sp_i_fiber *fiber;
    int depth, reached;
} deep;

// 16 KiB a level, left and entered again at the bottom.
static int descend(deep *d, int depth)
{
    volatile char page[16384];
    memset((char *)page, depth, sizeof page);
    if (depth == d->depth) {
        sp_i_fiber_park(d->fiber);
        return depth;
    }
    int reached = descend(d, depth + 1);
    return page[sizeof page / 2] == (char)depth ? reached : -1;
}

static void go_deep(void *data)
{
    deep *d = data;
    d->reached = descend(d, 0);
}

TEST(stacks_are_deep)
{
    deep d = {.fiber = sp_i_fiber_new(), .depth = 256}; // 4 MiB
    assert_non_null(d.fiber);
    sp_i_fiber_start(d.fiber, go_deep, &d);
    assert_true(sp_i_fiber_resume(d.fiber));
    assert_int_equal(d.reached, 0);
    assert_false(sp_i_fiber_resume(d.fiber));
    assert_int_equal(d.reached, 256);
    sp_i_fiber_free(d.fiber);
}

static void *drive_to_its_end(void *data)
{
    const flow *f = data;
    while (sp_i_fiber_resume(f->fiber)) {
    }
    return NULL;
}

// Whatever thread drives a flow, and whatever the fiber did before.
TEST(fibers_are_used_again)
{
    int trace[3 * (ROUNDS + 1)];
    int traced = 0;
    flow f = {sp_i_fiber_new(), 7, trace, &traced};
    assert_non_null(f.fiber);
    for (int again = 0; again < 3; again++) {
        sp_i_fiber_start(f.fiber, count_rounds, &f);
        if (again == 1) {
            pthread_t thread;
            assert_int_equal(pthread_create(&thread, NULL, drive_to_its_end, &f), 0);
            assert_int_equal(pthread_join(thread, NULL), 0);
        } else {
            drive_to_its_end(&f);
        }
        assert_int_equal(traced, (again + 1) * (ROUNDS + 1));
    }
    sp_i_fiber_free(f.fiber);
}

// One flow drives another.
static void drive_another(void *data)
{
    const flow *f = data;
    flow inner = {sp_i_fiber_new(), f->number + 1, f->trace, f->traced};
    if (inner.fiber == NULL) {
        return;
    }
    sp_i_fiber_start(inner.fiber, count_rounds, &inner);
    while (sp_i_fiber_resume(inner.fiber)) {
        sp_i_fiber_park(f->fiber);
    }
    sp_i_fiber_free(inner.fiber);
}

TEST(flows_stand_in_flows)
{
    int trace[ROUNDS + 1];
    int traced = 0;
    flow f = {sp_i_fiber_new(), 3, trace, &traced};
    assert_non_null(f.fiber);
    sp_i_fiber_start(f.fiber, drive_another, &f);
    for (int round = 0; round < ROUNDS; round++) {
        assert_true(sp_i_fiber_resume(f.fiber));
        assert_int_equal(traced, round + 1);
        assert_int_equal(trace[round], 4);
    }
    assert_false(sp_i_fiber_resume(f.fiber));
    sp_i_fiber_free(f.fiber);
}
