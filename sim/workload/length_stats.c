#include "sim/workload/lengths.h"

#include <math.h>

#include "sim/base/prng.h"

const char *const sp_length_quantile_names[SP_LENGTH_QUANTILES] = {
    "p1", "p5", "p10", "p25", "p50", "p75", "p90", "p95", "p99", "p99.9",
};

// The quantiles in thousandths: ranks are exact then.
static const int64_t thousandths[SP_LENGTH_QUANTILES] = {10,  50,  100, 250, 500,
                                                         750, 900, 950, 990, 999};

enum { FIRST_BIN_TOKENS = 128 };

// A sum of squares without rounding, so that it does not depend on the order of the list.
typedef struct exact_sum {
    uint64_t high;
    uint64_t low;
} exact_sum;

static void add_square(exact_sum *sum, int64_t value)
{
    uint64_t square = (uint64_t)(value * value);
    sum->low += square;
    sum->high += sum->low < square;
}

static double exact_value(const exact_sum *sum)
{
    return (double)sum->high * 0x1p64 + (double)sum->low;
}

static void sum_up(const sp_lengths *lengths, sp_length_stats *stats)
{
    exact_sum squares = {0};
    exact_sum bin_squares[SP_LENGTH_BINS] = {0};
    stats->count = (int64_t)lengths->count;
    stats->min = stats->max = lengths->tokens[0];
    for (size_t i = 0; i < lengths->count; i++) {
        int64_t tokens = lengths->tokens[i];
        stats->min = tokens < stats->min ? tokens : stats->min;
        stats->max = tokens > stats->max ? tokens : stats->max;
        stats->tokens += tokens;
        add_square(&squares, tokens);
        int bin = 0;
        while (stats->bins[bin].upto < tokens) {
            bin++;
        }
        stats->bins[bin].samples++;
        stats->bins[bin].tokens += tokens;
        add_square(&bin_squares[bin], tokens);
    }
    for (int i = 0; i < SP_LENGTH_BINS; i++) {
        stats->bins[i].sum_squares = exact_value(&bin_squares[i]);
        if (stats->bins[i].samples > 0) {
            stats->bin_count = i + 1;
        }
    }
    stats->mean = (double)stats->tokens / (double)stats->count;
    stats->sum_squares = exact_value(&squares);
    stats->token_weighted_mean = stats->sum_squares / (double)stats->tokens;
}

static double standard_deviation(const sp_lengths *lengths, double mean)
{
    // Squares are summed around the integer next to the mean: there sum s^2 / n - mean^2 would
    // cancel, here it hardly does.
    int64_t centre = llround(mean);
    exact_sum squares = {0};
    for (size_t i = 0; i < lengths->count; i++) {
        add_square(&squares, lengths->tokens[i] - centre);
    }
    double offset = mean - (double)centre;
    double variance = exact_value(&squares) / (double)lengths->count - offset * offset;
    return variance > 0 ? sqrt(variance) : 0;
}

// Puts what is below the pivot first, what is above it last; [*equal, *above) equals it.
static void partition(int64_t *values, size_t begin, size_t end, int64_t pivot, size_t *equal,
                      size_t *above)
{
    size_t i = begin;
    *equal = begin;
    *above = end;
    while (i < *above) {
        int64_t value = values[i];
        if (value < pivot) {
            values[i++] = values[*equal];
            values[(*equal)++] = value;
        } else if (value > pivot) {
            values[i] = values[--(*above)];
            values[*above] = value;
        } else {
            i++;
        }
    }
}

// Quickselect (Hoare 1961) for several ascending ranks at once, all inside [begin, end). The pivots
// are drawn, so that no list is slow but by bad luck.
static void select_ranks(int64_t *values, size_t begin, size_t end, const size_t *ranks, int count,
                         int64_t *selected, sp_prng *prng)
{
    while (count > 0) {
        size_t equal = 0;
        size_t above = 0;
        int64_t pivot = values[begin + (size_t)sp_prng_below(prng, end - begin)];
        partition(values, begin, end, pivot, &equal, &above);
        int low = 0;
        while (low < count && ranks[low] < equal) {
            low++;
        }
        int high = low;
        while (high < count && ranks[high] < above) {
            selected[high++] = pivot;
        }
        // The nested call takes the side with fewer ranks, at most half of them.
        if (low < count - high) {
            select_ranks(values, begin, equal, ranks, low, selected, prng);
            begin = above;
            ranks += high;
            selected += high;
            count -= high;
        } else {
            select_ranks(values, above, end, ranks + high, count - high, selected + high, prng);
            end = equal;
            count = low;
        }
    }
}

sp_status sp_length_stats_compute(sp_lengths *lengths, const char *source, sp_length_stats *stats,
                                  sp_error *err)
{
    *stats = (sp_length_stats){0};
    if (lengths->count == 0) {
        return sp_error_set(err, SP_ERR_CONTENT, "%s: holds no lengths", source);
    }
    for (int i = 0; i < SP_LENGTH_BINS; i++) {
        stats->bins[i].upto = (int64_t)FIRST_BIN_TOKENS << i;
    }
    sum_up(lengths, stats);
    stats->stddev = standard_deviation(lengths, stats->mean);

    size_t ranks[SP_LENGTH_QUANTILES];
    for (int i = 0; i < SP_LENGTH_QUANTILES; i++) {
        ranks[i] = (size_t)((stats->count * thousandths[i] + 999) / 1000) - 1;
    }
    sp_prng prng;
    sp_prng_seed(&prng, 0);
    select_ranks(lengths->tokens, 0, lengths->count, ranks, SP_LENGTH_QUANTILES, stats->quantiles,
                 &prng);
    return SP_OK;
}
