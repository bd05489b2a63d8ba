// Parts of the growth bound (bounds.h, sp_bound_growth_s). Shared inside solver/bounds*.c.
#ifndef SLIMPACK_SOLVER_BOUNDS_BOUNDS_PRIVATE_H
#define SLIMPACK_SOLVER_BOUNDS_BOUNDS_PRIVATE_H

#include "solver/bounds/bounds.h"

enum {
    SP_I_WHOLE = 3,                  // longest samples that the knapsack takes only whole
    SP_I_SUBSETS = 1 << SP_I_WHOLE,  // of them
    SP_I_CELLS = 256,                // of the table of the other samples' value
    SP_I_BANDS = SP_BOUND_SIZES + 1, // the last one without end
};

typedef struct sp_i_item {
    double size_s, value_s;
} sp_i_item;

// Most value of samples of limited size. The value of all but the longest samples, which may be
// taken in part, is a concave function; the table has tangents of it.
typedef struct sp_i_knapsack {
    sp_i_item of[SP_I_SUBSETS]; // sums of the subsets of the longest samples
    int subsets;
    double cell_s;
    double value_s[SP_I_CELLS], slope[SP_I_CELLS]; // at the lower end of each cell
} sp_i_knapsack;

// items [count] are reordered. Merged ranks hold any part of a sample each: none is taken only
// whole. Sizes asked for later are at most `most_s`. O(items log items + subsets).
void sp_i_knapsack_init(sp_i_knapsack *k, sp_i_item *items, size_t count,
                        const sp_bound_batch *batch, double most_s);
double sp_i_knapsack_most_s(const sp_i_knapsack *k, double size_s);

// Fixed cost at least, of packs whose content is in (edge of the band before, edge].
typedef struct sp_i_bands {
    double edge_s[SP_I_BANDS], least_s[SP_I_BANDS];
    int count;
} sp_i_bands;

// Fill or drain. In the drain backward packs are counted from the end, and forward packs are what
// may follow them.
typedef struct sp_i_side {
    double hops, p2p_s;
    double extra; // least-stage work to what the last stage takes more for the same packs
    sp_i_bands own, other;
    sp_i_knapsack enabled;
    int group; // own packs fed at once after each counted pack of the other pass
} sp_i_side;

// E of bounds.h: least fixed cost of packs of both passes by which own content reaches cover_s[j],
// with idle time `idle_s`, for each of the ascending covers; limit_s where it is not below it.
// Returns the number of own packs looked at. From `most_steps` on it gives up, and the costs mean
// nothing.
long sp_i_epochs_least_s(const sp_i_side *side, double idle_s, const double *cover_s, int covers,
                         double limit_s, long most_steps, double *cost_s);

#endif
