// A run and its parts, each with a file: the options of a request (check.c), the ranks and the
// groups that they exchange in (ranks.c), their parameters and optimizer states (states.c), hidden
// states in flight (p2p.c), copies to host memory and the memory timeline (memory.c), the clock and
// the actions that it drives (actions.c), a whole step (step.c). Each file calls those before it
// alone.
//
// With a transport every process knows the places, sizes and orders of all ranks, and has memory,
// stages and work of its own rank alone.
#ifndef SLIMPACK_BACKENDS_EXECUTOR_RUN_H
#define SLIMPACK_BACKENDS_EXECUTOR_RUN_H

#include <pthread.h>

#include "backends/executor/executor.h"
#include "backends/ranks/attention.h"
#include "backends/ranks/comm.h"
#include "sim/base/alloc.h"
#include "sim/plan/depends.h"
#include "sim/plan/plan.h"
#include "sim/plan/walk.h"

typedef struct sp_i_exec_rank sp_i_exec_rank;

// ---- Options of a request ----

typedef struct sp_i_exec_options {
    double learning_rate, weight_decay;
    int64_t warmup; // steps, of which the last has the whole learning rate
    double clip;    // largest norm of all gradients; 0: any
    double dropout;
    bool rounded;     // parameters start as bf16 numbers
    const char *text; // path; NULL: random tokens
    // Actions to fail on demand, NAME@DP.PP; NULL: none.
    const char *fail, *stall, *exhaust;
    int64_t fault_step; // in which they happen, from 1
    sp_i_exec_measure measure;
    sp_comm_attention_way attention_way;
    int attention_node;
    bool emulated_links;      // hidden states are under way as long as the request says
    bool predicted_exchanges; // and tensor- and context-parallel ranks exchange for as long
} sp_i_exec_options;

// SP_ERR_USAGE with the backend, the option, the value and what was expected.
sp_status sp_i_exec_options_read(const sp_run_request *request, const char *backend,
                                 sp_i_exec_options *options, sp_error *err);
// The learning rate of a step, from 1.
double sp_i_exec_learning_rate(const sp_i_exec_options *options, int64_t step);
// Is it the action that an option names?
bool sp_i_exec_names(const char *option, const sp_plan *plan, const sp_plan_place *place);

// ---- Tokens: drawn at random, or read from a text ----

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

// ---- Parameters, gradients and optimizer states of a rank ----

// All are flat, in the order of the rank's weights. With ZeRO a rank has the optimizer states of
// its share alone, and maybe the gradients and the parameters. Where parameters are less exact than
// gradients the optimizer has a master copy of its share of them; elsewhere `masters` is NULL and
// they are their own.
typedef struct sp_i_exec_states {
    void *values, *gradients, *masters, *first, *second;
    sp_i_exec_range share;                       // the elements that the rank's optimizer steps
    sp_i_exec_range held_values, held_gradients; // the elements that are there
    void *cosine, *sine;
} sp_i_exec_states;

// ---- Copies of a rank to host memory and back ----

typedef struct sp_i_exec_copies sp_i_exec_copies;

// Copies back go into buffers, each as large as the rank's largest copy: the first two make one
// each, later ones use one that nobody reads any more.
typedef struct sp_i_exec_offload {
    sp_i_exec_arena *host;
    sp_i_exec_copies *units; // [forward packs][chunks]
    size_t unit_count;
    sp_i_exec_copies *leaving; // copied, but still there too
    int32_t forwards, forwards_done;
    sp_i_exec_width largest; // bytes of a buffer
    void **buffers;
    size_t buffer_count, buffer_capacity;
    int64_t loads;
    sp_bytes moved; // what copies have changed so far in what the rank holds
} sp_i_exec_offload;

// ---- Transfers (p2p.c) ----

// Hidden states and their gradients in flight between pipeline stages. There is one buffer for each
// pack and virtual stage that reads it, at each rank that runs the pack. What is in flight counts
// for no rank's memory. A send never waits: a plan may have any number of transfers in flight.

typedef struct sp_i_exec_p2p_buffer {
    void *content;
    sp_comm_flag full;
    // A transfer from another process has:
    uint64_t message;
    size_t sent; // the sender's action (sp_i_exec_transfer)
} sp_i_exec_p2p_buffer;

