#include "tests/support/idle_time.h"

#include "sim/base/units.h"
#include "sim/plan/depends.h"

// A backward is whole, or its input gradient is.
static bool is_same(sp_action a, sp_action b)
{
    bool backward = (a.kind == SP_ACTION_B || a.kind == SP_ACTION_I) &&
                    (b.kind == SP_ACTION_B || b.kind == SP_ACTION_I);
    return (a.kind == b.kind || backward) && a.chunk == b.chunk && a.pack == b.pack;
}

// Both of an overlapped pair are done when the second is.
static int64_t end_of(const sp_timeline *timeline, const sp_plan_place *place)
{
    const sp_rank_timeline *rank =
        &timeline->ranks[place->dp * timeline->plan->layout.pp + place->pp];
    for (size_t i = 0; i < rank->count; i++) {
        if (is_same(rank->spans[i].action, place->action)) {
            return rank->spans[rank->spans[i].action.with_next ? i + 1 : i].end_ns;
        }
    }
    for (size_t i = 0; i < rank->copy_count; i++) {
        if (is_same(rank->copies[i].action, place->action)) {
            return rank->copies[i].end_ns;
        }
    }
    return 0;
}

void idle_time(const sp_measured_step *step, int64_t *idle_ns)
{
    const sp_timeline *timeline = &step->timeline;
    sp_depends depends;
    sp_depends_init(&depends, timeline->plan, NULL);
    for (size_t r = 0; r < timeline->rank_count; r++) {
        const sp_rank_timeline *rank = &timeline->ranks[r];
        idle_ns[r] = 0;
        for (size_t i = 1; i < rank->count; i++) {
            const sp_span *span = &rank->spans[i];
            sp_plan_place place = {.dp = rank->dp, .pp = rank->pp, .action = span->action};
            sp_plan_place from;
            int64_t ready_ns = rank->spans[i - 1].end_ns;
            for (size_t k = 0; sp_depends_input(&depends, &place, k, &from); k++) {
                ready_ns = sp_larger(ready_ns, end_of(timeline, &from));
            }
            idle_ns[r] += sp_larger(span->start_ns - ready_ns, 0);
        }
    }
    sp_depends_fini(&depends);
}
