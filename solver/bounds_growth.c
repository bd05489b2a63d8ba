// How fast packs can grow in the fill and shrink in the drain (bounds.h, sp_bound_growth_s).
#include <math.h>
#include <stdlib.h>

#include "sim/base/alloc.h"
#include "solver/bounds.h"

enum {
    WHOLE = 3,            // longest samples that the knapsacks take only whole
    SUBSETS = 1 << WHOLE, // of them
    SHARES = 4,           // cuts tried at equal shares of the forward work
    HALVINGS = 14,        // intervals of the idle budget at first
    DEPTH = 6,            // bisections of each
    MOST_PACKS = 4096     // counted
};

// Samples below this share of a rank's work gain little by being taken only whole.
#define LARGE 0.05

// Intervals whose least value is within this share of the best need no further bisection.
#define TOLERANCE 1e-3

typedef struct item {
    double size_s, value_s;
} item;

// Fill or drain. In the drain backward packs are counted from the end, and forward work is what may
// follow them.
typedef struct side {
    double hops, pack_s, p2p_s;
    double extra; // least-stage work to what the last stage takes more for the same packs
    item *items;  // [count], best value per size first; the longest samples apart
    size_t count;
    item of[SUBSETS]; // sums of the subsets of the longest samples
    int subsets;
} side;

// Where the fractional knapsack of each subset stands, for sizes that only grow.
typedef struct cursor {
    size_t next[SUBSETS];
    item taken[SUBSETS]; // whole items
} cursor;

static sp_status sides_init(const sp_bound_costs *costs, const sp_bound_batch *batch, side *fill,
                            side *drain, sp_error *err);
static sp_status least_shares(const sp_bound_costs *costs, const sp_bound_batch *batch,
                              double *forward_s, double *backward_s, sp_error *err);
static double growth_s(const sp_bound_costs *costs, const side *fill, const side *drain,
                       double forward_s, double backward_s);

sp_status sp_bound_growth_s(const sp_bound_costs *costs, const sp_bound_batch *batch,
                            double *bound_s, sp_error *err)
{
    *bound_s = sp_bound_simple_s(costs, batch);
    if (costs->stages == 1 || batch->count == 0) {
        return SP_OK;
    }
    side fill = {0};
    side drain = {0};
    double forward_s = 0.0;
    double backward_s = 0.0;
    sp_status status = sides_init(costs, batch, &fill, &drain, err);
    if (status == SP_OK) {
        status = least_shares(costs, batch, &forward_s, &backward_s, err);
    }
    if (status == SP_OK) {
        double lost_s = growth_s(costs, &fill, &drain, forward_s, backward_s);
        *bound_s = fmax(*bound_s, sp_bound_work_s(costs, batch) + lost_s);
    }
    sp_i_free(fill.items);
    sp_i_free(drain.items);
    return status;
}

// ---- knapsacks ----

static int by_size(const void *a, const void *b)
{
    const item *x = a;
    const item *y = b;
    return (x->size_s < y->size_s) - (x->size_s > y->size_s);
}

static int by_ratio(const void *a, const void *b)
{
    const item *x = a;
    const item *y = b;
    double left = x->value_s * y->size_s;
    double right = y->value_s * x->size_s;
    return (left < right) - (left > right);
}

// Merged ranks hold any part of a sample each: none is taken only whole.
static void side_sort(side *s, const sp_bound_batch *batch)
{
    double total_s = 0.0;
    for (size_t i = 0; i < s->count; i++) {
        total_s += s->items[i].size_s;
    }
    bool merged = batch->merged && batch->ranks > 1;
    size_t whole = 0;
    qsort(s->items, s->count, sizeof *s->items, by_size);
    while (!merged && whole < WHOLE && whole < s->count &&
           s->items[whole].size_s * batch->ranks > LARGE * total_s) {
        whole++;
    }
    s->subsets = 1 << whole;
    for (int subset = 0; subset < s->subsets; subset++) {
        s->of[subset] = (item){0};
        for (size_t i = 0; i < whole; i++) {
            if ((subset >> i & 1) != 0) {
                s->of[subset].size_s += s->items[i].size_s;
                s->of[subset].value_s += s->items[i].value_s;
            }
        }
    }
    s->count -= whole;
    for (size_t i = 0; i < s->count; i++) {
        s->items[i] = s->items[i + whole];
    }
    qsort(s->items, s->count, sizeof *s->items, by_ratio);
}

