// Closed forms of the synchronous schedules, to the nanosecond:
// GPipe (arXiv 1811.06965), 1F1B (arXiv 2006.09503), interleaved 1F1B (arXiv 2104.04473,
// section 2.2).
#include "tests/support/step_bubble.h"
#include "tests/support/test_main.h"
#include "tests/support/uniform_step.h"

static const sp_engine_options plain;

// Forward, input-gradient and weight-gradient times of one chunk, in ns; odd on purpose.
static const int64_t times[][3] = {
    {1000, 1000, 1000}, {999, 1501, 500}, {2003, 700, 301}, {10007, 20011, 0}};

enum { TIMES = 4, MOST_RANKS = 9, MOST_MICROBATCHES = 19 };

static int64_t makespan(const uniform_case *c)
{
    UNIFORM_STEP(step, c, &plain);
    return step.metrics.makespan_ns;
}

// Bubble (p-1)(F+B) for every p and m, also m < p.
static void check_unchunked(sp_schedule_kind kind)
{
    for (int p = 1; p <= MOST_RANKS; p++) {
        for (int m = 1; m <= MOST_MICROBATCHES; m += 2) {
            for (int t = 0; t < TIMES; t++) {
                uniform_case c = {.kind = kind,
                                  .pp = p,
                                  .microbatches = m,
                                  .ns = {times[t][0], times[t][1], times[t][2]}};
                int64_t per_microbatch = c.f_ns + c.i_ns + c.w_ns;
                assert_int_equal(makespan(&c), (m + p - 1) * per_microbatch);
            }
        }
    }
}

TEST_CALL(gpipe_makespan, check_unchunked(SP_SCHEDULE_GPIPE))
TEST_CALL(one_f_one_b_makespan, check_unchunked(SP_SCHEDULE_1F1B))

// Bubble (p-1)(f+b) in chunk times for groups of p.
TEST(interleaved_makespan)
{
    for (int p = 2; p <= MOST_RANKS; p++) {
        for (int v = 1; v <= 4; v++) {
            for (int rounds = 1; rounds <= 3; rounds++) {
                for (int t = 0; t < TIMES; t++) {
                    uniform_case c = {.kind = SP_SCHEDULE_INTERLEAVED,
                                      .pp = p,
                                      .chunks = v,
                                      .microbatches = p * rounds,
                                      .ns = {times[t][0], times[t][1], times[t][2]}};
                    int64_t unit = c.f_ns + c.i_ns + c.w_ns;
                    assert_int_equal(makespan(&c), ((int64_t)p * rounds * v + p - 1) * unit);
                }
            }
        }
    }
}

// With a latency c on every edge between ranks, while c is small against the chunk times: 2(pv-1)c
// more.
TEST(interleaved_latency)
{
    for (int p = 2; p <= 8; p++) {
        for (int v = 2; v <= 4; v++) {
            for (int rounds = 2; rounds <= 4; rounds++) {
                uniform_case c = {.kind = SP_SCHEDULE_INTERLEAVED,
                                  .pp = p,
                                  .chunks = v,
                                  .microbatches = p * rounds,
                                  .ns = {100000, 100000, 50000},
                                  .p2p_ns = 100};
                UNIFORM_STEP(step, &c, &plain);
                int64_t unit = c.f_ns + c.i_ns + c.w_ns;
                int64_t bubble_free = ((int64_t)p * rounds * v + p - 1) * unit;
                assert_int_equal(step.metrics.longest_span_ns - bubble_free,
                                 2 * ((int64_t)p * v - 1) * c.p2p_ns);
            }
        }
    }
}

// 1F1B with latency, p | m: c [2(p-1)m/p + 2(p-2)] more in the longest stage (fits ZB Tables 5 and
// 8).
TEST(one_f_one_b_latency)
{
    for (int p = 2; p <= 8; p++) {
        for (int rounds = 2; rounds <= 5; rounds++) {
            int m = p * rounds;
            uniform_case c = {.kind = SP_SCHEDULE_1F1B,
                              .pp = p,
                              .microbatches = m,
                              .ns = {100000, 100000, 50000},
                              .p2p_ns = 100};
            UNIFORM_STEP(step, &c, &plain);
            int64_t unit = c.f_ns + c.i_ns + c.w_ns;
            int64_t bubble_free = (int64_t)(m + p - 1) * unit;
            int64_t extra = c.p2p_ns * (2 * (p - 1) * rounds + 2 * (p - 2));
            assert_int_equal(step.metrics.longest_span_ns - bubble_free, extra);
        }
    }
}

// Zero Bubble (arXiv 2401.10241, ICLR version): inputs of Table 6, column 1F1B of Table 5, and
// closed form of the interleaved column; arXiv v1 Table 8 in chunk times (stage times are twice
// these).
TEST(zero_bubble_tables)
{
    static const struct {
        int p, m;
        double f_ms, b_ms, w_ms, c_ms, bubble;
    } rows[] = {
        {8, 24, 18.522, 18.086, 9.337, 0.601, 0.2431},
        {8, 32, 18.513, 18.086, 9.331, 0.626, 0.1985},
        {8, 64, 18.546, 18.097, 9.321, 0.762, 0.1240},
        {8, 24, 29.718, 29.444, 19.927, 0.527, 0.2347},
        {16, 48, 28.814, 28.760, 19.352, 1.610, 0.2668},
        {16, 64, 28.824, 28.786, 19.376, 1.621, 0.2206},
        {16, 128, 28.632, 28.612, 19.278, 1.619, 0.1390},
    };
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        uniform_case c = {.kind = SP_SCHEDULE_1F1B,
                          .pp = rows[i].p,
                          .microbatches = rows[i].m,
                          .ns = {(int64_t)llround(rows[i].f_ms * 1e6),
                                 (int64_t)llround(rows[i].b_ms * 1e6),
                                 (int64_t)llround(rows[i].w_ms * 1e6)},
                          .p2p_ns = (int64_t)llround(rows[i].c_ms * 1e6)};
        UNIFORM_STEP(step, &c, &plain);
        double bubble = step_bubble_longest_stage(&step.metrics);
        assert_within(bubble, rows[i].bubble, 0.5e-4 + 1e-9);
    }
}

