// A run of the executor: all ranks of a plan in one process, or one rank where each has a process
// and a device of its own (backends/comm/comm.h). Every process then knows the places, sizes
// and orders of all ranks, and has memory, stages and work of its own rank alone: the ranks that
// are here. On the virtual clock one action runs at a time, by the ranks that share its layers or
// its pack. On the wall clock every rank has a thread.
#ifndef SLIMPACK_BACKENDS_EXECUTOR_RUN_H
#define SLIMPACK_BACKENDS_EXECUTOR_RUN_H

#include <stddef.h>
#include <stdint.h>

#include "backends/api/backend.h"
#include "backends/api/device_runtime.h"
#include "backends/comm/attention.h"
#include "backends/comm/comm.h"
#include "backends/executor/arena.h"
#include "backends/executor/p2p.h"
#include "backends/executor/stage.h"
#include "sim/base/status.h"
#include "sim/plan/plan.h"
#include "sim/plan/walk.h"

// What the samples of a batch say: drawn at random, or read from a text.

typedef struct sp_i_exec_text {
    unsigned char *bytes; // owned; NULL: at random
    size_t count;
} sp_i_exec_text;

// Reads a file whose bytes are the tokens. SP_ERR_CONTENT where it is empty or has a byte that a
// vocabulary of `vocab` does not have.
sp_status sp_i_exec_text_read(const char *path, int64_t vocab, sp_i_exec_text *text, sp_error *err);
void sp_i_exec_text_fini(sp_i_exec_text *text);

// Token `position` of sample `id` in step `step`, in [0, vocab). The sample's target at a position
// is the token at the next one, so a sample of n tokens has n + 1. A text is read from a place that
// the seed, the step and the sample choose, and from its start again after its end.
int64_t sp_i_exec_token(const sp_i_exec_text *text, uint64_t seed, int step, int64_t id,
                        int64_t position, int64_t vocab);

// What offloading takes away from a unit (a forward pack on one virtual stage), and what a rank
// keeps account of for its copies.

// One tensor, or the keys and values of one slice.
typedef struct sp_i_exec_leaving {
    void **place; // where the stage holds it
    int64_t elements;
    sp_i_exec_width width;
    sp_i_exec_width away; // bytes that leave, from its beginning on
    bool in_part;         // it belongs to the one of the predictor's tensors that leaves in part
    void *host;           // what has left, in host memory
    void *resident;       // what stays meanwhile
} sp_i_exec_leaving;

typedef struct sp_i_exec_copies {
    sp_i_exec_leaving *items;
    size_t count, capacity;
    int32_t forward; // its place among the rank's forwards
    size_t out;      // number of its O among the rank's actions
} sp_i_exec_copies;

// A rank's. Copies back go into buffers, each as large as the rank's largest copy: the first two
// make one each, later ones use one that nobody reads any more.
typedef struct sp_i_exec_offload {
    sp_i_exec_arena *host;
    sp_i_exec_copies *units; // [forward packs][chunks]; NULL where nothing leaves
    size_t unit_count;
    sp_i_exec_copies *leaving; // copied, but still there too
    int32_t forwards, forwards_done;
    sp_i_exec_width largest; // bytes of a buffer
    void **buffers;
    size_t buffer_count, buffer_capacity;
    int64_t loads;
    sp_bytes moved; // what copies have changed so far in what the rank holds
} sp_i_exec_offload;

// What a request can set of the executor.

typedef struct sp_i_exec_options {
    double learning_rate, weight_decay;
    double clip; // largest norm of all gradients; 0: any
    double dropout;
    bool rounded;     // parameters start as bf16 numbers
    const char *text; // path; NULL: random tokens
    // Actions to fail on demand, NAME@DP.PP; NULL: none.
    const char *fail, *stall, *exhaust;
    int64_t fault_step; // in which they happen, from 1
    sp_i_exec_measure measure;
    sp_comm_attention_way attention_way;
    int attention_node;
    bool emulated_links; // hidden states are under way as long as the request says
} sp_i_exec_options;

