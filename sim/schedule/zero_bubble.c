#include "sim/schedule/zero_bubble.h"

#include <math.h>
#include <string.h>

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

static void reset_clock(sp_i_zb_clock *clock)
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

// Would another F (and then its I) stay under the cap after `drained` further W?
static bool has_room(const sp_i_zb_clock *clock, int rank, int ahead, int drained)
{
    const sp_i_zb_rank *r = &clock->ranks[rank];
    double gradients = clock->costs->unit_b > 0.0 ? clock->costs->unit_b : 0.0;
    double units = held_units(clock->costs, r->f + ahead + 1, r->i, r->w + drained);
    return fits(clock, units + gradients);
}

// When the input of the rank's next F or I is there; INT64_MAX while it has not been put.
static int64_t zb_arrival_ns(const sp_i_zb_clock *clock, int rank, sp_action_kind kind)
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

static uint8_t *order_rank(const sp_i_zb_order *order, int pp_rank)
{
    return order->kinds + (size_t)pp_rank * 3 * (size_t)order->microbatches;
}

// Runs the next F, I or W of a rank. What it waits for must have run.
static void zb_put(sp_i_zb_clock *clock, int rank, sp_action_kind kind)
{
    sp_i_zb_rank *r = &clock->ranks[rank];
    size_t row = (size_t)rank * (size_t)clock->order.microbatches;
    int64_t arrival_ns = zb_arrival_ns(clock, rank, kind);
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
        if (zb_arrival_ns(clock, rank, kind) == INT64_MAX) {
            break;
        }
        zb_put(clock, rank, kind);
    }
    return r->f + r->i + r->w > before;
}

