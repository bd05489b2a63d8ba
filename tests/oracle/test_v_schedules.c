// ZB-V (Qi et al., arXiv 2401.10241v1, section 6), V-Half and V-Min (arXiv 2405.15362).
#include "tests/support/test_main.h"
#include "tests/support/uniform_step.h"

static const sp_engine_options plain;

static uniform_case v_case(sp_schedule_kind kind, int p, int m, int64_t f, int64_t i, int64_t w,
                           int64_t p2p)
{
    return (uniform_case){
        .kind = kind, .pp = p, .chunks = 2, .microbatches = m, .ns = {f, i, w}, .p2p_ns = p2p};
}

// Runs a case and returns the bubble of the longest stage; no rank may hold more than `cap` chunks.
static int64_t bubble_ns(const uniform_case *c, double cap)
{
    UNIFORM_STEP(step, c, &plain);
    int64_t work = 2 * c->microbatches * (c->f_ns + c->i_ns + c->w_ns);
    int64_t bubble = step.metrics.longest_span_ns - work;
    for (int r = 0; r < c->pp; r++) {
        assert_true(step.metrics.ranks[r].units_peak <= cap + 1e-6);
        assert_int_equal(step.metrics.ranks[r].busy_ns, work);
    }
    assert_true(step.metrics.makespan_ns >= work);
    int64_t way = 2 * c->pp * (c->f_ns + c->i_ns) + c->w_ns + 4 * (c->pp - 1) * c->p2p_ns;
    assert_true(step.metrics.makespan_ns >= way);
    return bubble;
}

// arXiv 2401.10241v1, Table 8, column ZB-V, in chunk times: the published bubble or less, to its
// four decimals, with the memory of 1F1B.
TEST(zb_v_table)
{
    static const struct {
        int p, m;
        int64_t f_us, b_us, w_us, c_us;
        double bubble;
    } rows[] = {
        {16, 48, 14407, 14380, 9676, 1610, 0.0697},
        {16, 64, 14412, 14393, 9688, 1621, 0.0533},
        {16, 128, 14316, 14306, 9639, 1619, 0.0274},
    };
    for (size_t k = 0; k < sizeof rows / sizeof rows[0]; k++) {
        uniform_case c = v_case(SP_SCHEDULE_ZB_V, rows[k].p, rows[k].m, rows[k].f_us * 1000,
                                rows[k].b_us * 1000, rows[k].w_us * 1000, rows[k].c_us * 1000);
        double bubble = (double)bubble_ns(&c, 2.0 * c.pp);
        double work = (double)(2 * c.microbatches * (c.f_ns + c.i_ns + c.w_ns));
        assert_true(bubble / (bubble + work) < rows[k].bubble + 0.5e-4);
    }
}

// What no order under the cap can undercut while I <= F, W <= F: rank p-1 starts at (p-1)(F+c),
// has nothing to run for (2p-2)c - (p-1)(F-I) before its first I, and after its last F holds at
// most 2p chunks, while that micro-batch goes on to rank 0, through all I, to the last W.
static int64_t least_bubble(const uniform_case *c)
{
    int64_t hops = c->pp - 1;
    return 2 * hops * (c->f_ns + 2 * c->p2p_ns - c->w_ns) - c->w_ns + 2 * hops * c->p2p_ns -
           hops * (c->f_ns - c->i_ns);
}

// On costs like those of the table, at other sizes, the bound is met.
TEST(zb_v_meets_bound)
{
    static const int sizes[][2] = {{8, 32}, {12, 40}, {20, 60}, {24, 72}, {32, 96}};
    for (size_t k = 0; k < sizeof sizes / sizeof sizes[0]; k++) {
        uniform_case c =
            v_case(SP_SCHEDULE_ZB_V, sizes[k][0], sizes[k][1], 12000, 11990, 8200, 1400);
        assert_int_equal(bubble_ns(&c, 2.0 * c.pp), least_bubble(&c));
    }
}

// Section 6: no bubble in the longest stage when F = B = W.
TEST(zb_v_equal_times)
{
    for (int p = 1; p <= 12; p++) {
        for (int m = 2 * p; m <= 5 * p; m += p) {
            uniform_case c = v_case(SP_SCHEDULE_ZB_V, p, m, 1000, 1000, 1000, 0);
            assert_int_equal(bubble_ns(&c, 2.0 * p), 0);
        }
    }
}

TEST_ROUNDS(zb_v_any_costs, 7, 300)
{
    int p = 1 + prng_below(prng, 12);
    int m = 1 + prng_below(prng, 40);
    int64_t f = 1 + (int64_t)sp_prng_below(prng, 3000);
    int64_t i = (int64_t)sp_prng_below(prng, 3000);
    int64_t w = (int64_t)sp_prng_below(prng, 3000);
    int64_t p2p = (int64_t)sp_prng_below(prng, 3) * (int64_t)sp_prng_below(prng, 2000);
    uniform_case c = v_case(SP_SCHEDULE_ZB_V, p, m, f, i, w, p2p);
    bubble_ns(&c, 2.0 * p);
}

