// Samples to ranks by an integer program: against exhaustive search, certificates, limits.
#include <time.h>

#include "solver/slimpack/slimpack_search.h"
#include "tests/support/test_main.h"

enum { MOST_SAMPLES = 2048, MOST_RANKS = 32, FEW = 11 };

static const sp_i_assignment_options unlimited = {.time_limit_ms = 30000};

// Lengths over three decades, as of documents, and linear plus quadratic work.
static void draw(sp_prng *prng, double *work_s, size_t count)
{
    for (size_t i = 0; i < count; i++) {
        double tokens = floor(32.0 * pow(256.0, sp_prng_uniform(prng)));
        work_s[i] = 3e-6 * tokens + 4e-10 * tokens * tokens;
    }
}

static double largest_of(const double *work_s, const int *rank, size_t count, int ranks)
{
    double load_s[MOST_RANKS] = {0};
    double largest_s = 0.0;
    for (size_t i = 0; i < count; i++) {
        assert_true(rank[i] >= 0 && rank[i] < ranks);
        load_s[rank[i]] += work_s[i];
        largest_s = fmax(largest_s, load_s[rank[i]]);
    }
    return largest_s;
}

static double least_of_all(const double *work_s, size_t i, size_t count, double *load_s, int ranks,
                           double best_s)
{
    double largest_s = 0.0;
    for (int r = 0; r < ranks; r++) {
        largest_s = fmax(largest_s, load_s[r]);
    }
    if (largest_s >= best_s || i == count) {
        return fmin(largest_s, best_s);
    }
    for (int r = 0; r < ranks; r++) {
        bool empty = load_s[r] <= 0.0;
        load_s[r] += work_s[i];
        best_s = least_of_all(work_s, i + 1, count, load_s, ranks, best_s);
        load_s[r] -= work_s[i];
        if (empty) {
            load_s[r] = 0.0;
            break; // the other empty ranks are the same
        }
    }
    return best_s;
}

static double exhaustive(const double *work_s, size_t count, int ranks)
{
    double load_s[MOST_RANKS] = {0};
    return least_of_all(work_s, 0, count, load_s, ranks, HUGE_VAL);
}

static void assert_consistent(const sp_i_assignment *result, const double *work_s, const int *rank,
                              size_t count, int ranks)
{
    double largest_s = largest_of(work_s, rank, count, ranks);
    assert_within(largest_s, result->largest_s, 1e-12 * largest_s);
    assert_true(result->largest_s <= result->heuristic_s);
    assert_true(result->bound_s <= result->largest_s);
}

TEST(finds_the_least_of_all)
{
    sp_prng prng = prng_seeded(11);
    int improved = 0;
    for (int round = 0; round < 200; round++) {
        double work_s[FEW];
        int rank[FEW];
        size_t count = 1 + (size_t)sp_prng_below(&prng, FEW);
        int ranks = 1 + prng_below(&prng, 4);
        draw(&prng, work_s, count);
        for (size_t i = 0; round % 2 == 0 && i < count; i++) { // not one that rules them all
            work_s[i] = 1.0 + sp_prng_uniform(&prng);
        }
        sp_i_assignment result;
        assert_int_equal(
            sp_i_assignment_solve(work_s, count, ranks, &unlimited, rank, &result, NULL), SP_OK);
        assert_int_equal(result.outcome, SP_I_MIP_OPTIMAL);
        assert_consistent(&result, work_s, rank, count, ranks);
        double least_s = exhaustive(work_s, count, ranks);
        assert_true(result.bound_s <= least_s * (1.0 + 1e-12));
        assert_true(result.largest_s >= least_s * (1.0 - 1e-12));
        assert_true(result.largest_s <= least_s * (1.0 + 2e-6));
        improved += result.largest_s < result.heuristic_s;
    }
    assert_true(improved > 5);
}

