// Metrics of timelines drawn by hand. Expected values follow from the definitions in metrics.h.
#include "sim/metrics/metrics.h"

#include "sim/schedule/schedule.h"
#include "sim/simulate/engine.h"
#include "tests/support/random_step.h"
#include "tests/support/step_bubble.h"
#include "tests/support/test_main.h"
#include "tests/support/uniform_packing.h"
#include "tests/support/uniform_step.h"

#define NEAR(found, expected) assert_near(found, expected, 0.5e-12, 0.5e-12)

enum { MAX_RANKS = 8, MAX_SPANS = 8 };

// A timeline in caller storage: entry i stands for data-parallel ranks alike[i].
typedef struct drawing {
    sp_packing packing; // of so many packs that each span may have its own
    sp_plan plan;
    sp_timeline timeline;
    sp_memory_timeline memory;
    sp_rank_timeline ranks[MAX_RANKS];
    sp_rank_memory held[MAX_RANKS];
    sp_span spans[MAX_RANKS][MAX_SPANS];
} drawing;

static const int numbers[] = {0, 1, 2, 3, 4, 5, 6, 7};

static void draw(drawing *d, int dp, int pp, int chunks)
{
    *d = (drawing){
        .plan = {.layout = {.tp = 1, .cp = 1, .pp = pp, .dp = dp, .chunks = chunks}},
        .timeline = {.ranks = d->ranks, .rank_count = (size_t)dp * (size_t)pp},
        .memory = {.ranks = d->held, .rank_count = (size_t)dp * (size_t)pp},
    };
    d->packing.forward.count = MAX_SPANS;
    d->plan.packing = &d->packing;
    d->timeline.plan = &d->plan;
    for (int i = 0; i < dp * pp; i++) {
        d->ranks[i] = (sp_rank_timeline){.dp = i / pp,
                                         .pp = i % pp,
                                         .alike = 1,
                                         .dp_alike = &numbers[i / pp],
                                         .spans = d->spans[i]};
    }
}

static sp_span *span(drawing *d, int rank, sp_action_kind kind, int64_t start_ns, int64_t end_ns)
{
    sp_rank_timeline *r = &d->ranks[rank];
    assert_true(r->count < MAX_SPANS);
    sp_span *s = &r->spans[r->count++];
    *s = (sp_span){.start_ns = start_ns, .end_ns = end_ns, .action = {.kind = (uint8_t)kind}};
    if (end_ns > d->timeline.makespan_ns) {
        d->timeline.makespan_ns = end_ns;
    }
    return s;
}

static void epilogue(drawing *d, int rank, int64_t start_ns, int64_t reduce_ns,
                     int64_t optimizer_ns, int64_t gather_ns)
{
    sp_rank_timeline *r = &d->ranks[rank];
    r->reduce_start_ns = start_ns;
    r->reduce_end_ns = start_ns + reduce_ns;
    r->optimizer_end_ns = r->reduce_end_ns + optimizer_ns;
    r->gather_end_ns = r->optimizer_end_ns + gather_ns;
    if (r->gather_end_ns > d->timeline.iteration_ns) {
        d->timeline.iteration_ns = r->gather_end_ns;
    }
}

static void measure(const drawing *d, sp_step_metrics *metrics)
{
    sp_step_metrics_compute(&d->timeline, &d->memory, metrics);
}

// 0         10   20    30        50      60 62 65
// | F       |    |     | B        | reduce | o| g|
//          12 F 20    B    36
TEST(two_stages)
{
    drawing d;
    draw(&d, 1, 2, 1);
    *span(&d, 0, SP_ACTION_F, 0, 10) =
        (sp_span){.end_ns = 10, .tp_ns = 2, .cp_ns = 1, .dp_ns = 3, .launch_ns = 2, .again_ns = 1};
    span(&d, 0, SP_ACTION_B, 30, 50)->tp_ns = 4;
    d.spans[0][1].again_ns = 6;
    d.spans[0][1].wait_p2p_ns = 5;
    span(&d, 1, SP_ACTION_F, 12, 20)->wait_p2p_ns = 2;
    span(&d, 1, SP_ACTION_B, 20, 36)->cp_ns = 3;
    epilogue(&d, 0, 50, 10, 2, 3);
    epilogue(&d, 1, 36, 10, 2, 3);
    d.held[0].peak.of[SP_MEM_PARAMETERS] = 100;
    d.held[0].peak.of[SP_MEM_OFFLOADED] = 1000;
    d.held[0].units_peak = 1.5;
    d.held[1].peak.of[SP_MEM_LOGITS] = 101;
    AUTO(sp_step_metrics) m;
    measure(&d, &m);
    assert_int_equal(m.makespan_ns, 50);
    assert_int_equal(m.iteration_ns, 65);
    assert_int_equal(m.busy_ns, 10 + 20 + 8 + 16);
    assert_int_equal(m.tp_ns, 6);
    assert_int_equal(m.cp_ns, 4);
    assert_int_equal(m.dp_ns, 3);
    assert_int_equal(m.launch_ns, 2);
    assert_int_equal(m.again_ns, 7);
    assert_int_equal(m.wait_p2p_ns, 7);
    NEAR(step_bubble(&m), 1.0 - 54.0 / 100.0);
    // Rank 0 spans all 50 and works 30 of them; rank 1 spans 24.
    NEAR(step_bubble_longest_stage(&m), 0.4);
    assert_int_equal(m.reduce_ns, 13);
    assert_int_equal(m.optimizer_ns, 2);
    assert_int_equal(m.ranks[1].span_ns, 24);
    assert_int_equal(m.ranks[1].busy_ns, 24);
    NEAR(m.ranks[0].units_peak, 1.5);
    // Offloaded bytes are not on the GPU: the second rank's 101 are the peak.
    assert_int_equal(m.ranks[0].peak_bytes, 100);
    assert_int_equal(m.peak_bytes, 101);
    assert_int_equal(m.peak.of[SP_MEM_LOGITS], 101);
    assert_int_equal(m.peak.of[SP_MEM_PARAMETERS], 0);
}