// Peak activation units: GPipe m, 1F1B min(p-r, m), interleaved (v-1)g + 2(p-1-r) + 1.
TEST(peak_units)
{
    for (int p = 2; p <= 6; p++) {
        for (int m = p; m <= 4 * p; m += p) {
            for (int v = 1; v <= 3; v++) {
                uniform_case c = {.kind = v == 1 ? SP_SCHEDULE_1F1B : SP_SCHEDULE_INTERLEAVED,
                                  .pp = p,
                                  .chunks = v,
                                  .microbatches = m,
                                  .ns = {1000, 1000, 1000}};
                UNIFORM_STEP(step, &c, &plain);
                for (int r = 0; r < p; r++) {
                    int expected =
                        v == 1 ? (p - r < m ? p - r : m) : (v - 1) * p + 2 * (p - 1 - r) + 1;
                    expected = expected < m * v ? expected : m * v;
                    assert_true(step.metrics.ranks[r].units_peak == (double)expected);
                }
                uniform_step_fini(&step);
                c.kind = SP_SCHEDULE_GPIPE;
                c.chunks = 1;
                uniform_step_run(&c, &plain, &step);
                assert_true(step.metrics.ranks[0].units_peak == (double)m);
            }
        }
    }
}

// Groups that are spread evenly, for counts that p does not divide: no deadlock, every unit once
// (sp_plan_check runs), and the makespan between the work bound plus fill and twice it.
TEST(interleaved_uneven_groups)
{
    for (int p = 2; p <= 6; p++) {
        for (int m = 1; m <= 3 * p + 2; m++) {
            for (int v = 2; v <= 4; v++) {
                uniform_case c = {.kind = SP_SCHEDULE_INTERLEAVED,
                                  .pp = p,
                                  .chunks = v,
                                  .microbatches = m,
                                  .group = SP_GROUP_EVEN,
                                  .ns = {1000, 1500, 500}};
                int64_t unit = c.f_ns + c.i_ns + c.w_ns;
                int64_t ns = makespan(&c);
                assert_true(ns >= ((int64_t)m * v + p - 1) * unit);
                int64_t unchunked = (int64_t)(m + p - 1) * v * unit;
                assert_true(ns <= unchunked);
            }
        }
    }
}

// Megatron's groups: larger than p, remainder 0 or at least p.
TEST(interleaved_given_group)
{
    uniform_case c = {.kind = SP_SCHEDULE_INTERLEAVED,
                      .pp = 4,
                      .chunks = 2,
                      .microbatches = 16,
                      .group = 6,
                      .ns = {1000, 1000, 1000}};
    UNIFORM_STEP(step, &c, &plain);
    // Rank 0 holds (v-1)g + 2(p-1) + 1 chunks.
    assert_true(step.metrics.ranks[0].units_peak == 13.0);
}

// A schedule with one chunk, one slice or one rank that is another one there is it in time and in
// memory.
TEST(schedules_that_are_others)
{
    static const struct {
        sp_schedule_kind kind, other;
        int most_ranks;
    } pairs[] = {
        {SP_SCHEDULE_INTERLEAVED, SP_SCHEDULE_1F1B, MOST_RANKS},
        {SP_SCHEDULE_SEQ1F1B, SP_SCHEDULE_1F1B, MOST_RANKS},
        {SP_SCHEDULE_CHUNKFLOW, SP_SCHEDULE_1F1B, MOST_RANKS},
        {SP_SCHEDULE_TERAPIPE, SP_SCHEDULE_GPIPE, MOST_RANKS},
        {SP_SCHEDULE_SLIMPIPE, SP_SCHEDULE_1F1B, 1},
        {SP_SCHEDULE_ZB_H1, SP_SCHEDULE_1F1B, 1},
        {SP_SCHEDULE_ZB_H2, SP_SCHEDULE_1F1B, 1},
        {SP_SCHEDULE_ZB_AUTO, SP_SCHEDULE_1F1B, 1},
    };
    for (size_t i = 0; i < sizeof pairs / sizeof pairs[0]; i++) {
        for (int p = 1; p <= pairs[i].most_ranks; p++) {
            for (int m = 1; m <= MOST_MICROBATCHES; m += 3) {
                for (int t = 0; t < TIMES; t++) {
                    uniform_case c = {.kind = pairs[i].kind,
                                      .pp = p,
                                      .microbatches = m,
                                      .ns = {times[t][0], times[t][1], times[t][2]},
                                      .p2p_ns = 100 * (m % 2)};
                    AUTO(uniform_step) one, other;
                    uniform_step_run(&c, &plain, &one);
                    c.kind = pairs[i].other;
                    uniform_step_run(&c, &plain, &other);
                    uniform_step_same_times(&one.metrics, &other.metrics);
                    for (int r = 0; r < p; r++) {
                        assert_true(one.metrics.ranks[r].units_peak ==
                                    other.metrics.ranks[r].units_peak);
                    }
                }
            }
        }
    }
}
