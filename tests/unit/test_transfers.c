// Blocking transfers: the sending rank waits for each of its sends (Megatron-LM's schedules as of
// 2021, without batched or overlapped p2p). Every run is checked against igraph's longest path.
#include "sim/base/units.h"
#include "sim/simulate/engine.h"
#include "tests/support/random_step.h"
#include "tests/support/test_main.h"
#include "tests/support/uniform_packing.h"
#include "tests/support/uniform_step.h"

static void simulate(const sp_plan *plan, sp_step_costs *costs, bool blocking, bool unfold,
                     simulated_plan *o)
{
    sp_engine_options options = {.verify = true, .unfold = unfold};
    costs->blocking_transfers = blocking;
    simulate_plan(plan, costs, &options, o);
}

static int64_t makespan(const sp_plan *plan, sp_step_costs *costs, bool blocking)
{
    AUTO(simulated_plan) o;
    simulate(plan, costs, blocking, false, &o);
    return o.metrics.makespan_ns;
}

// A plain 1F1B step of m micro-batches on p stages, each of a class of its own.
typedef struct pipeline {
    sp_layout layout;
    sp_packing packing;
    sp_plan plan;
    sp_step_costs costs;
} pipeline;

static void pipeline_init(pipeline *s, int p, int m)
{
    *s = (pipeline){.layout = {.tp = 1, .cp = 1, .pp = p, .dp = 1, .chunks = 1}};
    uniform_packing(&s->packing, 1, m);
    must_succeed(plan_by_schedule(&s->plan, &s->layout, &s->packing, SP_SCHEDULE_1F1B, ERR));
    sp_i_step_costs_init(&s->costs, &s->layout, &s->packing, p, false);
    for (int i = 0; i < p; i++) {
        s->costs.stages[i].cost_class = i;
    }
}

static void set_stage(pipeline *s, int stage, int64_t f_ns, int64_t b_ns)
{
    for (size_t k = 0; k < s->costs.side[0].count; k++) {
        size_t at = k * (size_t)s->costs.classes + (size_t)stage;
        s->costs.action[SP_ACTION_F][at].compute_ns = f_ns;
        s->costs.action[SP_ACTION_B][at].compute_ns = b_ns;
    }
}

static void set_transfers(pipeline *s, int64_t intranode_ns, int64_t internode_ns)
{
    for (size_t k = 0; k < s->costs.side[0].count; k++) {
        s->costs.side[0].p2p[k].ns = s->costs.side[1].p2p[k].ns = intranode_ns;
        s->costs.side[0].p2p[k].internode_ns = s->costs.side[1].p2p[k].internode_ns = internode_ns;
    }
}

static void pipeline_fini(pipeline *s)
{
    sp_step_costs_fini(&s->costs);
    sp_plan_fini(&s->plan);
    sp_packing_fini(&s->packing);
}

// D_i = F_i + B_i + the sends of stage i: forward unless it is the last, backward unless it is the
// first; times at random, or with `level` such that all D_i are equal, or with `slow_end` the last
// is the largest. Returns (m-1)*max D_i + sum D_i.
static int64_t draw_stages(pipeline *s, sp_prng *prng, int m, bool level, bool slow_end)
{
    int p = s->layout.pp;
    const int64_t link_ns[2] = {(int64_t)sp_prng_below(prng, 300),
                                (int64_t)sp_prng_below(prng, 2000)};
    int64_t sum_ns = 0, most_ns = 0;
    set_transfers(s, link_ns[0], link_ns[1]);
    for (int r = 0; r < p; r++) {
        s->costs.crosses_nodes[r] = (uint8_t)sp_prng_below(prng, 2);
    }
    // On a ring of two the way up and the way back are the same link.
    s->costs.crosses_nodes[p - 1] =
        p == 2 ? s->costs.crosses_nodes[0] : s->costs.crosses_nodes[p - 1];
    for (int i = 0; i < p; i++) {
        int64_t f_ns = 1 + (int64_t)sp_prng_below(prng, 1000);
        int64_t b_ns = 1 + (int64_t)sp_prng_below(prng, 3000);
        int64_t sends_ns = (i + 1 < p ? link_ns[s->costs.crosses_nodes[i]] : 0) +
                           (i > 0 ? link_ns[s->costs.crosses_nodes[i - 1]] : 0);
        if (level) {
            b_ns = 10000 - f_ns - sends_ns;
        } else if (slow_end && i + 1 == p && f_ns + b_ns + sends_ns < most_ns) {
            b_ns = most_ns - f_ns - sends_ns;
        }
        set_stage(s, i, f_ns, b_ns);
        int64_t d_ns = f_ns + b_ns + sends_ns;
        sum_ns += d_ns;
        most_ns = d_ns > most_ns ? d_ns : most_ns;
    }
    return (m - 1) * most_ns + sum_ns;
}