// Recomputation is work; offload and load are not, and do not move the makespan of the work.
TEST(kinds_of_work)
{
    drawing d;
    draw(&d, 1, 1, 1);
    span(&d, 0, SP_ACTION_F, 0, 4);
    span(&d, 0, SP_ACTION_O, 4, 9);
    span(&d, 0, SP_ACTION_R, 9, 12);
    span(&d, 0, SP_ACTION_I, 12, 14);
    span(&d, 0, SP_ACTION_W, 15, 16);
    span(&d, 0, SP_ACTION_L, 16, 20);
    epilogue(&d, 0, 20, 0, 0, 0);
    AUTO(sp_step_metrics) m;
    measure(&d, &m);
    assert_int_equal(m.busy_ns, 4 + 3 + 2 + 1);
    assert_int_equal(m.makespan_ns, 16);
    assert_int_equal(m.ranks[0].span_ns, 16);
    NEAR(step_bubble(&m), 6.0 / 16.0);
}

// Where the rank that ends last is not the one that computes last, only what lies past the makespan
// counts: of 80 + (10, 20, 5) the last 15, of which the optimizer has 10; of 80 + (5, 5, 17) 7 of
// the gather, as the optimizer is over before.
TEST(epilogue_is_what_the_makespan_leaves)
{
    static const struct {
        int64_t reduce, optimizer, gather; // of the second rank
        int64_t iteration_ns, optimizer_ns, reduce_ns;
    } cases[] = {{10, 20, 5, 115, 10, 5}, {5, 5, 17, 107, 0, 7}};
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        drawing d;
        AUTO(sp_step_metrics) m;
        draw(&d, 1, 2, 1);
        span(&d, 0, SP_ACTION_F, 0, 100);
        span(&d, 1, SP_ACTION_F, 0, 80);
        epilogue(&d, 0, 100, 1, 3, 1);
        epilogue(&d, 1, 80, cases[i].reduce, cases[i].optimizer, cases[i].gather);
        measure(&d, &m);
        assert_int_equal(m.iteration_ns, cases[i].iteration_ns);
        assert_int_equal(m.optimizer_ns, cases[i].optimizer_ns);
        assert_int_equal(m.reduce_ns, cases[i].reduce_ns);
    }
}

// Busiest stage of three data-parallel ranks: 10, 20 and 30 of a mean of 20.
TEST(imbalance_over_dp)
{
    drawing d;
    draw(&d, 3, 2, 1);
    for (int r = 0; r < 3; r++) {
        span(&d, 2 * r, SP_ACTION_F, 0, 10 * (r + 1));
        span(&d, 2 * r + 1, SP_ACTION_F, 0, 5);
    }
    AUTO(sp_step_metrics) m;
    measure(&d, &m);
    NEAR(m.dp_busiest_ns / m.dp_mean_ns, 1.5);
}

