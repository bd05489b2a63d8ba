// ZB-H1, ZB-H2 and the automatic schedule of Zero Bubble (arXiv 2401.10241): closed forms of
// sections 2.1 to 2.3, published bubble ratios, and the order itself at small sizes.
#include "tests/support/step_bubble.h"
#include "tests/support/test_main.h"
#include "tests/support/uniform_step.h"

static const sp_engine_options plain;

// F, input gradient and weight gradient with W <= F and W <= B, as the closed forms assume.
static const int64_t times[][3] = {{1000, 1000, 1000}, {1000, 1200, 800}, {1400, 1000, 900},
                                   {1001, 999, 500},   {2003, 2401, 807}, {800, 1000, 800}};

enum { TIMES = 6 };

static int64_t longest_bubble_ns(const uniform_case *c)
{
    UNIFORM_STEP(step, c, &plain);
    int64_t ns =
        step.metrics.longest_span_ns - (int64_t)c->microbatches * (c->f_ns + c->i_ns + c->w_ns);
    return ns;
}

// (p-1)(F+B-W) and (p-1)(F+B-2W); a latency c, small against the rest, adds 4(p-1)c and 2(p-1)c (a
// count of the edges on the critical path; the published rows below agree).
TEST(static_bubbles)
{
    for (int p = 1; p <= 9; p++) {
        for (int m = 2 * p - 1; m <= 4 * p + 1; m += p) {
            for (int t = 0; t < 2 * TIMES; t++) {
                uniform_case c = {.pp = p,
                                  .microbatches = m,
                                  .ns = {times[t / 2][0], times[t / 2][1], times[t / 2][2]},
                                  .p2p_ns = t % 2 * 7};
                c.kind = SP_SCHEDULE_ZB_H1;
                assert_int_equal(longest_bubble_ns(&c),
                                 (p - 1) * (c.f_ns + c.i_ns - c.w_ns + 4 * c.p2p_ns));
                c.kind = SP_SCHEDULE_ZB_H2;
                assert_int_equal(longest_bubble_ns(&c),
                                 (p - 1) * (c.f_ns + c.i_ns - 2 * c.w_ns + 2 * c.p2p_ns));
            }
        }
    }
}

// Section 2.3 with M_B = 1 and M_W = 3/8: rank r holds (p-r)M_B + r M_W and (2p-1-2r)M_B + 2r M_W.
TEST(static_peaks)
{
    double m_w = 0.375;
    for (int p = 1; p <= 8; p++) {
        for (int m = 2 * p; m <= 4 * p; m += p) {
            uniform_case c = {.pp = p,
                              .microbatches = m,
                              .ns = {1000, 1000, 900},
                              .has_units = true,
                              .unit_f = 1.0,
                              .unit_b = m_w - 1.0,
                              .unit_w = -m_w};
            for (int steepness = 1; steepness <= 2; steepness++) {
                c.kind = steepness == 1 ? SP_SCHEDULE_ZB_H1 : SP_SCHEDULE_ZB_H2;
                UNIFORM_STEP(step, &c, &plain);
                for (int r = 0; r < p; r++) {
                    int full = steepness == 1 ? p - r : 2 * p - 1 - 2 * r;
                    double expected = full + steepness * r * m_w;
                    assert_true(step.metrics.ranks[r].units_peak == expected);
                }
            }
        }
    }
}

// Three ranks and four micro-batches, drawn by hand after the figures of section 2.
TEST(static_orders)
{
    static const struct {
        sp_schedule_kind kind;
        const char *rank[3];
    } expected[] = {
        {SP_SCHEDULE_ZB_H1, {"FFFIWFIWIWIW", "FFIFIWFIWIWW", "FIFIFIWFIWWW"}},
        {SP_SCHEDULE_ZB_H2, {"FFFFIWIWIWIW", "FFFIFIIWIWWW", "FIFIFIFIWWWW"}},
    };
    for (int e = 0; e < 2; e++) {
        uniform_case c = {
            .kind = expected[e].kind, .pp = 3, .microbatches = 4, .ns = {1000, 1000, 1000}};
        UNIFORM_STEP(step, &c, &plain);
        for (int r = 0; r < 3; r++) {
            const sp_stage_plan *stage = sp_plan_stage(&step.plan, 0, r);
            assert_int_equal(stage->count, 12);
            for (size_t a = 0; a < 12; a++) {
                assert_int_equal(sp_action_letters[stage->actions[a].kind], expected[e].rank[r][a]);
            }
        }
    }
}

// Inputs of Table 6 and bubble rates of Table 5 (ICLR version), where zb_2p is known; stage times
// of Table 8 of arXiv v1 (twice its chunk times). Hidden size and heads from Table 3.
typedef struct published {
    int p, m;
    double f_ms, b_ms, w_ms, c_ms;
    int hidden, heads;
    double zb_h1, zb_h2, zb_2p;
} published;

