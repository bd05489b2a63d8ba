// Bounds in closed form.
#include "solver/bounds/bounds.h"

#include <limits.h>
#include <math.h>
#include <stdlib.h>

#include "sim/base/alloc.h"
#include "sim/base/order.h"

// Work of one sample on the cheapest stage.
typedef struct sample {
    double forward_s, backward_s, input_s;
    double tokens;
} sample;

// Sums over a batch that the chain of one sample is seen against.
typedef struct sums {
    double work_s;
    double least_s; // of min(forward, input gradient)
    double ratio;   // the most of a sample's work over its min(forward, input gradient)
} sums;

typedef double (*chain)(const sp_bound_costs *costs, const sample *s);

static sample sample_of(const sp_bound_costs *costs, int64_t tokens);
static double best_chain_s(const sp_bound_costs *costs, const sp_bound_batch *batch, chain alone_s);
static double cut_chain_s(const sp_bound_costs *costs, const sample *s);
static double whole_chain_s(const sp_bound_costs *costs, const sample *s);

double sp_bound_work_s(const sp_bound_costs *costs, const sp_bound_batch *batch)
{
    double work_s = 0.0;
    for (size_t i = 0; i < batch->count; i++) {
        sample s = sample_of(costs, batch->tokens[i]);
        work_s +=
            s.forward_s + s.backward_s + s.tokens * (costs->f_last_token_s + costs->b_last_token_s);
    }
    return work_s / batch->ranks;
}

double sp_bound_simple_s(const sp_bound_costs *costs, const sp_bound_batch *batch)
{
    if (batch->count == 0) {
        return 0.0;
    }
    double hops = costs->stages - 1;
    double bound_s = sp_bound_work_s(costs, batch) + costs->f_pack_s + costs->b_pack_s +
                     hops * (costs->f_pack_s + costs->p2p_s);
    bound_s += costs->split ? 0.0 : hops * (costs->b_pack_s + costs->p2p_s);
    if (!batch->merged) {
        // A token of its own: the first of a sample, the last of one backward.
        bound_s += hops * (costs->f_token_s + costs->f_square_s);
        bound_s += costs->split ? 0.0 : hops * (costs->b_token_s + costs->b_square_s);
    }
    return bound_s;
}

double sp_bound_flow_shop_s(const sp_bound_costs *costs, const sp_bound_batch *batch)
{
    return best_chain_s(costs, batch, cut_chain_s);
}

double sp_bound_whole_s(const sp_bound_costs *costs, const sp_bound_batch *batch)
{
    return best_chain_s(costs, batch, whole_chain_s);
}

static sample sample_of(const sp_bound_costs *costs, int64_t tokens)
{
    double n = (double)tokens;
    return (sample){.forward_s = n * costs->f_token_s + n * n * costs->f_square_s,
                    .backward_s = n * costs->b_token_s + n * n * costs->b_square_s,
                    .input_s = n * costs->i_token_s + n * n * costs->i_square_s,
                    .tokens = n};
}

static sums sums_of(const sp_bound_costs *costs, const sp_bound_batch *batch)
{
    sums all = {.ratio = 1.0};
    for (size_t i = 0; i < batch->count; i++) {
        sample s = sample_of(costs, batch->tokens[i]);
        double least_s = fmin(s.forward_s, s.input_s);
        all.work_s += s.forward_s + s.backward_s;
        all.least_s += least_s;
        all.ratio =
            least_s > 0.0 ? fmax(all.ratio, (s.forward_s + s.backward_s) / least_s) : all.ratio;
    }
    return all;
}

static double best_chain_s(const sp_bound_costs *costs, const sp_bound_batch *batch, chain alone_s)
{
    if (batch->merged && batch->ranks > 1) {
        return 0.0;
    }
    sums all = sums_of(costs, batch);
    double others = batch->ranks - 1;
    double best_s = 0.0;
    for (size_t i = 0; i < batch->count; i++) {
        sample s = sample_of(costs, batch->tokens[i]);
        double chain_s = alone_s(costs, &s);
        double work_s = all.work_s - s.forward_s - s.backward_s;
        double bound_s = batch->ranks == 1 ? chain_s + all.least_s - fmin(s.forward_s, s.input_s)
                                           : (work_s + all.ratio * chain_s) / (others + all.ratio);
        best_s = fmax(best_s, fmax(chain_s, bound_s));
    }
    return best_s;
}