// 10 and 30 have mean 20 and standard deviation 10; so have 5 and 15 in proportion.
TEST(variation_of_packs)
{
    drawing d;
    AUTO(sp_step_metrics) m;
    draw(&d, 1, 2, 1);
    span(&d, 0, SP_ACTION_F, 0, 10);
    span(&d, 0, SP_ACTION_F, 10, 40);
    span(&d, 0, SP_ACTION_B, 40, 50);
    span(&d, 0, SP_ACTION_B, 50, 60)->action.pack = 1;
    span(&d, 1, SP_ACTION_F, 0, 5);
    span(&d, 1, SP_ACTION_F, 5, 20);
    span(&d, 1, SP_ACTION_I, 20, 24);
    span(&d, 1, SP_ACTION_R, 24, 26)->action.pack = 1;
    span(&d, 1, SP_ACTION_I, 26, 36)->action.pack = 1;
    span(&d, 1, SP_ACTION_W, 36, 40);
    span(&d, 1, SP_ACTION_W, 40, 52)->action.pack = 1;
    measure(&d, &m);
    NEAR(m.forward_pack_cv, 0.5);
    // 4 + 4 and 2 + 10 + 12: again half of the mean, on one rank of two.
    NEAR(m.backward_pack_cv, sqrt(0.25 / 2.0));
    sp_step_metrics_fini(&m);

    // Chunks of different weight (one has the head) are no spread of the packs.
    draw(&d, 1, 1, 2);
    for (int k = 0; k < 2; k++) {
        span(&d, 0, SP_ACTION_F, 40 * k, 40 * k + 10);
        span(&d, 0, SP_ACTION_F, 40 * k + 10, 40 * k + 40)->action.chunk = 1;
    }
    measure(&d, &m);
    NEAR(m.forward_pack_cv, 0.0);
}

TEST(nothing_to_do)
{
    drawing d;
    draw(&d, 2, 2, 1);
    AUTO(sp_step_metrics) m;
    measure(&d, &m);
    assert_int_equal(m.makespan_ns, 0);
    NEAR(step_bubble(&m), 0.0);
    NEAR(step_bubble_longest_stage(&m), 0.0);
    NEAR(m.dp_mean_ns, 0.0);
    for (int i = 0; i < 4; i++) {
        assert_int_equal(m.ranks[i].span_ns, 0);
    }
}

// One entry for three data-parallel ranks counts three times and names them.
TEST(alike_ranks_count)
{
    static const int members[] = {0, 2, 3};
    drawing d;
    draw(&d, 4, 1, 1);
    d.timeline.rank_count = 2;
    d.ranks[0].alike = 3;
    d.ranks[0].dp_alike = members;
    span(&d, 0, SP_ACTION_F, 0, 10)->tp_ns = 1;
    span(&d, 1, SP_ACTION_F, 2, 22)->cp_ns = 1;
    d.spans[1][0].wait_p2p_ns = 2;
    AUTO(sp_step_metrics) m;
    measure(&d, &m);
    assert_int_equal(m.rank_count, 4);
    assert_int_equal(m.busy_ns, 3 * 10 + 20);
    assert_int_equal(m.tp_ns, 3);
    assert_int_equal(m.cp_ns, 1);
    assert_int_equal(m.wait_p2p_ns, 2);
    NEAR(m.dp_busiest_ns / m.dp_mean_ns, 20.0 / 12.5);
    for (int i = 0; i < 4; i++) {
        assert_int_equal(m.ranks[i].dp, i);
        assert_int_equal(m.ranks[i].busy_ns, i == 1 ? 20 : 10);
    }
}

// 1F1B with p equal stages and m micro-batches: makespan (m+p-1)(F+B), bubble (p-1)/(m+p-1)
// (Narayanan et al., arXiv 2104.04473, section 2.2.1); the longest stage is the first, so both
// ratios agree.
TEST(closed_form)
{
    for (int pp = 1; pp <= 4; pp++) {
        uniform_case c = {.kind = SP_SCHEDULE_1F1B,
                          .pp = pp,
                          .dp = 2,
                          .microbatches = 6,
                          .ns = {1000, 1000, 1000}};
        sp_engine_options options = {0};
        UNIFORM_STEP(step, &c, &options);
        assert_int_equal(step.metrics.makespan_ns, (6 + pp - 1) * 3000);
        NEAR(step_bubble(&step.metrics), (pp - 1.0) / (6.0 + pp - 1.0));
        NEAR(step_bubble_longest_stage(&step.metrics), (pp - 1.0) / (6.0 + pp - 1.0));
        NEAR(step.metrics.forward_pack_cv, 0.0);
        NEAR(step.metrics.dp_busiest_ns / step.metrics.dp_mean_ns, 1.0);
    }
}