// What a backend that runs plans with this executor lists among its own options.
#define SP_I_EXEC_OPTION_LIST                                                                      \
    {"learning_rate", "of AdamW, 0 or more (default 0.001)"},                                      \
        {"weight_decay", "of AdamW, for matrices, 0 or more (default 0.1)"},                       \
        {"clip",                                                                                   \
         "largest norm of all gradients together, above which they are scaled down to it; 0: any " \
         "(default 0)"},                                                                           \
        {"dropout", "share of the outputs of embedding and blocks that GELU models drop, 0 or "    \
                    "more and below 1 "                                                            \
                    "(default 0)"},                                                                \
        {"rounded", "\"true\": parameters start as numbers that bf16 holds, in every precision "   \
                    "the same (default \"false\")"},                                               \
        {"text", "a file whose bytes are the tokens (default: random tokens)"},                    \
        {"attention",                                                                              \
         "of packs that several ranks share: \"gathered\" (default), keys and values of all "      \
         "ranks at once, or \"ring\", one rank's after the other's; on the CPU also "              \
         "\"routed:N\", a "                                                                        \
         "ring whose hops between nodes of N ranks go over the others of both, too"},              \
        {"links",                                                                                  \
         "between pipeline ranks: \"off\" (default), as the machine is, or \"emulated\", hidden "  \
         "states arrive as late as predicted, on the virtual clock alone"},                        \
        {"bytes",                                                                                  \
         "that memory is counted and limited in: \"table\", as the saved-tensor table counts "     \
         "mixed-precision training, \"real\", or \"taken\", of the device, blocks that are kept "  \
         "too (default: real in bf16 where the stack has device_bytes)"},                          \
        {"fail", "ACTION@DP.PP, such as F3.1@0.2: the action fails"},                              \
        {"stall", "ACTION@DP.PP: the action never ends"},                                          \
        {"exhaust", "ACTION@DP.PP: the action finds no memory"},                                   \
    {                                                                                              \
        "fault_step", "in which of the three above happen, from 1 (default 1)"                     \
    }

// Is it the action that an option names?
bool sp_i_exec_names(const char *option, const sp_plan *plan, const sp_plan_place *place);

// SP_ERR_USAGE with the backend, the option, the value and what was expected.
sp_status sp_i_exec_options_read(const sp_run_request *request, const char *backend,
                                 sp_i_exec_options *options, sp_error *err);

// One action of a rank as it ran. What the rank held leaves out what copies had changed until then
// (sp_i_exec_offload.moved); of a copy, `after` is what it changed, and it counts when its time has
// come.
typedef struct sp_i_exec_log {
    sp_bytes during, after;
    size_t out;       // of an L: the number of its O
    int32_t forwards; // of an O: that must be over before what it copied goes
    bool counted;
    uint64_t start, end;                 // moments
    size_t first_exchange, end_exchange; // of the links
    // Filled in when the work is done. On the wall clock since the step's begin; of those, spent in
    // exchanges of either kind.
    int64_t start_ns, end_ns;
    int64_t tp_ns, dp_ns;
} sp_i_exec_log;

// One rank. Parameters, gradients and optimizer states are flat, in the order of the rank's
// weights; with ZeRO a rank has the states of its share alone, and maybe the gradients and the
// parameters. Where parameters are less exact than gradients, the optimizer has a master copy of
// its share of them; elsewhere `masters` is NULL and they are their own.
typedef struct sp_i_exec_rank {
    int dp, pp, cp, tp;
    const sp_i_exec_job *job;
    const sp_i_exec_weights *weights;
    sp_i_exec_links links;
    // Groups of ranks, or -1 for this one alone: with the same parameters, with the same heads of
    // keys and values, with embedding and LM head of a tied table.
    int data_group, kv_group, tied_group;
    sp_i_exec_arena *arena;
    void *values, *gradients, *masters, *first, *second;
    int64_t share_begin, share_end;
    sp_i_exec_range values_at, gradients_at; // the elements that are there
    void *cosine, *sine;
    sp_i_exec_offload offload;
    sp_i_exec_log *log; // of its actions
    size_t logged;
    // Of its shares of a vocabulary in others' actions; `counted`, `out`, `forwards` have no
    // meaning.
    sp_i_exec_log *share_log;
    size_t shares_logged;
    int64_t share_ns;        // computed in the last share, in its own action or another's
    sp_action first_of_pair; // where it says with_next: what it left is still to be sent
    sp_bytes held;           // when the step is over
    sp_error err;            // of the action that failed
} sp_i_exec_rank;