// Least of pack_s * m + hops * work_s / m over 1 <= m <= most; convex in m.
static double cut_s(double pack_s, double hops, double work_s, double most)
{
    double best = pack_s > 0.0 ? sqrt(hops * work_s / pack_s) : most;
    double low = fmin(fmax(floor(best), 1.0), most);
    double high = fmin(low + 1.0, most);
    return fmin(pack_s * low + hops * work_s / low, pack_s * high + hops * work_s / high);
}

static double cut_chain_s(const sp_bound_costs *costs, const sample *s)
{
    if (!(s->tokens >= 1.0)) {
        return 0.0;
    }
    double hops = costs->stages - 1;
    return s->forward_s + s->input_s + cut_s(costs->f_pack_s, hops, s->forward_s, s->tokens) +
           cut_s(costs->i_pack_s, hops, s->input_s, s->tokens) +
           hops * (costs->f_pack_s + costs->i_pack_s + 2.0 * costs->p2p_s);
}

static double whole_chain_s(const sp_bound_costs *costs, const sample *s)
{
    if (!(s->tokens >= 1.0)) {
        return 0.0;
    }
    double stages = costs->stages;
    double weights_s = s->backward_s - s->input_s + costs->b_pack_s - costs->i_pack_s;
    double last_s = costs->f_last_token_s + (costs->split ? 0.0 : costs->b_last_token_s);
    return stages * (costs->f_pack_s + s->forward_s + costs->i_pack_s + s->input_s) + weights_s +
           2.0 * (stages - 1.0) * costs->p2p_s + s->tokens * last_s;
}

// ---- packs that grow ----

// How fast packs can grow in the fill and shrink in the drain (bounds.h, sp_bound_growth_s).

static double knapsack_below_s(const sp_i_knapsack *k, double size_s);

enum {
    SHARES = 8, // cuts tried at equal shares of the forward work
    CUTS = SHARES + SP_I_SUBSETS,
    PARTS = 4,      // of the range of idle times
    DEPTH = 6,      // bisections of each
    MOST_IDLE = 40, // idle times tried first
    PATIENCE = 2    // idle times tried that are no better
};

// Intervals whose least value is within this share of the best need no further bisection.
#define TOLERANCE 6e-3

// From one idle time tried first to the next.
#define STEP 0.7

// Own packs looked at for one idle time, beyond which packs are counted in groups.
#define MOST_STEPS 4000

static void sides_init(const sp_bound_costs *costs, const sp_bound_batch *batch, double forward_s,
                       double backward_s, sp_i_side *fill, sp_i_side *drain);
static void least_shares(const sp_bound_costs *costs, const sp_bound_batch *batch,
                         double *forward_s, double *backward_s);
static double growth_s(const sp_bound_costs *costs, sp_i_side *fill, sp_i_side *drain,
                       double forward_s, double backward_s);

double sp_bound_growth_s(const sp_bound_costs *costs, const sp_bound_batch *batch)
{
    double simple_s = sp_bound_simple_s(costs, batch);
    if (costs->stages == 1 || batch->count == 0) {
        return simple_s;
    }
    sp_i_side fill;
    sp_i_side drain;
    double forward_s = 0.0;
    double backward_s = 0.0;
    least_shares(costs, batch, &forward_s, &backward_s);
    sides_init(costs, batch, forward_s, backward_s, &fill, &drain);
    double lost_s = growth_s(costs, &fill, &drain, forward_s, backward_s);
    return fmax(simple_s, sp_bound_work_s(costs, batch) + lost_s);
}

static sp_i_bands bands_of(const sp_bound_costs *costs, bool backward)
{
    double token_s = backward ? costs->b_token_s : costs->f_token_s;
    double pack_s = backward ? costs->b_pack_s : costs->f_pack_s;
    sp_i_bands bands = {0};
    for (int i = 0; i < costs->sizes && token_s > 0.0; i++) {
        const sp_bound_size *size = &costs->size[i];
        double least_s = backward ? size->b_pack_s : size->f_pack_s;
        // A pack of this content has no more tokens.
        bands.edge_s[bands.count] = size->tokens * token_s;
        bands.least_s[bands.count] = least_s;
        bands.count += least_s > pack_s;
    }
    bands.edge_s[bands.count] = HUGE_VAL;
    bands.least_s[bands.count++] = pack_s;
    return bands;
}