static const published rows[] = {
    {8, 24, 18.522, 18.086, 9.337, 0.601, 2304, 24, 0.1585, 0.1083, 0.0433},
    {8, 32, 18.513, 18.086, 9.331, 0.626, 2304, 24, 0.1242, 0.0837, 0.0039},
    {8, 64, 18.546, 18.097, 9.321, 0.762, 2304, 24, 0.0674, 0.0444, 0.0026},
    {8, 24, 29.718, 29.444, 19.927, 0.527, 4096, 32, 0.1323, 0.0698, 0.0029},
    {16, 48, 28.814, 28.760, 19.352, 1.610, 4096, 32, 0.1536, 0.0823, 1.0},
    {16, 64, 28.824, 28.786, 19.376, 1.621, 4096, 32, 0.1198, 0.0630, 1.0},
    {16, 128, 28.632, 28.612, 19.278, 1.619, 4096, 32, 0.0637, 0.0325, 1.0},
};

enum { ROWS = 7 };

static const double printed = 0.5e-4 + 1e-9; // rounding of four decimals

// Memory of Table 1 in units of M_B = sb(34h + 5as), M_W = 32sbh, sequences of 1024 tokens.
static uniform_case published_case(const published *row)
{
    double m_b = 34.0 * row->hidden + 5.0 * row->heads * 1024.0;
    double m_w = 32.0 * row->hidden;
    return (uniform_case){.pp = row->p,
                          .microbatches = row->m,
                          .ns = {(int64_t)llround(row->f_ms * 1e6),
                                 (int64_t)llround(row->b_ms * 1e6),
                                 (int64_t)llround(row->w_ms * 1e6)},
                          .p2p_ns = (int64_t)llround(row->c_ms * 1e6),
                          .has_units = true,
                          .unit_f = 1.0,
                          .unit_b = m_w / m_b - 1.0,
                          .unit_w = -m_w / m_b};
}

// Ratio of the longest stage; no rank may hold more than `most_units`.
static double bubble_ratio(const uniform_case *c, double most_units)
{
    UNIFORM_STEP(step, c, &plain);
    double ratio = step_bubble_longest_stage(&step.metrics);
    for (int r = 0; r < c->pp; r++) {
        assert_true(step.metrics.ranks[r].units_peak <= most_units + 1e-6);
    }
    return ratio;
}

TEST(published_static)
{
    for (int k = 0; k < ROWS; k++) {
        uniform_case c = published_case(&rows[k]);
        c.kind = SP_SCHEDULE_ZB_H1;
        assert_within(bubble_ratio(&c, c.pp), rows[k].zb_h1, printed);
        c.kind = SP_SCHEDULE_ZB_H2;
        assert_within(bubble_ratio(&c, 2.0 * c.pp - 1.0), rows[k].zb_h2, printed);
    }
}

// Table 5 gives ZB-1p the rates of ZB-H1.
TEST(published_auto)
{
    for (int k = 0; k < ROWS; k++) {
        uniform_case c = published_case(&rows[k]);
        c.kind = SP_SCHEDULE_ZB_AUTO;
        double zb_1p = bubble_ratio(&c, c.pp);
        assert_true(zb_1p < rows[k].zb_h1 + printed);
        c.memory_limit_microbatches = c.pp;
        assert_true(bubble_ratio(&c, c.pp) == zb_1p);
        c.memory_limit_microbatches = 2.0 * c.pp;
        double zb_2p = bubble_ratio(&c, 2.0 * c.pp);
        assert_true(zb_2p < rows[k].zb_2p + printed);
        assert_true(zb_2p < rows[k].zb_h2);
    }
}

// Fewer micro-batches than the warm-up runs, down to one: no deadlock, and no sooner than the last
// rank's fill and work, or one micro-batch there and back.
TEST_ROUNDS(few_microbatches, 11, 3)
{
    static const sp_schedule_kind kinds[] = {SP_SCHEDULE_ZB_H1, SP_SCHEDULE_ZB_H2,
                                             SP_SCHEDULE_ZB_AUTO};
    for (int p = 1; p <= 9; p++) {
        for (int m = 1; m <= 2 * p; m++) {
            uniform_case c = {.kind = kinds[round],
                              .pp = p,
                              .dp = 1 + m % 2,
                              .microbatches = m,
                              .ns = {1 + (int64_t)sp_prng_below(prng, 3000),
                                     1 + (int64_t)sp_prng_below(prng, 3000),
                                     (int64_t)sp_prng_below(prng, 3000)},
                              .p2p_ns = (int64_t)sp_prng_below(prng, 500)};
            UNIFORM_STEP(step, &c, &plain);
            int64_t fill = (p - 1) * (c.f_ns + c.p2p_ns) + m * (c.f_ns + c.i_ns + c.w_ns);
            int64_t there_and_back = p * (c.f_ns + c.i_ns) + 2 * (p - 1) * c.p2p_ns + c.w_ns;
            assert_true(step.metrics.makespan_ns >= fill);
            assert_true(step.metrics.makespan_ns >= there_and_back);
        }
    }
}
