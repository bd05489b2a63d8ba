#include "sim/schedule/v_order.h"

#include <string.h>

#include "sim/base/units.h"

static size_t operations(const sp_i_v_setting *s)
{
    return (size_t)SP_I_V_KINDS * 2 * (size_t)s->pp * (size_t)s->microbatches;
}

static int rank_of(const sp_i_v_setting *setting, int vstage)
{
    return vstage < setting->pp ? vstage : 2 * setting->pp - 1 - vstage;
}

static sp_i_v_op describe(const sp_i_v_setting *setting, size_t id)
{
    size_t m = (size_t)setting->microbatches;
    size_t stages = 2 * (size_t)setting->pp;
    sp_i_v_op op = {.kind = (int)(id / m / stages),
                    .vstage = (int)(id / m % stages),
                    .microbatch = (int)(id % m)};
    op.rank = rank_of(setting, op.vstage);
    op.duration_ns = setting->duration_ns[op.kind][op.vstage];
    return op;
}

sp_i_v_order sp_i_v_order_new(sp_arena *work, const sp_i_v_setting *setting)
{
    size_t total = operations(setting);
    size_t pp = (size_t)setting->pp;
    sp_i_v_op *what = sp_arena_take(work, total, sizeof *what);
    for (size_t id = 0; id < total; id++) {
        what[id] = describe(setting, id);
    }
    return (sp_i_v_order){.setting = setting,
                          .what = what,
                          .per_rank = (size_t)SP_I_V_KINDS * 2 * (size_t)setting->microbatches,
                          .op = sp_arena_take(work, total, sizeof(size_t)),
                          .count = sp_arena_take(work, pp, sizeof(size_t)),
                          .slot = sp_arena_take(work, total, sizeof(size_t)),
                          .start_ns = sp_arena_take(work, total, sizeof(int64_t)),
                          .held = sp_arena_take(work, total, sizeof(int64_t)),
                          .timed = sp_arena_take(work, pp, sizeof(size_t)),
                          .free_ns = sp_arena_take(work, pp, sizeof(int64_t)),
                          .keys = sp_arena_take(work, total, sizeof(sp_i_v_key)),
                          .merged = sp_arena_take(work, total, sizeof(sp_i_v_key))};
}

void sp_i_v_order_clear(sp_i_v_order *order)
{
    memset(order->count, 0, (size_t)order->setting->pp * sizeof *order->count);
}

static size_t v_id(const sp_i_v_setting *setting, int kind, int vstage, int microbatch)
{
    size_t stage = (size_t)kind * 2 * (size_t)setting->pp + (size_t)vstage;
    return stage * (size_t)setting->microbatches + (size_t)microbatch;
}

// Latency between two neighbouring virtual stages: none where the V turns on one rank.
static int64_t transfer_lag_ns(const sp_i_v_setting *setting, int from_vstage, int to_vstage)
{
    return rank_of(setting, from_vstage) == rank_of(setting, to_vstage) ? 0 : setting->p2p_ns;
}

void sp_i_v_order_append(sp_i_v_order *order, int kind, int vstage, int microbatch)
{
    size_t rank = (size_t)rank_of(order->setting, vstage);
    size_t id = v_id(order->setting, kind, vstage, microbatch);
    SP_ASSERT(order->count[rank] < order->per_rank);
    order->slot[id] = order->count[rank];
    order->op[rank * order->per_rank + order->count[rank]++] = id;
}

// What an operation waits for (step -1) or what waits for it (step 1): the operation of its kind on
// the virtual stage beside, the other kind on its own, and its own kind of the micro-batch beside.
// Gives their numbers and how many there are.
static int find_neighbours(const sp_i_v_setting *setting, sp_i_v_op op, int step, size_t ids[3])
{
    int count = 0;
    int beside = op.kind == SP_I_V_F ? op.vstage + step : op.vstage - step;
    int kind = op.kind + step;
    int microbatch = op.microbatch + step;
    if (op.kind != SP_I_V_W && beside >= 0 && beside < 2 * setting->pp) {
        ids[count++] = v_id(setting, op.kind, beside, op.microbatch);
    }
    if (kind >= 0 && kind < SP_I_V_KINDS) {
        ids[count++] = v_id(setting, kind, op.vstage, op.microbatch);
    }
    if (microbatch >= 0 && microbatch < setting->microbatches) {
        ids[count++] = v_id(setting, op.kind, op.vstage, microbatch);
    }
    return count;
}