static void sides_init(const sp_bound_costs *costs, const sp_bound_batch *batch, double forward_s,
                       double backward_s, sp_i_side *fill, sp_i_side *drain)
{
    sp_i_bands f = bands_of(costs, false);
    sp_i_bands b = bands_of(costs, true);
    sp_i_item *items = sp_calloc(batch->count, sizeof *items);
    for (int backward = 0; backward < 2; backward++) {
        sp_i_side *side = backward ? drain : fill;
        side->hops = costs->stages - 1;
        side->p2p_s = costs->p2p_s;
        side->own = backward ? b : f;
        side->other = backward ? f : b;
        side->extra = 0.0;
        side->group = 1;
        for (size_t i = 0; i < batch->count; i++) {
            double n = (double)batch->tokens[i];
            double f_s = n * costs->f_token_s + n * n * costs->f_square_s;
            double b_s = n * costs->b_token_s + n * n * costs->b_square_s;
            double f_more_s = n * costs->f_last_token_s;
            double b_more_s = n * costs->b_last_token_s;
            double own_s = backward ? b_s : f_s;
            double more_s = backward ? b_more_s : f_more_s;
            items[i] = (sp_i_item){own_s, backward ? f_s + f_more_s : b_s + b_more_s};
            side->extra = own_s > 0.0 ? fmax(side->extra, more_s / own_s) : side->extra;
        }
        sp_i_knapsack_init(&side->enabled, items, batch->count, batch,
                           backward ? backward_s : forward_s);
    }
    sp_free(items);
}

static int by_share(const void *a, const void *b)
{
    const sp_i_item *x = a;
    const sp_i_item *y = b;
    double left = x->value_s * y->size_s;
    double right = y->value_s * x->size_s;
    return (left > right) - (left < right);
}