// Where a run works: for the backend of this name, on a device, with numbers of one precision.
typedef struct sp_i_exec_site {
    const char *backend;
    sp_runtime *runtime;
    const sp_i_exec_math *math;
    sp_transport *transport; // of a rank alone, whose device this is; NULL: all ranks work here
} sp_i_exec_site;

typedef struct sp_i_exec_run {
    const sp_run_request *request;
    sp_runtime *runtime;
    const sp_i_exec_math *math;
    sp_transport *transport; // or NULL
    size_t here, end_here;   // the ranks that are here: from the first to before the second
    sp_i_exec_options options;
    sp_i_exec_text text;
    sp_stage *parts;              // [virtual stages]
    sp_i_exec_weights *weights;   // [pp * tp]
    sp_i_exec_job *jobs;          // [dp * cp * tp]
    sp_i_exec_rank *ranks;        // [dp * pp * cp * tp], the order of the world
    sp_i_exec_stage *stages;      // [ranks * chunks]
    sp_i_exec_replicas *replicas; // [pp * tp]; NULL where nothing but states is sharded
    sp_comm_world *world;
    int all_group;     // of all ranks; -1 for one alone
    int *token_groups; // [ranks][forward packs]
    sp_i_exec_p2p p2p;
    sp_i_exec_channels channels; // with a transport
    double *loss;                // [dp * cp * tp][forward packs], of the ranks with the head
    sp_rank_timeline *epilogues; // [ranks]: reduce, optimizer and gather alone
    sp_depends depends;
    sp_shares shares;    // of a vocabulary
    uint8_t *runs_again; // [virtual stages * forward packs]: the plan has an R for it
    int64_t steps_done;
    int64_t step_began_ns; // on the wall clock, by the device's stamps
    int64_t wall_began_ns; // the step's begin by this computer's clock
    int64_t elapsed_ns;    // over all steps
} sp_i_exec_run;

// What it can execute (backends/api/capabilities.h), but for precisions.
#define SP_I_EXEC_CAPABILITIES                                                              \
    (SP_CAN(PIPELINE) | SP_CAN(DATA_PARALLEL) | SP_CAN(TENSOR_PARALLEL) |                   \
     SP_CAN(SEQUENCE_PARALLEL) | SP_CAN(CONTEXT_PARALLEL) | SP_CAN(VOCAB_PARALLEL) |        \
     SP_CAN(DP_MERGE) | SP_CAN(ZERO_1) | SP_CAN(ZERO_2) | SP_CAN(ZERO_3) | SP_CAN(CHUNKS) | \
     SP_CAN(SLICES) | SP_CAN(REGROUPED) | SP_CAN(SPLIT_BACKWARD) | SP_CAN(PAIRS) |          \
     SP_CAN(OFFLOAD) | SP_CAN(RECOMPUTE_ACTION) | SP_CAN(RECOMPUTE_ACTIVATION) |            \
     SP_CAN(RECOMPUTE_PARTIAL_FC1) | SP_CAN(RECOMPUTE_ATTENTION) | SP_CAN(RECOMPUTE_FULL) | \
     SP_CAN(CLOCK_VIRTUAL) | SP_CAN(CLOCK_WALL) | SP_CAN(STEPS) | SP_CAN(MEMORY_POINTS))

// The request must have passed the checks of the wrapper and sp_i_exec_check; the site's
// math is that of its precision. The device runtime outlives the run. *run is NULL on failure.
sp_status sp_i_exec_run_new(const sp_run_request *request, const sp_i_exec_site *site,
                            sp_i_exec_run **run, sp_error *err);
