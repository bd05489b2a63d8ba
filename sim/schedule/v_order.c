// Orders of F, I and W on the ranks of a V placement (two chunks per rank, virtual stages r and
// 2p-1-r), with their times, and what ZB-V, V-Half and V-Min are worked out on before they become a
// plan.
#include <stdlib.h>
#include <string.h>

#include "sim/base/units.h"
#include "sim/schedule/schedule_family.h"

enum {
    V_F,
    V_I,
    V_W,
    V_KINDS,
    V_UNIT = 1 << 20, // one chunk's activations of one micro-batch
};

// Costs and memory of an order; plain data, arrays borrowed. Memory is counted in whole numbers so
// that no sum depends on its order: unit[] is the change at F (V_UNIT), at I, at W (neither
// positive), and the three add up to 0.
typedef struct v_setting {
    int pp, microbatches;
    const int64_t *duration_ns[V_KINDS]; // [2 * pp], positive
    int64_t p2p_ns;
    int64_t unit[V_KINDS];
    int64_t cap; // most a rank holds
} v_setting;

// An operation to be moved: by end (right) or start (left), then by start, then by number.
typedef struct v_key {
    int64_t first_ns, second_ns;
    size_t id;
} v_key;

// An operation by its kind and place.
typedef struct v_op {
    int kind, vstage, rank, microbatch;
    int64_t duration_ns;
} v_op;

// An operation is numbered (kind * 2p + virtual stage) * m + micro-batch.
typedef struct v_order {
    const v_setting *setting;
    v_op *what;        // [operations]
    size_t per_rank;   // 6m
    size_t *op;        // [pp * per_rank], each rank in its order
    size_t *count;     // [pp]: written so far
    size_t *slot;      // [operations]: place in its rank's order
    int64_t *start_ns; // [operations]
    int64_t *held;     // [pp * per_rank]: memory before the operation at a place
    size_t *timed;     // [pp]: operations timed so far
    int64_t *free_ns;  // [pp]: end of the last of them
    // [operations]: scratch of justification
    v_key *keys, *merged;
} v_order;

// Greedy orders under a memory cap, by simulating the ranks.
enum { V_RULES = 4 };

// The rules differ in this, all of it at the end of the batch or against small delays of chunk 1,
// on which the other ranks wait. No one setting is best for all costs.
typedef struct greedy_rule {
    int wait_half; // leave a rank idle when F of chunk 1 arrives within half of another operation
    int lead;      // without F of chunk 0 left, I of chunk 0 goes first while more than (p-r)/lead
                   // of them are behind chunk 1
    int last_f;    // for so many last F of chunk 1 nothing else may be in the way
    int last_i;    // for so many last I of each chunk, likewise
} greedy_rule;

static const greedy_rule rules[V_RULES] = {{0, 2, 1, 0}, {1, 2, 1, 0}, {1, 1, 0, 0}, {1, 1, 0, 2}};

enum { NOT_YET = -1 };

typedef struct simulation {
    v_order *order;
    const v_setting *setting;
    const greedy_rule *rule;
    int64_t *arrival_ns[2]; // of F and I, [2 * pp * m]; NOT_YET while the source has not started
    int *done[V_KINDS];     // [2 * pp]
    int64_t *held;          // [pp]
    int64_t *free_ns;       // [pp]
    int64_t *next_ns;       // [pp]: when the rank looks again; INT64_MAX: when woken
} simulation;

// The state that one rank sees when it chooses. Chunk numbers index the pairs.
typedef struct view {
    int rank;
    int vstage[2];
    int64_t now_ns;
    int64_t ready_ns[2][2]; // of F and I by chunk; INT64_MAX: unknown or not allowed
    bool pending_w[2];
    int left[2][2];      // F and I still to run, by chunk
    bool full;           // less than a chunk's memory above the reserve is free
    bool cooldown;       // no F of chunk 0 left
    int64_t critical_ns; // next arrival that nothing may delay
} view;

typedef struct choice {
    int kind, chunk; // kind V_KINDS: none
} choice;

static const choice nothing = {V_KINDS, 0};

static size_t operations(const v_setting *s)
{
    return (size_t)V_KINDS * 2 * (size_t)s->pp * (size_t)s->microbatches;
}

static int rank_of(const v_setting *setting, int vstage)
{
    return vstage < setting->pp ? vstage : 2 * setting->pp - 1 - vstage;
}

static v_op describe(const v_setting *setting, size_t id)
{
    size_t m = (size_t)setting->microbatches;
    size_t stages = 2 * (size_t)setting->pp;
    v_op op = {.kind = (int)(id / m / stages),
               .vstage = (int)(id / m % stages),
               .microbatch = (int)(id % m)};
    op.rank = rank_of(setting, op.vstage);
    op.duration_ns = setting->duration_ns[op.kind][op.vstage];
    return op;
}