typedef struct sp_i_exec_p2p {
    sp_i_exec_arena *arena;
    pthread_mutex_t lock; // of the arena
    sp_i_exec_p2p_buffer
        *buffers[2]; // of hidden states, of gradients: [virtual stages][packs][pipelines]
    size_t vstages, packs[2], pipelines;
} sp_i_exec_p2p;

void sp_i_exec_p2p_init(sp_i_exec_p2p *p2p, sp_runtime *runtime, size_t vstages,
                        size_t forward_packs, size_t backward_packs, size_t pipelines);
void sp_i_exec_p2p_fini(sp_i_exec_p2p *p2p);

// Counts the transfers that nobody has read.
int64_t sp_i_exec_p2p_in_flight(const sp_i_exec_p2p *p2p);

// ---- The order of transfers ----

// Both ends of a channel between processes know from the plan alone in which order hidden states,
// or their gradients, go from one pipeline rank to another, and when they are read.

// sent, read and receive_by number the actions of a rank in the plan's order.
typedef struct sp_i_exec_transfer {
    int vstage; // that reads it
    int32_t pack;
    size_t sent;       // the sender's action at whose end it goes off; of a pair the second
    size_t read;       // the receiver's action that reads it
    size_t receive_by; // the receiver posts its receive before this action, in the sender's order
} sp_i_exec_transfer;

typedef struct sp_i_exec_transfers {
    sp_i_exec_transfer *items; // in the order in which they go off
    size_t count;
} sp_i_exec_transfers;

// From one pipeline rank of a data-parallel rank to another, in the forward or the backward; packs
// without rows of their own among them. The plan must have passed sp_plan_check. O(actions).
void sp_i_exec_transfers_make(const sp_depends *depends, int dp, int from, int to, bool gradient,
                              sp_i_exec_transfers *transfers);
void sp_i_exec_transfers_fini(sp_i_exec_transfers *transfers);

// ---- Transfers between processes ----

// A channel goes one way between two ranks in processes of their own and belongs to the forward or
// the backward. Its transfers go in the sender's order.
//
// The receiver posts the receive of what an action reads while the action before it computes, and
// no sooner, so that a buffer nobody needs yet takes no memory. The sender releases a buffer when
// something has come that the receiver sent after it had read that buffer, or at the end of the
// step. So no rank ever waits for a rank that may be waiting for it, whatever the plan.

// A transfer that was sent: memory of the P2P arena, and the message that carries it.
typedef struct sp_i_exec_sent {
    void *content;
    uint64_t message;
} sp_i_exec_sent;

// A channel that the rank of this process is an end of.
typedef struct sp_i_exec_channel {
    int number; // of the transport
    int peer;   // rank at the other end
    bool sends, gradient;
    sp_i_exec_transfers transfers;
    sp_i_exec_sent *sent_items; // of its transfers, if it sends
    size_t next;                // transfer to be sent, or whose receive is to be posted
    size_t over;                // transfers before this one were released
} sp_i_exec_channel;

typedef struct sp_i_exec_channels {
    sp_i_exec_channel *items;
    size_t count, capacity;
} sp_i_exec_channels;

void sp_i_exec_channels_fini(sp_i_exec_channels *channels);

// ---- Ranks ----

// One action of a rank as it ran. The bytes that the rank held are without the effect of copies
// until then (sp_i_exec_offload.moved); of a copy, `after` is its change, which counts from the end
// of the copy on.
typedef struct sp_i_exec_log {
    sp_bytes during, after;
    size_t out;       // of an L: the number of its O
    int32_t forwards; // of an O: that must be over before what it copied goes
    bool counted;
    uint64_t start, end;                 // moments
    size_t first_exchange, end_exchange; // of the links
    // Filled in when the work is done. On the wall clock since the step's begin; of those, spent in
    // exchanges of each kind.
    int64_t start_ns, end_ns;
    int64_t tp_ns, cp_ns, dp_ns;
} sp_i_exec_log;

// An empty micro-batch, with which a rank joins those that share experts with it (joins.c).
typedef struct sp_i_exec_join {
    size_t before;    // that one of its actions
    sp_action action; // its pack stands behind those of the plan
    bool keeps;       // a forward: what it keeps stays
} sp_i_exec_join;

typedef struct sp_i_exec_joins {
    sp_i_exec_join *items;
    size_t count, capacity;
} sp_i_exec_joins;