// Packs of one cost do not vary, whether a rank splits their backwards or not.
TEST(equal_packs_do_not_vary)
{
    for (int kind = 0; kind < SP_SCHEDULE_KINDS; kind++) {
        sp_schedule_traits traits = sp_schedule_traits_of((sp_schedule_kind)kind);
        if (traits.sliced) {
            continue;
        }
        uniform_case c = {.kind = (sp_schedule_kind)kind,
                          .pp = 2,
                          .dp = 2,
                          .chunks = traits.chunks > 0 ? traits.chunks : 1,
                          .microbatches = 6,
                          .memory_limit_microbatches = 6.0,
                          .ns = {2000, 3000, 1000},
                          .p2p_ns = 250};
        sp_engine_options options = {0};
        UNIFORM_STEP(step, &c, &options);
        NEAR(step.metrics.forward_pack_cv, 0.0);
        NEAR(step.metrics.backward_pack_cv, 0.0);
    }
}

// Gaps between the spans of all entries, up to the makespan.
static int64_t idle_of(const sp_timeline *timeline)
{
    int64_t idle_ns = 0;
    for (size_t i = 0; i < timeline->rank_count; i++) {
        const sp_rank_timeline *rank = &timeline->ranks[i];
        int64_t now_ns = 0, gaps_ns = 0;
        for (size_t s = 0; s < rank->count; s++) {
            assert_true(rank->spans[s].start_ns >= now_ns);
            gaps_ns += rank->spans[s].start_ns - now_ns;
            now_ns = rank->spans[s].end_ns;
        }
        idle_ns += rank->alike * (gaps_ns + timeline->makespan_ns - now_ns);
    }
    return idle_ns;
}

static void assert_same(const sp_step_metrics *a, const sp_step_metrics *b)
{
    uniform_step_same_times(a, b);
    assert_int_equal(a->longest_span_work_ns, b->longest_span_work_ns);
    assert_memory_equal(&a->peak, &b->peak, sizeof a->peak);
    NEAR(a->forward_pack_cv, b->forward_pack_cv);
    NEAR(a->backward_pack_cv, b->backward_pack_cv);
    NEAR(a->dp_busiest_ns / a->dp_mean_ns, b->dp_busiest_ns / b->dp_mean_ns);
    for (int64_t i = 0; i < a->rank_count; i++) {
        assert_int_equal(a->ranks[i].dp, b->ranks[i].dp);
        assert_int_equal(a->ranks[i].pp, b->ranks[i].pp);
        assert_int_equal(a->ranks[i].busy_ns, b->ranks[i].busy_ns);
        assert_int_equal(a->ranks[i].span_ns, b->ranks[i].span_ns);
        assert_int_equal(a->ranks[i].peak_bytes, b->ranks[i].peak_bytes);
    }
}

// Random costs and shapes: busy and idle time fill ranks x makespan, the parts of busy time fit in
// it, and simulating alike ranks one by one changes no sum.
TEST_ROUNDS(time_adds_up, 41, 60)
{
    sp_layout layout = {.tp = 1, .cp = 1};
    layout.pp = 2 + prng_below(prng, 4);
    layout.dp = 1 + prng_below(prng, 4);
    sp_schedule_spec spec = {.kind =
                                 (sp_schedule_kind)sp_prng_below(prng, SP_SCHEDULE_INTERLEAVED + 1),
                             .group = SP_GROUP_EVEN};
    layout.chunks = spec.kind == SP_SCHEDULE_INTERLEAVED ? 1 + prng_below(prng, 3) : 1;
    AUTO(sp_packing) packing;
    AUTO(sp_plan) plan;
    AUTO(sp_step_costs) costs;
    uniform_packing(&packing, layout.dp, 1 + prng_below(prng, 9));
    random_costs(prng, &layout, &packing, prng_below(prng, 3), &costs);
    costs.blocking_transfers = sp_prng_below(prng, 2) == 1;
    sp_plan_init(&plan, &layout, &packing);
    must_succeed(sp_schedule_generate(&spec, NULL, "test", &plan, ERR));
    simulated_plan made[2];
    for (int unfold = 0; unfold < 2; unfold++) {
        sp_engine_options options = {.unfold = unfold != 0, .verify = true};
        simulate_plan(&plan, &costs, &options, &made[unfold]);
        const sp_step_metrics *m = &made[unfold].metrics;
        int64_t idle_ns = idle_of(&made[unfold].timeline);
        assert_int_equal(m->busy_ns + idle_ns, m->rank_count * m->makespan_ns);
        assert_true(m->tp_ns + m->cp_ns + m->dp_ns + m->launch_ns <= m->busy_ns);
        assert_true(m->wait_p2p_ns <= idle_ns);
        assert_int_equal(m->makespan_ns + m->reduce_ns + m->optimizer_ns, m->iteration_ns);
        assert_true(m->dp_busiest_ns / m->dp_mean_ns >= 1.0);
        assert_true(m->dp_busiest_ns / m->dp_mean_ns <= layout.dp);
    }
    assert_same(&made[0].metrics, &made[1].metrics);
    simulated_plan_fini(&made[0]);
    simulated_plan_fini(&made[1]);
}
