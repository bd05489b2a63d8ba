// Fits of synthetic models: constants that are known, closed forms of linear problems, bounds,
// priors, outliers, and a model that fails.
#include "experiments/fit/fit.h"

#include "tests/support/test_main.h"

enum { ROWS = 60, PARAMETERS = 3 };

// Time of work on a machine: flops / rate + bytes / bandwidth + fixed. With `linear` instead the
// product c0 * c1^x, which is linear in logs.
typedef struct runtime {
    double flops[ROWS], bytes[ROWS];
    bool linear;
    int calls, fail_at; // the call that fails, from 1; 0: none
    double prediction;  // of that call; 0: an error in its place
} runtime;

static sp_status predict(void *context, const double *constants, const uint8_t *wanted,
                         double *predicted, sp_error *err)
{
    runtime *m = context;
    bool fails = ++m->calls == m->fail_at;
    if (fails && m->prediction == 0.0) {
        return sp_error_set(err, SP_ERR_INFEASIBLE, "the machine is broken");
    }
    for (int i = 0; i < ROWS; i++) {
        if (wanted[i] == 0) {
            continue;
        }
        if (fails) {
            predicted[i] = m->prediction;
        } else if (m->linear) {
            predicted[i] = constants[0] * pow(constants[1], m->flops[i]);
        } else {
            predicted[i] = m->flops[i] / constants[0] + m->bytes[i] / constants[1] + constants[2];
        }
    }
    return SP_OK;
}

static const double truth[PARAMETERS] = {250.0, 1.5, 0.02};

typedef struct trial {
    runtime runtime;
    fit_parameter parameters[PARAMETERS];
    double observed[ROWS], weight[ROWS];
    fit_problem problem;
} trial;

static void begin(trial *t, sp_prng *prng)
{
    *t = (trial){0};
    for (int i = 0; i < ROWS; i++) {
        t->runtime.flops[i] = exp(6.0 * sp_prng_uniform(prng));
        t->runtime.bytes[i] = exp(4.0 * sp_prng_uniform(prng) - 3.0);
        t->observed[i] = t->runtime.flops[i] / truth[0] + t->runtime.bytes[i] / truth[1] + truth[2];
        t->weight[i] = 1.0;
    }
    for (int j = 0; j < PARAMETERS; j++) {
        t->parameters[j] = (fit_parameter){
            .start = 3.0 * truth[j], .least = 0.01 * truth[j], .most = 100.0 * truth[j]};
    }
    t->problem = (fit_problem){.parameters = t->parameters,
                               .parameter_count = PARAMETERS,
                               .observed = t->observed,
                               .weight = t->weight,
                               .row_count = ROWS,
                               .scale = 0.01,
                               .most_iterations = 200,
                               .predict = predict,
                               .context = &t->runtime};
}

// Irwin-Hall: 12 uniforms minus 6 have variance 1.
static double noise(sp_prng *prng)
{
    double sum = -6.0;
    for (int i = 0; i < 12; i++) {
        sum += sp_prng_uniform(prng);
    }
    return sum;
}

static void solve(const trial *t, fit_solution *solution)
{
    sp_error_clear(ERR);
    sp_status status = fit_least_squares(&t->problem, solution, ERR);
    must_hold(status == SP_OK, "%s", ERR->message[0]);
    assert_true(solution->converged);
}

TEST_ROUNDS(exact_constants, 7, 20)
{
    trial t;
    begin(&t, prng);
    t.problem.squares = round % 2 == 0;
    for (int j = 0; j < PARAMETERS; j++) {
        t.parameters[j].start = truth[j] * exp(4.0 * sp_prng_uniform(prng) - 2.0);
    }
    AUTO(fit_solution) solution;
    solve(&t, &solution);
    for (int j = 0; j < PARAMETERS; j++) {
        assert_true(fabs(log(solution.constants[j] / truth[j])) < 1e-5);
    }
    for (int i = 0; i < ROWS; i++) {
        assert_true(fabs(log(solution.predicted[i] / t.observed[i])) < 1e-5);
    }
}

// The estimate lies within four standard errors of the truth, as the covariance has them.
TEST_ROUNDS(noisy_constants, 11, 20)
{
    trial t;
    begin(&t, prng);
    for (int i = 0; i < ROWS; i++) {
        t.observed[i] *= exp(0.02 * noise(prng));
    }
    t.problem.squares = true;
    AUTO(fit_solution) solution;
    solve(&t, &solution);
    for (int j = 0; j < PARAMETERS; j++) {
        double sd = sqrt(solution.covariance[j * PARAMETERS + j]);
        assert_true(sd > 0.0 && sd < 0.2);
        assert_true(fabs(log(solution.constants[j] / truth[j])) < 4.0 * sd);
    }
}

