#include "experiments/execution/steady_case.h"

#include <math.h>

#include "sim/base/alloc.h"

// Is the speed of the reference work that of the profile? `speed` of the two together, before and
// after a run.
static bool is_steady(double profile_s, double before_s, double after_s, double *speed)
{
    *speed = 2.0 * profile_s / (before_s + after_s);
    return fabs(profile_s / before_s - 1.0) <= SP_STEADY_SPEED &&
           fabs(profile_s / after_s - 1.0) <= SP_STEADY_SPEED;
}

static sp_status run_once(const sp_scenario_case *of, const sp_execution_options *options,
                          sp_case_outcome *outcome, sp_error *err)
{
    double profile_s = of->scenario.profile.reference_s;
    int64_t all = sp_layout_ranks(&of->scenario.layout);
    int ranks = options->clock == SP_CLOCK_WALL ? (int)all : 0;
    double before_s = 0.0;
    double after_s = 0.0;
    sp_status status = SP_OK;
    if (profile_s > 0.0) {
        status = sp_backend_reference(options->backend, options->device, ranks, &before_s, err);
    }
    if (status == SP_OK) {
        status = sp_set_run_case(of, options, outcome, err);
    }
    if (status == SP_OK && before_s > 0.0) {
        status = sp_backend_reference(options->backend, options->device, ranks, &after_s, err);
        outcome->steady = is_steady(profile_s, before_s, after_s, &outcome->speed);
    }
    return status;
}

// How many runs of its kind are faster; of equal ones the earlier counts as such.
static int place(const sp_case_outcome *runs, int count, int at, bool steady)
{
    int before = 0;
    for (int i = 0; i < count; i++) {
        if (runs[i].steady == steady && (runs[i].measured_ms < runs[at].measured_ms ||
                                         (runs[i].measured_ms == runs[at].measured_ms && i < at))) {
            before++;
        }
    }
    return before;
}

static const sp_case_outcome *median(const sp_case_outcome *runs, int count, int among, bool steady)
{
    for (int i = 0; i < count; i++) {
        if (runs[i].steady == steady && place(runs, count, i, steady) == (among - 1) / 2) {
            return &runs[i];
        }
    }
    return &runs[0];
}

const sp_case_outcome *sp_set_steady_run(const sp_case_outcome *runs, int count)
{
    int steady = 0;
    int known = 0;
    const sp_case_outcome *nearest = &runs[0];
    for (int i = 0; i < count; i++) {
        steady += runs[i].steady;
        known += isfinite(runs[i].speed) != 0;
        if (fabs(log(runs[i].speed)) < fabs(log(nearest->speed))) {
            nearest = &runs[i];
        }
    }
    if (steady > 0) {
        return median(runs, count, steady, true);
    }
    return known > 0 ? nearest : median(runs, count, count, false);
}

sp_status sp_set_run_steady_case(const sp_scenario_case *of, const sp_execution_options *options,
                                 int repeat, sp_case_outcome *outcome, sp_error *err)
{
    int most = SP_RUNS_PER_REPEAT * repeat;
    int count = 0;
    int good = 0;
    sp_case_outcome *runs = sp_i_calloc((size_t)most, sizeof *runs);
    if (runs == NULL) {
        return sp_error_no_memory(err, "the runs of a case");
    }
    sp_status status = SP_OK;
    bool figures = true;
    while (status == SP_OK && figures && count < most && good < repeat) {
        sp_case_outcome *run = &runs[count];
        status = run_once(of, options, run, err);
        figures = status == SP_OK && sp_case_has_figures(run);
        good += run->steady || !isfinite(run->speed);
        count += status == SP_OK;
    }
    if (status == SP_OK) {
        // One that broke is what is to be said of the case.
        *outcome = figures ? *sp_set_steady_run(runs, count) : runs[count - 1];
        outcome->runs = count;
    }
    sp_i_free(runs);
    return status;
}
