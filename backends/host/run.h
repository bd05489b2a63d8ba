// A run: all ranks of a plan in one process. On the virtual clock one action runs at a time, by the
// ranks that share its layers or its pack; on the wall clock every rank has a thread.
#ifndef SLIMPACK_BACKENDS_HOST_RUN_H
#define SLIMPACK_BACKENDS_HOST_RUN_H

#include "backends/comm/run.h"
#include "backends/host/mail.h"
#include "backends/host/math.h"
#include "backends/host/offload.h"
#include "backends/host/options.h"
#include "backends/host/text.h"
#include "backends/virtual/virtual_clock.h"

// One action of a rank as it ran. What the rank held leaves out what copies had changed until then
// (sp_i_host_offload.moved); of a copy, `after` is what it changed, and it counts when its time has
// come.
typedef struct sp_i_host_log {
    sp_bytes during, after;
    size_t out;       // of an L: the number of its O
    int32_t forwards; // of an O: that must be over before what it copied goes
    bool counted;
    int64_t start_ns, end_ns; // on the wall clock: since the step's begin
    int64_t tp_ns, dp_ns;
} sp_i_host_log;

// One rank. Parameters, gradients and optimizer states are flat, in the order of the rank's
// weights; with ZeRO a rank has the states of its share alone, and maybe the gradients and the
// parameters.
typedef struct sp_i_host_rank {
    int dp, pp, cp, tp;
    const sp_i_host_job *job;
    const sp_i_host_weights *weights;
    sp_i_host_links links;
    // Groups of ranks, or -1 for this one alone: with the same parameters, with the same heads of
    // keys and values, with the two ends of a tied table.
    int data_group, kv_group, tied_group;
    sp_i_host_arena *arena;
    void *values, *gradients, *first, *second;
    int64_t share_begin, share_end;
    sp_i_host_range values_at, gradients_at; // the elements that are there
    void *cosine, *sine;
    sp_i_host_offload offload;
    sp_i_host_log *log; // of its actions
    size_t logged;
    // What the rank did for others' actions since its own last one: a share of the vocabulary's
    // work, which counts as part of its next action.
    int64_t owed_ns;
    bool served;
    sp_action first_of_pair; // where it says with_next: what it left is still to be sent
    sp_error err;            // of the action that failed
} sp_i_host_rank;

typedef struct sp_i_host_run {
    const sp_run_request *request;
    const sp_i_host_math *math;
    sp_i_host_options options;
    sp_i_host_text text;
    sp_stage *parts;              // [virtual stages]
    sp_i_host_weights *weights;   // [pp * tp]
    sp_i_host_job *jobs;          // [dp * cp * tp]
    sp_i_host_rank *ranks;        // [dp * pp * cp * tp], the order of the world
    sp_i_host_stage *stages;      // [ranks * chunks]
    sp_i_host_replicas *replicas; // [pp * tp]; NULL where nothing but states is sharded
    sp_comm_world *world;
    int all_group;     // of all ranks; -1 for one alone
    int *token_groups; // [ranks][forward packs]
    sp_i_host_mail mail;
    uint8_t *runs_again; // [virtual stages * forward packs]: the plan has an R for it
    int64_t steps_done;
    int64_t step_began_ns; // on the wall clock
    int64_t elapsed_ns;    // over all steps
} sp_i_host_run;

// The request must have passed the checks of the wrapper and sp_i_host_check. *run is NULL on
// failure.
sp_status sp_i_host_run_new(const sp_run_request *request, sp_i_host_run **run, sp_error *err);
void sp_i_host_run_free(sp_i_host_run *run);

// One optimizer step over the plan.
sp_status sp_i_host_run_step(sp_i_host_run *run, sp_measured_step *step, sp_error *err);

// What no capability says: shapes that the executor does not compute. All findings.
sp_status sp_i_host_check(const sp_run_request *request, sp_error *err);

// ---- shared by the files of a run (run_places.c unless said) ----

const sp_layout *sp_i_host_layout(const sp_i_host_run *run);
size_t sp_i_host_vstages(const sp_i_host_run *run);
int sp_i_host_members(const sp_i_host_run *run); // ranks of one (dp, pp): cp * tp
size_t sp_i_host_rank_count(const sp_i_host_run *run);
int sp_i_host_rank_number(const sp_i_host_run *run, int dp, int pp, int member);
sp_i_host_rank *sp_i_host_rank_at(const sp_i_host_run *run, int dp, int pp, int member);
sp_i_host_stage *sp_i_host_stage_of(const sp_i_host_run *run, const sp_i_host_rank *rank,
                                    int chunk);