// In memory of the arena.
static v_order v_order_new(sp_arena *work, const v_setting *setting)
{
    size_t total = operations(setting);
    size_t pp = (size_t)setting->pp;
    v_op *what = sp_arena_take(work, total, sizeof *what);
    for (size_t id = 0; id < total; id++) {
        what[id] = describe(setting, id);
    }
    return (v_order){.setting = setting,
                     .what = what,
                     .per_rank = (size_t)V_KINDS * 2 * (size_t)setting->microbatches,
                     .op = sp_arena_take(work, total, sizeof(size_t)),
                     .count = sp_arena_take(work, pp, sizeof(size_t)),
                     .slot = sp_arena_take(work, total, sizeof(size_t)),
                     .start_ns = sp_arena_take(work, total, sizeof(int64_t)),
                     .held = sp_arena_take(work, total, sizeof(int64_t)),
                     .timed = sp_arena_take(work, pp, sizeof(size_t)),
                     .free_ns = sp_arena_take(work, pp, sizeof(int64_t)),
                     .keys = sp_arena_take(work, total, sizeof(v_key)),
                     .merged = sp_arena_take(work, total, sizeof(v_key))};
}

static void v_order_clear(v_order *order)
{
    memset(order->count, 0, (size_t)order->setting->pp * sizeof *order->count);
}

static size_t v_id(const v_setting *setting, int kind, int vstage, int microbatch)
{
    size_t stage = (size_t)kind * 2 * (size_t)setting->pp + (size_t)vstage;
    return stage * (size_t)setting->microbatches + (size_t)microbatch;
}

// Latency between two neighbouring virtual stages: none where the V turns on one rank.
static int64_t transfer_lag_ns(const v_setting *setting, int from_vstage, int to_vstage)
{
    return rank_of(setting, from_vstage) == rank_of(setting, to_vstage) ? 0 : setting->p2p_ns;
}

static void v_order_append(v_order *order, int kind, int vstage, int microbatch)
{
    size_t rank = (size_t)rank_of(order->setting, vstage);
    size_t id = v_id(order->setting, kind, vstage, microbatch);
    SP_ASSERT(order->count[rank] < order->per_rank);
    order->slot[id] = order->count[rank];
    order->op[rank * order->per_rank + order->count[rank]++] = id;
}

// Finds what an operation waits for (step -1) or what waits for it (step 1): the operation of its
// kind on the virtual stage beside, the other kind on its own, and its own kind of the micro-batch
// beside. Gives their numbers and how many there are.
static int find_neighbours(const v_setting *setting, v_op op, int step, size_t ids[3])
{
    int count = 0;
    int beside = op.kind == V_F ? op.vstage + step : op.vstage - step;
    int kind = op.kind + step;
    int microbatch = op.microbatch + step;
    if (op.kind != V_W && beside >= 0 && beside < 2 * setting->pp) {
        ids[count++] = v_id(setting, op.kind, beside, op.microbatch);
    }
    if (kind >= 0 && kind < V_KINDS) {
        ids[count++] = v_id(setting, kind, op.vstage, op.microbatch);
    }
    if (microbatch >= 0 && microbatch < setting->microbatches) {
        ids[count++] = v_id(setting, op.kind, op.vstage, microbatch);
    }
    return count;
}

// When the inputs of an operation are there; false while one has not been timed.
static bool inputs_ready(const v_order *order, v_op op, int64_t *ready_ns)
{
    const v_setting *s = order->setting;
    size_t input[3];
    int inputs = find_neighbours(s, op, -1, input);
    *ready_ns = 0;
    for (int k = 0; k < inputs; k++) {
        v_op from = order->what[input[k]];
        if (order->slot[input[k]] >= order->timed[from.rank]) {
            return false;
        }
        int64_t there = order->start_ns[input[k]] + from.duration_ns +
                        transfer_lag_ns(s, from.vstage, op.vstage);
        *ready_ns = there > *ready_ns ? there : *ready_ns;
    }
    return true;
}

// Times what it can of one rank; false if nothing.
static bool time_rank(v_order *order, int rank)
{
    const size_t *list = order->op + (size_t)rank * order->per_rank;
    size_t before = order->timed[rank];
    while (order->timed[rank] < order->count[rank]) {
        v_op op = order->what[list[order->timed[rank]]];
        int64_t ready_ns;
        if (!inputs_ready(order, op, &ready_ns)) {
            break;
        }
        int64_t start_ns = ready_ns > order->free_ns[rank] ? ready_ns : order->free_ns[rank];
        order->start_ns[list[order->timed[rank]]] = start_ns;
        order->free_ns[rank] = start_ns + op.duration_ns;
        order->timed[rank]++;
    }
    return order->timed[rank] > before;
}

static void count_memory(v_order *order)
{
    for (int r = 0; r < order->setting->pp; r++) {
        int64_t level = 0;
        for (size_t k = 0; k < order->per_rank; k++) {
            size_t at = (size_t)r * order->per_rank + k;
            order->held[at] = level;
            level += order->setting->unit[order->what[order->op[at]].kind];
        }
    }
}

// False for an order that cannot finish.
static bool time_all(v_order *order)
{
    int pp = order->setting->pp;
    memset(order->timed, 0, (size_t)pp * sizeof *order->timed);
    memset(order->free_ns, 0, (size_t)pp * sizeof *order->free_ns);
    bool moved = true;
    while (moved) {
        moved = false;
        // Down and up the ranks, the ways of the inputs.
        for (int r = 0; r < pp; r++) {
            moved = time_rank(order, r) || moved;
        }
        for (int r = pp - 1; r >= 0; r--) {
            moved = time_rank(order, r) || moved;
        }
    }
    for (int r = 0; r < pp; r++) {
        if (order->timed[r] < order->per_rank) {
            return false;
        }
    }
    count_memory(order);
    return true;
}

