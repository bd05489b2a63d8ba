#include "sim/schedule/v_order.h"

#include <string.h>

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

int64_t sp_i_v_lag_ns(const sp_i_v_setting *setting, int from_vstage, int to_vstage)
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

int sp_i_v_neighbours(const sp_i_v_setting *setting, sp_i_v_op op, int step, size_t ids[3])
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
    int inputs = sp_i_v_neighbours(s, op, -1, input);
    *ready_ns = 0;
    for (int k = 0; k < inputs; k++) {
        sp_i_v_op from = order->what[input[k]];
        if (order->slot[input[k]] >= order->timed[from.rank]) {
            return false;
        }
        int64_t there =
            order->start_ns[input[k]] + from.duration_ns + sp_i_v_lag_ns(s, from.vstage, op.vstage);
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

int64_t sp_i_v_order_span_ns(const sp_i_v_order *order)
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

void sp_i_v_order_improve(sp_i_v_order *order, int rounds, sp_i_v_order *best, int64_t *best_ns)
{
    int64_t least_ns = sp_i_v_least_span_ns(order->setting);
    bool finishes = time_all(order);
    SP_ASSERT(finishes);
    for (int round = 0; round <= rounds && *best_ns > least_ns; round++) {
        if (round > 0) {
            sp_i_v_order_justify(order);
        }
        int64_t span_ns = sp_i_v_order_span_ns(order);
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
