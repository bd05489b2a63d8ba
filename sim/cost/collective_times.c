#include "sim/cost/collective_times.h"

#include <math.h>

#include "sim/cost/curve.h"
#include "sim/cost/time_common.h"

// The tables of a kind whose group sizes are nearest to `ranks`: at most as large and at least as
// large, NULL where there is none.
typedef struct neighbours {
    const sp_collective_table *below, *above;
} neighbours;

static neighbours neighbours_of(const sp_profile *profile, sp_collective kind, int ranks)
{
    neighbours found = {0};
    for (int i = 0; i < profile->collective_tables; i++) {
        const sp_collective_table *table = &profile->collective_times[i];
        if (table->kind != kind) {
            continue;
        }
        if (table->ranks <= ranks && (found.below == NULL || table->ranks > found.below->ranks)) {
            found.below = table;
        }
        if (table->ranks >= ranks && (found.above == NULL || table->ranks < found.above->ranks)) {
            found.above = table;
        }
    }
    return found;
}

static double from_others(int ranks)
{
    return (double)(ranks - 1) / ranks;
}

// Of what two tables give, or one.
static double between(const neighbours *n, int ranks, double below, double above)
{
    if (n->above == NULL) {
        return below * from_others(ranks) / from_others(n->below->ranks);
    }
    if (n->below == NULL) {
        return above * from_others(ranks) / from_others(n->above->ranks);
    }
    if (n->below == n->above) {
        return below;
    }
    double share =
        log2((double)ranks / n->below->ranks) / log2((double)n->above->ranks / n->below->ranks);
    return below + share * (above - below);
}

static double table_s(const sp_op_timer *timer, const sp_collective_table *table, double bytes)
{
    if (table == NULL) {
        return 0.0;
    }
    double first = sp_i_curve_first(&table->time_s);
    double last = sp_i_curve_last(&table->time_s);
    sp_i_note_range(timer, SP_RANGE_COLLECTIVE, bytes, first, last);
    return sp_i_curve_hold(&table->time_s, bytes) * fmax(1.0, bytes / last);
}

static double least_s_per_byte(const sp_collective_table *table)
{
    const sp_curve *curve = table != NULL ? &table->time_s : NULL;
    double least = curve != NULL ? curve->y[0] / curve->x[0] : 0.0;
    for (int i = 1; curve != NULL && i < curve->points; i++) {
        least = fmin(least, curve->y[i] / curve->x[i]);
    }
    return least;
}

bool sp_i_has_collective_times(const sp_op_timer *timer, sp_collective kind)
{
    neighbours n = neighbours_of(timer->profile, kind, 2);
    return n.above != NULL;
}

double sp_i_collective_times(const sp_op_timer *timer, sp_collective kind, int ranks, double bytes)
{
    neighbours n = neighbours_of(timer->profile, kind, ranks);
    return between(&n, ranks, table_s(timer, n.below, bytes), table_s(timer, n.above, bytes));
}

double sp_i_collective_times_least(const sp_op_timer *timer, sp_collective kind, int ranks)
{
    neighbours n = neighbours_of(timer->profile, kind, ranks);
    return between(&n, ranks, least_s_per_byte(n.below), least_s_per_byte(n.above));
}