struct sp_i_exec_rank {
    int dp, pp, cp, tp;
    const sp_i_exec_job *job;
    const sp_i_exec_weights *weights;
    sp_i_exec_links links;
    // Groups of ranks, or -1 for this one alone:
    int data_group;    // with the same parameters, experts left out
    int replica_group; // with the same experts
    int kv_group;      // with the same heads of keys and values
    int tied_group;    // with embedding and LM head of a tied table
    sp_i_exec_arena *arena;
    sp_i_exec_states states;
    sp_i_exec_offload offload;
    sp_i_exec_log *log; // of its actions
    size_t logged;
    sp_i_exec_joins joins; // in the order of its actions
    // Its shares of a vocabulary in others' actions have logs of their own; `counted`, `out`,
    // `forwards` have no meaning.
    sp_i_exec_log *share_log;
    size_t shares_logged;
    int64_t share_ns;        // computed in the last share, in its own action or another's
    sp_action first_of_pair; // where it says with_next: what it left is still to be sent
    sp_bytes held;           // when the step is over
    sp_error err;            // of the action that failed
};

// ---- The run ----

struct sp_i_exec_run {
    const sp_run_request *request;
    // On the wall clock every rank has a thread, and ranks run at once and wait for what they read:
    // a timestamp is a stamp of the rank's device, whose time is known when the rank's work is
    // done. On the virtual clock one action runs at a time, by the ranks that share it: a timestamp
    // is what the rank's clock shows (backends/ranks/comm.h).
    bool wall;
    sp_runtime *runtime;
    const sp_i_exec_math *math;
    sp_transport *transport; // or NULL
    // The ranks of this process: from the first to before the second. All, or with a transport one.
    size_t first_local, end_local;
    sp_i_exec_options options;
    sp_i_exec_text text;
    sp_stage *model_parts;        // [virtual stages]: the layers of each, and the ends of the model
    sp_i_exec_weights *weights;   // [pp * tp * ep] (sp_i_exec_weights_of)
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
    sp_arena work;         // holds the tables
};

// ---- Places (ranks.c) ----

static inline const sp_layout *sp_i_exec_layout(const sp_i_exec_run *run)
{
    return &run->request->plan->layout;
}

static inline size_t sp_i_exec_vstages(const sp_i_exec_run *run)
{
    return (size_t)sp_layout_vstages(sp_i_exec_layout(run));
}

// Ranks of one (dp, pp): cp * tp.
static inline int sp_i_exec_members(const sp_i_exec_run *run)
{
    return sp_i_exec_layout(run)->cp * sp_i_exec_layout(run)->tp;
}

static inline size_t sp_i_exec_rank_count(const sp_i_exec_run *run)
{
    return (size_t)sp_layout_ranks(sp_i_exec_layout(run));
}

static inline int sp_i_exec_rank_number(const sp_i_exec_run *run, int dp, int pp, int member)
{
    return (dp * sp_i_exec_layout(run)->pp + pp) * sp_i_exec_members(run) + member;
}

static inline sp_i_exec_rank *sp_i_exec_rank_at(const sp_i_exec_run *run, int dp, int pp,
                                                int member)
{
    return &run->ranks[sp_i_exec_rank_number(run, dp, pp, member)];
}

static inline sp_i_exec_stage *sp_i_exec_stage_of(const sp_i_exec_run *run,
                                                  const sp_i_exec_rank *rank, int chunk)
{
    return &run->stages[(rank - run->ranks) * sp_i_exec_layout(run)->chunks + chunk];
}

// Its number among the ranks of its (dp, pp), and among all on its pipeline rank.
static inline int sp_i_exec_member(const sp_i_exec_run *run, const sp_i_exec_rank *rank)
{
    return rank->cp * sp_i_exec_layout(run)->tp + rank->tp;
}

static inline int sp_i_exec_pipeline(const sp_i_exec_run *run, const sp_i_exec_rank *rank)
{
    return rank->dp * sp_i_exec_members(run) + sp_i_exec_member(run, rank);
}

// Ranks over which the experts are spread, and which of them this one is.
static inline int sp_i_exec_expert_ranks(const sp_i_exec_run *run)
{
    return sp_layout_expert_ranks(sp_i_exec_layout(run));
}

static inline int sp_i_exec_expert_rank(const sp_i_exec_run *run, const sp_i_exec_rank *rank)
{
    return rank->dp % sp_i_exec_expert_ranks(run);
}

