// Layers of every virtual stage by predicted time, and the time that packs take through a pipeline
// whose stages hold unlike shares of the model.
#ifndef SLIMPACK_SOLVER_CHOICES_CUT_LAYERS_H
#define SLIMPACK_SOLVER_CHOICES_CUT_LAYERS_H

#include "sim/plan/plan.h"
#include "sim/scenario/scenario.h"

// Parts of a pack's time on a virtual stage: what a stage takes without layers, what the first and
// the last stage take besides, and a layer of each kind.
enum {
    SP_I_CUT_STAGE,
    SP_I_CUT_FIRST,
    SP_I_CUT_LAST,
    SP_I_CUT_LAYER,
    SP_I_CUT_PARTS = SP_I_CUT_LAYER + SP_LAYER_KINDS
};
// Forward; backward, or input gradient; and in the latter case weight gradient.
enum { SP_I_CUT_F, SP_I_CUT_B, SP_I_CUT_W, SP_I_CUT_SIDES };

typedef struct sp_i_cut_pack {
    double ns[SP_I_CUT_PARTS][SP_I_CUT_SIDES];
} sp_i_cut_pack;

typedef struct sp_i_cut_clock {
    const sp_layout *layout;
    const sp_model *model;      // NULL: its layers are alike
    const sp_i_cut_pack *packs; // [count], of one data-parallel rank
    int count;
    // The order of the packs, of one data-parallel rank; NULL: each rank runs what may begin first,
    // backwards before forwards and later chunks before earlier ones.
    const sp_plan *plan;
    double *end_ns;  // [2 * vstages * count]: infinite where nothing has run yet; owned
    int *done;       // [2 * vstages], owned
    double *free_ns; // [pp], owned
    size_t *next;    // [pp]: actions of the plan; owned
    int (*layers)[SP_LAYER_KINDS]; // [vstages], of each kind; owned
} sp_i_cut_clock;

// What is not owned must be set.
void sp_i_cut_clock_init(sp_i_cut_clock *clock);
void sp_i_cut_clock_fini(sp_i_cut_clock *clock);

// The makespan in nanoseconds, without transfers. O(count * vstages * pp), without a plan
// O(count * vstages^2).
double sp_i_cut_clock_ns(sp_i_cut_clock *clock, const int *stage_layers);

// The layers of every virtual stage, [pp * chunks], of the scenario's layout, with which the
// workload's first batch is predicted to run fast, whatever layers the layout has. Begins with the
// least largest time of a rank, forward and backward with embedding and head, and moves layers one
// by one as long as the pipeline gets faster: for rows as `packed` fills them in the order of the
// schedule, which slices none, or for packs of about equal work, each rank running what may begin
// first. Of cuts that fit the memory limit, if there are any, by parameters and by the rows that
// the order keeps.
sp_status sp_i_cut_layers(const sp_scenario *scenario, bool runs_rows, int *stage_layers,
                          sp_error *err);

#endif
