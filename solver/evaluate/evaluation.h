// A scenario on its way through the evaluation: what evaluate.c and plan_batch.c share.
#ifndef SLIMPACK_SOLVER_EVALUATE_EVALUATION_H
#define SLIMPACK_SOLVER_EVALUATE_EVALUATION_H

#include "solver/evaluate/evaluate.h"
#include "solver/step/step.h"

typedef struct sp_i_evaluation {
    sp_i_steps steps;
    const sp_scenario *stated;
    // The stated scenario with the order that its strategy brings, unless it was resolved before;
    // owns its document and the layers of chunks that the strategy chose.
    sp_scenario own;
    sp_oom_diagnosis oom; // the worst of the result's batches so far, or of one that was refused
    bool refused;         // for lack of memory: the strategy has no plan
    // sp_evaluate(), by which other settings are tried: it calls upon them itself.
    sp_status (*evaluate)(const sp_scenario *scenario, const sp_batches *batches,
                          const sp_evaluate_options *options, sp_result *result, sp_error *err);
    int64_t tried;  // work of other settings that were tried (solver/search.h)
    bool curtailed; // the bound of work has ended some search
    bool repeats;   // some packs so far run their forward again
    bool offloads;  // some so far have an action that copies to host memory
    bool copies;    // and it takes something there
    sp_i_group_starts starts;
    sp_i_best_step best_step; // of the batch at hand
    sp_batch carried;         // what the batches so far delayed; it stands in front of the next one
    double spent_s;           // of the time limit of the next batch
    int64_t positions;        // of the longest sample, in tokens
    // Shapes that attention plans are built for: lengths of padded rows, and numbers of samples in
    // packs of many, the most of a batch.
    size_t row_lengths, sample_counts;
    bool moves[64 * SP_STATED_WORDS]; // of switches of the stack: it changes some batch so far
} sp_i_evaluation;

// A batch on its way. The plan refers to the packing: it stays where it is.
typedef struct sp_i_step {
    sp_batch own;    // of uniform costs, or of joined documents
    sp_batch padded; // a view of it or of the batch that was given, as the stack pads
    sp_packing packing;
    sp_plan plan;
    sp_step_costs costs;
    sp_batch_facts facts;
} sp_i_step;

// Costs and a result that holds no batch yet. sp_i_evaluate_end() in any case; with an error it
// frees the result.
sp_status sp_i_evaluate_begin(sp_i_evaluation *ev, const sp_scenario *scenario,
                              const sp_evaluate_options *options, sp_result *result, sp_error *err);
void sp_i_evaluate_end(sp_i_evaluation *ev, sp_status status);
// Begins the result anew, with what its scenario says, for batches that have nothing in common with
// those before.
void sp_i_evaluate_describe(sp_i_evaluation *ev);
// Warns of what shows after the last batch of a result: a bound of work that ended the search for
// its plans (sp_result.curtailed), copies to host memory.
void sp_i_evaluate_note(sp_i_evaluation *ev, sp_status status);

// Plans and simulates one batch and adds it to the result. With uniform costs `batch` is NULL.
// sp_i_step_fini() in any case.
sp_status sp_i_evaluate_batch(sp_i_evaluation *ev, int index, const sp_batch *batch,
                              int64_t context, sp_i_step *step, sp_error *err);
void sp_i_step_fini(sp_i_step *step);

// Finds other settings with which the whole scenario would fit: each is read into the scenario as
// it was stated, as --set does, and evaluated on the same batches, into ev->oom. A stated number of
// nodes follows the degrees. Tries nothing where the document is not known. At most 19 evaluations
// (7 where the strategy searches by effort), each up to the first batch that does not fit.
sp_status sp_i_oom_settings_find(sp_i_evaluation *ev, const sp_batches *batches, sp_error *err);

// Adds to the error of a refused batch with which settings it would have a plan.
sp_status sp_i_oom_settings_of_refused(sp_i_evaluation *ev, const sp_batches *batches,
                                       sp_error *err);

// Of steps that fit since packs run their forward again: warns where recomputation of all layers,
// which no plan chooses by itself, would be faster. One evaluation of the same batches, with what
// the strategy then chooses for the job.
sp_status sp_i_recompute_find(sp_i_evaluation *ev, const sp_batches *batches, sp_error *err);

// Switches of the stack that the scenario states are taken back one by one and the plan of a batch
// is simulated again, unless options->no_causes or that would take long: a simulation for each. The
// warning, after the last batch, is of those without which every batch has the same figures.
sp_status sp_i_idle_switches_try(sp_i_evaluation *ev, const sp_plan *plan, sp_error *err);
void sp_i_idle_switches_warn(sp_i_evaluation *ev, sp_status status);

#endif