static int64_t peak_of(const v_order *order)
{
    int64_t peak = 0;
    for (size_t at = 0; at < operations(order->setting); at++) {
        int64_t unit = order->setting->unit[order->what[order->op[at]].kind];
        int64_t level = order->held[at] + (unit > 0 ? unit : 0);
        peak = level > peak ? level : peak;
    }
    return peak;
}

// No order is shorter than the work of its busiest rank.
static int64_t least_span_ns(const v_setting *setting)
{
    int64_t longest = 0;
    for (int r = 0; r < setting->pp; r++) {
        int64_t work_ns = 0;
        for (int kind = 0; kind < V_KINDS; kind++) {
            const int64_t *of = setting->duration_ns[kind];
            work_ns += setting->microbatches * (of[r] + of[2 * setting->pp - 1 - r]);
        }
        longest = work_ns > longest ? work_ns : longest;
    }
    return longest;
}

// Longest stage: the largest last end - first start of a rank (the measure of arXiv 2401.10241).
static int64_t longest_span_ns(const v_order *order)
{
    int64_t longest = 0;
    for (int r = 0; r < order->setting->pp; r++) {
        const size_t *list = order->op + (size_t)r * order->per_rank;
        size_t last = list[order->per_rank - 1];
        int64_t end_ns = order->start_ns[last] + order->what[last].duration_ns;
        int64_t span_ns = end_ns - order->start_ns[list[0]];
        longest = span_ns > longest ? span_ns : longest;
    }
    return longest;
}

static void copy_order(v_order *to, const v_order *from)
{
    size_t total = operations(from->setting);
    memcpy(to->op, from->op, total * sizeof *to->op);
    memcpy(to->count, from->count, (size_t)from->setting->pp * sizeof *to->count);
    memcpy(to->slot, from->slot, total * sizeof *to->slot);
    memcpy(to->start_ns, from->start_ns, total * sizeof *to->start_ns);
    memcpy(to->held, from->held, total * sizeof *to->held);
}

static bool is_before(const v_key *x, const v_key *y)
{
    if (x->first_ns != y->first_ns) {
        return x->first_ns < y->first_ns;
    }
    if (x->second_ns != y->second_ns) {
        return x->second_ns < y->second_ns;
    }
    return x->id < y->id;
}

static void merge(const v_key *keys, size_t begin, size_t middle, size_t end, v_key *to)
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
static const v_key *merge_ranks(const v_order *order)
{
    size_t total = (size_t)order->setting->pp * order->per_rank;
    v_key *keys = order->keys;
    v_key *merged = order->merged;
    for (size_t run = order->per_rank; run < total; run *= 2) {
        for (size_t begin = 0; begin < total; begin += 2 * run) {
            merge(keys, begin, least_size(begin + run, total), least_size(begin + 2 * run, total),
                  merged);
        }
        v_key *other = keys;
        keys = merged;
        merged = other;
    }
    return keys;
}

static int64_t end_of(const v_order *order, size_t id)
{
    return order->start_ns[id] + order->what[id].duration_ns;
}

// When `op` must have ended for all that waits for it to keep its start.
static int64_t latest_end(const v_order *order, v_op op, int64_t deadline_ns)
{
    size_t ids[3];
    int count = find_neighbours(order->setting, op, 1, ids);
    for (int k = 0; k < count; k++) {
        int vstage = order->what[ids[k]].vstage;
        int64_t lag_ns = transfer_lag_ns(order->setting, op.vstage, vstage);
        deadline_ns = sp_smaller(deadline_ns, order->start_ns[ids[k]] - lag_ns);
    }
    return deadline_ns;
}

static int64_t unit_of(const v_order *order, size_t id)
{
    return order->setting->unit[order->what[id].kind];
}

// Does operation `passed`, that runs at memory `level`, fit under the cap?
static bool fits(const v_order *order, size_t passed, int64_t level)
{
    return level + sp_larger(unit_of(order, passed), 0) <= order->setting->cap;
}

// Takes the operation at place `from` of a rank to place `to`.
static void move(v_order *order, size_t base, size_t from, size_t to)
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

static void move_right(v_order *order, size_t id, int64_t deadline_ns)
{
    v_op op = order->what[id];
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
            k + 1 < order->per_rank ? sp_smaller(latest, order->start_ns[list[k + 1]]) : latest;
        if (until - op.duration_ns >= free_ns) {
            best = k;
            best_ns = until - op.duration_ns;
        }
    }
    move(order, base, place, best);
    order->start_ns[id] = best_ns;
}

// When `op` has all that it waits for.
static int64_t earliest_start(const v_order *order, v_op op)
{
    int64_t earliest_ns = 0;
    size_t ids[3];
    int count = find_neighbours(order->setting, op, -1, ids);
    for (int k = 0; k < count; k++) {
        int vstage = order->what[ids[k]].vstage;
        int64_t lag_ns = transfer_lag_ns(order->setting, vstage, op.vstage);
        earliest_ns = sp_larger(earliest_ns, end_of(order, ids[k]) + lag_ns);
    }
    return earliest_ns;
}