// log c0 + x log c1 is a straight line: least squares has the textbook solution, with the
// covariance s^2 (X'X)^-1 where s^2 = sum r^2 / (n - 2).
TEST(straight_line)
{
    sp_prng prng = prng_seeded(3);
    trial t;
    begin(&t, &prng);
    t.runtime.linear = true;
    t.problem.squares = true;
    t.problem.parameter_count = 2;
    double sx = 0.0, sy = 0.0;
    for (int i = 0; i < ROWS; i++) {
        t.runtime.flops[i] = 0.1 * (double)i;
        t.observed[i] = 5.0 * pow(1.3, t.runtime.flops[i]) * exp(0.05 * noise(&prng));
        sx += t.runtime.flops[i] / ROWS;
        sy += log(t.observed[i]) / ROWS;
    }
    double sxx = 0.0, sxy = 0.0;
    for (int i = 0; i < ROWS; i++) {
        double x = t.runtime.flops[i] - sx;
        sxx += x * x;
        sxy += x * (log(t.observed[i]) - sy);
    }
    double slope = sxy / sxx;
    double intercept = sy - slope * sx;
    double rss = 0.0;
    for (int i = 0; i < ROWS; i++) {
        double r = log(t.observed[i]) - intercept - slope * t.runtime.flops[i];
        rss += r * r;
    }
    double variance = rss / (ROWS - 2);
    for (int j = 0; j < 2; j++) {
        t.parameters[j] = (fit_parameter){.start = 2.0, .least = 0.1, .most = 100.0};
    }
    AUTO(fit_solution) solution;
    solve(&t, &solution);
    assert_within(log(solution.constants[0]), intercept, 1e-5);
    assert_within(log(solution.constants[1]), slope, 1e-5);
    double expected[4] = {variance * (1.0 / ROWS + sx * sx / sxx), -variance * sx / sxx,
                          -variance * sx / sxx, variance / sxx};
    for (int k = 0; k < 4; k++) {
        assert_within(solution.covariance[k] / expected[k], 1.0, 1e-4);
    }
    assert_within(solution.loss / (rss / (0.01 * 0.01)), 1.0, 1e-6);
}

// Weights are counts: a row of weight 2 is the row given twice, a row of weight 0 is none.
TEST(weights_are_counts)
{
    sp_prng prng = prng_seeded(5);
    trial t;
    begin(&t, &prng);
    for (int i = 0; i < ROWS; i++) {
        t.observed[i] *= exp(0.05 * noise(&prng));
    }
    trial twice = t;
    for (int i = 0; i < ROWS / 2; i++) {
        t.weight[i] = 2.0;
        t.weight[ROWS / 2 + i] = 0.0;
        twice.runtime.flops[ROWS / 2 + i] = t.runtime.flops[i];
        twice.runtime.bytes[ROWS / 2 + i] = t.runtime.bytes[i];
        twice.observed[ROWS / 2 + i] = t.observed[i];
    }
    twice.problem.parameters = twice.parameters;
    twice.problem.observed = twice.observed;
    twice.problem.weight = twice.weight;
    twice.problem.context = &twice.runtime;
    AUTO(fit_solution) a, b;
    solve(&t, &a);
    solve(&twice, &b);
    for (int j = 0; j < PARAMETERS; j++) {
        assert_true(fabs(log(a.constants[j] / b.constants[j])) < 1e-4);
    }
    assert_true(a.predicted[ROWS - 1] == 0.0);
}

TEST(bounds_hold)
{
    sp_prng prng = prng_seeded(13);
    trial t;
    begin(&t, &prng);
    // The true rate is out of reach; the others make up for it as far as they can.
    t.parameters[0].most = 0.8 * truth[0];
    t.parameters[0].start = 0.8 * truth[0];
    AUTO(fit_solution) solution;
    solve(&t, &solution);
    assert_true(solution.constants[0] <= t.parameters[0].most);
    assert_true(solution.constants[0] > 0.999 * t.parameters[0].most);
    assert_true(solution.constants[2] < truth[2]);
    fit_solution_fini(&solution);
    // A start on the bound that is not the solution is left.
    begin(&t, &prng);
    t.parameters[1].start = t.parameters[1].least;
    solve(&t, &solution);
    assert_true(fabs(log(solution.constants[1] / truth[1])) < 1e-5);
}

