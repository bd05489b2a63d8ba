// Properties of the automatic zero-bubble schedule (arXiv 2401.10241, section 3.1) over random
// sizes, costs, memory units and caps.
#include "sim/schedule/zero_bubble.h"
#include "tests/support/test_main.h"
#include "tests/support/uniform_packing.h"
#include "tests/support/uniform_step.h"

static const sp_engine_options plain;

static double between(sp_prng *prng, double low, double high)
{
    return low + (high - low) * sp_prng_uniform(prng);
}

// B from 0.8 to 1.3 of F, W from 0.4 to 1.0 of B, c up to 5 % of F; M_W from 0.2 to 0.8 of M_B.
static uniform_case random_case(sp_prng *prng, int p, int m)
{
    double b = between(prng, 0.8, 1.3);
    double m_w = between(prng, 0.2, 0.8);
    return (uniform_case){
        .kind = SP_SCHEDULE_ZB_AUTO,
        .pp = p,
        .microbatches = m,
        .ns = {1000000, llround(b * 1e6), llround(b * between(prng, 0.4, 1.0) * 1e6)},
        .p2p_ns = llround(between(prng, 0.0, 5e4)),
        .has_units = true,
        .unit_f = 1.0,
        .unit_b = m_w - 1.0,
        .unit_w = -m_w};
}

// Bubble of the longest stage. Checks that no rank holds more than the cap (0: none), and the bound
// of appendix B: rank 0 with k forwards before its first input gradient is idle for
// (p-1)(B + 2c) + (p-k)F before it.
static int64_t longest_bubble_ns(const uniform_case *c, double cap)
{
    UNIFORM_STEP(step, c, &plain);
    int64_t work_ns = (int64_t)c->microbatches * (c->f_ns + c->i_ns + c->w_ns);
    int64_t bubble_ns = step.metrics.longest_span_ns - work_ns;
    assert_true(bubble_ns >= 0);
    if (cap > 0.0) {
        int most = c->microbatches < (int)cap ? c->microbatches : (int)cap;
        int64_t bound = (c->pp - 1) * (c->i_ns + 2 * c->p2p_ns) + (c->pp - most) * c->f_ns;
        assert_true(bubble_ns >= bound);
        for (int r = 0; r < c->pp; r++) {
            assert_true(step.metrics.ranks[r].units_peak <= cap + 1e-6);
        }
    }
    return bubble_ns;
}

TEST_ROUNDS(never_worse_than_static, 2401, 60)
{
    int p = 8 + prng_below(prng, 25);
    uniform_case c = random_case(prng, p, 1 + (int)sp_prng_below(prng, 5 * (uint64_t)p));
    uniform_case h = c;
    h.kind = SP_SCHEDULE_ZB_H1;
    c.memory_limit_microbatches = p;
    assert_true(longest_bubble_ns(&c, p) <= longest_bubble_ns(&h, 0.0));
    h.kind = SP_SCHEDULE_ZB_H2;
    c.memory_limit_microbatches = 2.0 * p;
    assert_true(longest_bubble_ns(&c, 2.0 * p) <= longest_bubble_ns(&h, 0.0));
}

// Caps from one micro-batch to more than all, whole or not.
TEST_ROUNDS(cap_is_kept, 10241, 200)
{
    int p = 1 + prng_below(prng, 12);
    uniform_case c = random_case(prng, p, 1 + (int)sp_prng_below(prng, 4 * (uint64_t)p));
    double cap = between(prng, 1.0, 3.0 * p);
    c.memory_limit_microbatches = round % 2 == 0 ? floor(cap) : cap;
    longest_bubble_ns(&c, c.memory_limit_microbatches);
}

// With room for one micro-batch per rank each goes down and up alone: where W takes no time, rank 0
// is idle for (p-1)(F+B+2c) every time.
TEST(cap_of_one)
{
    for (int p = 1; p <= 6; p++) {
        int m = 5;
        uniform_case c = {.kind = SP_SCHEDULE_ZB_AUTO,
                          .pp = p,
                          .microbatches = m,
                          .memory_limit_microbatches = 1.0,
                          .ns = {1000, 1500, 0},
                          .p2p_ns = 10};
        assert_int_equal(longest_bubble_ns(&c, 1.0), m * (p - 1) * (1000 + 1500 + 2 * 10));
    }
}

// Costs of their own on every stage: embedding, head, uneven layers.
static void give_stages_own_costs(sp_step_costs *costs, int pp, sp_prng *prng)
{
    size_t cells = costs->side[0].count * (size_t)pp;
    sp_action_cost **tables[] = {&costs->action[SP_ACTION_F], &costs->action[SP_ACTION_I],
                                 &costs->action[SP_ACTION_W]};
    costs->classes = pp;
    for (int r = 0; r < pp; r++) {
        costs->stages[r].cost_class = r;
    }
    for (int t = 0; t < 3; t++) {
        sp_free(*tables[t]);
        *tables[t] = sp_calloc(cells, sizeof **tables[t]);
        for (int r = 0; r < pp; r++) {
            int64_t ns = 100 + (int64_t)sp_prng_below(prng, 3000);
            for (size_t k = 0; k < costs->side[0].count; k++) {
                (*tables[t])[k * (size_t)pp + (size_t)r].compute_ns = ns;
            }
        }
    }
}