void sp_i_exec_run_free(sp_i_exec_run *run);

// One optimizer step over the plan. With a transport every rank makes this call and those of
// tensors below in the same order, and gets the same from them.
sp_status sp_i_exec_run_step(sp_i_exec_run *run, sp_measured_step *step, sp_error *err);

// What no capability says: shapes that the executor does not compute. All findings; `backend` names
// it in them.
sp_status sp_i_exec_check(const sp_run_request *request, const char *backend, sp_error *err);

// What a transport cannot do, and whether it is one for the plan; nothing where it is NULL
// (run_remote.c).
sp_status sp_i_exec_check_transport(const sp_run_request *request, const sp_i_exec_site *site,
                                    sp_error *err);

// ---- shared by the files of a run (run_places.c unless said) ----

const sp_layout *sp_i_exec_layout(const sp_i_exec_run *run);
size_t sp_i_exec_vstages(const sp_i_exec_run *run);
int sp_i_exec_members(const sp_i_exec_run *run); // ranks of one (dp, pp): cp * tp
size_t sp_i_exec_rank_count(const sp_i_exec_run *run);
int sp_i_exec_rank_number(const sp_i_exec_run *run, int dp, int pp, int member);
sp_i_exec_rank *sp_i_exec_rank_at(const sp_i_exec_run *run, int dp, int pp, int member);
sp_i_exec_stage *sp_i_exec_stage_of(const sp_i_exec_run *run, const sp_i_exec_rank *rank,
                                    int chunk);
// Which of the ranks of its (dp, pp); which of all on its pipeline rank.
int sp_i_exec_member(const sp_i_exec_run *run, const sp_i_exec_rank *rank);
int sp_i_exec_pipeline(const sp_i_exec_run *run, const sp_i_exec_rank *rank);
// Which of the ranks with the same parameters, and all of them where they have shares.
int sp_i_exec_replica(const sp_i_exec_run *run, const sp_i_exec_rank *rank);
sp_i_exec_replicas *sp_i_exec_replicas_of(const sp_i_exec_run *run, const sp_i_exec_rank *rank);
// One rank alone has nothing to shard.
bool sp_i_exec_shards_gradients(const sp_i_exec_run *run);
bool sp_i_exec_shards_values(const sp_i_exec_run *run);
// What parameters are made of, and what gradients, masters and moments are.
sp_element sp_i_exec_value_element(const sp_i_exec_run *run);
sp_element sp_i_exec_exact_element(const sp_i_exec_run *run);
// The calling thread works for a rank from now on.
void sp_i_exec_enter(const sp_i_exec_run *run, const sp_i_exec_rank *rank);
// Where a rank holds an element of its parameters, of their gradients and of their masters.
void *sp_i_exec_value_at(const sp_i_exec_run *run, const sp_i_exec_rank *rank, int64_t element);
void *sp_i_exec_gradient_at(const sp_i_exec_run *run, const sp_i_exec_rank *rank, int64_t element);
void *sp_i_exec_master_at(const sp_i_exec_run *run, const sp_i_exec_rank *rank, int64_t element);
// An error of a rank: of its exchanges or its arena, at an action, or, with `place` NULL, before
// the first.
sp_status sp_i_exec_rank_failure(const sp_i_exec_run *run, sp_i_exec_rank *rank,
                                 const sp_plan_place *place, sp_error *err);

// The first rank that is here: with a transport the only one. Is a rank here?
sp_i_exec_rank *sp_i_exec_rank_here(const sp_i_exec_run *run);
bool sp_i_exec_is_here(const sp_i_exec_run *run, const sp_i_exec_rank *rank);

// Waits until the work of a rank, whose thread calls, is done. What went wrong in it becomes an
// error at an action, or, with `place` NULL, none's.
sp_status sp_i_exec_synchronize(const sp_i_exec_run *run, const sp_plan_place *place,
                                sp_error *err);
