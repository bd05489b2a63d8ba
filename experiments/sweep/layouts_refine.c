#include "experiments/sweep/layouts_private.h"

#include <string.h>

#include "solver/strategy.h"

enum { MOST_STARTS = 6 };

static bool same_work(const sweep_layouts *layouts, const sweep_layout *a, const sweep_layout *b)
{
    int64_t p[SWEEP_AXES];
    int64_t q[SWEEP_AXES];
    sweep_spec_digits(&layouts->spec[a->strategy], a->combination, p);
    sweep_spec_digits(&layouts->spec[b->strategy], b->combination, q);
    return memcmp(p, q, SWEEP_I_WORK_AXES * sizeof p[0]) == 0;
}

// The fastest points, none of the degrees and recomputation of another.
static int choose_starts(const sweep_layouts *layouts, const sweep_layout *start[MOST_STARTS])
{
    int count = 0;
    for (int64_t i = 0; i < layouts->ranked_count && count < MOST_STARTS; i++) {
        bool is_new = true;
        for (int s = 0; s < count; s++) {
            is_new = is_new && !same_work(layouts, layouts->ranked[i], start[s]);
        }
        if (is_new) {
            start[count++] = layouts->ranked[i];
        }
    }
    return count;
}

// Layouts around a point; none where there is nothing to try.
static sp_status look_around(const sweep_layouts_options *options, const char *source,
                             const sweep_layouts *layouts, const sweep_layout *start,
                             sweep_layouts *found, sp_error *err)
{
    sweep_layouts_options around = *options;
    sp_scenario scenario;
    json_t *base = sweep_layouts_document(layouts, start);
    *found = (sweep_layouts){0};
    if (base == NULL) {
        return sp_error_no_memory(err, "layouts");
    }
    around.around = true;
    sp_status status = sp_scenario_from_json(base, source, NULL, 0, &scenario, err);
    if (status == SP_OK) {
        status = sweep_layouts_find(base, &scenario, &around, found, err);
        sp_scenario_fini(&scenario);
    }
    json_decref(base);
    return status;
}

// Keeps the layouts with the faster best one in *best.
static void keep_better(sweep_layouts *best, sweep_layouts *found)
{
    bool better = found->ranked_count > 0 &&
                  (best->ranked_count == 0 ||
                   sweep_is_better(&found->ranked[0]->digest, &best->ranked[0]->digest));
    bool stopped = best->stopped || found->stopped;
    if (better) {
        sweep_layouts swapped = *best;
        *best = *found;
        *found = swapped;
    }
    best->stopped = stopped;
    sweep_layouts_fini(found);
}

sp_status sweep_layouts_refine(const sweep_layouts_options *options, const char *source,
                               sweep_layouts *layouts, sp_error *err)
{
    if (sp_strategy_find(options->strategies[0])->by_effort) {
        return SP_OK; // searches by itself what is tried here
    }
    const sweep_layout *start[MOST_STARTS];
    int count = choose_starts(layouts, start);
    sweep_layouts best = {0};
    sweep_layouts found;
    sp_status status = SP_OK;
    for (int s = 0; status == SP_OK && s < count && !best.stopped; s++) {
        status = look_around(options, source, layouts, start[s], &found, err);
        keep_better(&best, &found);
    }
    if (status == SP_OK && best.ranked_count > 0 && !best.stopped) {
        status = look_around(options, source, &best, best.ranked[0], &found, err);
        keep_better(&best, &found);
    }
    keep_better(layouts, &best);
    return status;
}
