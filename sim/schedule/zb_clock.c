#include "sim/schedule/zb_clock.h"

#include <math.h>
#include <string.h>

static uint8_t *order_rank(const sp_i_zb_order *order, int pp_rank);

sp_i_zb_clock sp_i_zb_clock_new(sp_arena *work, const sp_schedule_costs *costs, double cap, int pp,
                                int microbatches)
{
    size_t cells = (size_t)pp * (size_t)microbatches;
    return (sp_i_zb_clock){.costs = costs,
                           .cap = cap,
                           .order = sp_i_zb_order_new(work, pp, microbatches),
                           .f_end_ns = sp_arena_take(work, cells, sizeof(int64_t)),
                           .i_end_ns = sp_arena_take(work, cells, sizeof(int64_t)),
                           .ranks = sp_arena_take(work, (size_t)pp, sizeof(sp_i_zb_rank))};
}

void sp_i_zb_clock_reset(sp_i_zb_clock *clock)
{
    memset(clock->ranks, 0, (size_t)clock->order.pp * sizeof *clock->ranks);
    clock->most_bubble_ns = 0;
    clock->over_cap = false;
}

// From counts, not step by step, so that rounding does not add up.
static double held_units(const sp_schedule_costs *costs, int f, int i, int w)
{
    return f * costs->unit_f + i * costs->unit_b + w * costs->unit_w;
}

static bool fits(const sp_i_zb_clock *clock, double units)
{
    double rounding = 1e-9 * fabs(clock->cap);
    return units <= clock->cap + rounding;
}

bool sp_i_zb_has_room(const sp_i_zb_clock *clock, int rank, int ahead, int drained)
{
    const sp_i_zb_rank *r = &clock->ranks[rank];
    double gradients = clock->costs->unit_b > 0.0 ? clock->costs->unit_b : 0.0;
    double units = held_units(clock->costs, r->f + ahead + 1, r->i, r->w + drained);
    return fits(clock, units + gradients);
}

int64_t sp_i_zb_arrival_ns(const sp_i_zb_clock *clock, int rank, sp_action_kind kind)
{
    const sp_i_zb_rank *r = &clock->ranks[rank];
    int source = kind == SP_ACTION_F ? rank - 1 : rank + 1;
    if (kind == SP_ACTION_W || source < 0 || source == clock->order.pp) {
        return 0;
    }
    const sp_i_zb_rank *from = &clock->ranks[source];
    int next = kind == SP_ACTION_F ? r->f : r->i;
    if (next >= (kind == SP_ACTION_F ? from->f : from->i)) {
        return INT64_MAX;
    }
    const int64_t *end_ns = kind == SP_ACTION_F ? clock->f_end_ns : clock->i_end_ns;
    return end_ns[(size_t)source * (size_t)clock->order.microbatches + (size_t)next] +
           clock->costs->p2p_ns;
}

void sp_i_zb_put(sp_i_zb_clock *clock, int rank, sp_action_kind kind)
{
    sp_i_zb_rank *r = &clock->ranks[rank];
    size_t row = (size_t)rank * (size_t)clock->order.microbatches;
    int64_t arrival_ns = sp_i_zb_arrival_ns(clock, rank, kind);
    SP_ASSERT(arrival_ns != INT64_MAX);
    order_rank(&clock->order, rank)[r->f + r->i + r->w] = (uint8_t)kind;
    if (arrival_ns > r->now_ns) {
        r->bubble_ns += r->f > 0 ? arrival_ns - r->now_ns : 0;
        r->now_ns = arrival_ns;
    }
    if (r->bubble_ns > clock->most_bubble_ns) {
        clock->most_bubble_ns = r->bubble_ns;
    }
    switch (kind) {
    case SP_ACTION_F:
        r->start_ns = r->f == 0 ? r->now_ns : r->start_ns;
        r->now_ns += clock->costs->f_ns[rank];
        clock->f_end_ns[row + (size_t)r->f++] = r->now_ns;
        break;
    case SP_ACTION_I:
        SP_ASSERT(r->i < r->f);
        r->now_ns += clock->costs->i_ns[rank];
        clock->i_end_ns[row + (size_t)r->i++] = r->now_ns;
        break;
    default:
        SP_ASSERT(kind == SP_ACTION_W && r->w < r->i);
        r->now_ns += clock->costs->w_ns[rank];
        r->w++;
        break;
    }
    clock->over_cap |= !fits(clock, held_units(clock->costs, r->f, r->i, r->w));
}

