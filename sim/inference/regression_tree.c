#include "sim/inference/regression_tree.h"

#include <math.h>
#include <stdlib.h>

#include "sim/base/alloc.h"

enum { DEPTH = 3 };

// Sums over the first i samples.
typedef struct sums {
    double *y, *squares; // [count + 1]; squares follows y in one block, which y owns
} sums;

static void cut(const sp_sample *samples, const sums *s, size_t first, size_t end, size_t least,
                int depth, sp_bins *bins);

// By x, and by y where x is equal: the sums do not depend on how the sort treats equal ones.
static int by_x(const void *left, const void *right)
{
    const sp_sample *a = left;
    const sp_sample *b = right;
    int x = (a->x > b->x) - (a->x < b->x);
    return x != 0 ? x : (a->y > b->y) - (a->y < b->y);
}

sp_status sp_bins_fit(sp_sample *samples, size_t count, size_t least, sp_bins *bins, sp_error *err)
{
    *bins = (sp_bins){.count = 1};
    sums s = {.y = sp_calloc(2 * (count + 1), sizeof *s.y)};
    (void)err;
    s.squares = s.y + count + 1;
    if (count > 0) {
        qsort(samples, count, sizeof *samples, by_x);
    }
    for (size_t i = 0; i < count; i++) {
        s.y[i + 1] = s.y[i] + samples[i].y;
        s.squares[i + 1] = s.squares[i] + samples[i].y * samples[i].y;
    }
    cut(samples, &s, 0, count, least > 0 ? least : 1, DEPTH, bins);
    sp_free(s.y);
    return SP_OK;
}

// Squared errors of [first, end) about their mean.
static double squared_error(const sums *s, size_t first, size_t end)
{
    double y = s->y[end] - s->y[first];
    return s->squares[end] - s->squares[first] - y * y / (double)(end - first);
}

// The first sample of the right side; `end` where there is no place for a cut.
static size_t best_cut(const sp_sample *samples, const sums *s, size_t first, size_t end,
                       size_t least)
{
    size_t best = end;
    double best_error = (double)INFINITY;
    for (size_t i = first + least; i + least <= end; i++) {
        double error = squared_error(s, first, i) + squared_error(s, i, end);
        if (samples[i - 1].x < samples[i].x && error < best_error) {
            best = i;
            best_error = error;
        }
    }
    return best;
}

// Left part, border, right part: the borders come out ascending.
static void cut(const sp_sample *samples, const sums *s, size_t first, size_t end, size_t least,
                int depth, sp_bins *bins)
{
    size_t at = depth > 0 ? best_cut(samples, s, first, end, least) : end;
    if (at == end) {
        return;
    }
    cut(samples, s, first, at, least, depth - 1, bins);
    bins->above[bins->count++ - 1] = samples[at - 1].x;
    cut(samples, s, at, end, least, depth - 1, bins);
}

int sp_bin_of(const sp_bins *bins, double x)
{
    int bin = 0;
    while (bin < bins->count - 1 && x > bins->above[bin]) {
        bin++;
    }
    return bin;
}
