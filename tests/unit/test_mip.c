// Integer programs through GLPK: against exhaustive search and closed forms, what is refused, and
// that neither GLPK's limits nor its errors reach the caller.
#include <igraph/igraph.h>
#include <pthread.h>
#include <time.h>

#include "solver/mip.h"
#include "tests/support/test_main.h"

static const sp_i_mip_options unlimited = {.time_limit_ms = 30000};

enum { ITEMS = 8 };

typedef struct knapsack {
    int64_t weight[ITEMS], price[ITEMS], room;
} knapsack;

static void random_knapsack(sp_prng *prng, knapsack *k)
{
    k->room = 0;
    for (int i = 0; i < ITEMS; i++) {
        k->weight[i] = 1 + (int64_t)sp_prng_below(prng, 40);
        k->price[i] = 1 + (int64_t)sp_prng_below(prng, 40);
        k->room += k->weight[i];
    }
    k->room /= 2;
}

static int64_t exhaustive(const knapsack *k)
{
    int64_t best = 0;
    for (unsigned set = 0; set < 1u << ITEMS; set++) {
        int64_t weight = 0, price = 0;
        for (int i = 0; i < ITEMS; i++) {
            weight += (set >> i & 1u) != 0 ? k->weight[i] : 0;
            price += (set >> i & 1u) != 0 ? k->price[i] : 0;
        }
        best = weight <= k->room && price > best ? price : best;
    }
    return best;
}

static void write_knapsack(const knapsack *k, sp_i_mip *mip)
{
    sp_i_mip_init(mip);
    sp_i_mip_add_row(mip, -HUGE_VAL, (double)k->room);
    for (int i = 0; i < ITEMS; i++) {
        int column = sp_i_mip_add_column(mip, 0.0, 1.0, -(double)k->price[i], true);
        sp_i_mip_add_term(mip, column, (double)k->weight[i]);
    }
}

TEST_ROUNDS(knapsacks_against_all_subsets, 41, 60)
{
    knapsack k;
    AUTO(sp_i_mip) mip;
    sp_i_mip_result result;
    double value[ITEMS];
    random_knapsack(prng, &k);
    write_knapsack(&k, &mip);
    assert_int_equal(sp_i_mip_solve(&mip, &unlimited, &result, value, NULL), SP_OK);
    assert_int_equal(result.outcome, SP_I_MIP_OPTIMAL);
    assert_within(result.objective, -(double)exhaustive(&k), 1e-6);
    assert_within(result.bound, result.objective, 1e-6);
    double weight = 0.0;
    for (int i = 0; i < ITEMS; i++) {
        assert_true(value[i] == 0.0 || value[i] == 1.0);
        weight += value[i] * (double)k.weight[i];
    }
    assert_true(weight <= (double)k.room);
}

// min x + 2y, x + y = 3, x <= 2, y free: x = 2, y = 1. With 2x + 2y = 3 in whole numbers: nothing.
TEST(continuous_fixed_and_infeasible)
{
    AUTO(sp_i_mip) mip;
    sp_i_mip_result result;
    double value[3];
    sp_i_mip_init(&mip);
    int x = sp_i_mip_add_column(&mip, -HUGE_VAL, 2.0, 1.0, false);
    int y = sp_i_mip_add_column(&mip, -HUGE_VAL, HUGE_VAL, 2.0, false);
    int fixed = sp_i_mip_add_column(&mip, 5.0, 5.0, 1.0, true);
    sp_i_mip_add_row(&mip, 3.0, 3.0);
    sp_i_mip_add_term(&mip, x, 1.0);
    sp_i_mip_add_term(&mip, y, 1.0);
    assert_int_equal(sp_i_mip_solve(&mip, &unlimited, &result, value, NULL), SP_OK);
    assert_int_equal(result.outcome, SP_I_MIP_OPTIMAL);
    assert_within(value[x], 2.0, 1e-9);
    assert_within(value[y], 1.0, 1e-9);
    assert_within(value[fixed], 5.0, 0.0);
    assert_within(result.objective, 9.0, 1e-9);
    sp_i_mip_fini(&mip);

    sp_i_mip_init(&mip);
    x = sp_i_mip_add_column(&mip, 0.0, 9.0, 1.0, true);
    y = sp_i_mip_add_column(&mip, 0.0, 9.0, 1.0, true);
    sp_i_mip_add_row(&mip, 3.0, 3.0);
    sp_i_mip_add_term(&mip, x, 2.0);
    sp_i_mip_add_term(&mip, y, 2.0);
    assert_int_equal(sp_i_mip_solve(&mip, &unlimited, &result, value, NULL), SP_OK);
    assert_int_equal(result.outcome, SP_I_MIP_INFEASIBLE);
}

// 2 * (sum of n binaries) + z = n for odd n and a binary z that costs: z = 1, for which branch and
// bound has to see some n-over-n/2 nodes (Jeroslow 1974).
static void write_jeroslow(int n, sp_i_mip *mip)
{
    sp_i_mip_init(mip);
    sp_i_mip_add_row(mip, n, n);
    for (int i = 0; i < n; i++) {
        sp_i_mip_add_term(mip, sp_i_mip_add_column(mip, 0.0, 1.0, 0.0, true), 2.0);
    }
    sp_i_mip_add_term(mip, sp_i_mip_add_column(mip, 0.0, 1.0, 1.0, true), 1.0);
}