static bool advance(sp_i_zb_clock *clock, const sp_i_zb_order *order, int rank)
{
    const sp_i_zb_rank *r = &clock->ranks[rank];
    const uint8_t *kinds = order_rank(order, rank);
    int before = r->f + r->i + r->w;
    for (int a = before; a < 3 * order->microbatches; a++) {
        sp_action_kind kind = (sp_action_kind)kinds[a];
        if (sp_i_zb_arrival_ns(clock, rank, kind) == INT64_MAX) {
            break;
        }
        sp_i_zb_put(clock, rank, kind);
    }
    return r->f + r->i + r->w > before;
}

void sp_i_zb_replay(sp_i_zb_clock *clock, const sp_i_zb_order *order)
{
    sp_i_zb_clock_reset(clock);
    // Down with the forwards and up with the backwards: a round moves each as far as it can get.
    bool moved = true;
    while (moved) {
        moved = false;
        for (int rank = 0; rank < order->pp; rank++) {
            moved |= advance(clock, order, rank);
        }
        for (int rank = order->pp - 1; rank >= 0; rank--) {
            moved |= advance(clock, order, rank);
        }
    }
    for (int rank = 0; rank < order->pp; rank++) {
        SP_ASSERT(clock->ranks[rank].w == order->microbatches);
    }
}

int64_t sp_i_zb_longest_span_ns(const sp_i_zb_clock *clock)
{
    int64_t longest_ns = 0;
    for (int rank = 0; rank < clock->order.pp; rank++) {
        int64_t span_ns = clock->ranks[rank].now_ns - clock->ranks[rank].start_ns;
        longest_ns = span_ns > longest_ns ? span_ns : longest_ns;
    }
    return longest_ns;
}

sp_i_zb_order sp_i_zb_order_new(sp_arena *work, int pp, int microbatches)
{
    return (sp_i_zb_order){
        .pp = pp,
        .microbatches = microbatches,
        .kinds = sp_arena_take(work, (size_t)pp * 3 * (size_t)microbatches, sizeof(uint8_t))};
}

static uint8_t *order_rank(const sp_i_zb_order *order, int pp_rank)
{
    return order->kinds + (size_t)pp_rank * 3 * (size_t)order->microbatches;
}

void sp_i_zb_order_static(const sp_i_zb_order *order, int steepness)
{
    int m = order->microbatches;
    for (int r = 0; r < order->pp; r++) {
        uint8_t *next = order_rank(order, r);
        int64_t warmup = (int64_t)steepness * (order->pp - 1 - r) + 1;
        int64_t lag = (int64_t)steepness * r;
        for (int64_t k = 0; k < warmup && k < m; k++) {
            *next++ = SP_ACTION_F;
        }
        for (int64_t k = 0; k < m; k++) {
            *next++ = SP_ACTION_I;
            if (k >= lag) {
                *next++ = SP_ACTION_W;
            }
            if (warmup + k < m) {
                *next++ = SP_ACTION_F;
            }
        }
        for (int64_t k = m > lag ? m - lag : 0; k < m; k++) {
            *next++ = SP_ACTION_W;
        }
    }
}

void sp_i_zb_order_emit(const sp_i_zb_order *order, sp_i_schedule_job *job)
{
    for (int r = 0; r < order->pp; r++) {
        const uint8_t *kinds = order_rank(order, r);
        int done[SP_ACTION_KINDS] = {0};
        for (int a = 0; a < 3 * order->microbatches; a++) {
            sp_i_schedule_add(job, r, (sp_action_kind)kinds[a], 0, done[kinds[a]]++, 0);
        }
    }
}