static inline sp_i_exec_weights *sp_i_exec_weights_of(const sp_i_exec_run *run, int pp, int tp,
                                                      int expert_rank)
{
    int place = pp * sp_i_exec_layout(run)->tp + tp;
    return &run->weights[place * sp_i_exec_expert_ranks(run) + expert_rank];
}

// The first rank of this process: with a transport the only one.
static inline sp_i_exec_rank *sp_i_exec_local_rank(const sp_i_exec_run *run)
{
    return &run->ranks[run->first_local];
}

static inline bool sp_i_exec_is_local(const sp_i_exec_run *run, const sp_i_exec_rank *rank)
{
    size_t number = (size_t)(rank - run->ranks);
    return number >= run->first_local && number < run->end_local;
}

// Does the plan repeat a forward of this pack on a virtual stage?
static inline bool sp_i_exec_runs_again(const sp_i_exec_run *run, int vstage, int32_t pack)
{
    return run->runs_again[(size_t)vstage * run->request->plan->packing->forward.count +
                           (size_t)pack] != 0;
}

// The calling thread works for a rank from now on.
static inline void sp_i_exec_enter(const sp_i_exec_run *run, const sp_i_exec_rank *rank)
{
    run->runtime->ops->enter(run->runtime, (int)(rank - run->ranks));
}

// Marks the point that the rank of the calling thread has come to.
static inline uint64_t sp_i_exec_timestamp(const sp_i_exec_run *run, const sp_i_exec_rank *rank)
{
    return run->wall ? run->runtime->ops->stamp(run->runtime)
                     : (uint64_t)sp_comm_clock_read(rank->links.me);
}

// The time of a timestamp when the rank's work is done: since the step's begin, or since the rank's
// clock was started.
static inline int64_t sp_i_exec_timestamp_ns(const sp_i_exec_run *run, uint64_t timestamp)
{
    return run->wall ? run->runtime->ops->stamp_ns(run->runtime, timestamp) - run->step_began_ns
                     : (int64_t)timestamp;
}

// Writes the error of a rank: of its exchanges or its arena, at an action, or, with `place` NULL,
// before the first.
sp_status sp_i_exec_rank_failure(const sp_i_exec_run *run, sp_i_exec_rank *rank,
                                 const sp_plan_place *place, sp_error *err);

// Waits until the work of a rank, whose thread calls, is done. What went wrong in it becomes an
// error at an action, or, with `place` NULL, none's.
sp_status sp_i_exec_synchronize(const sp_i_exec_run *run, const sp_plan_place *place,
                                sp_error *err);
// Waits for the work between actions: an error names the rank.
sp_status sp_i_exec_synchronize_rank(const sp_i_exec_run *run, const sp_i_exec_rank *rank,
                                     sp_error *err);

// Makes the world and its groups.
sp_status sp_i_exec_world_make(sp_i_exec_run *run, sp_error *err);
// Runs a body on some ranks, NULL: on the first `count`; one of them on this thread, several on
// threads of their own or, where ranks compute one at a time, on one. Returns the error of the rank
// that failed first. On the wall clock all fail with SP_ERR_LIMIT when the request's time is over.
sp_status sp_i_exec_on_ranks(sp_i_exec_run *run, const int *ranks, int count, sp_comm_body *body,
                             void *data, sp_error *err);
int64_t sp_i_exec_wall_ns(void); // this computer's clock

// ---- Empty micro-batches (joins.c) ----

// Packs without rows behind those of the plan, one for each round; 0 where no ranks share experts.
int32_t sp_i_exec_rounds(const sp_plan *plan);
// Finds where the ranks join; SP_ERR_CONTENT where their orders cannot meet. O(actions^2).
sp_status sp_i_exec_joins_make(sp_i_exec_run *run, sp_error *err);
void sp_i_exec_joins_fini(sp_i_exec_joins *joins);
bool sp_i_exec_run_join(sp_i_exec_run *run, sp_i_exec_rank *rank, const sp_i_exec_join *join);

// ---- Parameters, gradients and optimizer states (states.c) ----

