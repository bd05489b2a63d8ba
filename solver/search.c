#include "solver/search.h"

#include <math.h>

#include "sim/base/parallel.h"
#include "sim/base/progress.h"
#include "solver/mip.h"

double sp_i_time_left_s(int64_t limit_ms, double spent_s)
{
    return limit_ms > 0 ? fmax(1e-3 * (double)limit_ms - spent_s, 1e-6) : 0.0;
}

bool sp_i_deadline_is_past(double deadline_s)
{
    return sp_stop_requested() || (deadline_s > 0.0 && sp_clock_s() > deadline_s);
}

double sp_i_deadline_part_s(double deadline_s, double share)
{
    double now_s = sp_clock_s();
    return deadline_s > now_s ? now_s + share * (deadline_s - now_s) : deadline_s;
}

int64_t sp_i_deadline_left_ms(double deadline_s)
{
    if (deadline_s <= 0.0) {
        return SP_I_NO_TIME_LIMIT;
    }
    double left_s = deadline_s - sp_clock_s();
    return left_s > 0.0 ? (int64_t)(1e3 * left_s) : 0;
}

// ---- by work ----

// Units of work: of an action of a simulated step, of a slice, of a rank without packs. LOOKS and
// SCANNED: how many virtual stages PackFlow looks at, and how many packs it looks through, in one.
enum { SIMULATED = 8, SLICED = 20, LOOKS = 32, SCANNED = 16, IDLE = 50 };

void sp_i_spend(const sp_scenario *scenario, int64_t units)
{
    if (scenario->strategy.meter != NULL) {
        scenario->strategy.meter->spent += units;
    }
}

void sp_i_spend_idle(const sp_scenario *scenario, int64_t filled)
{
    const int64_t idle = scenario->layout.dp - filled;
    sp_i_spend(scenario, idle > 0 ? IDLE * idle * sp_layout_vstages(&scenario->layout) : 0);
}

int64_t sp_i_timed_work(const sp_layout *layout, int64_t actions)
{
    return actions * sp_layout_vstages(layout) * (LOOKS + layout->pp + layout->chunks) / LOOKS;
}

static int64_t count_ranks(const sp_pack_list *list)
{
    int64_t ranks = 0;
    for (size_t k = 0; k < list->count; k++) {
        ranks += list->packs[k].dp_count;
    }
    return ranks;
}

void sp_i_spend_step(const sp_scenario *scenario, const sp_packing *packing)
{
    const bool mirrors = packing->backward.count == 0;
    const sp_pack_list *backward = mirrors ? &packing->forward : &packing->backward;
    int64_t packs = count_ranks(&packing->forward) + count_ranks(backward);
    int64_t slices = (int64_t)(packing->forward.slice_count + backward->slice_count);
    const sp_layout *layout = &scenario->layout;
    sp_i_spend(scenario, SIMULATED * packs * sp_layout_vstages(layout) + SLICED * slices +
                             sp_i_timed_work(layout, packs));
    sp_i_spend_idle(scenario, packs / 2);
    // Each data-parallel rank looks for its packs among all.
    const int64_t all = (int64_t)(packing->forward.count + backward->count);
    sp_i_spend(scenario, layout->dp * all / SCANNED);
}

bool sp_i_is_late(const sp_scenario *scenario, double deadline_s)
{
    sp_meter *meter = scenario->strategy.meter;
    const bool spent = meter != NULL && meter->spent >= meter->limit;
    if (spent) {
        meter->ended = true;
    }
    return spent || sp_i_deadline_is_past(deadline_s);
}

int64_t sp_i_begin_part(const sp_scenario *scenario, double share)
{
    sp_meter *meter = scenario->strategy.meter;
    if (meter == NULL) {
        return 0;
    }
    const int64_t limit = meter->limit;
    const int64_t left = limit - meter->spent;
    meter->limit = left > 0 ? meter->spent + (int64_t)(share * (double)left) : limit;
    return limit;
}

void sp_i_end_part(const sp_scenario *scenario, int64_t limit)
{
    if (scenario->strategy.meter != NULL) {
        scenario->strategy.meter->limit = limit;
    }
}

// ---- the search ----

sp_status sp_i_only_fatal(sp_status status, const sp_error *own, sp_error *err)
{
    return sp_status_is_fatal(status) ? sp_error_set(err, status, "%s", own->message[0]) : SP_OK;
}

static bool is_worth(const sp_packflow_outcome *tried, double min_gain,
                     const sp_packflow_outcome *best)
{
    sp_packflow_outcome longer = *tried;
    if (min_gain > 0.0 && tried->makespan_ns < INT64_MAX) {
        longer.makespan_ns = llround((1.0 + min_gain) * (double)tried->makespan_ns);
    }
    return sp_packflow_is_better(&longer, best);
}

sp_status sp_i_search(const sp_i_candidates *candidates, int *best, sp_packflow_outcome *outcome,
                      sp_error *err)
{
    sp_status status = SP_OK;
    for (int i = 0; status == SP_OK && i < candidates->count; i++) {
        sp_error own;
        sp_packflow_outcome tried = SP_PACKFLOW_WORST;
        if (i >= candidates->always_tried && candidates->is_over != NULL &&
            candidates->is_over(candidates->context)) {
            break;
        }
        sp_error_clear(&own);
        status = candidates->judge(candidates->context, i, outcome, &tried, &own);
        if (status == SP_OK && is_worth(&tried, candidates->min_gain, outcome)) {
            *best = i;
            *outcome = tried;
        }
        status = sp_i_only_fatal(status, &own, err);
    }
    return status;
}