static sp_status sides_init(const sp_bound_costs *costs, const sp_bound_batch *batch, side *fill,
                            side *drain, sp_error *err)
{
    *fill = (side){.hops = costs->stages - 1,
                   .pack_s = costs->f_pack_s,
                   .p2p_s = costs->p2p_s,
                   .count = batch->count};
    *drain = *fill;
    drain->pack_s = costs->b_pack_s;
    fill->items = sp_i_calloc(batch->count, sizeof *fill->items);
    drain->items = sp_i_calloc(batch->count, sizeof *drain->items);
    if (fill->items == NULL || drain->items == NULL) {
        return sp_error_no_memory(err, "a lower bound");
    }
    for (size_t i = 0; i < batch->count; i++) {
        double n = (double)batch->tokens[i];
        double f_s = n * costs->f_token_s + n * n * costs->f_square_s;
        double b_s = n * costs->b_token_s + n * n * costs->b_square_s;
        double f_more_s = n * costs->f_last_token_s;
        double b_more_s = n * costs->b_last_token_s;
        fill->items[i] = (item){f_s, b_s + b_more_s};
        drain->items[i] = (item){b_s, f_s + f_more_s};
        fill->extra = f_s > 0.0 ? fmax(fill->extra, f_more_s / f_s) : fill->extra;
        drain->extra = b_s > 0.0 ? fmax(drain->extra, b_more_s / b_s) : drain->extra;
    }
    side_sort(fill, batch);
    side_sort(drain, batch);
    return SP_OK;
}

// Most value of the samples that fit `size_s`, which never falls from call to call.
static double most_value_s(const side *s, cursor *at, double size_s)
{
    double most_s = 0.0;
    for (int subset = 0; subset < s->subsets; subset++) {
        double room_s = size_s - s->of[subset].size_s;
        if (room_s < 0.0) {
            continue;
        }
        item *taken = &at->taken[subset];
        size_t *next = &at->next[subset];
        while (*next < s->count && taken->size_s + s->items[*next].size_s <= room_s) {
            taken->size_s += s->items[*next].size_s;
            taken->value_s += s->items[*next].value_s;
            ++*next;
        }
        double value_s = s->of[subset].value_s + taken->value_s;
        if (*next < s->count && s->items[*next].size_s > 0.0) {
            value_s += (room_s - taken->size_s) / s->items[*next].size_s * s->items[*next].value_s;
        }
        most_s = fmax(most_s, value_s);
    }
    return most_s;
}

// Most value of samples below `size_s`: a subset of just this size has not been reached.
static double most_value_below_s(const side *s, double size_s)
{
    side reached = *s;
    reached.subsets = 0;
    for (int subset = 0; subset < s->subsets; subset++) {
        if (subset == 0 || s->of[subset].size_s < size_s) {
            reached.of[reached.subsets++] = s->of[subset];
        }
    }
    cursor at = {0};
    return most_value_s(&reached, &at, size_s);
}

static int by_share(const void *a, const void *b)
{
    return -by_ratio(a, b);
}

// Least forward work, and least backward work, among choices of samples (in parts) that make up one
// rank's share of the last stage's work.
static sp_status least_shares(const sp_bound_costs *costs, const sp_bound_batch *batch,
                              double *forward_s, double *backward_s, sp_error *err)
{
    item *items = sp_i_calloc(batch->count, sizeof *items);
    if (items == NULL) {
        return sp_error_no_memory(err, "a lower bound");
    }
    double share_s = sp_bound_work_s(costs, batch);
    for (int backward = 0; backward < 2; backward++) {
        for (size_t i = 0; i < batch->count; i++) {
            double n = (double)batch->tokens[i];
            double f_s = n * costs->f_token_s + n * n * costs->f_square_s;
            double b_s = n * costs->b_token_s + n * n * costs->b_square_s;
            double work_s = f_s + b_s + n * (costs->f_last_token_s + costs->b_last_token_s);
            items[i] = (item){work_s, backward ? b_s : f_s};
        }
        qsort(items, batch->count, sizeof *items, by_share);
        double left_s = share_s;
        double part_s = 0.0;
        for (size_t i = 0; i < batch->count && left_s > 0.0; i++) {
            double share = items[i].size_s > 0.0 ? fmin(1.0, left_s / items[i].size_s) : 0.0;
            part_s += share * items[i].value_s;
            left_s -= share * items[i].size_s;
        }
        *(backward ? backward_s : forward_s) = part_s;
    }
    sp_i_free(items);
    return SP_OK;
}

