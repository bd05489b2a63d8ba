#include "sim/scenario/cut_time.h"

#include <math.h>
#include <string.h>

#include "sim/base/alloc.h"

void sp_i_cut_clock_init(sp_i_cut_clock *clock)
{
    size_t vstages = (size_t)sp_layout_vstages(clock->layout);
    clock->end_ns = sp_calloc(2 * vstages * (size_t)clock->count + 1, sizeof *clock->end_ns);
    clock->done = sp_calloc(2 * vstages, sizeof *clock->done);
    clock->free_ns = sp_calloc((size_t)clock->layout->pp, sizeof *clock->free_ns);
    clock->next = sp_calloc((size_t)clock->layout->pp, sizeof *clock->next);
}

void sp_i_cut_clock_fini(sp_i_cut_clock *clock)
{
    sp_free(clock->end_ns);
    sp_free(clock->done);
    sp_free(clock->free_ns);
    sp_free(clock->next);
}

double sp_i_cut_pack_ns(const sp_i_cut_clock *clock, const sp_i_cut_pack *pack, int side,
                        int vstage, int layers)
{
    bool first = vstage == 0;
    bool last = vstage == sp_layout_vstages(clock->layout) - 1;
    return pack->ns[SP_I_CUT_STAGE][side] + layers * pack->ns[SP_I_CUT_LAYER][side] +
           first * pack->ns[SP_I_CUT_FIRST][side] + last * pack->ns[SP_I_CUT_LAST][side];
}

// An action that a rank may run next.
typedef struct next_action {
    double start_ns; // infinity: not known yet
    int side, vstage, pack;
} next_action;

static int *done(const sp_i_cut_clock *clock, int side, int vstage)
{
    return &clock->done[2 * vstage + side];
}

static double *end_of(const sp_i_cut_clock *clock, int side, int vstage, int pack)
{
    return &clock
                ->end_ns[((size_t)vstage * 2 + (size_t)side) * (size_t)clock->count + (size_t)pack];
}

// When what it needs of other stages is there; infinite while that has not run.
static double ready_ns(const sp_i_cut_clock *clock, const next_action *action)
{
    int last = sp_layout_vstages(clock->layout) - 1;
    bool turns = action->vstage == last && action->side == SP_I_CUT_B;
    int from = action->side == SP_I_CUT_F ? action->vstage - 1 : turns ? last : action->vstage + 1;
    if (action->side == SP_I_CUT_W || from < 0) {
        return 0.0;
    }
    return *end_of(clock, turns ? SP_I_CUT_F : action->side, from, action->pack);
}

static void run(sp_i_cut_clock *clock, int pp_rank, const next_action *action, int layers)
{
    double end_ns = action->start_ns + sp_i_cut_pack_ns(clock, &clock->packs[action->pack],
                                                        action->side, action->vstage, layers);
    if (action->side != SP_I_CUT_W) {
        *end_of(clock, action->side, action->vstage, action->pack) = end_ns;
        ++*done(clock, action->side, action->vstage);
    }
    clock->free_ns[pp_rank] = end_ns;
}

// ---- without a plan ----

static next_action first_of_rank(const sp_i_cut_clock *clock, int pp_rank)
{
    next_action first = {.start_ns = (double)HUGE_VAL};
    for (int side = SP_I_CUT_B; side >= SP_I_CUT_F; side--) {
        for (int chunk = clock->layout->chunks - 1; chunk >= 0; chunk--) {
            int vstage = sp_layout_vstage(clock->layout, pp_rank, chunk);
            next_action next = {.side = side, .vstage = vstage, .pack = *done(clock, side, vstage)};
            if (next.pack < clock->count) {
                next.start_ns = fmax(clock->free_ns[pp_rank], ready_ns(clock, &next));
                first = next.start_ns < first.start_ns ? next : first;
            }
        }
    }
    return first;
}

static void run_first_come(sp_i_cut_clock *clock, const int *stage_layers)
{
    const sp_layout *layout = clock->layout;
    for (int left = 2 * sp_layout_vstages(layout) * clock->count; left > 0; left--) {
        next_action first = {.start_ns = (double)HUGE_VAL};
        int rank = 0;
        for (int r = 0; r < layout->pp; r++) {
            next_action of_rank = first_of_rank(clock, r);
            if (of_rank.start_ns < first.start_ns) {
                first = of_rank;
                rank = r;
            }
        }
        run(clock, rank, &first, stage_layers[first.vstage]);
    }
}

// ---- in the order of a plan ----

static next_action planned(const sp_i_cut_clock *clock, int pp_rank, sp_action action)
{
    next_action next = {.side = action.kind == SP_ACTION_F   ? SP_I_CUT_F
                                : action.kind == SP_ACTION_W ? SP_I_CUT_W
                                                             : SP_I_CUT_B,
                        .vstage = sp_layout_vstage(clock->layout, pp_rank, action.chunk),
                        .pack = action.pack};
    next.start_ns = fmax(clock->free_ns[pp_rank], ready_ns(clock, &next));
    return next;
}

// Each rank as far as it gets, until none gets further.
static void run_planned(sp_i_cut_clock *clock, const int *stage_layers)
{
    int pp = clock->layout->pp;
    size_t *next_of = clock->next;
    bool further = true;
    memset(next_of, 0, (size_t)pp * sizeof *next_of);
    while (further) {
        further = false;
        for (int r = 0; r < pp; r++) {
            const sp_stage_plan *stage = sp_plan_stage(clock->plan, 0, r);
            while (next_of[r] < stage->count) {
                next_action next = planned(clock, r, stage->actions[next_of[r]]);
                if (!isfinite(next.start_ns)) {
                    break;
                }
                run(clock, r, &next, stage_layers[next.vstage]);
                next_of[r]++;
                further = true;
            }
        }
    }
}

double sp_i_cut_clock_ns(sp_i_cut_clock *clock, const int *stage_layers)
{
    size_t vstages = (size_t)sp_layout_vstages(clock->layout);
    double makespan_ns = 0.0;
    for (size_t i = 0; i < 2 * vstages * (size_t)clock->count; i++) {
        clock->end_ns[i] = (double)HUGE_VAL;
    }
    memset(clock->done, 0, 2 * vstages * sizeof *clock->done);
    memset(clock->free_ns, 0, (size_t)clock->layout->pp * sizeof *clock->free_ns);
    (clock->plan != NULL ? run_planned : run_first_come)(clock, stage_layers);
    for (int r = 0; r < clock->layout->pp; r++) {
        makespan_ns = fmax(makespan_ns, clock->free_ns[r]);
    }
    return makespan_ns;
}
