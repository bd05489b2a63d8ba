// Length statistics against a plain sort and long double sums.
#include "sim/base/order.h"
#include "sim/workload/lengths.h"
#include "tests/support/test_main.h"

// Smallest length that at least `thousandths` of a thousand samples do not exceed.
static int64_t nearest_rank(const int64_t *sorted, int64_t n, int64_t thousandths)
{
    int64_t upto = 0;
    while ((upto + 1) * 1000 < thousandths * n) {
        upto++;
    }
    return sorted[upto];
}

static void check(int64_t *tokens, size_t n)
{
    static const int64_t thousandths[SP_LENGTH_QUANTILES] = {10,  50,  100, 250, 500,
                                                             750, 900, 950, 990, 999};
    AUTO_FREE int64_t *sorted = sp_malloc(n * sizeof *sorted);
    memcpy(sorted, tokens, n * sizeof *sorted);
    qsort(sorted, n, sizeof *sorted, sp_ascending_int64s);
    sp_lengths lengths = {.tokens = tokens, .count = n, .capacity = n};
    sp_length_stats stats;
    assert_int_equal(sp_length_stats_compute(&lengths, "list", &stats, NULL), SP_OK);

    long double sum = 0;
    long double squares = 0;
    for (size_t i = 0; i < n; i++) {
        sum += sorted[i];
        squares += (long double)sorted[i] * sorted[i];
    }
    long double mean = sum / n;
    long double spread = 0;
    for (size_t i = 0; i < n; i++) {
        spread += (sorted[i] - mean) * (sorted[i] - mean);
    }
    assert_int_equal(stats.count, n);
    assert_int_equal(stats.tokens, (int64_t)sum);
    assert_int_equal(stats.min, sorted[0]);
    assert_int_equal(stats.max, sorted[n - 1]);
    assert_near(stats.mean, (double)mean, 1e-15, 1e-12);
    assert_near(stats.sum_squares, (double)squares, 1e-15, 1e-12);
    assert_near(stats.token_weighted_mean, (double)(squares / sum), 1e-15, 1e-12);
    assert_near(stats.stddev, (double)sqrtl(spread / n), 1e-9, 1e-12);
    for (int i = 0; i < SP_LENGTH_QUANTILES; i++) {
        assert_int_equal(stats.quantiles[i], nearest_rank(sorted, (int64_t)n, thousandths[i]));
    }
    size_t at = 0;
    for (int i = 0; i < SP_LENGTH_BINS; i++) {
        int64_t upto = INT64_C(128) << i;
        int64_t samples = 0, bin_tokens = 0;
        long double bin_squares = 0;
        for (; at < n && sorted[at] <= upto; at++) {
            samples++;
            bin_tokens += sorted[at];
            bin_squares += (long double)sorted[at] * sorted[at];
        }
        assert_int_equal(stats.bins[i].upto, upto);
        assert_int_equal(stats.bins[i].samples, samples);
        assert_int_equal(stats.bins[i].tokens, bin_tokens);
        assert_near(stats.bins[i].sum_squares, (double)bin_squares, 1e-15, 1e-12);
        assert_true(samples == 0 || i < stats.bin_count);
    }
    assert_true(stats.bins[stats.bin_count - 1].samples > 0);

    // Reordered, not changed.
    qsort(tokens, n, sizeof *tokens, sp_ascending_int64s);
    assert_memory_equal(tokens, sorted, n * sizeof *tokens);
}

TEST_ROUNDS(random_lists_agree_with_a_sort, 1, 400)
{
    enum { MOST = 3000 };
    static int64_t tokens[MOST];
    // Small ones often: ranks coincide there.
    size_t n = 1 + (size_t)sp_prng_below(prng, round % 2 == 0 ? 12 : MOST);
    uint64_t range = UINT64_C(1) << sp_prng_below(prng, 32);
    for (size_t i = 0; i < n; i++) {
        tokens[i] = 1 + (int64_t)sp_prng_below(prng, range < 2147483647 ? range : 2147483647);
    }
    check(tokens, n);
}

TEST(ordered_and_equal_lists)
{
    enum { COUNT = 20000 };
    static int64_t tokens[COUNT];
    for (int shape = 0; shape < 4; shape++) {
        for (int i = 0; i < COUNT; i++) {
            const int64_t values[] = {i + 1, COUNT - i, 2147483647, 1 + i % 3};
            tokens[i] = values[shape];
        }
        check(tokens, COUNT);
    }
}

TEST(equal_lengths_have_no_spread)
{
    int64_t tokens[1000];
    for (int i = 0; i < 1000; i++) {
        tokens[i] = 2147483629;
    }
    sp_lengths lengths = {.tokens = tokens, .count = 1000, .capacity = 1000};
    sp_length_stats stats;
    assert_int_equal(sp_length_stats_compute(&lengths, "list", &stats, NULL), SP_OK);
    assert_true(stats.stddev <= 0);
}

// Worked by hand: 1, 2, 3, 4 has the population variance 5/4.
TEST(small_list_by_hand)
{
    int64_t tokens[] = {4, 1, 3, 2};
    sp_lengths lengths = {.tokens = tokens, .count = 4, .capacity = 4};
    sp_length_stats stats;
    assert_int_equal(sp_length_stats_compute(&lengths, "list", &stats, NULL), SP_OK);
    assert_near(stats.stddev, (double)sqrtl(1.25L), 1e-15, 1e-12);
    assert_near(stats.token_weighted_mean, (double)3, 1e-15, 1e-12);
    assert_int_equal(stats.quantiles[3], 1); // p25
    assert_int_equal(stats.quantiles[4], 2); // p50
    assert_int_equal(stats.quantiles[5], 3); // p75
    assert_int_equal(stats.quantiles[6], 4); // p90
    assert_int_equal(stats.bin_count, 1);
    assert_string_equal(sp_length_quantile_names[9], "p99.9");
}

TEST(bins_are_closed_above)
{
    int64_t tokens[] = {128, 129, 256, 257, 2147483647};
    check(tokens, 5);
}

TEST(results_do_not_depend_on_the_order)
{
    enum { COUNT = 5000 };
    static int64_t tokens[COUNT];
    sp_length_stats first;
    sp_prng prng = prng_seeded(9);
    for (int i = 0; i < COUNT; i++) {
        tokens[i] = 1 + (int64_t)sp_prng_below(&prng, 2147483647);
    }
    sp_lengths lengths = {.tokens = tokens, .count = COUNT, .capacity = COUNT};
    assert_int_equal(sp_length_stats_compute(&lengths, "list", &first, NULL), SP_OK);
    for (int round = 0; round < 5; round++) {
        sp_length_stats again;
        for (size_t last = COUNT - 1; last > 0; last--) {
            size_t other = (size_t)sp_prng_below(&prng, last + 1);
            int64_t swap = tokens[last];
            tokens[last] = tokens[other];
            tokens[other] = swap;
        }
        assert_int_equal(sp_length_stats_compute(&lengths, "list", &again, NULL), SP_OK);
        assert_memory_equal(&again.mean, &first.mean, sizeof first.mean);
        assert_memory_equal(&again.stddev, &first.stddev, sizeof first.stddev);
        assert_memory_equal(&again.sum_squares, &first.sum_squares, sizeof first.sum_squares);
        assert_memory_equal(again.quantiles, first.quantiles, sizeof first.quantiles);
    }
}

TEST(empty_list_is_refused)
{
    sp_lengths lengths = {0};
    sp_length_stats stats;
    must_fail(sp_length_stats_compute(&lengths, "list", &stats, ERR), SP_ERR_CONTENT,
              "list: holds no lengths");
}