// Least forward work, and least backward work, among choices of samples (in parts) that make up one
// rank's share of the last stage's work.
static void least_shares(const sp_bound_costs *costs, const sp_bound_batch *batch,
                         double *forward_s, double *backward_s)
{
    sp_i_item *items = sp_calloc(batch->count, sizeof *items);
    double share_s = sp_bound_work_s(costs, batch);
    for (int backward = 0; backward < 2; backward++) {
        for (size_t i = 0; i < batch->count; i++) {
            double n = (double)batch->tokens[i];
            double f_s = n * costs->f_token_s + n * n * costs->f_square_s;
            double b_s = n * costs->b_token_s + n * n * costs->b_square_s;
            double work_s = f_s + b_s + n * (costs->f_last_token_s + costs->b_last_token_s);
            items[i] = (sp_i_item){work_s, backward ? b_s : f_s};
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
    sp_free(items);
}

// ---- least loss over idle times ----

// An interval of the idle time, with the least fixed cost at its upper end, which no shorter idle
// time gets below.
typedef struct interval {
    double from_s, to_s;
    double cost_s;
} interval;

static double least_idle_s(const sp_i_side *s)
{
    return s->hops * (s->own.least_s[s->own.count - 1] + s->p2p_s);
}

// Least of idle time + fixed cost over an interval, from below; `loss_s` is the least value known
// of any idle time.
static double least_within_s(const sp_i_side *s, double cover_s, interval all, double *loss_s)
{
    interval left[DEPTH + 1];
    int depth[DEPTH + 1] = {0};
    int count = 1;
    double least_s = HUGE_VAL;
    left[0] = all;
    while (count > 0) {
        count--;
        interval now = left[count];
        int level = depth[count];
        double floor_s = now.from_s + now.cost_s;
        if (level == DEPTH || floor_s >= *loss_s * (1.0 - TOLERANCE)) {
            least_s = fmin(least_s, floor_s);
            continue;
        }
        double middle_s = 0.5 * (now.from_s + now.to_s);
        double cost_s;
        sp_i_epochs_least_s(s, middle_s, &cover_s, 1, *loss_s - now.from_s, LONG_MAX, &cost_s);
        *loss_s = fmin(*loss_s, middle_s + cost_s);
        left[count] = (interval){middle_s, now.to_s, now.cost_s};
        depth[count++] = level + 1;
        left[count] = (interval){now.from_s, middle_s, cost_s};
        depth[count++] = level + 1;
    }
    return least_s;
}

// min over the idle time of it + the fixed cost of the packs needed. No longer idle time than the
// least value known of the sum is worth it.
static double least_loss_s(const sp_i_side *s, double cover_s, double loss_s)
{
    double low_s = least_idle_s(s);
    double least_s = loss_s;
    double step_s = (loss_s - low_s) / PARTS;
    double cost_s = s->own.least_s[s->own.count - 1];
    for (int i = PARTS - 1; i >= 0; i--) {
        interval part = {low_s + step_s * i, low_s + step_s * (i + 1), cost_s};
        least_s = fmin(least_s, least_within_s(s, cover_s, part, &loss_s));
        sp_i_epochs_least_s(s, part.from_s, &cover_s, 1, fmax(loss_s - low_s, 0.0), LONG_MAX,
                            &cost_s);
        loss_s = fmin(loss_s, part.from_s + cost_s);
    }
    return least_s;
}

// The sum for several covers, at some idle times. Finds also how to count packs so that this does
// not take long.
static void some_losses_s(sp_i_side *s, const double *cover_s, int covers, double *loss_s)
{
    double low_s = least_idle_s(s);
    double high_s = low_s + s->hops * cover_s[covers - 1];
    for (int j = 0; j < covers; j++) {
        loss_s[j] = low_s + s->hops * cover_s[j] + (s->hops + 1.0) * s->own.least_s[0];
    }
    int worse = 0;
    double idle_s = high_s;
    for (int i = 0; i < MOST_IDLE && worse < PATIENCE && idle_s > low_s; i++, idle_s *= STEP) {
        double limit_s = 0.0;
        for (int j = 0; j < covers; j++) {
            limit_s = fmax(limit_s, loss_s[j] - idle_s);
        }
        double cost_s[CUTS];
        while (sp_i_epochs_least_s(s, idle_s, cover_s, covers, limit_s, MOST_STEPS, cost_s) >=
               MOST_STEPS) {
            s->group *= 2;
        }
        worse++;
        for (int j = 0; j < covers; j++) {
            worse = idle_s + cost_s[j] < loss_s[j] ? 0 : worse;
            loss_s[j] = fmin(loss_s[j], idle_s + cost_s[j]);
        }
    }
}

// Forward contents to cut at.
static int cuts_of(const sp_i_side *fill, double forward_s, double *cut_s)
{
    int count = 0;
    for (int i = 1; i <= SHARES; i++) {
        cut_s[count++] = forward_s * i / SHARES;
    }
    for (int subset = 1; subset < fill->enabled.subsets; subset++) {
        if (fill->enabled.of[subset].size_s <= forward_s) {
            cut_s[count++] = fill->enabled.of[subset].size_s;
        }
    }
    qsort(cut_s, (size_t)count, sizeof *cut_s, sp_ascending_doubles);
    return count;
}

static double growth_s(const sp_bound_costs *costs, sp_i_side *fill, sp_i_side *drain,
                       double forward_s, double backward_s)
{
    double cut_s[CUTS];
    double fill_s[CUTS];
    if (costs->split) {
        some_losses_s(fill, &forward_s, 1, fill_s);
        return least_loss_s(fill, forward_s, fill_s[0]) + costs->b_pack_s;
    }
    int count = cuts_of(fill, forward_s, cut_s);
    double left_s[CUTS]; // by cut from last to first
    double drain_s[CUTS];
    for (int i = 0; i < count; i++) {
        double done_s = knapsack_below_s(&fill->enabled, cut_s[i]);
        left_s[count - 1 - i] = fmax(0.0, backward_s - done_s);
    }
    some_losses_s(fill, cut_s, count, fill_s);
    some_losses_s(drain, left_s, count, drain_s);
    int best = 0;
    for (int i = 1; i < count; i++) {
        if (fill_s[i] + drain_s[count - 1 - i] > fill_s[best] + drain_s[count - 1 - best]) {
            best = i;
        }
    }
    int last = count - 1 - best;
    return least_loss_s(fill, cut_s[best], fill_s[best]) +
           least_loss_s(drain, left_s[last], drain_s[last]);
}

// How much work is enabled by other work, at most.
// Samples below this share of a rank's work gain little by being taken only whole.
#define LARGE 0.05

static void tabulate(sp_i_knapsack *k, const sp_i_item *items, size_t count, double most_s);

static int by_size(const void *a, const void *b)
{
    const sp_i_item *x = a;
    const sp_i_item *y = b;
    return (x->size_s < y->size_s) - (x->size_s > y->size_s);
}

// The most value for its size first.
static int by_ratio(const void *a, const void *b)
{
    return by_share(b, a);
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

// Samples stay below this size: a subset of just this size is not reached.
static double knapsack_below_s(const sp_i_knapsack *k, double size_s)
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

// ---- epochs ----

// The least fixed cost of packs that grow as fast as an idle time lets them (bounds.h,
// sp_bound_growth_s).

enum {
    SLOTS = 1024,
    NEAR = 2,          // slots looked at for a better way
    MOST_PACKS = 1024, // of an epoch
    REST = 64
};

// Ways to the start of an epoch, those of about the same cost in one slot, with the best of each on
// any of them.
typedef struct slot {
    double content_s; // most own content before; negative: no way
    double cost_s;    // least
    double credit_s;  // most time that packs of the other pass take beyond their content
} slot;

// The state of one call.
typedef struct walk {
    const sp_i_side *side;
    double idle_s;
    const double *cover_s;
    int covers;
    double *cost_s;
    double worst_s; // cost that is of no use for any cover
    double slot_s;
    slot slots[SLOTS];
    double from_s[REST]; // content from which i + 1 own packs may cover the first cover
    long steps;
} walk;

static bool is_better(const slot *a, const slot *b);
static double slot_width_s(const sp_i_side *side, double limit_s);
static void find_remaining(walk *w);
static void follow(walk *w, int from);

long sp_i_epochs_least_s(const sp_i_side *side, double idle_s, const double *cover_s, int covers,
                         double limit_s, long most_steps, double *cost_s)
{
    walk w = {.side = side,
              .idle_s = idle_s,
              .cover_s = cover_s,
              .covers = covers,
              .cost_s = cost_s,
              .worst_s = limit_s,
              .slot_s = slot_width_s(side, limit_s)};
    for (int j = 0; j < covers; j++) {
        cost_s[j] = limit_s;
    }
    for (int i = 1; i < SLOTS; i++) {
        w.slots[i].content_s = -1.0;
    }
    find_remaining(&w);
    slot best = {.content_s = -1.0};
    for (int i = 0; i < SLOTS && w.steps < most_steps; i++) {
        const slot *now = &w.slots[i];
        if (now->content_s >= 0.0 && now->cost_s < w.worst_s && !is_better(&best, now)) {
            follow(&w, i);
            best = now->content_s > best.content_s ? *now : best;
        }
    }
    return w.steps;
}

static int slot_of(const walk *w, double cost_s)
{
    return (int)fmin(SLOTS, cost_s / w->slot_s + 0.5);
}

// Does a lead on at least as well as b, for no more?
static bool is_better(const slot *a, const slot *b)
{
    return a->cost_s <= b->cost_s && a->content_s >= b->content_s && a->credit_s >= b->credit_s;
}

// Ways that differ in cost are seldom in one slot where fixed costs are multiples of its width.
static double slot_width_s(const sp_i_side *side, double limit_s)
{
    double a_s = side->own.least_s[side->own.count - 1];
    double b_s = side->other.least_s[side->other.count - 1];
    double best_s = limit_s / SLOTS;
    double least_error = 0.25;
    for (int parts = 1; parts <= 8 && a_s > 0.0 && b_s / a_s < SLOTS; parts++) {
        double width_s = a_s / parts;
        double error = parts * fabs(b_s / width_s - nearbyint(b_s / width_s));
        if (width_s * SLOTS > limit_s && error < least_error) {
            least_error = error;
            best_s = width_s;
        }
    }
    return best_s;
}

static double least_s(const sp_i_bands *bands, double content_s)
{
    int band = 0;
    while (band < bands->count - 1 && content_s > bands->edge_s[band]) {
        band++;
    }
    return bands->least_s[band];
}

// Largest content of a pack that takes no longer than `time_s`, with its least fixed cost.
static double largest_s(const sp_i_bands *bands, double time_s, double *fixed_s)
{
    for (int band = bands->count - 1; band >= 0; band--) {
        double content_s = time_s - bands->least_s[band];
        if (content_s > (band > 0 ? bands->edge_s[band - 1] : 0.0)) {
            *fixed_s = bands->least_s[band];
            return fmin(content_s, bands->edge_s[band]);
        }
    }
    return 0.0;
}

// Packs as large as if all that may be enabled were, at no cost.
static void find_remaining(walk *w)
{
    const sp_i_side *side = w->side;
    double content_s = w->covers == 1 ? w->cover_s[0] : 0.0;
    for (int i = 0; i < REST; i++) {
        if (content_s > 0.0) {
            double budget_s = w->idle_s + w->worst_s + side->extra * content_s +
                              sp_i_knapsack_most_s(&side->enabled, content_s);
            double fixed_s = 0.0;
            content_s -= largest_s(&side->own, budget_s / side->hops - side->p2p_s, &fixed_s);
        }
        w->from_s[i] = content_s;
    }
}

// Fixed cost of own packs that are still to come, at least.
static double remaining_s(const walk *w, double content_s)
{
    int packs = 0;
    while (packs < REST && content_s < w->from_s[packs]) {
        packs++;
    }
    return packs < REST ? (packs + 1) * w->side->own.least_s[w->side->own.count - 1] : 0.0;
}

static void note(walk *w, int *reached, double content_s, double cost_s)
{
    bool better = false;
    for (; *reached < w->covers && content_s >= w->cover_s[*reached]; ++*reached) {
        better = better || w->cost_s[*reached] == w->worst_s;
        w->cost_s[*reached] = fmin(w->cost_s[*reached], cost_s);
    }
    if (better) {
        w->worst_s = 0.0;
        for (int j = 0; j < w->covers; j++) {
            w->worst_s = fmax(w->worst_s, w->cost_s[j]);
        }
    }
}

// Keeps a way in the slot of its cost, or the next one.
static void start(walk *w, int from, slot way)
{
    double most_s = sp_i_knapsack_most_s(&w->side->enabled, way.content_s);
    if (!(most_s > 0.0)) {
        return;
    }
    double fixed_s = least_s(&w->side->other, most_s);
    way.cost_s += fixed_s;
    way.credit_s += fixed_s;
    if (way.cost_s + remaining_s(w, way.content_s) >= w->worst_s) {
        return;
    }
    int at = slot_of(w, way.cost_s);
    at = at > from ? at : from + 1;
    if (at >= SLOTS) {
        int reached = 0;
        note(w, &reached, HUGE_VAL, way.cost_s);
        return;
    }
    slot *kept = &w->slots[at];
    if (kept->content_s < 0.0) {
        *kept = way;
        return;
    }
    kept->content_s = fmax(kept->content_s, way.content_s);
    kept->cost_s = fmin(kept->cost_s, way.cost_s);
    kept->credit_s = fmax(kept->credit_s, way.credit_s);
}

// Is there a way that costs no more and leads on at least as well?
static bool is_dominated(const walk *w, int from, const slot *way)
{
    int at = slot_of(w, way->cost_s);
    int end = at - NEAR > from ? at - NEAR : from;
    for (int i = at < SLOTS ? at : SLOTS - 1; i > end; i--) {
        if (is_better(&w->slots[i], way)) {
            return true;
        }
    }
    return false;
}

// Own packs until the next epoch starts, for every length of this one.
static void follow(walk *w, int from)
{
    const sp_i_side *side = w->side;
    slot way = w->slots[from];
    double enabled_s =
        way.content_s > 0.0 ? sp_i_knapsack_most_s(&side->enabled, way.content_s) : 0.0;
    int reached = 0;
    while (reached < w->covers && way.content_s > 0.0 && way.content_s >= w->cover_s[reached]) {
        reached++;
    }
    for (int packs = 1; way.cost_s < w->worst_s; packs++) {
        double budget_s = w->idle_s + way.credit_s + enabled_s + side->extra * way.content_s;
        double fixed_s = 0.0;
        double pack_s = largest_s(&side->own, budget_s / side->hops - side->p2p_s, &fixed_s);
        if (!(pack_s > 0.0)) {
            return;
        }
        w->steps++;
        way.content_s = packs < MOST_PACKS ? way.content_s + pack_s : HUGE_VAL;
        way.cost_s += fixed_s;
        note(w, &reached, way.content_s, way.cost_s);
        if (reached == w->covers || way.cost_s >= w->worst_s || is_dominated(w, from, &way)) {
            return;
        }
        if (packs < side->group) {
            enabled_s = sp_i_knapsack_most_s(&side->enabled, way.content_s);
        } else {
            start(w, from, way);
        }
    }
}
