// The one search of the solver, and when it ends by time or by work.
//
// A deadline is a time of sp_clock_s(); 0: there is none. A search looks at it before each step
// after its first, so that there is a plan, as late as it is by one step at most. A stop that was
// asked for (sp_stop_request) is a deadline that is past; what was found by then is no answer.
#ifndef SLIMPACK_SOLVER_SEARCH_H
#define SLIMPACK_SOLVER_SEARCH_H

#include <stdbool.h>
#include <stdint.h>

#include "sim/plan/packing.h"
#include "sim/scenario/scenario.h"
#include "sim/schedule/packflow.h"

// The time that earlier choices have left of a batch's limit; 0: no limit (limit_ms 0).
double sp_i_time_left_s(int64_t limit_ms, double spent_s);

bool sp_i_deadline_is_past(double deadline_s);

// The time at which that share of what is left is over, for the first of several searches.
double sp_i_deadline_part_s(double deadline_s, double share);

// The time that is left in whole milliseconds, 0 where none is; SP_I_NO_TIME_LIMIT (mip.h).
int64_t sp_i_deadline_left_ms(double deadline_s);

// ---- by work ----

// Where no time limit is stated, a plan is bounded by what it does, so that equal input has an
// equal plan on every machine. One unit is an action that the search for packs times, about 20 ns.
#define SP_I_MOST_WORK INT64_C(200000000)

// The work that plans of so many batches may take, in proportion.
static inline int64_t sp_i_most_work(int batches)
{
    return SP_I_MOST_WORK * (batches > 1 ? batches : 1);
}

typedef struct sp_meter {
    int64_t spent, limit;
    bool ended; // the limit has ended some search
} sp_meter;

// A scenario without a meter spends nothing that counts.
void sp_i_spend(const sp_scenario *scenario, int64_t units);
// Data-parallel ranks beyond those that samples or packs fill, of a layout far too large for its
// batch: each has a place in all tables.
void sp_i_spend_idle(const sp_scenario *scenario, int64_t filled);
// PackFlow's run over so many actions of all virtual stages, each of which looks at the others.
int64_t sp_i_timed_work(const sp_layout *layout, int64_t actions);
// A simulation of the whole step, with costs and memory of all its actions.
void sp_i_spend_step(const sp_scenario *scenario, const sp_packing *packing);

// Is the deadline past, or all work spent?
bool sp_i_is_late(const sp_scenario *scenario, double deadline_s);

// Leaves that share of the work to the first of several searches, until sp_i_end_part() with the
// limit that is returned.
int64_t sp_i_begin_part(const sp_scenario *scenario, double share);
void sp_i_end_part(const sp_scenario *scenario, int64_t limit);

// ---- the search ----

// Candidates by number, tried in their order.
typedef struct sp_i_candidates {
    int count;
    int always_tried; // the first so many, whatever the time; the others until it is over
    // Finds what a candidate comes to. `best` is the best outcome before it: a judge may leave one
    // that cannot be better at SP_PACKFLOW_WORST, as *outcome is at first. A candidate that has no
    // plan is no error of the search: only fatal errors end it (sim/base/status.h).
    sp_status (*judge)(void *context, int candidate, const sp_packflow_outcome *best,
                       sp_packflow_outcome *outcome, sp_error *err);
    bool (*is_over)(const void *context); // NULL: every candidate is tried
    void *context;
    double min_gain; // share of its own time by which a candidate has to be better
} sp_i_candidates;

// Tries the candidates. *outcome is what they have to be better than, SP_PACKFLOW_WORST where that
// is nothing, and then the best; *best is the number of that candidate, the earlier of equal ones,
// and stays as it is where none is better.
sp_status sp_i_search(const sp_i_candidates *candidates, int *best, sp_packflow_outcome *outcome,
                      sp_error *err);

// Lets nothing but fatal errors through: what has no plan is passed over.
sp_status sp_i_only_fatal(sp_status status, const sp_error *own, sp_error *err);

#endif