// Loose on a busy machine; how far over it may be: unit.assignment.time_is_kept.
TEST(limits_are_kept)
{
    AUTO(sp_i_mip) mip;
    sp_i_mip_result result;
    double value[60];
    write_jeroslow(51, &mip);
    struct timespec begin;
    struct timespec end;
    const sp_i_mip_options brief = {.time_limit_ms = 100};
    clock_gettime(CLOCK_MONOTONIC, &begin);
    assert_int_equal(sp_i_mip_solve(&mip, &brief, &result, value, NULL), SP_OK);
    clock_gettime(CLOCK_MONOTONIC, &end);
    assert_true(result.timed_out);
    assert_int_not_equal(result.outcome, SP_I_MIP_OPTIMAL);
    assert_true(end.tv_sec - begin.tv_sec < 5);
    assert_true(result.bound <= 1.0 + 1e-9);
    const sp_i_mip_options none = {.time_limit_ms = 0};
    assert_int_equal(sp_i_mip_solve(&mip, &none, &result, value, NULL), SP_OK);
    assert_int_equal(result.outcome, SP_I_MIP_UNKNOWN);
    assert_true(result.timed_out);
    const sp_i_mip_options few = {.time_limit_ms = 30000, .node_limit = 50};
    assert_int_equal(sp_i_mip_solve(&mip, &few, &result, value, NULL), SP_OK);
    assert_false(result.timed_out);
    assert_int_not_equal(result.outcome, SP_I_MIP_OPTIMAL);
    // Iterations of the first relaxation, and those of branch and bound.
    for (int64_t most = 1; most <= 1000; most *= 1000) {
        const sp_i_mip_options work = {.time_limit_ms = SP_I_NO_TIME_LIMIT,
                                       .iteration_limit = most};
        assert_int_equal(sp_i_mip_solve(&mip, &work, &result, value, NULL), SP_OK);
        assert_false(result.timed_out);
        assert_int_not_equal(result.outcome, SP_I_MIP_OPTIMAL);
        // A node more, of as many iterations as there are columns at most.
        assert_in_range(result.iterations, most, most + 52);
    }
}

// GLPK aborts the process on misuse: here it becomes an error, and the next program is solved.
TEST(misuse_is_an_error)
{
    for (int kind = 0; kind < 2; kind++) {
        AUTO(sp_i_mip) mip;
        sp_i_mip_result result;
        double value[ITEMS];
        sp_error_clear(ERR);
        sp_i_mip_init(&mip);
        int x = sp_i_mip_add_column(&mip, -HUGE_VAL, 0.0, 1.0, false);
        sp_i_mip_add_row(&mip, -HUGE_VAL, 1.0);
        sp_i_mip_add_term(&mip, x, 1.0);
        if (kind == 0) {
            sp_i_mip_add_term(&mip, x, 2.0);
        }
        assert_int_equal(sp_i_mip_solve(&mip, &unlimited, &result, value, ERR), SP_ERR_INTERNAL);
        must_hold(strstr(ERR->message[0], kind == 0 ? "duplicate" : "unbounded") != NULL, "%s",
                  ERR->message[0]);
    }
    knapsacks_against_all_subsets();
}

// igraph solves this with GLPK, which it sets up for itself in the caller's thread.
TEST(beside_igraph)
{
    for (int round = 0; round < 2; round++) {
        igraph_t graph;
        igraph_vector_int_t arcs;
        assert_int_equal(igraph_ring(&graph, 5, true, false, true), IGRAPH_SUCCESS);
        assert_int_equal(igraph_vector_int_init(&arcs, 0), IGRAPH_SUCCESS);
        assert_int_equal(igraph_feedback_arc_set(&graph, &arcs, NULL, IGRAPH_FAS_EXACT_IP),
                         IGRAPH_SUCCESS);
        assert_int_equal(igraph_vector_int_size(&arcs), 1);
        igraph_vector_int_destroy(&arcs);
        igraph_destroy(&graph);
        knapsacks_against_all_subsets();
        misuse_is_an_error();
    }
}

static void *solve_in_thread(void *argument)
{
    const knapsack *k = argument;
    for (int round = 0; round < 20; round++) {
        AUTO(sp_i_mip) mip;
        sp_i_mip_result result;
        double value[ITEMS];
        write_knapsack(k, &mip);
        sp_status status = sp_i_mip_solve(&mip, &unlimited, &result, value, NULL);
        if (status != SP_OK || fabs(result.objective + (double)exhaustive(k)) > 1e-6) {
            return argument;
        }
    }
    return NULL;
}

TEST(several_threads)
{
    sp_prng prng = prng_seeded(43);
    knapsack k[4];
    pthread_t thread[4];
    for (int i = 0; i < 4; i++) {
        random_knapsack(&prng, &k[i]);
        assert_int_equal(pthread_create(&thread[i], NULL, solve_in_thread, &k[i]), 0);
    }
    for (int i = 0; i < 4; i++) {
        void *failed;
        assert_int_equal(pthread_join(thread[i], &failed), 0);
        assert_null(failed);
    }
}
