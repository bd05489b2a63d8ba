// Bins of a regression tree against a search that tries every split of every part.
#include "sim/inference/speculation.h"

#include "tests/support/test_main.h"

enum { MOST = 120, ROUNDS = 60 };

// Twice over: the mean, then the squares. Exact for whole numbers of this size.
static double squared_error(const sp_sample *samples, size_t count)
{
    double sum = 0.0;
    double squares = 0.0;
    for (size_t i = 0; i < count; i++) {
        sum += samples[i].y;
    }
    for (size_t i = 0; i < count; i++) {
        double off = samples[i].y - sum / (double)count;
        squares += off * off;
    }
    return squares;
}

static double error_of_cut(const sp_sample *samples, size_t count, double border)
{
    sp_sample left[MOST];
    sp_sample right[MOST];
    size_t below = 0;
    size_t above = 0;
    for (size_t i = 0; i < count; i++) {
        if (samples[i].x <= border) {
            left[below++] = samples[i];
        } else {
            right[above++] = samples[i];
        }
    }
    return squared_error(left, below) + squared_error(right, above);
}

// The least error that one border leaves; negative where no border leaves `least` on both sides.
static double least_error(const sp_sample *samples, size_t count, size_t least)
{
    double best = -1.0;
    for (size_t b = 0; b < count; b++) {
        size_t below = 0;
        for (size_t i = 0; i < count; i++) {
            below += samples[i].x <= samples[b].x;
        }
        if (below >= least && count - below >= least) {
            double error = error_of_cut(samples, count, samples[b].x);
            best = best < 0.0 || error < best ? error : best;
        }
    }
    return best;
}

static size_t draw(sp_prng *prng, sp_sample *samples)
{
    size_t count = 1 + (size_t)prng_below(prng, MOST - 1);
    int values = 1 + prng_below(prng, 60);
    for (size_t i = 0; i < count; i++) {
        samples[i].x = prng_below(prng, values);
        samples[i].y = prng_below(prng, 9) + (samples[i].x > values / 2.0 ? 12 : 0);
    }
    return count;
}

// Squared error about the means of the bins.
static double error_of_bins(const sp_sample *samples, size_t count, const sp_bins *bins)
{
    double error = 0.0;
    for (int b = 0; b < bins->count; b++) {
        sp_sample held[MOST];
        size_t n = 0;
        for (size_t i = 0; i < count; i++) {
            if (sp_bin_of(bins, samples[i].x) == b) {
                held[n++] = samples[i];
            }
        }
        error += n > 0 ? squared_error(held, n) : 0.0;
    }
    return error;
}

// Depth by depth, each part by the border of the least error: an own tree, recursive by copies.
static double greedy_error(const sp_sample *samples, size_t count, size_t least, int depth)
{
    double best = depth > 0 ? least_error(samples, count, least) : -1.0;
    if (best < 0.0) {
        return squared_error(samples, count);
    }
    double border = (double)INFINITY; // the first of equal ones
    for (size_t b = 0; b < count; b++) {
        size_t below = 0;
        for (size_t i = 0; i < count; i++) {
            below += samples[i].x <= samples[b].x;
        }
        bool allowed = below >= least && count - below >= least;
        if (allowed && samples[b].x < border &&
            error_of_cut(samples, count, samples[b].x) <= best + 1e-9) {
            border = samples[b].x;
        }
    }
    sp_sample part[2][MOST];
    size_t n[2] = {0, 0};
    for (size_t i = 0; i < count; i++) {
        int side = samples[i].x > border;
        part[side][n[side]++] = samples[i];
    }
    return greedy_error(part[0], n[0], least, depth - 1) +
           greedy_error(part[1], n[1], least, depth - 1);
}

TEST_ROUNDS(all_cuts_leave_the_error_of_a_greedy_search, 6, ROUNDS)
{
    sp_sample samples[MOST];
    sp_bins bins;
    size_t least = 1 + (size_t)prng_below(prng, 5);
    size_t count = draw(prng, samples);
    sp_bins_fit(samples, count, least, &bins);
    assert_within(error_of_bins(samples, count, &bins), greedy_error(samples, count, least, 3),
                  1e-6);
}

TEST_ROUNDS(bins_hold_enough_and_ascend, 7, ROUNDS)
{
    sp_sample samples[MOST];
    sp_bins bins;
    size_t held[SP_BINS] = {0};
    size_t least = 1 + (size_t)prng_below(prng, 9);
    size_t count = draw(prng, samples);
    sp_bins_fit(samples, count, least, &bins);
    assert_true(bins.count >= 1 && bins.count <= SP_BINS);
    for (size_t i = 0; i < count; i++) {
        held[sp_bin_of(&bins, samples[i].x)]++;
    }
    for (int b = 0; b < bins.count; b++) {
        assert_true(bins.count == 1 || held[b] >= least);
        assert_true(b == 0 || b == bins.count - 1 || bins.above[b] > bins.above[b - 1]);
    }
}

// Eight steps of one height each are found again.
TEST(steps_are_found)
{
    sp_sample samples[80];
    sp_bins bins;
    for (int i = 0; i < 80; i++) {
        samples[i] = (sp_sample){.x = 79 - i, .y = (79 - i) / 10};
    }
    sp_bins_fit(samples, 80, 1, &bins);
    assert_int_equal(bins.count, 8);
    for (int b = 0; b < 7; b++) {
        assert_within(bins.above[b], 10.0 * b + 9.0, 0.0);
    }
    assert_int_equal(sp_bin_of(&bins, 19.0), 1);
    assert_int_equal(sp_bin_of(&bins, 19.5), 2);
    assert_int_equal(sp_bin_of(&bins, 1e9), 7);
}

TEST(nothing_to_cut)
{
    sp_bins bins;
    sp_sample same[3] = {{1.0, 2.0}, {1.0, 3.0}, {1.0, 4.0}};
    sp_bins_fit(same, 3, 1, &bins);
    assert_int_equal(bins.count, 1);
    sp_bins_fit(NULL, 0, 1, &bins);
    assert_int_equal(bins.count, 1);
    assert_int_equal(sp_bin_of(&bins, 5.0), 0);
}