// With m >= p micro-batches a step takes (m-1)*max D_i + sum D_i where the last stage is slowest or
// all are alike: the slowest runs all its micro-batches, the others one each, before and after. No
// cycle is slower: one through two neighbours takes D_i + D_j for two periods. (With the slowest
// stage elsewhere its warm-up hides part of the others' micro-batch.)
TEST_ROUNDS(closed_form_of_1f1b, 17, 400)
{
    int p = 1 + prng_below(prng, 7);
    int m = p + prng_below(prng, 9);
    AUTO(pipeline) s;
    pipeline_init(&s, p, m);
    int64_t formula_ns = draw_stages(&s, prng, m, round % 2 == 0, round % 2 == 1);
    assert_int_equal(makespan(&s.plan, &s.costs, true), formula_ns);
}

// Any stage times, by a recursion of its own: stage i runs p-1-i forwards, then a forward and a
// backward in turn, then the backwards left; each starts when its stage is done sending and its
// input has arrived.
enum { MOST_P = 8, MOST_M = 24 };

static int64_t recursion_ns(const pipeline *s, int m)
{
    int p = s->layout.pp;
    int64_t forward_ns[MOST_P][MOST_M] = {{0}};
    int64_t backward_ns[MOST_P][MOST_M] = {{0}};
    int64_t free_ns[MOST_P] = {0};
    int done[MOST_P] = {0};
    int64_t last_ns = 0;
    for (int left = 2 * m * p; left > 0;) {
        int before = left;
        for (int i = 0; i < p; i++) {
            int warmup = p - 1 - i < m ? p - 1 - i : m;
            int steady = done[i] - warmup;
            bool forward = steady < 0 || (steady < 2 * (m - warmup) && steady % 2 == 0);
            int k = steady < 0                   ? done[i]
                    : steady >= 2 * (m - warmup) ? steady - (m - warmup)
                    : forward                    ? warmup + steady / 2
                                                 : steady / 2;
            int source = forward ? i - 1 : i + 1;
            int target = forward ? i + 1 : i - 1;
            int64_t input_ns = 0;
            if (done[i] == 2 * m) {
                continue;
            }
            if (source >= 0 && source < p) {
                input_ns = (forward ? forward_ns : backward_ns)[source][k];
                if (input_ns == 0) {
                    continue;
                }
            }
            const sp_action_cost *costs =
                forward ? s->costs.action[SP_ACTION_F] : s->costs.action[SP_ACTION_B];
            int64_t end_ns = sp_larger(free_ns[i], input_ns) + costs[i].compute_ns;
            bool sends = target >= 0 && target < p;
            int link = target < i ? target : i;
            int64_t send_ns = !sends                         ? 0
                              : s->costs.crosses_nodes[link] ? s->costs.side[0].p2p[0].internode_ns
                                                             : s->costs.side[0].p2p[0].ns;
            free_ns[i] = end_ns + send_ns;
            (forward ? forward_ns : backward_ns)[i][k] = free_ns[i];
            last_ns = sp_larger(last_ns, end_ns);
            done[i]++;
            left--;
        }
        assert_true(left < before);
    }
    return last_ns;
}

TEST_ROUNDS(recursion_of_1f1b, 19, 300)
{
    int p = 1 + prng_below(prng, MOST_P);
    int m = 1 + prng_below(prng, MOST_M);
    AUTO(pipeline) s;
    pipeline_init(&s, p, m);
    draw_stages(&s, prng, m, false, false);
    assert_int_equal(makespan(&s.plan, &s.costs, true), recursion_ns(&s, m));
}

// F 10, B 20, transfers 3; sends drawn as dots:
// rank 0: F0 0-10 ... F1 13-23 ...            B0 46-66          B1 79-99
// rank 1:            F0 13-23 B0 23-43 ... F1 46-56 B1 56-76 ...
// Without blocking F1 of rank 0 starts at 10, of rank 1 at 43, and B1 ends at 96.
TEST(two_stages_by_hand)
{
    static const int64_t starts_ns[2][4] = {{0, 13, 46, 79}, {13, 23, 46, 56}};
    // B0 of rank 0 waits for its own send of F1 and for the gradient in flight.
    static const int64_t waits_ns[2][4] = {{0, 3, 6, 3}, {3, 0, 3, 0}};
    AUTO(pipeline) s;
    AUTO(simulated_plan) o;
    pipeline_init(&s, 2, 2);
    set_transfers(&s, 3, 3);
    set_stage(&s, 0, 10, 20);
    set_stage(&s, 1, 10, 20);
    simulate(&s.plan, &s.costs, true, false, &o);
    for (int r = 0; r < 2; r++) {
        for (int a = 0; a < 4; a++) {
            assert_int_equal(o.timeline.ranks[r].spans[a].start_ns, starts_ns[r][a]);
            assert_int_equal(o.timeline.ranks[r].spans[a].wait_p2p_ns, waits_ns[r][a]);
        }
    }
    assert_int_equal(o.metrics.makespan_ns, 99);
    assert_int_equal(o.metrics.busy_ns, 4 * 30);
    assert_int_equal(o.metrics.wait_p2p_ns, 18);
    assert_int_equal(makespan(&s.plan, &s.costs, false), 96);
}