// Waits for the work between actions: an error names the rank. Waits for the work behind the last
// action of a rank: an error is found at that action.
sp_status sp_i_exec_synchronize_rank(const sp_i_exec_run *run, const sp_i_exec_rank *rank,
                                     sp_error *err);
sp_status sp_i_exec_synchronize_last(const sp_i_exec_run *run, const sp_i_exec_rank *rank,
                                     sp_error *err);

// This computer's clock (run_remote.c).
int64_t sp_i_exec_wall_ns(void);
// A timestamp of the point that the rank of the calling thread has come to, and, when its work is
// done, the time of the timestamp: since the step's begin, or since the rank's clock was started.
uint64_t sp_i_exec_timestamp(const sp_i_exec_run *run, sp_i_exec_rank *rank);
int64_t sp_i_exec_timestamp_ns(const sp_i_exec_run *run, uint64_t timestamp);
void sp_i_exec_fill_times(const sp_i_exec_run *run, const sp_i_exec_rank *rank, sp_i_exec_log *log);

// Ranks in other processes (p2p_remote.c). All processes make the channels of all ranks.
// `is_remote`: is a rank in another process? `send` sends what is in a buffer, `post_receives`
// posts the receives of all that actions up to this one read, `wait_receive` waits for a receive
// that was posted, and `channels_end` ends the step.
sp_status sp_i_exec_channels_make(sp_i_exec_run *run, sp_error *err);
bool sp_i_exec_is_remote(const sp_i_exec_run *run, int rank);
void sp_i_exec_send(sp_i_exec_run *run, sp_i_exec_rank *rank, const sp_i_exec_p2p_slot *to,
                    int reader);
sp_status sp_i_exec_post_receives(sp_i_exec_run *run, sp_i_exec_rank *rank, size_t action,
                                  sp_error *err);
sp_status sp_i_exec_wait_receive(sp_i_exec_run *run, sp_i_exec_rank *rank,
                                 const sp_i_exec_p2p_slot *at, int writer, sp_error *err);
sp_status sp_i_exec_channels_end(sp_i_exec_run *run, sp_i_exec_rank *rank, sp_error *err);
// With a transport: gives what this process's rank noted in a step to all others, and takes theirs;
// then sets the clocks of all ranks by each other (run_remote.c).
sp_status sp_i_exec_share_step(sp_i_exec_run *run, sp_error *err);
sp_status sp_i_exec_set_clocks(sp_i_exec_run *run, sp_error *err);

// The world and its groups (run_world.c).
sp_status sp_i_exec_world_make(sp_i_exec_run *run, sp_error *err);
// Runs a body on some ranks: one of them on this thread, several on threads of their own or, where
// ranks compute one at a time, on one. Returns the error of the rank that failed first. On the wall
// clock all fail with SP_ERR_LIMIT when the request's time is over.
sp_status sp_i_exec_on_ranks(sp_i_exec_run *run, const int *ranks, int count, sp_comm_body *body,
                             void *data, sp_error *err);
// Memory before the first step: parameters, gradients, states, tables (run_states.c).
sp_status sp_i_exec_states_make(sp_i_exec_run *run, sp_error *err);
// Copies of a rank, its O and L, and the end of one of its forwards; false where memory ran out.
// At the end of a step the buffers go (offload.c).
void sp_i_exec_offload_make(const sp_i_exec_run *run, sp_i_exec_rank *rank);
void sp_i_exec_offload_fini(sp_i_exec_offload *offload);
bool sp_i_exec_copy_out(const sp_i_exec_run *run, sp_i_exec_rank *rank, sp_action action);
bool sp_i_exec_copy_back(const sp_i_exec_run *run, sp_i_exec_rank *rank, sp_action action);
bool sp_i_exec_forward_ended(const sp_i_exec_run *run, sp_i_exec_rank *rank);
void sp_i_exec_offload_end(sp_i_exec_rank *rank);
// What a rank holds, on the device and in host memory.
sp_bytes sp_i_exec_rank_held(const sp_i_exec_run *run, const sp_i_exec_rank *rank);
// The memory of a step whose timeline is complete (run_memory.c).
sp_status sp_i_exec_fill_memory(const sp_i_exec_run *run, sp_measured_step *step, sp_error *err);
// What an action reads and what it gives, by sim/plan/depends (p2p.c): a forward passes hidden
// states on, a backward their gradients.
//
// `wait_input` waits, on the wall clock, until what the action reads is there and the ranks that
// run it together have come. `input` is what the action reads, NULL where it reads nothing, and
// `drop_input` ends it. `make_output` makes room for what the action gives, NULL where nobody reads
// it, and is false where memory ran out. `send_output` sends what was written there. `transfer_ns`
// is how long that is in flight to pipeline rank `to`: 0 on one rank, and where links are not
// emulated.
sp_status sp_i_exec_wait_input(sp_i_exec_run *run, sp_i_exec_rank *rank, sp_action action,
                               sp_error *err);