// Which of the ranks of its (dp, pp); which of all on its pipeline rank.
int sp_i_host_member(const sp_i_host_run *run, const sp_i_host_rank *rank);
int sp_i_host_seat(const sp_i_host_run *run, const sp_i_host_rank *rank);
// Which of the ranks with the same parameters, and all of them where they have shares.
int sp_i_host_replica(const sp_i_host_run *run, const sp_i_host_rank *rank);
sp_i_host_replicas *sp_i_host_replicas_of(const sp_i_host_run *run, const sp_i_host_rank *rank);
// One rank alone has nothing to shard.
bool sp_i_host_shards_gradients(const sp_i_host_run *run);
bool sp_i_host_shards_values(const sp_i_host_run *run);
// Where a rank holds an element of its parameters, and of their gradients.
void *sp_i_host_value_at(const sp_i_host_run *run, const sp_i_host_rank *rank, int64_t element);
void *sp_i_host_gradient_at(const sp_i_host_run *run, const sp_i_host_rank *rank, int64_t element);
// The processor time of the calling thread, for the virtual clock: an action has its core to
// itself, whatever else runs on this machine.
int64_t sp_i_host_now_ns(void);
int64_t sp_i_host_wall_ns(void);
// Time of a rank by the run's clock: since the step's begin, or since its own was started.
int64_t sp_i_host_rank_ns(const sp_i_host_run *run, sp_i_host_rank *rank);
// An error of a rank: of its exchanges or its arena, at an action, or, with `place` NULL, before
// the first.
sp_status sp_i_host_rank_failure(const sp_i_host_run *run, sp_i_host_rank *rank,
                                 const sp_plan_place *place, sp_error *err);

// The world and its groups (run_world.c).
sp_status sp_i_host_world_make(sp_i_host_run *run, sp_error *err);
// Runs a body on some ranks: one of them on this thread, several on threads of their own. Returns
// the error of the rank that failed first. On the wall clock all fail with SP_ERR_LIMIT when the
// request's time is over.
sp_status sp_i_host_on_ranks(sp_i_host_run *run, const int *ranks, int count, sp_comm_body *body,
                             void *data, sp_error *err);
// Memory before the first step: parameters, gradients, states, tables (run_states.c).
sp_status sp_i_host_states_make(sp_i_host_run *run, sp_error *err);
// Copies of a rank, its O and L, and the end of one of its forwards; false where memory ran out.
// At the end of a step the buffers go (run_offload.c).
sp_status sp_i_host_offload_make(const sp_i_host_run *run, sp_i_host_rank *rank, sp_error *err);
void sp_i_host_offload_fini(sp_i_host_offload *offload);
bool sp_i_host_copy_out(const sp_i_host_run *run, sp_i_host_rank *rank, sp_action action);
bool sp_i_host_copy_back(const sp_i_host_run *run, sp_i_host_rank *rank, sp_action action);
bool sp_i_host_forward_ended(const sp_i_host_run *run, sp_i_host_rank *rank);
void sp_i_host_offload_end(sp_i_host_rank *rank);
// What a rank holds, on the device and in host memory.
sp_bytes sp_i_host_rank_held(const sp_i_host_run *run, const sp_i_host_rank *rank);
// The memory of a step whose timeline is complete (run_memory.c).
sp_status sp_i_host_fill_memory(const sp_i_host_run *run, sp_measured_step *step, sp_error *err);
// One action of one rank; waits for its inputs on the wall clock (run_action.c).
sp_status sp_i_host_rank_action(sp_i_host_run *run, sp_i_host_rank *rank, sp_action action,
                                sp_error *err);
// A rank's share of the vocabulary's work of an action that pipeline rank `pp` runs; does any
// action need the others' share (run_vocab.c)?
bool sp_i_host_needs_share(const sp_i_host_run *run, int vstage, sp_action action);
sp_status sp_i_host_rank_share(sp_i_host_run *run, sp_i_host_rank *rank, int pp, sp_action action,
                               sp_error *err);
// All actions in virtual time, or side by side; both fill the spans of the timeline
// (run_virtual.c, run_wall.c).
sp_status sp_i_host_run_virtual(sp_i_host_run *run, sp_timeline *timeline, sp_error *err);
sp_status sp_i_host_run_wall(sp_i_host_run *run, sp_timeline *timeline, sp_error *err);
// Sums gradients over the ranks with the same parameters (run_reduce.c).
sp_status sp_i_host_reduce(const sp_i_host_run *run, const sp_i_host_rank *rank, sp_error *err);
// What clipping multiplies all gradients with: 1, or what brings their norm down to the option's
// (run_clip.c).
sp_status sp_i_host_clip_scale(const sp_i_host_run *run, const sp_i_host_rank *rank, double *scale,
                               sp_error *err);
// Sums gradients over the ranks with the same parameters and steps the optimizer; fills the tails
// of a timeline whose spans are there (run_update.c).
sp_status sp_i_host_update_all(sp_i_host_run *run, sp_timeline *timeline, sp_error *err);

// ---- tensors that can be read (run_tensors.c) ----

size_t sp_i_host_tensor_count(const sp_i_host_run *run);
void sp_i_host_tensor_info(const sp_i_host_run *run, size_t index, sp_tensor_info *info);
void sp_i_host_tensor_read(const sp_i_host_run *run, size_t index, double *values);

#endif