// Every schedule, with splits, chunks, V placements, slices and pairs that run side by side: the
// longest path agrees (inside simulate), waiting for sends never makes a step shorter and adds at
// most all sends of all ranks, and sends of no time change nothing.
TEST(all_schedules)
{
    static const struct {
        sp_schedule_kind kind;
        int chunks, slices;
    } cases[] = {
        {SP_SCHEDULE_GPIPE, 1, 0},    {SP_SCHEDULE_1F1B, 1, 0},    {SP_SCHEDULE_INTERLEAVED, 3, 0},
        {SP_SCHEDULE_ZB_H1, 1, 0},    {SP_SCHEDULE_ZB_H2, 1, 0},   {SP_SCHEDULE_ZB_V, 2, 0},
        {SP_SCHEDULE_V_HALF, 2, 0},   {SP_SCHEDULE_V_MIN, 2, 0},   {SP_SCHEDULE_DUALPIPE_V, 2, 0},
        {SP_SCHEDULE_TERAPIPE, 1, 4}, {SP_SCHEDULE_SEQ1F1B, 1, 4}, {SP_SCHEDULE_SLIMPIPE, 2, 4}};
    for (size_t c = 0; c < sizeof cases / sizeof cases[0]; c++) {
        for (int64_t p2p_ns = 0; p2p_ns <= 400; p2p_ns += 200) {
            uniform_case u = {.kind = cases[c].kind,
                              .pp = 4,
                              .dp = 2,
                              .chunks = cases[c].chunks,
                              .microbatches = 8,
                              .slices = cases[c].slices,
                              .ns = {1000, 1100, 900},
                              .p2p_ns = p2p_ns};
            sp_engine_options options = {0};
            AUTO(uniform_step) step;
            AUTO(simulated_plan) o;
            uniform_step_run(&u, &options, &step);
            int64_t free_ns = step.metrics.makespan_ns;
            simulate(&step.plan, &step.costs, true, false, &o);
            int64_t actions = (int64_t)o.counts.tasks;
            assert_true(o.metrics.makespan_ns >= free_ns);
            assert_true(o.metrics.makespan_ns <= free_ns + actions * p2p_ns);
            assert_int_equal(o.metrics.busy_ns, step.metrics.busy_ns);
            if (p2p_ns == 0) {
                assert_int_equal(o.metrics.makespan_ns, free_ns);
            }
        }
    }
}

// Chunks on one rank hand over nothing: with one rank blocking changes nothing, and the bend of a V
// placement costs no transfer. One micro-batch through the V of p ranks crosses 2(p-1) links each
// way.
TEST(chunks_of_one_rank)
{
    uniform_case u = {.kind = SP_SCHEDULE_V_MIN,
                      .pp = 1,
                      .chunks = 2,
                      .microbatches = 5,
                      .f_ns = 100,
                      .i_ns = 200,
                      .p2p_ns = 1000};
    sp_engine_options options = {0};
    UNIFORM_STEP(step, &u, &options);
    assert_int_equal(makespan(&step.plan, &step.costs, true), 5 * 2 * 300);
    uniform_step_fini(&step);
    u = (uniform_case){.kind = SP_SCHEDULE_ZB_V,
                       .pp = 3,
                       .chunks = 2,
                       .microbatches = 1,
                       .ns = {100, 200, 0},
                       .p2p_ns = 7};
    uniform_step_run(&u, &options, &step);
    assert_int_equal(makespan(&step.plan, &step.costs, true), 6 * 300 + 8 * 7);
}

// Simulating alike data-parallel ranks once counts the same.
TEST(folding)
{
    sp_prng prng = prng_seeded(23);
    for (int kinds = 1; kinds <= 3; kinds++) {
        sp_layout layout = {.tp = 1, .cp = 1, .pp = 4, .dp = 3, .chunks = 2};
        AUTO(sp_packing) packing;
        AUTO(sp_plan) plan;
        AUTO(sp_step_costs) costs;
        AUTO(simulated_plan) folded, unfolded;
        uniform_packing(&packing, layout.dp, 8);
        must_succeed(plan_by_schedule(&plan, &layout, &packing, SP_SCHEDULE_INTERLEAVED, ERR));
        random_costs(&prng, &layout, &packing, kinds, &costs);
        simulate(&plan, &costs, true, false, &folded);
        simulate(&plan, &costs, true, true, &unfolded);
        assert_int_equal(folded.timeline.rank_count, 4);
        assert_int_equal(folded.metrics.makespan_ns, unfolded.metrics.makespan_ns);
        assert_int_equal(folded.metrics.wait_p2p_ns, unfolded.metrics.wait_p2p_ns);
        assert_int_equal(folded.metrics.iteration_ns, unfolded.metrics.iteration_ns);
    }
}