// Equal samples are one class of the program: n of them on m ranks need ceil(n / m) on one.
TEST(equal_samples)
{
    double work_s[40];
    int rank[40];
    for (int ranks = 1; ranks <= 7; ranks++) {
        for (size_t count = 1; count <= 40; count += 13) {
            for (size_t i = 0; i < count; i++) {
                work_s[i] = 0.25;
            }
            sp_i_assignment result;
            assert_int_equal(
                sp_i_assignment_solve(work_s, count, ranks, &unlimited, rank, &result, NULL),
                SP_OK);
            assert_int_equal(result.outcome, SP_I_MIP_OPTIMAL);
            assert_consistent(&result, work_s, rank, count, ranks);
            double least_s = 0.25 * ceil((double)count / ranks);
            assert_within(result.largest_s, least_s, 1e-12);
            assert_within(result.bound_s, least_s, 1e-12);
        }
    }
    // Of two lengths: {3, 3, 2, 2, 2} on two ranks, which longest first gives 7.
    const double two[] = {3.0, 2.0, 3.0, 2.0, 2.0};
    sp_i_assignment result;
    assert_int_equal(sp_i_assignment_solve(two, 5, 2, &unlimited, rank, &result, NULL), SP_OK);
    assert_within(result.largest_s, 6.0, 1e-12);
    assert_int_equal(rank[0], rank[2]);
}

// The program has every solution, but for the numbers of the ranks: its least objective is that of
// the exhaustive search also without an incumbent.
TEST_ROUNDS(program_without_incumbent, 13, 40)
{
    double work_s[FEW];
    size_t count = 2 + (size_t)sp_prng_below(prng, FEW - 1);
    int ranks = 1 + prng_below(prng, 3);
    for (size_t i = 0; i < count; i++) {
        work_s[i] = 1.0 + (double)sp_prng_below(prng, 12);
    }
    for (size_t i = 1; i < count; i++) { // descending
        for (size_t j = i; j > 0 && work_s[j] > work_s[j - 1]; j--) {
            double swapped = work_s[j];
            work_s[j] = work_s[j - 1];
            work_s[j - 1] = swapped;
        }
    }
    const sp_i_assignment_model model = {
        .work_s = work_s, .count = count, .ranks = ranks, .unit_s = 1.0, .most = HUGE_VAL};
    AUTO(sp_i_mip) mip;
    sp_i_mip_result result;
    double value[FEW * 3 + 1];
    int rank[FEW];
    const sp_i_mip_options options = {.time_limit_ms = 30000};
    sp_i_assignment_write(&model, &mip);
    assert_int_equal(sp_i_mip_solve(&mip, &options, &result, value, NULL), SP_OK);
    assert_int_equal(result.outcome, SP_I_MIP_OPTIMAL);
    sp_i_assignment_read(&model, value, rank);
    double least_s = exhaustive(work_s, count, ranks);
    assert_within(result.objective, least_s, 1e-6);
    assert_within(largest_of(work_s, rank, count, ranks), least_s, 1e-6);
}

// A gap that is asked for is kept, and ends the search early.
TEST_ROUNDS(the_gap_is_kept, 17, 10)
{
    double work_s[24];
    int rank[24];
    draw(prng, work_s, 14);
    const sp_i_assignment_options wide = {.time_limit_ms = 30000, .gap = 0.01};
    sp_i_assignment result;
    assert_int_equal(sp_i_assignment_solve(work_s, 14, 3, &wide, rank, &result, NULL), SP_OK);
    assert_int_equal(result.outcome, SP_I_MIP_OPTIMAL);
    assert_consistent(&result, work_s, rank, 14, 3);
    assert_true(result.bound_s >= result.largest_s * (1.0 - 0.01 - 2e-6));
}