// Says which elements each rank holds; sp_i_exec_states_make comes after it.
void sp_i_exec_states_place(sp_i_exec_run *run);
// Real bytes that sp_i_exec_states_make takes for a rank.
int64_t sp_i_exec_states_bytes(const sp_i_exec_run *run, const sp_i_exec_rank *rank);
// Takes the memory that lasts: parameters, gradients, states, tables.
sp_status sp_i_exec_states_make(sp_i_exec_run *run, sp_error *err);
// Sums gradients over the ranks with the same parameters and steps the optimizer; fills the
// epilogues of a timeline whose spans are there, with a transport when all ranks' are here.
sp_status sp_i_exec_run_epilogue(sp_i_exec_run *run, sp_timeline *timeline, sp_error *err);
void sp_i_exec_fill_epilogues(const sp_i_exec_run *run, sp_timeline *timeline);

// Turn numbers of a device's elements in the caller's memory from fp64, to the nearest (bf16 is
// rounded from fp32, as masters are), and to fp64, exactly. Not for bytes.
void sp_i_exec_elements_from(sp_element element, int64_t n, const double *from, void *to);
void sp_i_exec_elements_to(sp_element element, int64_t n, const void *from, double *to);

// ---- What an action reads and what it gives, by sim/plan/depends (p2p.c) ----

// A forward passes hidden states on, a backward their gradients. `wait_input` waits, where ranks
// run side by side, until what the action reads is there and the ranks that run it together have
// come. `input` is what the action reads, NULL where it reads nothing, and `drop_input` ends it.
// `make_output` makes room for what the action gives, NULL where nobody reads it, and is false
// where memory ran out. `send_output` sends what was written there. `transfer_ns` is how long that
// is in flight to pipeline rank `to`: 0 on one rank, and where links are not emulated.
sp_status sp_i_exec_wait_input(sp_i_exec_run *run, sp_i_exec_rank *rank, sp_action action,
                               sp_error *err);
const void *sp_i_exec_input(const sp_i_exec_run *run, const sp_i_exec_rank *rank, sp_action action);
void sp_i_exec_drop_input(sp_i_exec_run *run, const sp_i_exec_rank *rank, sp_action action);
bool sp_i_exec_make_output(sp_i_exec_run *run, sp_i_exec_rank *rank, sp_action action,
                           void **output);
void sp_i_exec_send_output(sp_i_exec_run *run, sp_i_exec_rank *rank, sp_action action);
int64_t sp_i_exec_transfer_ns(const sp_i_exec_run *run, const sp_plan_place *from, int to);

// With a transport: all processes make the channels of all ranks before the first step;
// `post_receives` posts the receives of all that actions up to this one read, and `channels_end`
// ends the step.
sp_status sp_i_exec_channels_make(sp_i_exec_run *run, sp_error *err);
sp_status sp_i_exec_post_receives(sp_i_exec_run *run, sp_i_exec_rank *rank, size_t action,
                                  sp_error *err);
sp_status sp_i_exec_channels_end(sp_i_exec_run *run, sp_i_exec_rank *rank, sp_error *err);

// ---- Copies and memory over time (memory.c) ----

void sp_i_exec_offload_make(const sp_i_exec_run *run, sp_i_exec_rank *rank);
void sp_i_exec_offload_fini(sp_i_exec_offload *offload);
// Run an O and an L of a rank, and note the end of one of its forwards; false where the device has
// no memory.
bool sp_i_exec_copy_out(const sp_i_exec_run *run, sp_i_exec_rank *rank, sp_action action);
bool sp_i_exec_copy_back(const sp_i_exec_run *run, sp_i_exec_rank *rank, sp_action action);
bool sp_i_exec_forward_ended(const sp_i_exec_run *run, sp_i_exec_rank *rank);
void sp_i_exec_offload_end(sp_i_exec_rank *rank); // at the end of a step
// The bytes that a rank holds, on the device and in host memory.
sp_bytes sp_i_exec_rank_held(const sp_i_exec_run *run, const sp_i_exec_rank *rank);
// The memory of a step whose timeline is complete.
void sp_i_exec_fill_memory(const sp_i_exec_run *run, sp_measured_step *step);

// ---- Actions (actions.c) ----

// Runs all actions and fills the spans of the timeline, with a transport when this process has all
// ranks' logs (sp_i_exec_fill_spans).
sp_status sp_i_exec_run_actions(sp_i_exec_run *run, sp_timeline *timeline, sp_error *err);
// Fills the spans of a multi-process run on the wall clock, when this process has all ranks' logs.
void sp_i_exec_fill_spans(const sp_i_exec_run *run, sp_timeline *timeline);

#endif
