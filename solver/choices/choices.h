// The choices that a job keeps from its first step to its last, and the trial runs that decide
// them: groups of ranks, how they exchange keys and values, model chunks and their layers.
#ifndef SLIMPACK_SOLVER_CHOICES_CHOICES_H
#define SLIMPACK_SOLVER_CHOICES_CHOICES_H

#include "sim/schedule/packflow.h"
#include "solver/step/step.h"
#include "solver/strategy.h"

// ---- trial runs of a job (run_job.c) ----

// A job as its scenario asks, over the batches so far.
typedef struct sp_i_trial_job {
    sp_scenario scenario; // that its strategy makes its choices in
    sp_cost_model cost;
    bool costed;
    sp_i_group_starts starts;
    int64_t context;
    sp_packflow_outcome total; // SP_PACKFLOW_WORST once a batch had no plan
    double uneven;             // as sp_i_job_run() says
} sp_i_trial_job;

// In that time; 0: in the scenario's.
void sp_i_trial_job_init(sp_i_trial_job *j, const sp_scenario *scenario, int64_t time_limit_ms);
// Prepares the costs, once the strategy has made its choices.
sp_status sp_i_trial_job_begin(sp_i_trial_job *j, sp_error *err);
// Plans the next batch and adds its time, unless one before had no plan. Only fatal errors are
// returned.
sp_status sp_i_trial_job_run_next(sp_i_trial_job *j, const sp_batch *batch, double deadline_s,
                                  sp_error *err);
// Notes that the job has no plan. Only fatal errors are returned.
sp_status sp_i_trial_job_give_up(sp_i_trial_job *j, sp_status status, const sp_error *own,
                                 sp_error *err);
void sp_i_trial_job_fini(sp_i_trial_job *j);

// The layout of a scenario in so many chunks a rank, with the layers of each virtual stage; NULL:
// equal shares. Keeps the pointer.
sp_layout sp_i_layout_in_chunks(const sp_scenario *scenario, int chunks, const int *layers);
// A short search of the first of the batches, padded as its plan will be.
typedef struct sp_i_trial {
    sp_strategy_input input; // of the batch and the costs below: a trial stays where it began
    sp_batch padded;
    sp_cost_model cost; // the caller ends it
} sp_i_trial;

sp_status sp_i_trial_init(const sp_scenario *scenario, const sp_batches *batches, sp_i_trial *trial,
                          sp_error *err);

// One way to run a job; zeros change nothing.
typedef struct sp_i_job_way {
    const sp_cp_overlap *overlap; // exchange of keys and values
    int chunks;                   // of each rank
    const int *layers;            // of each virtual stage then; NULL: equal shares
    int64_t time_limit_ms;
    sp_status (*choose)(sp_scenario *scenario, sp_error *err); // makes choices in that way
} sp_i_job_way;

// The job in that way; freed by sp_scenario_fini(). Its choices are not made.
sp_status sp_i_job_copy(const sp_scenario *scenario, const sp_i_job_way *way, sp_scenario *with,
                        sp_error *err);

// What sp_i_job_run() finds of the job in that way; SP_PACKFLOW_WORST where it does not run so.
sp_status sp_i_job_plan(const sp_scenario *scenario, const sp_i_job_way *way,
                        const sp_batches *batches, double deadline_s, sp_packflow_outcome *total,
                        double *uneven, sp_error *err);

// Adds up these batches, each planned in its turn as the resolved scenario asks, before the
// deadline (0: none), and timed as a whole step; SP_PACKFLOW_WORST where one has no plan. *uneven
// unless that is NULL: the share of the busiest data-parallel rank's work that level ranks would
// save it, the largest of all batches; 1 where ranks, context- or data-parallel, share packs. Only
// fatal errors are returned.
sp_status sp_i_job_run(const sp_scenario *scenario, const sp_batches *batches, double deadline_s,
                       sp_packflow_outcome *total, double *uneven, sp_error *err);

// ---- choices ----

// Exchanges that short searches find about as fast as the one that was chosen.
typedef struct sp_i_near_exchanges {
    sp_cp_overlap overlap[2];
    int count;
} sp_i_near_exchanges;

// Chooses stack.cp_overlap where the scenario does not state it (exchange_choice.c).
sp_status sp_i_choose_exchange(sp_scenario *scenario, sp_i_near_exchanges *near, sp_error *err);
// Takes one of these where it makes the plan of the first batch better, in the chunks that have
// been chosen since. Nothing where time is limited.
sp_status sp_i_decide_exchange(sp_scenario *scenario, const sp_i_near_exchanges *near,
                               sp_cp_overlap own, sp_error *err);
// Puts an exchange in place; `own` is the stack's.
sp_status sp_i_take_exchange(sp_scenario *scenario, sp_cp_overlap overlap, sp_cp_overlap own,
                             sp_error *err);

// Chooses the chunks of each pipeline rank where the scenario does not state them (cut_choice.c).
sp_status sp_i_choose_chunks(sp_scenario *scenario, sp_error *err);

// Where keys and values are exchanged among ranks, and nothing says how (exchange_choice.c).
bool sp_i_exchange_is_open(const sp_scenario *scenario);

// Takes, where the scenario states neither, the exchange and the chunks in which packs by the rules
// of other strategies make the plan of the first batch better than it is in those that were chosen;
// `own` is the exchange of the stack. Nothing where time is limited (rule_choice.c).
sp_status sp_i_choose_by_rules(sp_scenario *scenario, sp_cp_overlap own, sp_error *err);

// Chooses the layers of parallel.stage_layers "auto", once the strategy's order and chunks are in
// place: of the cuts by time, or of the strategy's own choice, and of equal shares the cut with
// which the strategy runs the first batch of the workload fastest. Where time is limited the
// strategy's own choice stays.
sp_status sp_i_choose_cut(sp_scenario *scenario, sp_error *err);

#endif