void sp_i_zb_replay(sp_i_zb_clock *clock, const sp_i_zb_order *order)
{
    reset_clock(clock);
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

// Writes the actions of all ranks.
static void emit_order(const sp_i_zb_order *order, sp_i_schedule_job *job)
{
    for (int r = 0; r < order->pp; r++) {
        const uint8_t *kinds = order_rank(order, r);
        int done[SP_ACTION_KINDS] = {0};
        for (int a = 0; a < 3 * order->microbatches; a++) {
            sp_i_schedule_add(job, r, (sp_action_kind)kinds[a], 0, done[kinds[a]]++, 0);
        }
    }
}

// ---- zb-auto ----
//
// The automatic schedule of Zero Bubble (arXiv 2401.10241, section 3.1) under a memory cap: ZB-1p
// with a cap of p, ZB-2p with 2p micro-batches of one rank stage. The order grows micro-batch by
// micro-batch on clocks: warm-up forwards until the first input gradient arrives; then one F and
// one I per rank in turn, with W wherever a rank would wait or its memory is full; the rest of W
// last. Three choices are left open and all eight combinations tried. The handcrafted ZB-H1 and
// ZB-H2 compete where they respect the cap; the shortest longest stage wins.

// The choices, as the authors' scheduler (sail-sg/zero-bubble-pipeline-parallelism) has them.
typedef struct choices {
    bool bubble_before_first_i; // rather idle than run a warm-up F into the first I's arrival
    bool prioritize_i;          // leave out an F that would delay the next I
    bool fill_greedily;         // run a W longer than the gap even where the gap would cost nothing
} choices;

typedef struct grower {
    sp_i_zb_clock clock;
    sp_i_zb_order best;
    bool found;
    int64_t best_span_ns;
    choices choices;
    int *forwards; // [pp]: F to run on each rank in this round
} grower;

static void keep_if_better(grower *g)
{
    int64_t span_ns = sp_i_zb_longest_span_ns(&g->clock);
    if (!g->clock.over_cap && (!g->found || span_ns < g->best_span_ns)) {
        sp_i_zb_order replaced = g->best;
        g->best = g->clock.order;
        g->clock.order = replaced;
        g->best_span_ns = span_ns;
        g->found = true;
    }
}

// F that fit before the first I arrives, counted from the last rank up.
static void count_warmup(grower *g)
{
    sp_i_zb_clock *clock = &g->clock;
    const sp_schedule_costs *costs = clock->costs;
    int last = clock->order.pp - 1;
    int m = clock->order.microbatches;
    g->forwards[last] = 0;
    int64_t first_i_end_ns = clock->ranks[last].now_ns + costs->i_ns[last];
    for (int r = last - 1; r >= 0; r--) {
        int64_t arrival_ns = first_i_end_ns + costs->p2p_ns;
        int64_t now_ns = clock->ranks[r].now_ns;
        int count = 0;
        while (1 + count < m && has_room(clock, r, count, 0)) {
            bool full = g->choices.bubble_before_first_i ? now_ns + costs->f_ns[r] > arrival_ns
                                                         : now_ns >= arrival_ns;
            if (full) {
                break;
            }
            now_ns += costs->f_ns[r];
            count++;
        }
        g->forwards[r] = count;
        first_i_end_ns = (now_ns > arrival_ns ? now_ns : arrival_ns) + costs->i_ns[r];
    }
    // A rank stays one F behind the rank before it until that has run them all.
    for (int r = 1; r <= last; r++) {
        int before = g->forwards[r - 1];
        int most = before + 1 == m || before == 0 ? before : before - 1;
        g->forwards[r] = g->forwards[r] < most ? g->forwards[r] : most;
    }
}

static void warm_up(grower *g)
{
    int pp = g->clock.order.pp;
    for (int r = 0; r < pp; r++) {
        zb_put(&g->clock, r, SP_ACTION_F);
    }
    count_warmup(g);
    for (int r = 0; r < pp; r++) {
        for (int k = 0; k < g->forwards[r]; k++) {
            zb_put(&g->clock, r, SP_ACTION_F);
        }
    }
    for (int r = pp - 1; r >= 0; r--) {
        zb_put(&g->clock, r, SP_ACTION_I);
    }
}

// With two F of lead over the next rank an F can wait a round.
static bool wants_forward(const grower *g, int r)
{
    const sp_i_zb_clock *clock = &g->clock;
    const sp_schedule_costs *costs = clock->costs;
    const sp_i_zb_rank *own = &clock->ranks[r];
    if (own->f == clock->order.microbatches) {
        return false;
    }
    if (!g->choices.prioritize_i || r + 1 == clock->order.pp ||
        own->f < clock->ranks[r + 1].f + 2) {
        return true;
    }
    int64_t next_i_ns =
        clock->ranks[r + 1].now_ns + costs->f_ns[r + 1] + costs->i_ns[r + 1] + costs->p2p_ns;
    if (own->now_ns >= next_i_ns) {
        return false;
    }
    int drained = 0;
    while (own->w + drained < own->i && !has_room(clock, r, 0, drained)) {
        drained++;
    }
    if (own->now_ns + costs->f_ns[r] + drained * costs->w_ns[r] <= next_i_ns) {
        return true;
    }
    return next_i_ns - own->now_ns > clock->most_bubble_ns - own->bubble_ns;
}

static void choose_forwards(grower *g)
{
    int pp = g->clock.order.pp;
    for (int r = pp - 1; r >= 0; r--) {
        g->forwards[r] = wants_forward(g, r) && (r + 1 == pp || g->forwards[r + 1] > 0);
    }
}

// Weight gradients while the rank would wait until arrival_ns. One that ends later than that is
// worth it where the gap would lengthen the longest stage.
static void fill_gap(grower *g, int r, int64_t arrival_ns)
{
    sp_i_zb_clock *clock = &g->clock;
    const sp_i_zb_rank *own = &clock->ranks[r];
    while (own->w < own->i && own->now_ns + clock->costs->w_ns[r] <= arrival_ns) {
        zb_put(clock, r, SP_ACTION_W);
    }
    int64_t gap_ns = arrival_ns - own->now_ns;
    if (own->w < own->i && gap_ns > 0 &&
        (g->choices.fill_greedily || gap_ns > clock->most_bubble_ns - own->bubble_ns)) {
        zb_put(clock, r, SP_ACTION_W);
    }
}

static bool run_forward(grower *g, int r)
{
    sp_i_zb_clock *clock = &g->clock;
    const sp_i_zb_rank *own = &clock->ranks[r];
    while (!has_room(clock, r, 0, 0)) {
        if (own->w == own->i) {
            return false;
        }
        zb_put(clock, r, SP_ACTION_W);
    }
    fill_gap(g, r, zb_arrival_ns(clock, r, SP_ACTION_F));
    zb_put(clock, r, SP_ACTION_F);
    return true;
}

static void run_input_gradient(grower *g, int r)
{
    sp_i_zb_clock *clock = &g->clock;
    const sp_i_zb_rank *own = &clock->ranks[r];
    fill_gap(g, r, zb_arrival_ns(clock, r, SP_ACTION_I));
    // Nobody waits for the input gradients of rank 0.
    while (r == 0 && own->f == clock->order.microbatches && own->w < own->i) {
        zb_put(clock, r, SP_ACTION_W);
    }
    zb_put(clock, r, SP_ACTION_I);
}

// False where the cap leaves no room for another F.
static bool grow(grower *g)
{
    sp_i_zb_clock *clock = &g->clock;
    int pp = clock->order.pp;
    reset_clock(clock);
    warm_up(g);
    for (int k = 1; k < clock->order.microbatches; k++) {
        choose_forwards(g);
        for (int r = 0; r < pp; r++) {
            if (g->forwards[r] > 0 && !run_forward(g, r)) {
                return false;
            }
        }
        for (int r = pp - 1; r >= 0; r--) {
            run_input_gradient(g, r);
        }
    }
    for (int r = 0; r < pp; r++) {
        while (clock->ranks[r].w < clock->order.microbatches) {
            zb_put(clock, r, SP_ACTION_W);
        }
    }
    return true;
}

static void choose(grower *g, const sp_i_zb_order *handcrafted)
{
    for (int combination = 0; combination < 8; combination++) {
        g->choices = (choices){.bubble_before_first_i = (combination & 4) == 0,
                               .prioritize_i = (combination & 2) == 0,
                               .fill_greedily = (combination & 1) == 0};
        if (grow(g)) {
            keep_if_better(g);
        }
    }
    for (int steepness = 1; steepness <= 2; steepness++) {
        sp_i_zb_order_static(handcrafted, steepness);
        sp_i_zb_replay(&g->clock, handcrafted);
        keep_if_better(g);
    }
}

void sp_i_schedule_zb_auto(sp_i_schedule_job *job)
{
    int pp = job->pp;
    int m = job->microbatches;
    if (m == 0) {
        return;
    }
    double limit = job->spec->memory_limit_microbatches;
    limit = limit == 0.0 ? (double)pp : limit;
    grower g = {.clock =
                    sp_i_zb_clock_new(&job->work, job->costs, limit * job->costs->unit_f, pp, m),
                .best = sp_i_zb_order_new(&job->work, pp, m),
                .forwards = sp_arena_take(&job->work, (size_t)pp, sizeof *g.forwards)};
    sp_i_zb_order handcrafted = sp_i_zb_order_new(&job->work, pp, m);
    choose(&g, &handcrafted);
    if (g.found) {
        emit_order(&g.best, job);
    } else {
        job->status =
            sp_error_in(job->err, SP_ERR_CONTENT, job->source, "schedule.memory_limit_microbatches",
                        "%g leaves no room to run one micro-batch after another", limit);
    }
}

// ZB-H1 and ZB-H2 (Zero Bubble, arXiv 2401.10241, sections 2.1 and 2.2). Longest stage's bubble for
// F, B (input gradient) and W of similar size: (p-1)(F+B-W) and (p-1)(F+B-2W). With M_B held for B
// and M_W for W rank r holds (p-r)M_B + r M_W and (2p-1-2r)M_B + 2r M_W at most (section 2.3).
static void schedule_static(sp_i_schedule_job *job, int steepness)
{
    sp_i_zb_order order = sp_i_zb_order_new(&job->work, job->pp, job->microbatches);
    sp_i_zb_order_static(&order, steepness);
    emit_order(&order, job);
}

void sp_i_schedule_zb_h1(sp_i_schedule_job *job)
{
    schedule_static(job, 1);
}

void sp_i_schedule_zb_h2(sp_i_schedule_job *job)
{
    schedule_static(job, 2);
}