const void *sp_i_exec_input(const sp_i_exec_run *run, const sp_i_exec_rank *rank, sp_action action);
void sp_i_exec_drop_input(sp_i_exec_run *run, const sp_i_exec_rank *rank, sp_action action);
bool sp_i_exec_make_output(sp_i_exec_run *run, sp_i_exec_rank *rank, sp_action action,
                           void **output);
void sp_i_exec_send_output(sp_i_exec_run *run, sp_i_exec_rank *rank, sp_action action);
int64_t sp_i_exec_transfer_ns(const sp_i_exec_run *run, const sp_plan_place *from, int to);
// One action of one rank; waits for its inputs on the wall clock (run_action.c).
sp_status sp_i_exec_rank_action(sp_i_exec_run *run, sp_i_exec_rank *rank, sp_action action,
                                sp_error *err);
// One of a rank's shares of a vocabulary in another rank's action; all that stand before a place
// among its actions, where `done` of all are over (run_action.c).
sp_status sp_i_exec_rank_share(sp_i_exec_run *run, sp_i_exec_rank *rank, const sp_share *share,
                               sp_error *err);
sp_status sp_i_exec_rank_shares(sp_i_exec_run *run, sp_i_exec_rank *rank, size_t place,
                                size_t *done, sp_error *err);
// All actions in virtual time, or side by side; both fill the spans of the timeline; on the
// wall clock with a transport, sp_i_exec_fill_wall does when all ranks' logs are here
// (run_virtual.c, run_wall.c).
sp_status sp_i_exec_run_virtual(sp_i_exec_run *run, sp_timeline *timeline, sp_error *err);
sp_status sp_i_exec_run_wall(sp_i_exec_run *run, sp_timeline *timeline, sp_error *err);
void sp_i_exec_fill_wall(const sp_i_exec_run *run, sp_timeline *timeline);
// Sums gradients over the ranks with the same parameters and steps the optimizer; fills the
// epilogues of a timeline whose spans are there, with a transport when all ranks' are here
// (epilogue.c).
sp_status sp_i_exec_run_epilogue(sp_i_exec_run *run, sp_timeline *timeline, sp_error *err);
void sp_i_exec_fill_epilogues(const sp_i_exec_run *run, sp_timeline *timeline);

// ---- tensors that can be read (run_tensors.c) ----

size_t sp_i_exec_tensor_count(const sp_i_exec_run *run);
void sp_i_exec_tensor_info(const sp_i_exec_run *run, size_t index, sp_tensor_info *info);
sp_status sp_i_exec_tensor_read(const sp_i_exec_run *run, size_t index, double *values,
                                sp_error *err);

// ---- Numbers of a device's elements (run_tensors.c) ----

// Numbers of a device's elements in the caller's memory, from and to fp64.

// Not for bytes. To the nearest; bf16 is rounded from fp32, as masters are.
void sp_i_exec_elements_from(sp_element element, int64_t n, const double *from, void *to);
// Exact.
void sp_i_exec_elements_to(sp_element element, int64_t n, const void *from, double *to);

#endif