// One constant c for n equal observations o: squares give log c = (n log o / s^2 + log e / w^2) /
// (n / s^2 + 1 / w^2), the mean weighted by precision.
TEST(prior_against_data)
{
    sp_prng prng = prng_seeded(17);
    trial t;
    begin(&t, &prng);
    t.runtime.linear = true;
    t.problem.squares = true;
    t.problem.parameter_count = 2;
    t.problem.scale = 0.3;
    for (int i = 0; i < ROWS; i++) {
        t.runtime.flops[i] = 0.0;
        t.observed[i] = 10.0;
    }
    t.parameters[0] = (fit_parameter){
        .start = 30.0, .least = 1.0, .most = 1000.0, .expect = 20.0, .within = 0.05};
    // No row knows anything of the second constant: it stays with its prior.
    t.parameters[1] =
        (fit_parameter){.start = 2.0, .least = 0.1, .most = 100.0, .expect = 3.0, .within = 0.2};
    AUTO(fit_solution) solution;
    solve(&t, &solution);
    double data = ROWS / (0.3 * 0.3);
    double prior = 1.0 / (0.05 * 0.05);
    double expected = (data * log(10.0) + prior * log(20.0)) / (data + prior);
    assert_within(log(solution.constants[0]), expected, 1e-6);
    assert_true(fabs(log(solution.constants[1] / 3.0)) < 1e-6);
}

// A tenth of the rows measured three times too slow: squares follow them, soft-L1 hardly.
TEST(outliers)
{
    sp_prng prng = prng_seeded(19);
    trial t;
    begin(&t, &prng);
    for (int i = 0; i < ROWS; i += 10) {
        t.observed[i] *= 3.0;
    }
    AUTO(fit_solution) robust, squares;
    solve(&t, &robust);
    t.problem.squares = true;
    solve(&t, &squares);
    double robust_error = 0.0, squares_error = 0.0;
    for (int j = 0; j < PARAMETERS; j++) {
        robust_error += fabs(log(robust.constants[j] / truth[j]));
        squares_error += fabs(log(squares.constants[j] / truth[j]));
    }
    assert_true(robust_error < 0.01);
    assert_true(squares_error > 0.1);
}

// Derivatives of an earlier fit make the next one cheaper and leave its answer.
TEST(derivatives_are_used_again)
{
    sp_prng prng = prng_seeded(23);
    trial t;
    begin(&t, &prng);
    for (int i = 0; i < ROWS; i++) {
        t.observed[i] *= exp(0.02 * noise(&prng));
    }
    AUTO(fit_solution) first;
    solve(&t, &first);
    for (int j = 0; j < PARAMETERS; j++) {
        t.parameters[j].start = first.constants[j];
    }
    t.weight[3] = 0.0;
    AUTO(fit_solution) cold, warm;
    solve(&t, &cold);
    t.problem.derivatives = &first.derivatives;
    solve(&t, &warm);
    assert_true(warm.evaluations < cold.evaluations);
    for (int j = 0; j < PARAMETERS; j++) {
        assert_true(fabs(log(warm.constants[j] / cold.constants[j])) < 1e-4);
    }
}

// Whichever call of the model fails, its error comes back and nothing leaks.
TEST(failing_model)
{
    sp_prng prng = prng_seeded(29);
    trial t;
    begin(&t, &prng);
    fit_solution solution;
    solve(&t, &solution);
    int calls = t.runtime.calls;
    fit_solution_fini(&solution);
    for (int fail_at = 1; fail_at <= calls; fail_at++) {
        t.runtime.calls = 0;
        t.runtime.fail_at = fail_at;
        t.runtime.prediction = 0.0;
        must_fail(fit_least_squares(&t.problem, &solution, ERR), SP_ERR_INFEASIBLE,
                  "the machine is broken");
        assert_null(solution.constants);
        sp_error_clear(ERR);
        t.runtime.calls = 0;
        t.runtime.prediction = -1.0;
        must_fail(fit_least_squares(&t.problem, &solution, ERR), SP_ERR_CONTENT,
                  "row 1: the model predicts -1");
    }
}

TEST(too_few_rows)
{
    sp_prng prng = prng_seeded(31);
    trial t;
    begin(&t, &prng);
    for (int i = 2; i < ROWS; i++) {
        t.weight[i] = 0.0;
    }
    AUTO(fit_solution) solution;
    must_fail(fit_least_squares(&t.problem, &solution, ERR), SP_ERR_CONTENT,
              "3 constants cannot be fitted to 2 rows and 0 priors");
    // An expectation stands for a row.
    t.parameters[2].expect = truth[2];
    t.parameters[2].within = 1.0;
    solve(&t, &solution);
    assert_true(fabs(log(solution.constants[0] / truth[0])) < 1e-3);
}

TEST(no_parameters)
{
    sp_prng prng = prng_seeded(37);
    trial t;
    begin(&t, &prng);
    t.problem.parameter_count = 0;
    t.runtime.fail_at = 1;
    t.runtime.prediction = 2.0;
    AUTO(fit_solution) solution;
    must_succeed(fit_least_squares(&t.problem, &solution, ERR));
    assert_within(solution.predicted[0], 2.0, 1e-12);
}
