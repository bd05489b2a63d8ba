// A run: all ranks of a plan in one process, worked on by one thread, one action at a time.
#ifndef SLIMPACK_BACKENDS_HOST_RUN_H
#define SLIMPACK_BACKENDS_HOST_RUN_H

#include "backends/host/math.h"
#include "backends/host/options.h"
#include "backends/host/text.h"
#include "backends/virtual/virtual_clock.h"

// What a rank held during and after one of its actions.
typedef struct sp_i_host_held_log {
    sp_bytes during, after;
} sp_i_host_held_log;

// One pipeline rank of one data-parallel rank. Parameters, gradients and optimizer states are flat,
// in the order of the rank's weights; with ZeRO a data-parallel rank has the states of its share
// alone.
typedef struct sp_i_host_rank {
    sp_i_host_arena *arena;
    void *values, *gradients, *first, *second;
    int64_t share_begin, share_end;
    void *cosine, *sine;
    sp_i_host_held_log *log; // of the rank's actions
    size_t logged;
} sp_i_host_rank;

typedef struct sp_i_host_run {
    const sp_run_request *request;
    const sp_i_host_math *math;
    sp_i_host_options options;
    sp_i_host_text text;
    sp_i_host_job job;
    sp_stage *parts;            // [virtual stages]
    sp_i_host_weights *weights; // [pp]
    sp_i_host_rank *ranks;      // [dp * pp]
    sp_i_host_stage *stages;    // [dp * virtual stages]
    // Hidden states and their gradients on their way: by the virtual stage that reads them and the
    // pack. On the way nobody's memory holds them.
    sp_i_host_arena *mail;
    void **hidden, **hidden_gradient;
    uint8_t *runs_again; // [virtual stages * forward packs]: the plan has an R for it
    int64_t steps_done;
    int64_t elapsed_ns; // by the virtual clock, over all steps
} sp_i_host_run;

// The request must have passed the checks of the wrapper and sp_i_host_check. *run is NULL on
// failure.
sp_status sp_i_host_run_new(const sp_run_request *request, sp_i_host_run **run, sp_error *err);
void sp_i_host_run_free(sp_i_host_run *run);

// One optimizer step over the plan.
sp_status sp_i_host_run_step(sp_i_host_run *run, sp_measured_step *step, sp_error *err);

// What no capability says: shapes that the executor does not compute. All findings.
sp_status sp_i_host_check(const sp_run_request *request, sp_error *err);

// ---- shared by the files of a run ----

size_t sp_i_host_vstages(const sp_i_host_run *run);
sp_i_host_rank *sp_i_host_rank_at(const sp_i_host_run *run, int dp, int pp);
sp_i_host_stage *sp_i_host_stage_at(const sp_i_host_run *run, int dp, int vstage);
// Time that the calling thread computed: on the virtual clock an action has its core to itself,
// whatever else runs on this machine.
int64_t sp_i_host_now_ns(void);
// An error of a rank's arena: at an action, or, with `place` NULL, before the first.
sp_status sp_i_host_run_out(const sp_i_host_run *run, const sp_i_host_arena *arena,
                            const sp_plan_place *place, sp_error *err);

// Rank memory before the first step: parameters, gradients, states, tables (run_states.c).
sp_status sp_i_host_states_make(sp_i_host_run *run, sp_error *err);
// Drives sp_virtual_run; `context` is the run (run_action.c).
sp_status sp_i_host_run_action(void *context, const sp_virtual_action *action,
                               sp_virtual_outcome *outcome, sp_error *err);
// Sums gradients over data-parallel ranks and tied tables, and steps the optimizer; fills the tails
// of a timeline whose spans are there (run_update.c).
void sp_i_host_update_all(sp_i_host_run *run, sp_timeline *timeline);

// ---- tensors that can be read (run_tensors.c) ----

size_t sp_i_host_tensor_count(const sp_i_host_run *run);
void sp_i_host_tensor_info(const sp_i_host_run *run, size_t index, sp_tensor_info *info);
void sp_i_host_tensor_read(const sp_i_host_run *run, size_t index, double *values);

#endif