// When the inputs of an operation are there; false while one has not been timed.
static bool inputs_ready(const sp_i_v_order *order, sp_i_v_op op, int64_t *ready_ns)
{
    const sp_i_v_setting *s = order->setting;
    size_t input[3];
    int inputs = find_neighbours(s, op, -1, input);
    *ready_ns = 0;
    for (int k = 0; k < inputs; k++) {
        sp_i_v_op from = order->what[input[k]];
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
static bool time_rank(sp_i_v_order *order, int rank)
{
    const size_t *list = order->op + (size_t)rank * order->per_rank;
    size_t before = order->timed[rank];
    while (order->timed[rank] < order->count[rank]) {
        sp_i_v_op op = order->what[list[order->timed[rank]]];
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

static void count_memory(sp_i_v_order *order)
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
static bool time_all(sp_i_v_order *order)
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

static int64_t peak_of(const sp_i_v_order *order)
{
    int64_t peak = 0;
    for (size_t at = 0; at < operations(order->setting); at++) {
        int64_t unit = order->setting->unit[order->what[order->op[at]].kind];
        int64_t level = order->held[at] + (unit > 0 ? unit : 0);
        peak = level > peak ? level : peak;
    }
    return peak;
}

int64_t sp_i_v_least_span_ns(const sp_i_v_setting *setting)
{
    int64_t longest = 0;
    for (int r = 0; r < setting->pp; r++) {
        int64_t work_ns = 0;
        for (int kind = 0; kind < SP_I_V_KINDS; kind++) {
            const int64_t *of = setting->duration_ns[kind];
            work_ns += setting->microbatches * (of[r] + of[2 * setting->pp - 1 - r]);
        }
        longest = work_ns > longest ? work_ns : longest;
    }
    return longest;
}

// Longest stage: the largest last end - first start of a rank (the measure of arXiv 2401.10241).
static int64_t longest_span_ns(const sp_i_v_order *order)
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

static void copy_order(sp_i_v_order *to, const sp_i_v_order *from)
{
    size_t total = operations(from->setting);
    memcpy(to->op, from->op, total * sizeof *to->op);
    memcpy(to->count, from->count, (size_t)from->setting->pp * sizeof *to->count);
    memcpy(to->slot, from->slot, total * sizeof *to->slot);
    memcpy(to->start_ns, from->start_ns, total * sizeof *to->start_ns);
    memcpy(to->held, from->held, total * sizeof *to->held);
}

static void justify(sp_i_v_order *order);

void sp_i_v_order_improve(sp_i_v_order *order, int rounds, sp_i_v_order *best, int64_t *best_ns)
{
    int64_t least_ns = sp_i_v_least_span_ns(order->setting);
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

void sp_i_v_order_emit(const sp_i_v_order *order, sp_i_schedule_job *job)
{
    static const sp_action_kind kinds[SP_I_V_KINDS] = {
        [SP_I_V_F] = SP_ACTION_F, [SP_I_V_I] = SP_ACTION_I, [SP_I_V_W] = SP_ACTION_W};
    SP_ASSERT(peak_of(order) <= order->setting->cap);
    for (size_t at = 0; at < operations(order->setting); at++) {
        sp_i_v_op op = order->what[order->op[at]];
        int chunk = op.vstage < order->setting->pp ? 0 : 1;
        sp_i_schedule_add(job, op.rank, kinds[op.kind], chunk, op.microbatch, 0);
    }
}

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
    int count = find_neighbours(order->setting, op, 1, ids);
    for (int k = 0; k < count; k++) {
        int vstage = order->what[ids[k]].vstage;
        int64_t lag_ns = transfer_lag_ns(order->setting, op.vstage, vstage);
        deadline_ns = least(deadline_ns, order->start_ns[ids[k]] - lag_ns);
    }
    return deadline_ns;
}

// When `op` has all that it waits for.
static int64_t earliest_start(const sp_i_v_order *order, sp_i_v_op op)
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

// Forward-backward improvement (Valls, Ballestin, Quintanilla: Justification and RCPSP, 2005): all
// operations as late as possible within the present longest span, the last first, then as early as
// possible, the first first; each goes to the best gap of its rank that keeps inputs, the order of
// micro-batches within a virtual stage and, if it did before, the memory cap. The order has times.
// Not always shorter, so the caller keeps the better one. O(operations * log p) beside the gaps
// looked at.
static void justify(sp_i_v_order *order)
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

// What the rules differ in, all of it at the end of the batch or against small delays of chunk 1,
// on which the other ranks wait. No one setting is best for all costs.
typedef struct rule {
    int wait_half; // leave a rank idle when F of chunk 1 arrives within half of another operation
    int lead;      // without F of chunk 0 left, I of chunk 0 goes first while more than (p-r)/lead
                   // of them are behind chunk 1
    int last_f;    // for so many last F of chunk 1 nothing else may be in the way
    int last_i;    // for so many last I of each chunk, likewise
} rule;

static const rule rules[SP_I_V_RULES] = {{0, 2, 1, 0}, {1, 2, 1, 0}, {1, 1, 0, 0}, {1, 1, 0, 2}};

enum { NOT_YET = -1 };

typedef struct simulation {
    sp_i_v_order *order;
    const sp_i_v_setting *setting;
    const rule *rule;
    int64_t *arrival_ns[2];  // of F and I, [2 * pp * m]; NOT_YET while the source has not started
    int *done[SP_I_V_KINDS]; // [2 * pp]
    int64_t *held;           // [pp]
    int64_t *free_ns;        // [pp]
    int64_t *next_ns;        // [pp]: when the rank looks again; INT64_MAX: when woken
} simulation;

// What one rank sees when it chooses. Chunk numbers index the pairs.
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
    int kind, chunk; // kind SP_I_V_KINDS: none
} choice;

static const choice nothing = {SP_I_V_KINDS, 0};

static int64_t arrival(const simulation *sim, int kind, int vstage)
{
    int next = sim->done[kind][vstage];
    if (next == sim->setting->microbatches ||
        (kind == SP_I_V_I && next == sim->done[SP_I_V_F][vstage])) {
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
    for (int kind = 0; kind < SP_I_V_KINDS; kind++) {
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
    int64_t with = sim->held[v->rank] + SP_I_V_UNIT;
    if (chunk == 1) {
        return with <= cap;
    }
    int64_t places = 2 * (int64_t)sim->setting->pp - 1 - v->rank;
    return with <= cap - SP_I_V_UNIT &&
           held_by(sim, v->vstage[0]) + SP_I_V_UNIT <= places * SP_I_V_UNIT;
}

static bool is_critical(const simulation *sim, const view *v, int kind, int chunk)
{
    if (kind == SP_I_V_F) {
        return chunk == 1 && v->left[SP_I_V_F][1] <= sim->rule->last_f;
    }
    return v->cooldown && v->left[SP_I_V_I][chunk] <= sim->rule->last_i;
}

static view look(const simulation *sim, int rank)
{
    const sp_i_v_setting *s = sim->setting;
    view v = {.rank = rank,
              .vstage = {rank, 2 * s->pp - 1 - rank},
              .now_ns = sim->next_ns[rank],
              .full = sim->held[rank] > s->cap - 2 * (int64_t)SP_I_V_UNIT,
              .critical_ns = INT64_MAX};
    for (int c = 0; c < 2; c++) {
        for (int kind = SP_I_V_F; kind <= SP_I_V_I; kind++) {
            v.left[kind][c] = s->microbatches - sim->done[kind][v.vstage[c]];
            v.ready_ns[kind][c] = arrival(sim, kind, v.vstage[c]);
        }
        if (!f_allowed(sim, &v, c)) {
            v.ready_ns[SP_I_V_F][c] = INT64_MAX;
        }
        v.pending_w[c] = sim->done[SP_I_V_W][v.vstage[c]] < sim->done[SP_I_V_I][v.vstage[c]];
    }
    v.cooldown = v.left[SP_I_V_F][0] == 0;
    for (int kind = SP_I_V_F; kind <= SP_I_V_I; kind++) {
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
    int run_f0 = sim->done[SP_I_V_F][v->vstage[0]];
    int run_f1 = sim->done[SP_I_V_F][v->vstage[1]];
    if (sim->done[SP_I_V_I][v->vstage[1]] > 0 || v->cooldown ||
        sim->held[v->rank] + SP_I_V_UNIT > sim->setting->cap) {
        return false;
    }
    int chunk = run_f0 < 2 * (sim->setting->pp - v->rank) - 1 + run_f1 ? 0 : 1;
    if (chunk == 1 && ready(v, SP_I_V_I, 1)) {
        return false;
    }
    *choice_out = ready(v, SP_I_V_F, chunk) ? (choice){SP_I_V_F, chunk} : nothing;
    return true;
}

static int first_chunk_of_i(const simulation *sim, const view *v)
{
    int behind = v->left[SP_I_V_I][0] - v->left[SP_I_V_I][1];
    return !v->cooldown || behind > (sim->setting->pp - v->rank) / sim->rule->lead ? 0 : 1;
}

static choice choose_w(const view *v)
{
    // Chunk 1 first: its inputs are the younger, and chunk 0's W can fill later gaps.
    return v->pending_w[1] ? (choice){SP_I_V_W, 1} : (choice){SP_I_V_W, 0};
}

static choice fill_gap(const simulation *sim, const view *v)
{
    choice w = choose_w(v);
    int64_t duration_ns = sim->setting->duration_ns[SP_I_V_W][v->vstage[w.chunk]];
    int64_t next_ns = v->ready_ns[SP_I_V_F][1];
    for (int c = 0; c < 2; c++) {
        int64_t at = v->ready_ns[SP_I_V_I][c];
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
    bool f_now = ready(v, SP_I_V_F, 0) || ready(v, SP_I_V_F, 1);
    if (has_w && v->full && !f_now && v->left[SP_I_V_F][0] + v->left[SP_I_V_F][1] > 0) {
        return choose_w(v);
    }
    int first_i = first_chunk_of_i(sim, v);
    choice preferred[4] = {
        {SP_I_V_F, 1}, {SP_I_V_F, 0}, {SP_I_V_I, first_i}, {SP_I_V_I, 1 - first_i}};
    for (int k = 0; k < 4; k++) {
        int kind = preferred[k].kind;
        int chunk = preferred[k].chunk;
        int64_t duration_ns = sim->setting->duration_ns[kind][v->vstage[chunk]];
        bool first = kind == SP_I_V_F && chunk == 1;
        bool urgent = first || is_critical(sim, v, kind, chunk);
        if (!ready(v, kind, chunk) || (!urgent && v->critical_ns < v->now_ns + duration_ns)) {
            continue;
        }
        int64_t patience_ns = sim->rule->wait_half ? duration_ns / 2 : 0;
        if (!first && v->ready_ns[SP_I_V_F][1] < v->now_ns + patience_ns) {
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
    const sp_i_v_setting *s = sim->setting;
    sim->arrival_ns[kind][(size_t)to * (size_t)s->microbatches + (size_t)microbatch] =
        end_ns + transfer_lag_ns(s, from, to);
}

static void run(simulation *sim, const view *v, choice picked)
{
    const sp_i_v_setting *s = sim->setting;
    int vstage = v->vstage[picked.chunk];
    int microbatch = sim->done[picked.kind][vstage]++;
    int64_t end_ns = v->now_ns + s->duration_ns[picked.kind][vstage];
    sp_i_v_order_append(sim->order, picked.kind, vstage, microbatch);
    sim->held[v->rank] += s->unit[picked.kind];
    sim->free_ns[v->rank] = end_ns;
    sim->next_ns[v->rank] = end_ns;
    int to = picked.kind == SP_I_V_F ? vstage + 1 : vstage - 1;
    if (picked.kind == SP_I_V_W || to < 0) {
        return;
    }
    if (to == 2 * s->pp) {
        announce(sim, SP_I_V_I, vstage, vstage, microbatch, end_ns);
        return;
    }
    announce(sim, picked.kind, vstage, to, microbatch, end_ns);
    wake(sim, to < s->pp ? to : 2 * s->pp - 1 - to, v->now_ns);
}

static void wait_for_arrival(simulation *sim, const view *v)
{
    int64_t next_ns = INT64_MAX;
    for (int kind = SP_I_V_F; kind <= SP_I_V_I; kind++) {
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

static simulation simulation_new(sp_arena *work, int rule_index, sp_i_v_order *order)
{
    const sp_i_v_setting *s = order->setting;
    size_t pp = (size_t)s->pp;
    size_t arrivals = 2 * pp * (size_t)s->microbatches;
    simulation sim = {.order = order,
                      .setting = s,
                      .rule = &rules[rule_index],
                      .held = sp_arena_take(work, pp, sizeof *sim.held),
                      .free_ns = sp_arena_take(work, pp, sizeof *sim.free_ns),
                      .next_ns = sp_arena_take(work, pp, sizeof *sim.next_ns)};
    for (int kind = 0; kind < SP_I_V_KINDS; kind++) {
        sim.done[kind] = sp_arena_take(work, 2 * pp, sizeof *sim.done[kind]);
    }
    for (int kind = SP_I_V_F; kind <= SP_I_V_I; kind++) {
        sim.arrival_ns[kind] = sp_arena_take(work, arrivals, sizeof *sim.arrival_ns[kind]);
        for (size_t k = 0; k < arrivals; k++) {
            // The first virtual stage has its inputs from the start.
            sim.arrival_ns[kind][k] = kind == SP_I_V_F && k < (size_t)s->microbatches ? 0 : NOT_YET;
        }
    }
    return sim;
}

void sp_i_v_greedy(sp_arena *work, int rule_index, sp_i_v_order *order)
{
    simulation sim = simulation_new(work, rule_index, order);
    size_t left = (size_t)order->setting->pp * order->per_rank;
    while (left > 0) {
        int rank = earliest_rank(&sim);
        SP_ASSERT(sim.next_ns[rank] != INT64_MAX);
        view v = look(&sim, rank);
        choice picked = choose(&sim, &v);
        if (picked.kind == SP_I_V_KINDS) {
            wait_for_arrival(&sim, &v);
        } else {
            run(&sim, &v, picked);
            left--;
        }
    }
}
