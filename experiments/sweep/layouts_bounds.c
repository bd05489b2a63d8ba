// The bounds of points.
#include <math.h>

#include "experiments/sweep/layouts_private.h"
#include "sim/base/alloc.h"
#include "sim/base/parallel.h"
#include "solver/evaluate/evaluate.h"
#include "solver/strategy.h"

enum { DEGREES = 4, DP_AXIS = 3 }; // axes of a layout alone, and which of them is dp

int64_t sweep_layouts_work_of(const sweep_layouts_finder *f, const sweep_layout *point)
{
    const sweep_spec *spec = &f->layouts->spec[point->strategy];
    int64_t inner = 1;
    for (int a = f->axes; a < spec->axis_count; a++) {
        inner *= spec->axes[a].count;
    }
    return point->combination / inner;
}

// Pure work depends on degrees and recomputation, not on strategy, schedule or chunks.
static sp_status bound_one(void *context, int worker, int job, sp_error *err)
{
    sweep_layouts_finder *f = context;
    sp_scenario scenario;
    sp_error own = {0};
    int64_t digit[SWEEP_AXES];
    int64_t work = f->wanted[job];
    double bound_s = 0.0;
    sweep_spec_digits(&f->layouts->spec[0], work * f->inner, digit);
    json_t *document = sweep_evaluator_scenario(&f->evaluator[0], worker, digit);
    if (document == NULL) {
        return sp_error_no_memory(err, "layouts");
    }
    f->bound_ms[work] = 0.0;
    sp_status status =
        sp_scenario_from_json_cached(document, "layout", f->evaluator[0].files, &scenario, &own);
    json_decref(document);
    if (status == SP_OK) {
        status = sp_evaluate_work_bound(&scenario, &f->batches, &bound_s, &own);
        f->bound_ms[work] = status == SP_OK ? bound_s * 1e3 : 0.0;
        sp_scenario_fini(&scenario);
    }
    return sp_status_is_fatal(status) ? sp_error_set(err, status, "%s", own.message[0]) : SP_OK;
}

// Data-parallel ranks over the most that work where each sample is trained by one: the work is
// spread over so many fewer.
static double idle_factor(const sweep_layouts_finder *f, const sweep_layout *point)
{
    const sweep_spec *spec = &f->layouts->spec[point->strategy];
    int64_t digit[SWEEP_AXES];
    size_t most = 1;
    for (int b = 0; b < f->batches.count; b++) {
        most = f->batches.batch[b].count > most ? f->batches.batch[b].count : most;
    }
    sweep_spec_digits(spec, point->combination, digit);
    const json_t *dp = json_array_get(spec->axes[DP_AXIS].values, (size_t)digit[DP_AXIS]);
    return fmax(json_number_value(dp) / (double)most, 1.0);
}

sp_status sweep_layouts_bound(sweep_layouts_finder *f, sp_error *err)
{
    sweep_layouts *all = f->layouts;
    f->works = 1;
    f->alike = 1;
    f->axes = SWEEP_I_WORK_AXES + f->options->wide;
    f->inner = 1;
    for (int a = 0; a < all->spec[0].axis_count; a++) {
        *(a < f->axes ? &f->works : &f->inner) *= all->spec[0].axes[a].count;
        f->alike *= a >= DEGREES && a < f->axes ? all->spec[0].axes[a].count : 1;
    }
    f->bound_ms = sp_calloc((size_t)f->works, sizeof *f->bound_ms);
    f->wanted = sp_calloc((size_t)f->works, sizeof *f->wanted);
    if (f->bound_ms == NULL || f->wanted == NULL) {
        return sp_error_no_memory(err, "layouts");
    }
    for (int64_t i = 0; i < all->count; i++) {
        int64_t work = sweep_layouts_work_of(f, &all->point[i]);
        if (f->bound_ms[work] == 0.0) {
            f->bound_ms[work] = -1.0;
            f->wanted[f->wanted_count++] = work;
        }
    }
    sp_status status =
        sp_parallel_for(f->options->threads, (int)f->wanted_count, bound_one, f, err);
    for (int64_t i = 0; status == SP_OK && i < all->count; i++) {
        // Documents that are cut see less of each other: less work than the batch has.
        const char *name = f->options->strategies[all->point[i].strategy];
        const sp_strategy *strategy = sp_strategy_find(name);
        double idle = strategy->kind == SP_STRATEGY_ROWS ? idle_factor(f, &all->point[i]) : 1.0;
        all->point[i].bound_ms = strategy->joins_documents
                                     ? 0.0
                                     : idle * f->bound_ms[sweep_layouts_work_of(f, &all->point[i])];
    }
    return status;
}
