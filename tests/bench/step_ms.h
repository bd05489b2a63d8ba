// The step of a scenario's strategy, for benchmarks that compare strategies.
#ifndef SLIMPACK_TESTS_BENCH_STEP_MS_H
#define SLIMPACK_TESTS_BENCH_STEP_MS_H

#include <jansson.h>
#include <math.h>
#include <stdbool.h>
#include <unistd.h>

#include "solver/evaluate/evaluate.h"

// Replaces each ' of a text by ".
static inline void double_quotes(char *text)
{
    for (char *c = text; *c != '\0'; c++) {
        *c = *c == '\'' ? '"' : *c;
    }
}

// ms: infinite where there is no plan or none that fits. `tight`: it fits with little to spare.
// chance: that it does not run out of memory (sp_fit_chance). `blocks`: those of PyTorch's
// allocator count, with their gaps, as in compare; else of steps alone that fit tightly by their
// tensors.
typedef struct step {
    double ms, chance;
    bool tight;
} step;

static inline step step_of(const json_t *root, const char *const *settings, int count, bool blocks)
{
    sp_error err = {0};
    sp_scenario scenario;
    sp_batches batches = {0};
    sp_result result = {0};
    const sp_evaluate_options options = {.threads = (int)sysconf(_SC_NPROCESSORS_ONLN),
                                         .allocator_peak = blocks,
                                         .allocator_if_near = !blocks,
                                         .no_bounds = true};
    step made = {.ms = HUGE_VAL};
    json_t *own = json_deep_copy(root); // which takes the settings
    sp_status status = sp_scenario_from_json(own, "benchmark", settings, count, &scenario, &err);
    json_decref(own);
    if (status != SP_OK) {
        return made; // a layout that cannot be cut so
    }
    status = sp_evaluate_batches(&scenario, &batches, &err);
    if (status == SP_OK) {
        status = sp_evaluate(&scenario, &batches, &options, &result, &err);
    }
    if (status == SP_OK && !sp_result_is_oom(&result) && result.lossless) {
        made = (step){.ms = sp_result_iteration_ms(&result),
                      .chance = sp_fit_chance(sp_result_fit_probability(&result)),
                      .tight = sp_result_fits(&result) == SP_FITS_TIGHT};
    }
    sp_result_fini(&result);
    sp_batches_fini(&batches);
    sp_scenario_fini(&scenario);
    return made;
}

#endif
