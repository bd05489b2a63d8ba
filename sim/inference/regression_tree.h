// A regression tree of one feature (CART: Breiman and others, "Classification and Regression
// Trees", 1984), whose leaves are bins of that feature.
#ifndef SLIMPACK_SIM_INFERENCE_REGRESSION_TREE_H
#define SLIMPACK_SIM_INFERENCE_REGRESSION_TREE_H

#include <stddef.h>

#include "sim/base/status.h"

enum { SP_BINS = 8 }; // leaves of a tree of depth 3

typedef struct sp_sample {
    double x, y;
} sp_sample;

typedef struct sp_bins {
    int count;                 // at most SP_BINS, fewer where x takes fewer values
    double above[SP_BINS - 1]; // [count - 1], ascending: bin b holds x in (above[b-1], above[b]]
} sp_bins;

// Depth 3: each part is cut in two three times, between two neighbouring values of x, where the
// squared errors of y about the means of both sides add up to least (the first such place of equal
// ones). A side keeps at least `least` samples; a part without such a place stays whole. `samples`
// are put in the order of x. O(n log n). Always SP_OK.
sp_status sp_bins_fit(sp_sample *samples, size_t count, size_t least, sp_bins *bins, sp_error *err);

// The bin of x, from 0. O(bins).
int sp_bin_of(const sp_bins *bins, double x);

#endif
