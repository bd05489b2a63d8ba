// The automatic schedule of Zero Bubble (arXiv 2401.10241, section 3.1) under a memory cap: ZB-1p
// with a cap of p, ZB-2p with 2p micro-batches of one rank stage. The order grows micro-batch by
// micro-batch on clocks: warm-up forwards until the first input gradient arrives; then one F and
// one I per rank in turn, with W wherever a rank would wait or its memory is full; the rest of W
// last. Three choices are left open and all eight combinations tried. The handcrafted ZB-H1 and
// ZB-H2 compete where they respect the cap; the shortest longest stage wins.
#include "sim/schedule/zb_clock.h"

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
        while (1 + count < m && sp_i_zb_has_room(clock, r, count, 0)) {
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
        sp_i_zb_put(&g->clock, r, SP_ACTION_F);
    }
    count_warmup(g);
    for (int r = 0; r < pp; r++) {
        for (int k = 0; k < g->forwards[r]; k++) {
            sp_i_zb_put(&g->clock, r, SP_ACTION_F);
        }
    }
    for (int r = pp - 1; r >= 0; r--) {
        sp_i_zb_put(&g->clock, r, SP_ACTION_I);
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
    while (own->w + drained < own->i && !sp_i_zb_has_room(clock, r, 0, drained)) {
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
        sp_i_zb_put(clock, r, SP_ACTION_W);
    }
    int64_t gap_ns = arrival_ns - own->now_ns;
    if (own->w < own->i && gap_ns > 0 &&
        (g->choices.fill_greedily || gap_ns > clock->most_bubble_ns - own->bubble_ns)) {
        sp_i_zb_put(clock, r, SP_ACTION_W);
    }
}

static bool run_forward(grower *g, int r)
{
    sp_i_zb_clock *clock = &g->clock;
    const sp_i_zb_rank *own = &clock->ranks[r];
    while (!sp_i_zb_has_room(clock, r, 0, 0)) {
        if (own->w == own->i) {
            return false;
        }
        sp_i_zb_put(clock, r, SP_ACTION_W);
    }
    fill_gap(g, r, sp_i_zb_arrival_ns(clock, r, SP_ACTION_F));
    sp_i_zb_put(clock, r, SP_ACTION_F);
    return true;
}

static void run_input_gradient(grower *g, int r)
{
    sp_i_zb_clock *clock = &g->clock;
    const sp_i_zb_rank *own = &clock->ranks[r];
    fill_gap(g, r, sp_i_zb_arrival_ns(clock, r, SP_ACTION_I));
    // Nobody waits for the input gradients of rank 0.
    while (r == 0 && own->f == clock->order.microbatches && own->w < own->i) {
        sp_i_zb_put(clock, r, SP_ACTION_W);
    }
    sp_i_zb_put(clock, r, SP_ACTION_I);
}

// False where the cap leaves no room for another F.
static bool grow(grower *g)
{
    sp_i_zb_clock *clock = &g->clock;
    int pp = clock->order.pp;
    sp_i_zb_clock_reset(clock);
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
            sp_i_zb_put(clock, r, SP_ACTION_W);
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
        sp_i_zb_order_emit(&g.best, job);
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
    sp_i_zb_order_emit(&order, job);
}

void sp_i_schedule_zb_h1(sp_i_schedule_job *job)
{
    schedule_static(job, 1);
}

void sp_i_schedule_zb_h2(sp_i_schedule_job *job)
{
    schedule_static(job, 2);
}
