// ZB-V (Qi et al., Zero Bubble Pipeline Parallelism, arXiv 2401.10241v1, section 6): two chunks per
// rank in V placement, backward split in I and W, no rank above 2p chunks, which is the memory of
// 1F1B. The paper's fixed order and those of a few greedy rules on the mean costs (v_order.c) are
// each improved by justification (v_order.h); the one with the shortest longest stage is kept.
//
// How near this is to the best: with equal stages rank p-1 starts at (p-1)(F+c) and before its
// first I has nothing to run for (2p-2)c - (p-1)(F-I); after its last F it holds at most 2p chunks,
// whose I and W are still to run, while that micro-batch has p-1 forwards, all its input gradients
// and a last W on rank 0 ahead. So for W <= F and I <= F the bubble of the longest stage is at
// least 2(p-1)(F+2c-W) - W + (2p-2)c - (p-1)(F-I) in chunk times. Table 8 of the paper shows just
// that to its four decimals, and on such costs these orders meet it.
#include "sim/schedule/v_order.h"

// What a chunk holds after I, in SP_I_V_UNIT of its peak, rounded up.
static int64_t kept_after_i(const sp_schedule_costs *costs)
{
    double after = costs->unit_f + costs->unit_b;
    double peak = after > costs->unit_f ? after : costs->unit_f;
    if (peak <= 0.0) {
        return SP_I_V_UNIT;
    }
    double kept = after / peak * SP_I_V_UNIT;
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
    sp_i_v_order *order;
    int vstage[2];
    int done[SP_I_V_KINDS][2];
} fixed_rank;

static void add(fixed_rank *rank, int kind, int chunk)
{
    sp_i_v_order_append(rank->order, kind, rank->vstage[chunk], rank->done[kind][chunk]++);
}

static void add_triple(fixed_rank *rank, int chunk)
{
    if (rank->done[SP_I_V_F][chunk] < rank->order->setting->microbatches) {
        add(rank, SP_I_V_F, chunk);
    }
    add(rank, SP_I_V_I, chunk);
    add(rank, SP_I_V_W, chunk);
}

// The paper's order for equal times (section 6), as PyTorch's ScheduleZBVZeroBubble lists it:
// forwards, triples F I W of chunk 1 until chunk 0 of the first micro-batch comes back, triples of
// both chunks in turn, then I before W. Needs 2p micro-batches.
static void write_fixed_rank(sp_i_v_order *order, int rank_number)
{
    int pp = order->setting->pp;
    int m = order->setting->microbatches;
    fixed_rank rank = {.order = order, .vstage = {rank_number, 2 * pp - 1 - rank_number}};
    for (int k = 0; k < 2 * (pp - rank_number) - 1; k++) {
        add(&rank, SP_I_V_F, 0);
    }
    for (int k = 0; k < rank_number; k++) {
        add(&rank, SP_I_V_F, 1);
        add(&rank, SP_I_V_F, 0);
    }
    for (int k = 0; k < pp - rank_number; k++) {
        add_triple(&rank, 1);
    }
    while (rank.done[SP_I_V_F][1] < m) {
        add_triple(&rank, 0);
        add_triple(&rank, 1);
    }
    while (rank.done[SP_I_V_I][1] < m) {
        add(&rank, SP_I_V_I, 0);
        add(&rank, SP_I_V_I, 1);
    }
    while (rank.done[SP_I_V_I][0] < m) {
        add(&rank, SP_I_V_I, 0);
        add(&rank, SP_I_V_W, 0);
    }
    for (int chunk = 1; chunk >= 0; chunk--) {
        while (rank.done[SP_I_V_W][chunk] < m) {
            add(&rank, SP_I_V_W, chunk);
        }
    }
}

// Durations of at least 1 ns, so that inputs always start before what needs them and a sort by time
// keeps them in order. F, I and W in turn, [2 * pp] each.
static int64_t *longer_than_nothing(sp_i_schedule_job *job, size_t vstages)
{
    const int64_t *given[SP_I_V_KINDS] = {job->costs->f_ns, job->costs->i_ns, job->costs->w_ns};
    int64_t *duration_ns = sp_arena_take(&job->work, SP_I_V_KINDS * vstages, sizeof *duration_ns);
    for (size_t k = 0; k < SP_I_V_KINDS * vstages; k++) {
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
    const sp_i_v_setting setting = {
        .pp = pp,
        .microbatches = job->microbatches,
        .duration_ns = {duration_ns, duration_ns + vstages, duration_ns + 2 * vstages},
        .p2p_ns = job->costs->p2p_ns,
        .unit = {SP_I_V_UNIT, kept - SP_I_V_UNIT, -kept},
        .cap = 2 * (int64_t)pp * SP_I_V_UNIT,
    };
    sp_i_v_order order = sp_i_v_order_new(&job->work, &setting);
    sp_i_v_order best = sp_i_v_order_new(&job->work, &setting);
    int64_t best_ns = INT64_MAX;
    if (job->microbatches == 0) {
        return;
    }
    for (int r = 0; r < pp && job->microbatches >= 2 * pp; r++) {
        write_fixed_rank(&order, r);
    }
    if (job->microbatches >= 2 * pp) {
        sp_i_v_order_improve(&order, ROUNDS, &best, &best_ns);
    }
    int64_t least_ns = sp_i_v_least_span_ns(&setting);
    for (int rule = 0; rule < SP_I_V_RULES && best_ns > least_ns; rule++) {
        sp_i_v_order_clear(&order);
        sp_i_v_greedy(&job->work, rule, &order);
        sp_i_v_order_improve(&order, ROUNDS, &best, &best_ns);
    }
    sp_i_v_order_emit(&best, job);
}
