#include "sim/base/units.h"
#include "sim/schedule/v_order.h"

static bool is_before(const sp_i_v_key *x, const sp_i_v_key *y)
{
    if (x->first_ns != y->first_ns) {
        return x->first_ns < y->first_ns;
    }
    if (x->second_ns != y->second_ns) {
        return x->second_ns < y->second_ns;
    }
    return x->id < y->id;
}

static void merge(const sp_i_v_key *keys, size_t begin, size_t middle, size_t end, sp_i_v_key *to)
{
    size_t x = begin;
    size_t y = middle;
    for (size_t k = begin; k < end; k++) {
        bool first = x < middle && (y == end || is_before(&keys[x], &keys[y]));
        to[k] = keys[first ? x++ : y++];
    }
}

static size_t least_size(size_t a, size_t b)
{
    return a < b ? a : b;
}

// Merges the ranks' keys, each rank's in order, into one list.
static const sp_i_v_key *merge_ranks(const sp_i_v_order *order)
{
    size_t total = (size_t)order->setting->pp * order->per_rank;
    sp_i_v_key *keys = order->keys;
    sp_i_v_key *merged = order->merged;
    for (size_t run = order->per_rank; run < total; run *= 2) {
        for (size_t begin = 0; begin < total; begin += 2 * run) {
            merge(keys, begin, least_size(begin + run, total), least_size(begin + 2 * run, total),
                  merged);
        }
        sp_i_v_key *other = keys;
        keys = merged;
        merged = other;
    }
    return keys;
}

static int64_t end_of(const sp_i_v_order *order, size_t id)
{
    return order->start_ns[id] + order->what[id].duration_ns;
}

static int64_t least(int64_t a, int64_t b)
{
    return a < b ? a : b;
}

// When `op` must have ended for all that waits for it to keep its start.
static int64_t latest_end(const sp_i_v_order *order, sp_i_v_op op, int64_t deadline_ns)
{
    size_t ids[3];
    int count = sp_i_v_neighbours(order->setting, op, 1, ids);
    for (int k = 0; k < count; k++) {
        int vstage = order->what[ids[k]].vstage;
        int64_t lag_ns = sp_i_v_lag_ns(order->setting, op.vstage, vstage);
        deadline_ns = least(deadline_ns, order->start_ns[ids[k]] - lag_ns);
    }
    return deadline_ns;
}

// When `op` has all that it waits for.
static int64_t earliest_start(const sp_i_v_order *order, sp_i_v_op op)
{
    int64_t earliest_ns = 0;
    size_t ids[3];
    int count = sp_i_v_neighbours(order->setting, op, -1, ids);
    for (int k = 0; k < count; k++) {
        int vstage = order->what[ids[k]].vstage;
        int64_t lag_ns = sp_i_v_lag_ns(order->setting, vstage, op.vstage);
        earliest_ns = sp_larger(earliest_ns, end_of(order, ids[k]) + lag_ns);
    }
    return earliest_ns;
}

static int64_t unit_of(const sp_i_v_order *order, size_t id)
{
    return order->setting->unit[order->what[id].kind];
}

// Does operation `passed`, that runs at memory `level`, fit under the cap?
static bool fits(const sp_i_v_order *order, size_t passed, int64_t level)
{
    return level + sp_larger(unit_of(order, passed), 0) <= order->setting->cap;
}

// Takes the operation at place `from` of a rank to place `to`.
static void move(sp_i_v_order *order, size_t base, size_t from, size_t to)
{
    size_t *op = order->op + base;
    int64_t *held = order->held + base;
    size_t id = op[from];
    int64_t unit = unit_of(order, id);
    for (; from < to; from++) {
        op[from] = op[from + 1];
        held[from] = held[from + 1] - unit;
        order->slot[op[from]] = from;
        held[from + 1] = held[from] + unit_of(order, op[from]);
    }
    for (; from > to; from--) {
        op[from] = op[from - 1];
        int64_t before = held[from - 1];
        held[from] = before + unit;
        order->slot[op[from]] = from;
        held[from - 1] = before;
    }
    op[to] = id;
    order->slot[id] = to;
}

static void move_right(sp_i_v_order *order, size_t id, int64_t deadline_ns)
{
    sp_i_v_op op = order->what[id];
    size_t base = (size_t)op.rank * order->per_rank;
    const size_t *list = order->op + base;
    int64_t unit = order->setting->unit[op.kind];
    int64_t latest = latest_end(order, op, deadline_ns);
    size_t place = order->slot[id];
    size_t best = place;
    int64_t best_ns = order->start_ns[id];
    for (size_t k = place; k < order->per_rank; k++) {
        int64_t free_ns = k == place ? order->start_ns[id] : end_of(order, list[k]);
        if (free_ns > latest - op.duration_ns ||
            (k > place && !fits(order, list[k], order->held[base + k] - unit))) {
            break;
        }
        int64_t until =
            k + 1 < order->per_rank ? least(latest, order->start_ns[list[k + 1]]) : latest;
        if (until - op.duration_ns >= free_ns) {
            best = k;
            best_ns = until - op.duration_ns;
        }
    }
    move(order, base, place, best);
    order->start_ns[id] = best_ns;
}

static void move_left(sp_i_v_order *order, size_t id)
{
    sp_i_v_op op = order->what[id];
    size_t base = (size_t)op.rank * order->per_rank;
    const size_t *list = order->op + base;
    int64_t unit = order->setting->unit[op.kind];
    int64_t earliest = earliest_start(order, op);
    size_t place = order->slot[id];
    size_t best = place;
    int64_t best_ns = order->start_ns[id];
    for (size_t k = place + 1; k-- > 0;) {
        int64_t until = k == place ? end_of(order, id) : order->start_ns[list[k]];
        // Before list[k]: it then runs with this operation's memory, which is held there itself.
        if (until < earliest + op.duration_ns ||
            (k < place && (!fits(order, list[k], order->held[base + k] + unit) ||
                           !fits(order, id, order->held[base + k])))) {
            break;
        }
        int64_t from = k > 0 ? sp_larger(earliest, end_of(order, list[k - 1])) : earliest;
        if (from + op.duration_ns <= until) {
            best = k;
            best_ns = from;
        }
    }
    move(order, base, place, best);
    order->start_ns[id] = best_ns;
}

void sp_i_v_order_justify(sp_i_v_order *order)
{
    int pp = order->setting->pp;
    size_t total = (size_t)pp * order->per_rank;
    int64_t span_ns = sp_i_v_order_span_ns(order);
    // A rank may end as long after its own start as the longest one does.
    for (int r = 0; r < pp; r++) {
        order->free_ns[r] = order->start_ns[order->op[(size_t)r * order->per_rank]] + span_ns;
    }
    for (size_t at = 0; at < total; at++) {
        size_t id = order->op[at];
        order->keys[at] = (sp_i_v_key){end_of(order, id), order->start_ns[id], id};
    }
    const sp_i_v_key *keys = merge_ranks(order);
    for (size_t k = total; k-- > 0;) {
        int rank = order->what[keys[k].id].rank;
        move_right(order, keys[k].id, order->free_ns[rank]);
    }
    for (size_t at = 0; at < total; at++) {
        size_t id = order->op[at];
        order->keys[at] = (sp_i_v_key){order->start_ns[id], end_of(order, id), id};
    }
    keys = merge_ranks(order);
    for (size_t k = 0; k < total; k++) {
        move_left(order, keys[k].id);
    }
}
