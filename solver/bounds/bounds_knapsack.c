// How much work is enabled by other work, at most.
#include <math.h>
#include <stdlib.h>

#include "solver/bounds/bounds_private.h"

// Samples below this share of a rank's work gain little by being taken only whole.
#define LARGE 0.05

static void tabulate(sp_i_knapsack *k, const sp_i_item *items, size_t count, double most_s);

static int by_size(const void *a, const void *b)
{
    const sp_i_item *x = a;
    const sp_i_item *y = b;
    return (x->size_s < y->size_s) - (x->size_s > y->size_s);
}

static int by_ratio(const void *a, const void *b)
{
    const sp_i_item *x = a;
    const sp_i_item *y = b;
    double left = x->value_s * y->size_s;
    double right = y->value_s * x->size_s;
    return (left < right) - (left > right);
}

void sp_i_knapsack_init(sp_i_knapsack *k, sp_i_item *items, size_t count,
                        const sp_bound_batch *batch, double most_s)
{
    double total_s = 0.0;
    for (size_t i = 0; i < count; i++) {
        total_s += items[i].size_s;
    }
    bool merged = batch->merged && batch->ranks > 1;
    size_t whole = 0;
    qsort(items, count, sizeof *items, by_size);
    while (!merged && whole < SP_I_WHOLE && whole < count &&
           items[whole].size_s * batch->ranks > LARGE * total_s) {
        whole++;
    }
    k->subsets = 1 << whole;
    for (int subset = 0; subset < k->subsets; subset++) {
        k->of[subset] = (sp_i_item){0};
        for (size_t i = 0; i < whole; i++) {
            if ((subset >> i & 1) != 0) {
                k->of[subset].size_s += items[i].size_s;
                k->of[subset].value_s += items[i].value_s;
            }
        }
    }
    qsort(items + whole, count - whole, sizeof *items, by_ratio);
    tabulate(k, items + whole, count - whole, most_s);
}

// The best value per size goes first, so the slope falls from item to item.
static void tabulate(sp_i_knapsack *k, const sp_i_item *items, size_t count, double most_s)
{
    sp_i_item taken = {0};
    size_t next = 0;
    k->cell_s = most_s / SP_I_CELLS;
    for (int cell = 0; cell < SP_I_CELLS; cell++) {
        double room_s = k->cell_s * cell;
        while (next < count && taken.size_s + items[next].size_s <= room_s) {
            taken.size_s += items[next].size_s;
            taken.value_s += items[next].value_s;
            next++;
        }
        k->slope[cell] = next < count ? items[next].value_s / items[next].size_s : 0.0;
        k->value_s[cell] = taken.value_s + (room_s - taken.size_s) * k->slope[cell];
    }
}

static double others_s(const sp_i_knapsack *k, double room_s)
{
    int cell = k->cell_s > 0.0 ? (int)fmin(room_s / k->cell_s, SP_I_CELLS - 1) : 0;
    return k->value_s[cell] + (room_s - k->cell_s * cell) * k->slope[cell];
}

double sp_i_knapsack_most_s(const sp_i_knapsack *k, double size_s)
{
    double most_s = 0.0;
    for (int subset = 0; subset < k->subsets; subset++) {
        double room_s = size_s - k->of[subset].size_s;
        if (room_s >= 0.0) {
            most_s = fmax(most_s, k->of[subset].value_s + others_s(k, room_s));
        }
    }
    return most_s;
}

double sp_i_knapsack_below_s(const sp_i_knapsack *k, double size_s)
{
    double most_s = 0.0;
    for (int subset = 0; subset < k->subsets; subset++) {
        double room_s = size_s - k->of[subset].size_s;
        if (room_s > 0.0 || subset == 0) {
            most_s = fmax(most_s, k->of[subset].value_s + others_s(k, room_s));
        }
    }
    return most_s;
}
