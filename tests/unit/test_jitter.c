// GPUs that differ: a synchronous step waits for the slowest, whose expected time follows from the
// order statistics of normal variates.
#include "sim/simulate/engine.h"
#include "tests/support/random_step.h"
#include "tests/support/test_main.h"
#include "tests/support/uniform_packing.h"
#include "tests/support/uniform_step.h"

// Mean of the largest of n normal variates: Teichroew, Tables of expected values of order
// statistics, Annals of Mathematical Statistics 27 (1956); as in Harter, Biometrika 48 (1961).
static const struct {
    int n;
    double mean;
} largest[] = {{1, 0.0}, {2, 0.56419}, {5, 1.16296}, {10, 1.53875}, {20, 1.86748}, {100, 2.50759}};

TEST(the_slowest_of_n)
{
    enum { SEEDS = 4000 };
    for (size_t i = 0; i < sizeof largest / sizeof largest[0]; i++) {
        double sum = 0.0;
        sp_layout layout = {.tp = 1, .cp = 1, .pp = 1, .dp = 1, .chunks = 1};
        // TP ranks work in step: the slowest decides.
        layout.tp = largest[i].n;
        for (uint64_t seed = 0; seed < SEEDS; seed++) {
            const sp_jitter jitter = {.gpu_cv = 0.02, .seed = seed};
            AUTO_FREE double *factors = sp_i_jitter_factors(&layout, &jitter);
            sum += (factors[0] - 1.0) / jitter.gpu_cv;
        }
        // The largest has a standard deviation of at most 1.
        assert_within(sum / SEEDS, largest[i].mean, 4.0 / sqrt(SEEDS));
    }
}

TEST(the_slowest_of_n_is_expected)
{
    for (size_t i = 0; i < sizeof largest / sizeof largest[0]; i++) {
        double expected = sp_jitter_expected_slowest(0.02, largest[i].n);
        assert_within((expected - 1.0) / 0.02, largest[i].mean, 1e-5);
    }
    assert_true(sp_jitter_expected_slowest(0.0, 100) == 1.0);
}

// Of the widest distribution, whose least value is cut off, too; and more GPUs wait longer.
TEST(seeds_take_what_is_expected)
{
    enum { SEEDS = 4000 };
    const double gpu_cv = 0.2;
    double last = 1.0;
    for (int gpus = 1; gpus <= 256; gpus *= 4) {
        const sp_layout layout = {.tp = 1, .cp = 1, .pp = 1, .dp = gpus, .chunks = 1};
        double expected = sp_jitter_expected_slowest(gpu_cv, gpus);
        double sum = 0.0;
        for (uint64_t seed = 0; seed < SEEDS; seed++) {
            sum += sp_jitter_slowest(&layout, &(sp_jitter){gpu_cv, seed});
        }
        assert_within(sum / SEEDS, expected, 4.0 * gpu_cv / sqrt(SEEDS));
        assert_true(expected > last);
        last = expected;
    }
}

// A GPU is as fast in one layout as in another.
TEST(gpus_keep_their_times)
{
    const sp_jitter jitter = {.gpu_cv = 0.05, .seed = 3};
    const sp_layout apart = {.tp = 1, .cp = 1, .pp = 4, .dp = 6, .chunks = 1};
    sp_layout joint = {.tp = 2, .cp = 3, .pp = 4, .dp = 1, .chunks = 1};
    AUTO_FREE double *each = sp_i_jitter_factors(&apart, &jitter);
    AUTO_FREE double *most = sp_i_jitter_factors(&joint, &jitter);
    for (int p = 0; p < 4; p++) {
        double expected = 0.0;
        for (int d = 0; d < 6; d++) {
            expected = fmax(expected, each[d * 4 + p]);
        }
        assert_true(most[p] == expected);
    }
}

static int64_t iteration_ns(sp_prng *prng, double gpu_cv, int64_t *slowest_ns)
{
    sp_layout layout = {.tp = 1, .cp = 1, .pp = 1 + prng_below(prng, 3), .dp = 3, .chunks = 1};
    AUTO(sp_packing) packing;
    AUTO(sp_plan) plan;
    AUTO(sp_step_costs) costs;
    AUTO(simulated_plan) s;
    const sp_engine_options options = {.verify = true, .jitter = {gpu_cv, 7}};
    uniform_packing(&packing, layout.dp, 6);
    random_costs(prng, &layout, &packing, 0, &costs);
    must_succeed(plan_by_schedule(&plan, &layout, &packing, SP_SCHEDULE_ZB_H1, ERR));
    simulate_plan(&plan, &costs, &options, &s);
    *slowest_ns = 0;
    for (size_t r = 0; r < s.timeline.rank_count; r++) {
        int64_t busy_ns = 0;
        for (size_t k = 0; k < s.timeline.ranks[r].count; k++) {
            busy_ns += s.timeline.ranks[r].spans[k].end_ns - s.timeline.ranks[r].spans[k].start_ns;
        }
        *slowest_ns = busy_ns > *slowest_ns ? busy_ns : *slowest_ns;
    }
    return s.timeline.makespan_ns;
}

// Every step is checked against the longest path, and takes as long as its busiest rank at least.
TEST(steps_with_jitter)
{
    for (uint64_t seed = 0; seed < 20; seed++) {
        int64_t even_ns, uneven_ns;
        sp_prng prng = prng_seeded(seed);
        sp_prng again = prng_seeded(seed);
        int64_t without_ns = iteration_ns(&prng, 0.0, &even_ns);
        int64_t with_ns = iteration_ns(&again, 0.1, &uneven_ns);
        assert_true(without_ns >= even_ns && with_ns >= uneven_ns);
        assert_true(with_ns != without_ns);
    }
}

// Actions that only compute take their rank's factor as long.
TEST(every_rank_takes_its_own_factor)
{
    const sp_engine_options options = {.jitter = {0.1, 5}};
    const sp_layout layout = {.tp = 1, .cp = 1, .pp = 2, .dp = 2, .chunks = 1};
    AUTO(sp_packing) packing;
    AUTO(sp_plan) plan;
    AUTO(sp_step_costs) costs;
    AUTO(simulated_plan) s;
    uniform_packing(&packing, layout.dp, 3);
    sp_i_step_costs_init(&costs, &layout, &packing, 1, false);
    for (size_t k = 0; k < packing.forward.count; k++) {
        costs.action[SP_ACTION_F][k].compute_ns = 10000;
        costs.action[SP_ACTION_B][k].compute_ns = 20000;
    }
    must_succeed(plan_by_schedule(&plan, &layout, &packing, SP_SCHEDULE_1F1B, ERR));
    simulate_plan(&plan, &costs, &options, &s);
    AUTO_FREE double *factors = sp_i_jitter_factors(&layout, &options.jitter);
    for (size_t r = 0; r < s.timeline.rank_count; r++) {
        for (size_t k = 0; k < s.timeline.ranks[r].count; k++) {
            const sp_span *span = &s.timeline.ranks[r].spans[k];
            double alike_ns = span->action.kind == SP_ACTION_F ? 10000.0 : 20000.0;
            assert_within((double)(span->end_ns - span->start_ns), factors[r] * alike_ns, 0.5);
        }
    }
}