// ---- growth ----

// Packs that cover `cover_s` of content at least, with an idle budget; counted up to `most`.
static double packs_needed(const side *s, double budget_s, double cover_s, double most)
{
    cursor at = {0};
    double covered_s = 0.0;
    double packs = 0.0;
    while (packs < 1.0 || covered_s < cover_s) {
        double enabled_s = most_value_s(s, &at, covered_s) + s->extra * covered_s;
        double pack_s = (budget_s + enabled_s) / s->hops - s->pack_s - s->p2p_s;
        if (packs >= most || (!(pack_s > 0.0) && packs > 0.0)) {
            return most;
        }
        covered_s += fmax(pack_s, 0.0);
        packs += 1.0;
    }
    return packs;
}

// An interval of the budget with the packs needed at its upper end, which no smaller budget needs
// fewer of.
typedef struct interval {
    double from_s, to_s;
    double packs;
} interval;

static double packs_worth_counting(const side *s, double from_s, double best_s)
{
    double most = s->pack_s > 0.0 ? ceil((best_s - from_s) / s->pack_s) + 1.0 : MOST_PACKS;
    return fmin(fmax(most, 1.0), MOST_PACKS);
}

// Least of budget + fixed cost of the packs needed over an interval, from below. *best_s is the
// least value found at any budget.
static double least_within_s(const side *s, double cover_s, interval all, double *best_s)
{
    interval left[DEPTH + 1];
    int count = 1;
    int depth[DEPTH + 1] = {0};
    double least_s = HUGE_VAL;
    left[0] = all;
    while (count > 0) {
        count--;
        interval now = left[count];
        int level = depth[count];
        double floor_s = now.from_s + s->pack_s * now.packs;
        if (level == DEPTH || floor_s >= *best_s * (1.0 - TOLERANCE)) {
            least_s = fmin(least_s, floor_s);
            continue;
        }
        double middle_s = 0.5 * (now.from_s + now.to_s);
        double most = packs_worth_counting(s, now.from_s, *best_s);
        double packs = packs_needed(s, middle_s, cover_s, most);
        *best_s = packs < most ? fmin(*best_s, middle_s + s->pack_s * packs) : *best_s;
        left[count] = (interval){middle_s, now.to_s, now.packs};
        depth[count++] = level + 1;
        left[count] = (interval){now.from_s, middle_s, packs};
        depth[count++] = level + 1;
    }
    return least_s;
}

// min over the budget I of I + pack_s * packs_needed(I).
static double least_loss_s(const side *s, double cover_s)
{
    double low_s = s->hops * (s->pack_s + s->p2p_s);
    double range_s = s->hops * cover_s;
    double best_s = low_s + range_s + s->pack_s;
    double least_s = best_s;
    double to_s = low_s + range_s;
    double packs = 1.0;
    for (int i = 1; i <= HALVINGS; i++) {
        double from_s = i == HALVINGS ? low_s : low_s + ldexp(range_s, -i);
        least_s =
            fmin(least_s, least_within_s(s, cover_s, (interval){from_s, to_s, packs}, &best_s));
        double most = packs_worth_counting(s, low_s, best_s);
        packs = packs_needed(s, from_s, cover_s, most);
        best_s = packs < most ? fmin(best_s, from_s + s->pack_s * packs) : best_s;
        to_s = from_s;
    }
    return least_s;
}

static double growth_s(const sp_bound_costs *costs, const side *fill, const side *drain,
                       double forward_s, double backward_s)
{
    if (costs->split) {
        return least_loss_s(fill, forward_s) + costs->b_pack_s;
    }
    double cuts[SHARES + SUBSETS];
    int count = 0;
    for (int i = 1; i <= SHARES; i++) {
        cuts[count++] = forward_s * i / SHARES;
    }
    for (int subset = 1; subset < fill->subsets; subset++) {
        if (fill->of[subset].size_s <= forward_s) {
            cuts[count++] = fill->of[subset].size_s;
        }
    }
    double most_s = 0.0;
    for (int i = 0; i < count; i++) {
        double done_s = most_value_below_s(fill, cuts[i]);
        double loss_s =
            least_loss_s(fill, cuts[i]) + least_loss_s(drain, fmax(0.0, backward_s - done_s));
        most_s = fmax(most_s, loss_s);
    }
    return most_s;
}