typedef struct uneven {
    sp_layout layout;
    sp_packing packing;
    sp_step_costs costs;
    sp_schedule_costs *means;
} uneven;

static int64_t uneven_span_ns(const uneven *u, const sp_schedule_spec *spec)
{
    AUTO(sp_plan) plan;
    AUTO(simulated_plan) s;
    sp_plan_init(&plan, &u->layout, &u->packing);
    must_succeed(sp_schedule_generate(spec, u->means, "test", &plan, ERR));
    must_succeed(sp_plan_check(&plan, "test", ERR));
    simulate_plan(&plan, &u->costs, &plain, &s);
    for (int r = 0; spec->kind == SP_SCHEDULE_ZB_AUTO && r < u->layout.pp; r++) {
        assert_true(s.metrics.ranks[r].units_peak <= spec->memory_limit_microbatches + 1e-6);
    }
    return s.metrics.longest_span_ns;
}

// The clocks that the scheduler chooses by and the engine are two implementations of one
// definition.
static void check_clock(const uneven *u, int steepness)
{
    sp_arena work = {0};
    int m = (int)u->packing.forward.count;
    sp_i_zb_clock clock = sp_i_zb_clock_new(&work, u->means, HUGE_VAL, u->layout.pp, m);
    sp_i_zb_order order = sp_i_zb_order_new(&work, u->layout.pp, m);
    sp_i_zb_order_static(&order, steepness);
    sp_i_zb_replay(&clock, &order);
    sp_schedule_spec spec = {.kind = steepness == 1 ? SP_SCHEDULE_ZB_H1 : SP_SCHEDULE_ZB_H2};
    assert_int_equal(sp_i_zb_longest_span_ns(&clock), uneven_span_ns(u, &spec));
    sp_arena_free(&work);
}

TEST_ROUNDS(uneven_stages, 3, 150)
{
    int p = 1 + prng_below(prng, 10);
    int m = 1 + (int)sp_prng_below(prng, 3 * (uint64_t)p);
    uneven u = {.layout = {.tp = 1, .cp = 1, .pp = p, .dp = 1, .chunks = 1}};
    sp_uniform_costs uniform = {.f_ms = 1.0,
                                .b_ms = 1.0,
                                .w_ms = 1.0,
                                .p2p_ms = between(prng, 0.0, 2e-4),
                                .has_units = 1,
                                .unit_f = 1.0,
                                .unit_b = -0.5,
                                .unit_w = -0.5};
    uniform_packing(&u.packing, 1, m);
    sp_step_costs_uniform(&uniform, &u.layout, &u.packing, &u.costs);
    give_stages_own_costs(&u.costs, p, prng);
    sp_plan empty;
    sp_plan_init(&empty, &u.layout, &u.packing);
    u.means = sp_step_costs_means(&u.costs, &empty);
    sp_plan_fini(&empty);
    sp_schedule_spec automatic = {.kind = SP_SCHEDULE_ZB_AUTO, .memory_limit_microbatches = p};
    sp_schedule_spec h1 = {.kind = SP_SCHEDULE_ZB_H1};
    sp_schedule_spec h2 = {.kind = SP_SCHEDULE_ZB_H2};
    assert_true(uneven_span_ns(&u, &automatic) <= uneven_span_ns(&u, &h1));
    automatic.memory_limit_microbatches = 2.0 * p;
    assert_true(uneven_span_ns(&u, &automatic) <= uneven_span_ns(&u, &h2));
    check_clock(&u, 1);
    check_clock(&u, 2);
    automatic.memory_limit_microbatches = 1.0;
    uneven_span_ns(&u, &automatic);
    sp_schedule_costs_free(u.means);
    sp_step_costs_fini(&u.costs);
    sp_packing_fini(&u.packing);
}

typedef struct small {
    sp_layout layout;
    sp_packing packing;
    int64_t ns[3];
    sp_schedule_costs costs;
} small;

static void small_init(small *s)
{
    *s = (small){.layout = {.tp = 1, .cp = 1, .pp = 3, .dp = 1, .chunks = 1},
                 .ns = {1000, 1000, 1000}};
    s->costs = (sp_schedule_costs){
        .f_ns = s->ns, .i_ns = s->ns, .w_ns = s->ns, .unit_f = 1.0, .unit_w = -1.0};
    uniform_packing(&s->packing, 1, 4);
}

static sp_status generate(const small *s, double limit, sp_error *err)
{
    sp_schedule_spec spec = {.kind = SP_SCHEDULE_ZB_AUTO, .memory_limit_microbatches = limit};
    AUTO(sp_plan) plan;
    sp_plan_init(&plan, &s->layout, &s->packing);
    return sp_schedule_generate(&spec, &s->costs, "case.json", &plan, err);
}

TEST(cap_too_small)
{
    small s;
    small_init(&s);
    must_fail_with(generate(&s, 0.5, ERR), SP_ERR_CONTENT,
                   "case.json: schedule.memory_limit_microbatches: ");
    assert_int_equal(generate(&s, 1.0, NULL), SP_OK);
    // Gradients that need memory of their own.
    s.costs.unit_b = 0.5;
    s.costs.unit_w = -1.5;
    must_fail_with(generate(&s, 1.25, ERR), SP_ERR_CONTENT, "");
    assert_int_equal(generate(&s, 1.5, NULL), SP_OK);
    sp_packing_fini(&s.packing);
}