TEST(limits_leave_the_heuristic)
{
    sp_prng prng = prng_seeded(19);
    double work_s[60];
    int rank[60];
    draw(&prng, work_s, 60);
    const sp_i_assignment_options none = {.time_limit_ms = 0};
    sp_i_assignment result;
    assert_int_equal(sp_i_assignment_solve(work_s, 60, 4, &none, rank, &result, NULL), SP_OK);
    assert_int_equal(result.outcome, SP_I_MIP_FEASIBLE);
    assert_consistent(&result, work_s, rank, 60, 4);
    assert_true(result.largest_s <= result.bound_s * 1.01);
    // The same nodes, the same answer.
    const sp_i_assignment_options few = {.time_limit_ms = 30000, .node_limit = 60};
    sp_i_assignment again;
    int other[60];
    assert_int_equal(sp_i_assignment_solve(work_s, 60, 4, &few, rank, &result, NULL), SP_OK);
    assert_int_equal(sp_i_assignment_solve(work_s, 60, 4, &few, other, &again, NULL), SP_OK);
    assert_false(result.timed_out);
    assert_memory_equal(rank, other, sizeof rank);
    assert_true(!(again.largest_s < result.largest_s) && !(again.largest_s > result.largest_s));
    assert_consistent(&result, work_s, rank, 60, 4);
    // No sample, and samples without work.
    assert_int_equal(sp_i_assignment_solve(work_s, 0, 4, &few, rank, &result, NULL), SP_OK);
    assert_int_equal(result.outcome, SP_I_MIP_OPTIMAL);
    const double nothing[3] = {0};
    assert_int_equal(sp_i_assignment_solve(nothing, 3, 2, &few, rank, &result, NULL), SP_OK);
    assert_int_equal(result.outcome, SP_I_MIP_OPTIMAL);
}

// Of this thread alone: what else the machine runs does not count.
static double used_ms(void)
{
    struct timespec now;
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
    return 1e3 * (double)now.tv_sec + 1e-6 * (double)now.tv_nsec;
}

// How far over its limit the solver may be. GLPK looks at the clock between its steps alone, and
// its steps take many times longer where every allocation is watched.
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
#define MOST_OVER_MS 5000.0
#else
#define MOST_OVER_MS 50.0
#endif

// The least of three runs is hardly over the limit, for programs that GLPK cannot solve in the
// time, from those with many nodes to those whose relaxation alone takes longer.
TEST(time_is_kept)
{
    static const struct {
        size_t count;
        int ranks;
    } sizes[] = {{60, 4}, {250, 8}, {1000, 16}, {2048, 32}};
    static const int64_t limits_ms[] = {10, 50, 200};
    static double work_s[MOST_SAMPLES], sorted[MOST_SAMPLES];
    static double value[MOST_SAMPLES * MOST_RANKS + 1];
    sp_prng prng = prng_seeded(23);
    for (size_t k = 0; k < 4; k++) {
        draw(&prng, work_s, sizes[k].count);
        for (size_t i = 0; i < sizes[k].count; i++) { // descending
            size_t j = i;
            for (; j > 0 && sorted[j - 1] < work_s[i]; j--) {
                sorted[j] = sorted[j - 1];
            }
            sorted[j] = work_s[i];
        }
        const sp_i_assignment_model model = {.work_s = sorted,
                                             .count = sizes[k].count,
                                             .ranks = sizes[k].ranks,
                                             .unit_s = sorted[0],
                                             .most = HUGE_VAL};
        AUTO(sp_i_mip) mip;
        sp_i_assignment_write(&model, &mip);
        for (int l = 0; l < 3; l++) {
            const sp_i_mip_options options = {.time_limit_ms = limits_ms[l]};
            double least_ms = HUGE_VAL;
            for (int run = 0; run < 3 && least_ms > (double)limits_ms[l] + MOST_OVER_MS; run++) {
                sp_i_mip_result result;
                double begin_ms = used_ms();
                assert_int_equal(sp_i_mip_solve(&mip, &options, &result, value, NULL), SP_OK);
                least_ms = fmin(least_ms, used_ms() - begin_ms);
            }
            must_hold(least_ms <= (double)limits_ms[l] + MOST_OVER_MS,
                      "%zu samples on %d ranks: %.0f ms, the limit is %d ms", sizes[k].count,
                      sizes[k].ranks, least_ms, (int)limits_ms[l]);
        }
    }
}