// Stages that differ, and costs of 0: whatever order they lead to, it is complete, cannot deadlock
// and keeps the memory. (Whether an order finishes does not depend on the times it then runs with.)
TEST_ROUNDS(zb_v_uneven_stages, 10, 200)
{
    enum { MOST_STAGES = 40 };
    int p = 1 + (int)sp_prng_below(prng, MOST_STAGES / 2);
    int m = 1 + prng_below(prng, 50);
    int64_t ns[3][MOST_STAGES];
    uint64_t most = sp_prng_below(prng, 2) == 0 ? 3 : 5000;
    for (int kind = 0; kind < 3; kind++) {
        for (int stage = 0; stage < 2 * p; stage++) {
            ns[kind][stage] = (int64_t)sp_prng_below(prng, most);
        }
    }
    sp_schedule_costs costs = {.f_ns = ns[0],
                               .i_ns = ns[1],
                               .w_ns = ns[2],
                               .p2p_ns = (int64_t)sp_prng_below(prng, most),
                               .unit_f = 1.0,
                               .unit_w = -1.0};
    uniform_case c = v_case(SP_SCHEDULE_ZB_V, p, m, 1000, 1000, 1000, 0);
    UNIFORM_STEP(step, &c, &plain);
    AUTO(sp_plan) plan;
    sp_schedule_spec spec = {.kind = SP_SCHEDULE_ZB_V};
    sp_plan_init(&plan, &step.plan.layout, &step.packing);
    must_succeed(sp_schedule_generate(&spec, &costs, "test", &plan, ERR));
    must_succeed(sp_plan_check(&plan, "test", ERR));
    AUTO(simulated_plan) s;
    simulate_plan(&plan, &step.costs, &plain, &s);
    for (int r = 0; r < p; r++) {
        assert_true(s.metrics.ranks[r].units_peak <= 2.0 * p);
    }
}

// The fixed order of PyTorch's ScheduleZBVZeroBubble, which has a bubble of 2(p-1)(I-W) in chunk
// times for I >= F >= W without latency, is not to be better.
TEST(zb_v_beats_fixed_order)
{
    static const int64_t times[][3] = {
        {1000, 1000, 500}, {1000, 1200, 800}, {1000, 1500, 1000}, {900, 1100, 700}};
    for (int p = 2; p <= 12; p += 2) {
        for (size_t t = 0; t < sizeof times / sizeof times[0]; t++) {
            int64_t i = times[t][1];
            int64_t w = times[t][2];
            uniform_case c = v_case(SP_SCHEDULE_ZB_V, p, 4 * p, times[t][0], i, w, 0);
            assert_true(bubble_ns(&c, 2.0 * p) <= 2 * (p - 1) * (i - w));
        }
    }
}

// Memory in other units, M_B at F and M_W between I and W (arXiv 2401.10241, appendix G): never
// above 2p M_B, or 2p M_W where that is the larger.
TEST_ROUNDS(zb_v_other_units, 8, 100)
{
    int p = 1 + prng_below(prng, 8);
    int m = 1 + prng_below(prng, 30);
    int64_t f = 1000 + (int64_t)sp_prng_below(prng, 2000);
    uniform_case c = v_case(SP_SCHEDULE_ZB_V, p, m, f, f, f / 2, 100);
    double m_b = 0.5 + sp_prng_uniform(prng);
    double m_w = 1.5 * sp_prng_uniform(prng);
    c.has_units = true;
    c.unit_f = m_b;
    c.unit_b = m_w - m_b;
    c.unit_w = -m_w;
    bubble_ns(&c, 2.0 * p * (m_b > m_w ? m_b : m_w));
}

// arXiv 2405.15362 (and its Hugging Face space): peaks of (p+4)/3 and (p+2)/2 micro-batches,
// rounded down, and, at equal passes, the bubbles of its generator for p = 4, 6, 8.
TEST(building_blocks_published)
{
    static const struct {
        int p, v_min, v_half;
    } rows[] = {{4, 11, 5}, {6, 17, 11}, {8, 27, 17}};
    for (size_t k = 0; k < sizeof rows / sizeof rows[0]; k++) {
        int p = rows[k].p;
        for (int m = p; m <= 8 * p; m += p) {
            uniform_case c = v_case(SP_SCHEDULE_V_MIN, p, m, 1000, 1000, 1000, 0);
            assert_true(bubble_ns(&c, 2.0 * ((p + 4) / 3)) <= 1000 * rows[k].v_min);
            c.kind = SP_SCHEDULE_V_HALF;
            assert_true(bubble_ns(&c, 2.0 * ((p + 2) / 2)) <= 1000 * rows[k].v_half);
        }
    }
}

// Other p: no more than 4p-5 (4p-7 where 3 divides p), 3p-7 (odd p: 3p-4) passes, whatever m.
TEST(building_blocks_bubble)
{
    for (int p = 3; p <= 18; p++) {
        for (int m = p + 1; m <= 4 * p; m += 2 * p - 3) {
            uniform_case c = v_case(SP_SCHEDULE_V_MIN, p, m, 1000, 1000, 1000, 0);
            int64_t v_min = p % 3 == 0 ? 4 * p - 7 : 4 * p - 5;
            int64_t v_half = p % 2 == 0 ? 3 * p - 7 : 3 * p - 4;
            assert_true(bubble_ns(&c, 2.0 * ((p + 4) / 3)) <= 1000 * v_min);
            c.kind = SP_SCHEDULE_V_HALF;
            assert_true(bubble_ns(&c, 2.0 * ((p + 2) / 2)) <= 1000 * v_half);
        }
    }
}

TEST_ROUNDS(building_blocks_any_costs, 9, 300)
{
    int p = 1 + prng_below(prng, 16);
    int m = 1 + prng_below(prng, 40);
    int64_t f = 1 + (int64_t)sp_prng_below(prng, 3000);
    int64_t i = (int64_t)sp_prng_below(prng, 3000);
    int64_t w = (int64_t)sp_prng_below(prng, 3000);
    uniform_case c = v_case(SP_SCHEDULE_V_MIN, p, m, f, i, w, (int64_t)sp_prng_below(prng, 500));
    bubble_ns(&c, 2.0 * ((p + 4) / 3));
    c.kind = SP_SCHEDULE_V_HALF;
    bubble_ns(&c, 2.0 * ((p + 2) / 2));
}