static void move_left(v_order *order, size_t id)
{
    v_op op = order->what[id];
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

// Forward-backward improvement (Valls, Ballestin, Quintanilla: Justification and RCPSP, 2005): all
// operations as late as possible within the present longest span, the last first, then as early as
// possible, the first first; each goes to the best gap of its rank that keeps inputs, the order of
// micro-batches within a virtual stage and, if it did before, the memory cap. The order has times.
// Not always shorter, so the caller keeps the better one. O(operations * log p) beside the gaps
// looked at.
static void justify(v_order *order)
{
    int pp = order->setting->pp;
    size_t total = (size_t)pp * order->per_rank;
    int64_t span_ns = longest_span_ns(order);
    // A rank may end as long after its own start as the longest one does.
    for (int r = 0; r < pp; r++) {
        order->free_ns[r] = order->start_ns[order->op[(size_t)r * order->per_rank]] + span_ns;
    }
    for (size_t at = 0; at < total; at++) {
        size_t id = order->op[at];
        order->keys[at] = (v_key){end_of(order, id), order->start_ns[id], id};
    }
    const v_key *keys = merge_ranks(order);
    for (size_t k = total; k-- > 0;) {
        int rank = order->what[keys[k].id].rank;
        move_right(order, keys[k].id, order->free_ns[rank]);
    }
    for (size_t at = 0; at < total; at++) {
        size_t id = order->op[at];
        order->keys[at] = (v_key){order->start_ns[id], end_of(order, id), id};
    }
    keys = merge_ranks(order);
    for (size_t k = 0; k < total; k++) {
        move_left(order, keys[k].id);
    }
}

// Starts every operation of a full order, which can finish, as early as order and inputs allow,
// then justifies the order `rounds` times. What is shorter than *best_ns on the way goes to *best;
// it ends where nothing can be shorter.
// Beside the justification O(operations + p * rounds of the ranks).
static void v_order_improve(v_order *order, int rounds, v_order *best, int64_t *best_ns)
{
    int64_t least_ns = least_span_ns(order->setting);
    bool finishes = time_all(order);
    SP_ASSERT(finishes);
    for (int round = 0; round <= rounds && *best_ns > least_ns; round++) {
        if (round > 0) {
            justify(order);
        }
        int64_t span_ns = longest_span_ns(order);
        if (span_ns < *best_ns) {
            *best_ns = span_ns;
            copy_order(best, order);
        }
    }
}

// Adds the actions of an order that keeps to the cap to the plan.
static void v_order_emit(const v_order *order, sp_i_schedule_job *job)
{
    static const sp_action_kind kinds[V_KINDS] = {
        [V_F] = SP_ACTION_F, [V_I] = SP_ACTION_I, [V_W] = SP_ACTION_W};
    SP_ASSERT(peak_of(order) <= order->setting->cap);
    for (size_t at = 0; at < operations(order->setting); at++) {
        v_op op = order->what[order->op[at]];
        int chunk = op.vstage < order->setting->pp ? 0 : 1;
        sp_i_schedule_add(job, op.rank, kinds[op.kind], chunk, op.microbatch, 0);
    }
}

static int64_t arrival(const simulation *sim, int kind, int vstage)
{
    int next = sim->done[kind][vstage];
    if (next == sim->setting->microbatches || (kind == V_I && next == sim->done[V_F][vstage])) {
        return INT64_MAX;
    }
    int64_t at =
        sim->arrival_ns[kind][(size_t)vstage * (size_t)sim->setting->microbatches + (size_t)next];
    return at == NOT_YET ? INT64_MAX : at;
}

// Memory of the chunk: forwards whose W has not run, less what I released of them.
static int64_t held_by(const simulation *sim, int vstage)
{
    int64_t level = 0;
    for (int kind = 0; kind < V_KINDS; kind++) {
        level += sim->setting->unit[kind] * sim->done[kind][vstage];
    }
    return level;
}

// The last place is kept for chunk 1, so that the oldest micro-batch can always go on. Chunk 0 has
// at most 2p-1-r places, what the fixed order takes before the first backward; with more the
// early ranks run ahead of what the last one can take.
static bool f_allowed(const simulation *sim, const view *v, int chunk)
{
    int64_t cap = sim->setting->cap;
    int64_t with = sim->held[v->rank] + V_UNIT;
    if (chunk == 1) {
        return with <= cap;
    }
    int64_t places = 2 * (int64_t)sim->setting->pp - 1 - v->rank;
    return with <= cap - V_UNIT && held_by(sim, v->vstage[0]) + V_UNIT <= places * V_UNIT;
}

static bool is_critical(const simulation *sim, const view *v, int kind, int chunk)
{
    if (kind == V_F) {
        return chunk == 1 && v->left[V_F][1] <= sim->rule->last_f;
    }
    return v->cooldown && v->left[V_I][chunk] <= sim->rule->last_i;
}

static view look(const simulation *sim, int rank)
{
    const v_setting *s = sim->setting;
    view v = {.rank = rank,
              .vstage = {rank, 2 * s->pp - 1 - rank},
              .now_ns = sim->next_ns[rank],
              .full = sim->held[rank] > s->cap - 2 * (int64_t)V_UNIT,
              .critical_ns = INT64_MAX};
    for (int c = 0; c < 2; c++) {
        for (int kind = V_F; kind <= V_I; kind++) {
            v.left[kind][c] = s->microbatches - sim->done[kind][v.vstage[c]];
            v.ready_ns[kind][c] = arrival(sim, kind, v.vstage[c]);
        }
        if (!f_allowed(sim, &v, c)) {
            v.ready_ns[V_F][c] = INT64_MAX;
        }
        v.pending_w[c] = sim->done[V_W][v.vstage[c]] < sim->done[V_I][v.vstage[c]];
    }
    v.cooldown = v.left[V_F][0] == 0;
    for (int kind = V_F; kind <= V_I; kind++) {
        for (int c = 0; c < 2; c++) {
            int64_t at = v.ready_ns[kind][c];
            if (at > v.now_ns && at < v.critical_ns && is_critical(sim, &v, kind, c)) {
                v.critical_ns = at;
            }
        }
    }
    return v;
}

static bool ready(const view *v, int kind, int chunk)
{
    return v->ready_ns[kind][chunk] <= v->now_ns;
}

// Before the first backward: 2(p-r)-1 forwards of chunk 0, then one of each in turn (arXiv
// 2401.10241v1, section 6). False where that is over.
static bool choose_warmup(const simulation *sim, const view *v, choice *choice_out)
{
    int run_f0 = sim->done[V_F][v->vstage[0]];
    int run_f1 = sim->done[V_F][v->vstage[1]];
    if (sim->done[V_I][v->vstage[1]] > 0 || v->cooldown ||
        sim->held[v->rank] + V_UNIT > sim->setting->cap) {
        return false;
    }
    int chunk = run_f0 < 2 * (sim->setting->pp - v->rank) - 1 + run_f1 ? 0 : 1;
    if (chunk == 1 && ready(v, V_I, 1)) {
        return false;
    }
    *choice_out = ready(v, V_F, chunk) ? (choice){V_F, chunk} : nothing;
    return true;
}

static int first_chunk_of_i(const simulation *sim, const view *v)
{
    int behind = v->left[V_I][0] - v->left[V_I][1];
    return !v->cooldown || behind > (sim->setting->pp - v->rank) / sim->rule->lead ? 0 : 1;
}

static choice choose_w(const view *v)
{
    // Chunk 1 first: its inputs are the younger, and chunk 0's W can fill later gaps.
    return v->pending_w[1] ? (choice){V_W, 1} : (choice){V_W, 0};
}

static choice fill_gap(const simulation *sim, const view *v)
{
    choice w = choose_w(v);
    int64_t duration_ns = sim->setting->duration_ns[V_W][v->vstage[w.chunk]];
    int64_t next_ns = v->ready_ns[V_F][1];
    for (int c = 0; c < 2; c++) {
        int64_t at = v->ready_ns[V_I][c];
        next_ns = at > v->now_ns && at < next_ns ? at : next_ns;
    }
    // In the cool-down a W may reach into the next operation by three tenths: else gaps a little
    // too short would all stay empty.
    int64_t needed_ns = v->cooldown ? duration_ns * 7 / 10 : duration_ns;
    bool delays = v->critical_ns != INT64_MAX && v->critical_ns < v->now_ns + duration_ns;
    return delays || (next_ns != INT64_MAX && next_ns < v->now_ns + needed_ns) ? nothing : w;
}

static choice choose(const simulation *sim, const view *v)
{
    choice picked;
    if (choose_warmup(sim, v, &picked)) {
        return picked;
    }
    bool has_w = v->pending_w[0] || v->pending_w[1];
    bool f_now = ready(v, V_F, 0) || ready(v, V_F, 1);
    if (has_w && v->full && !f_now && v->left[V_F][0] + v->left[V_F][1] > 0) {
        return choose_w(v);
    }
    int first_i = first_chunk_of_i(sim, v);
    choice preferred[4] = {{V_F, 1}, {V_F, 0}, {V_I, first_i}, {V_I, 1 - first_i}};
    for (int k = 0; k < 4; k++) {
        int kind = preferred[k].kind;
        int chunk = preferred[k].chunk;
        int64_t duration_ns = sim->setting->duration_ns[kind][v->vstage[chunk]];
        bool first = kind == V_F && chunk == 1;
        bool urgent = first || is_critical(sim, v, kind, chunk);
        if (!ready(v, kind, chunk) || (!urgent && v->critical_ns < v->now_ns + duration_ns)) {
            continue;
        }
        int64_t patience_ns = sim->rule->wait_half ? duration_ns / 2 : 0;
        if (!first && v->ready_ns[V_F][1] < v->now_ns + patience_ns) {
            return nothing;
        }
        return preferred[k];
    }
    return has_w ? fill_gap(sim, v) : nothing;
}

// The rank has something to look at earlier than it thought.
static void wake(simulation *sim, int rank, int64_t now_ns)
{
    int64_t at = now_ns > sim->free_ns[rank] ? now_ns : sim->free_ns[rank];
    if (at < sim->next_ns[rank]) {
        sim->next_ns[rank] = at;
    }
}

// Announces the arrival of a micro-batch's F or I at a virtual stage.
static void announce(simulation *sim, int kind, int from, int to, int microbatch, int64_t end_ns)
{
    const v_setting *s = sim->setting;
    sim->arrival_ns[kind][(size_t)to * (size_t)s->microbatches + (size_t)microbatch] =
        end_ns + transfer_lag_ns(s, from, to);
}

static void run(simulation *sim, const view *v, choice picked)
{
    const v_setting *s = sim->setting;
    int vstage = v->vstage[picked.chunk];
    int microbatch = sim->done[picked.kind][vstage]++;
    int64_t end_ns = v->now_ns + s->duration_ns[picked.kind][vstage];
    v_order_append(sim->order, picked.kind, vstage, microbatch);
    sim->held[v->rank] += s->unit[picked.kind];
    sim->free_ns[v->rank] = end_ns;
    sim->next_ns[v->rank] = end_ns;
    int to = picked.kind == V_F ? vstage + 1 : vstage - 1;
    if (picked.kind == V_W || to < 0) {
        return;
    }
    if (to == 2 * s->pp) {
        announce(sim, V_I, vstage, vstage, microbatch, end_ns);
        return;
    }
    announce(sim, picked.kind, vstage, to, microbatch, end_ns);
    wake(sim, to < s->pp ? to : 2 * s->pp - 1 - to, v->now_ns);
}

static void wait_for_arrival(simulation *sim, const view *v)
{
    int64_t next_ns = INT64_MAX;
    for (int kind = V_F; kind <= V_I; kind++) {
        for (int c = 0; c < 2; c++) {
            int64_t at = v->ready_ns[kind][c];
            next_ns = at > v->now_ns && at < next_ns ? at : next_ns;
        }
    }
    sim->next_ns[v->rank] = next_ns;
}

static int earliest_rank(const simulation *sim)
{
    int rank = 0;
    for (int r = 1; r < sim->setting->pp; r++) {
        rank = sim->next_ns[r] < sim->next_ns[rank] ? r : rank;
    }
    return rank;
}

static simulation simulation_new(sp_arena *work, int rule_index, v_order *order)
{
    const v_setting *s = order->setting;
    size_t pp = (size_t)s->pp;
    size_t arrivals = 2 * pp * (size_t)s->microbatches;
    simulation sim = {.order = order,
                      .setting = s,
                      .rule = &rules[rule_index],
                      .held = sp_arena_take(work, pp, sizeof *sim.held),
                      .free_ns = sp_arena_take(work, pp, sizeof *sim.free_ns),
                      .next_ns = sp_arena_take(work, pp, sizeof *sim.next_ns)};
    for (int kind = 0; kind < V_KINDS; kind++) {
        sim.done[kind] = sp_arena_take(work, 2 * pp, sizeof *sim.done[kind]);
    }
    for (int kind = V_F; kind <= V_I; kind++) {
        sim.arrival_ns[kind] = sp_arena_take(work, arrivals, sizeof *sim.arrival_ns[kind]);
        for (size_t k = 0; k < arrivals; k++) {
            // The first virtual stage has its inputs from the start.
            sim.arrival_ns[kind][k] = kind == V_F && k < (size_t)s->microbatches ? 0 : NOT_YET;
        }
    }
    return sim;
}

// Writes the order of a rule (0 .. V_RULES-1) into an empty one; its setting has a cap of 2p
// chunks or more. O(operations * p).
static void write_greedy(sp_arena *work, int rule_index, v_order *order)
{
    simulation sim = simulation_new(work, rule_index, order);
    size_t left = (size_t)order->setting->pp * order->per_rank;
    while (left > 0) {
        int rank = earliest_rank(&sim);
        SP_ASSERT(sim.next_ns[rank] != INT64_MAX);
        view v = look(&sim, rank);
        choice picked = choose(&sim, &v);
        if (picked.kind == V_KINDS) {
            wait_for_arrival(&sim, &v);
        } else {
            run(&sim, &v, picked);
            left--;
        }
    }
}

// ---- ZB-V ----

// ZB-V (Qi et al., Zero Bubble Pipeline Parallelism, arXiv 2401.10241v1, section 6): two chunks per
// rank in V placement, backward split in I and W, no rank above 2p chunks, which is the memory of
// 1F1B. The paper's fixed order and those of a few greedy rules on the mean costs are
// each improved by justification; the one with the shortest longest stage is kept.
//
// How near this is to the best: with equal stages rank p-1 starts at (p-1)(F+c) and before its
// first I has nothing to run for (2p-2)c - (p-1)(F-I); after its last F it holds at most 2p chunks,
// whose I and W are still to run, while that micro-batch has p-1 forwards, all its input gradients
// and a last W on rank 0 ahead. So for W <= F and I <= F the bubble of the longest stage is at
// least 2(p-1)(F+2c-W) - W + (2p-2)c - (p-1)(F-I) in chunk times. Table 8 of the paper shows just
// that to its four decimals, and on such costs these orders meet it.

// Returns what a chunk holds after I, in V_UNIT of its peak, rounded up.
static int64_t kept_after_i(const sp_schedule_costs *costs)
{
    double after = costs->unit_f + costs->unit_b;
    double peak = after > costs->unit_f ? after : costs->unit_f;
    if (peak <= 0.0) {
        return V_UNIT;
    }
    double kept = after / peak * V_UNIT;
    if (kept <= 0.0) {
        return 0;
    }
    int64_t whole = (int64_t)kept;
    return (double)whole < kept ? whole + 1 : whole;
}

// Rounds of justification that still paid off in trials; later ones repeat themselves.
enum { ROUNDS = 2 };

// One rank of the fixed order in the making.
typedef struct fixed_rank {
    v_order *order;
    int vstage[2];
    int done[V_KINDS][2];
} fixed_rank;

static void add(fixed_rank *rank, int kind, int chunk)
{
    v_order_append(rank->order, kind, rank->vstage[chunk], rank->done[kind][chunk]++);
}

static void add_triple(fixed_rank *rank, int chunk)
{
    if (rank->done[V_F][chunk] < rank->order->setting->microbatches) {
        add(rank, V_F, chunk);
    }
    add(rank, V_I, chunk);
    add(rank, V_W, chunk);
}

// The paper's order for equal times (section 6), as PyTorch's ScheduleZBVZeroBubble lists it:
// forwards, triples F I W of chunk 1 until chunk 0 of the first micro-batch comes back, triples of
// both chunks in turn, then I before W. Needs 2p micro-batches.
static void write_fixed_rank(v_order *order, int rank_number)
{
    int pp = order->setting->pp;
    int m = order->setting->microbatches;
    fixed_rank rank = {.order = order, .vstage = {rank_number, 2 * pp - 1 - rank_number}};
    for (int k = 0; k < 2 * (pp - rank_number) - 1; k++) {
        add(&rank, V_F, 0);
    }
    for (int k = 0; k < rank_number; k++) {
        add(&rank, V_F, 1);
        add(&rank, V_F, 0);
    }
    for (int k = 0; k < pp - rank_number; k++) {
        add_triple(&rank, 1);
    }
    while (rank.done[V_F][1] < m) {
        add_triple(&rank, 0);
        add_triple(&rank, 1);
    }
    while (rank.done[V_I][1] < m) {
        add(&rank, V_I, 0);
        add(&rank, V_I, 1);
    }
    while (rank.done[V_I][0] < m) {
        add(&rank, V_I, 0);
        add(&rank, V_W, 0);
    }
    for (int chunk = 1; chunk >= 0; chunk--) {
        while (rank.done[V_W][chunk] < m) {
            add(&rank, V_W, chunk);
        }
    }
}

// Durations of at least 1 ns, so that inputs always start before what needs them and a sort by time
// keeps them in order. F, I and W in turn, [2 * pp] each.
static int64_t *longer_than_nothing(sp_i_schedule_job *job, size_t vstages)
{
    const int64_t *given[V_KINDS] = {job->costs->f_ns, job->costs->i_ns, job->costs->w_ns};
    int64_t *duration_ns = sp_arena_take(&job->work, V_KINDS * vstages, sizeof *duration_ns);
    for (size_t k = 0; k < V_KINDS * vstages; k++) {
        int64_t ns = given[k / vstages][k % vstages];
        duration_ns[k] = ns > 0 ? ns : 1;
    }
    return duration_ns;
}

// Begins with the fixed order, if the micro-batches suffice for it, then with the greedy rules.
void sp_i_schedule_zb_v(sp_i_schedule_job *job)
{
    int pp = job->pp;
    size_t vstages = 2 * (size_t)pp;
    int64_t *duration_ns = longer_than_nothing(job, vstages);
    int64_t kept = kept_after_i(job->costs);
    const v_setting setting = {
        .pp = pp,
        .microbatches = job->microbatches,
        .duration_ns = {duration_ns, duration_ns + vstages, duration_ns + 2 * vstages},
        .p2p_ns = job->costs->p2p_ns,
        .unit = {V_UNIT, kept - V_UNIT, -kept},
        .cap = 2 * (int64_t)pp * V_UNIT,
    };
    v_order order = v_order_new(&job->work, &setting);
    v_order best = v_order_new(&job->work, &setting);
    int64_t best_ns = INT64_MAX;
    if (job->microbatches == 0) {
        return;
    }
    for (int r = 0; r < pp && job->microbatches >= 2 * pp; r++) {
        write_fixed_rank(&order, r);
    }
    if (job->microbatches >= 2 * pp) {
        v_order_improve(&order, ROUNDS, &best, &best_ns);
    }
    int64_t least_ns = least_span_ns(&setting);
    for (int rule = 0; rule < V_RULES && best_ns > least_ns; rule++) {
        v_order_clear(&order);
        write_greedy(&job->work, rule, &order);
        v_order_improve(&order, ROUNDS, &best, &best_ns);
    }
    v_order_emit(&best, job);
}

// ---- V-Half and V-Min ----

// V-Half and V-Min (Qi et al., Pipeline Parallelism with Controllable Memory, arXiv 2405.15362):
// a building block of one micro-batch in unit passes is repeated every six
// passes; how long it holds its chunks sets the memory. The repetition is then squeezed and
// reordered within that memory, here by justification. Longest-stage bubble with F = I = W in unit
// passes, from p micro-batches on: V-Min 4p-9 for p = 3k+2, else 4p-5 (4p-7 for p = 3k); V-Half
// 3p-7 for even p, 3p-4 for odd.

// Passes from one rank to the next on the way down (F of chunk 0, I of chunk 1) and up (F of chunk
// 1, I of chunk 0), and from each of the four to the next where the V turns: F 0 to 1 on rank p-1,
// F to I of chunk 1 on rank 0, I 1 to 0 on rank p-1.
typedef struct block {
    int down, up;
    int turn[3];
    int most_microbatches; // a rank's activations
} block;

enum { PERIOD = 6, BLOCK_OPS = 6, BLOCK_ROUNDS = 3 };

// An operation of a rank in the block.
typedef struct block_op {
    int64_t pass;
    int kind, chunk;
} block_op;

static int by_pass(const void *a, const void *b)
{
    const block_op *x = a;
    const block_op *y = b;
    return x->pass < y->pass ? -1 : x->pass > y->pass;
}

// First pass after `after` that has this place in the period.
static int64_t next_pass(int64_t after, int64_t place)
{
    int64_t ahead = (place - after - 1) % PERIOD;
    return after + 1 + (ahead < 0 ? ahead + PERIOD : ahead);
}

// The two W take the places of the period that the four others leave, so that they wait least.
static void place_weight_gradients(block_op ops[BLOCK_OPS])
{
    bool taken[PERIOD] = {false};
    for (int k = 0; k < 4; k++) {
        SP_ASSERT(!taken[ops[k].pass % PERIOD]);
        taken[ops[k].pass % PERIOD] = true;
    }
    int64_t place[2] = {0};
    int found = 0;
    for (int k = 0; k < PERIOD; k++) {
        if (!taken[k]) {
            place[found++] = k;
        }
    }
    int64_t straight[2];
    int64_t crossed[2];
    for (int k = 0; k < 2; k++) {
        straight[k] = next_pass(ops[2 + k].pass, place[k]);
        crossed[k] = next_pass(ops[2 + k].pass, place[1 - k]);
    }
    bool cross = crossed[0] + crossed[1] < straight[0] + straight[1];
    for (int k = 0; k < 2; k++) {
        ops[4 + k] = (block_op){cross ? crossed[k] : straight[k], V_W, ops[2 + k].chunk};
    }
}

static void lay_out_rank(const block *b, int pp, int rank, block_op ops[BLOCK_OPS])
{
    int64_t to_last = rank * (int64_t)b->down;
    int64_t from_last = (pp - 1 - rank) * (int64_t)b->up;
    int64_t f1 = (pp - 1) * (int64_t)b->down + b->turn[0];
    int64_t i1 = f1 + (pp - 1) * (int64_t)b->up + b->turn[1];
    int64_t i0 = i1 + (pp - 1) * (int64_t)b->down + b->turn[2];
    ops[0] = (block_op){to_last, V_F, 0};
    ops[1] = (block_op){f1 + from_last, V_F, 1};
    ops[2] = (block_op){i1 + to_last, V_I, 1};
    ops[3] = (block_op){i0 + from_last, V_I, 0};
    place_weight_gradients(ops);
    qsort(ops, BLOCK_OPS, sizeof *ops, by_pass);
}

// One rank's block repeated: micro-batch k comes PERIOD * k passes after the first.
static void repeat_block(v_order *order, int rank, const block_op ops[BLOCK_OPS])
{
    const v_setting *s = order->setting;
    int64_t last = ops[BLOCK_OPS - 1].pass + (int64_t)PERIOD * (s->microbatches - 1);
    int64_t first_period = ops[0].pass / PERIOD;
    for (int64_t period = first_period; period * PERIOD <= last; period++) {
        for (int64_t place = 0; place < PERIOD; place++) {
            for (int k = 0; k < BLOCK_OPS; k++) {
                int64_t microbatch = period - ops[k].pass / PERIOD;
                if (ops[k].pass % PERIOD == place && microbatch >= 0 &&
                    microbatch < s->microbatches) {
                    int vstage = ops[k].chunk == 0 ? rank : 2 * s->pp - 1 - rank;
                    v_order_append(order, ops[k].kind, vstage, (int)microbatch);
                }
            }
        }
    }
}

static void schedule_block(sp_i_schedule_job *job, const block *b)
{
    int pp = job->pp;
    int64_t *pass = sp_arena_take(&job->work, 2 * (size_t)pp, sizeof *pass);
    for (int k = 0; k < 2 * pp; k++) {
        pass[k] = 1;
    }
    v_setting setting = {.pp = pp,
                         .microbatches = job->microbatches,
                         .duration_ns = {pass, pass, pass},
                         .unit = {V_UNIT, 0, -V_UNIT},
                         .cap = 2 * (int64_t)b->most_microbatches * V_UNIT};
    v_order order = v_order_new(&job->work, &setting);
    v_order best = v_order_new(&job->work, &setting);
    if (job->microbatches == 0) {
        return;
    }
    for (int r = 0; r < pp; r++) {
        block_op ops[BLOCK_OPS];
        lay_out_rank(b, pp, r, ops);
        repeat_block(&order, r, ops);
    }
    int64_t best_ns = INT64_MAX;
    v_order_improve(&order, BLOCK_ROUNDS, &best, &best_ns);
    v_order_emit(&best, job);
}

// The turns are the shortest for which no rank has two operations at one place of the period: the
// passes of the four differ by constants and by multiples of 2 (V-Min) or 3 (V-Half) per rank, so
// what remains to be avoided depends on p modulo 3 or 2.
void sp_i_schedule_v_min(sp_i_schedule_job *job)
{
    int pp = job->pp;
    block b = {.down = 1, .up = 1, .turn = {1, 1, 1}, .most_microbatches = (pp + 4) / 3};
    if (pp % 3 == 0) {
        b.turn[0] = 3;
        b.turn[2] = 3;
    }
    schedule_block(job, &b);
}

void sp_i_schedule_v_half(sp_i_schedule_job *job)
{
    int pp = job->pp;
    block b = {.down = 2, .up = 1, .turn = {2, 1, 1}, .most_microbatches = (pp + 2) / 2};
    if (pp % 2 == 0) {
        b.turn[0] = 5;
        b.turn[2] = 4;
    }
    schedule_block(job, &b);
}
