// The state of a step that is simulated event by event (flow_step_events.c), and what its parts,
// a file each, ask of each other.
#ifndef SLIMPACK_TESTS_SUPPORT_FLOW_STEP_WORLD_H
#define SLIMPACK_TESTS_SUPPORT_FLOW_STEP_WORLD_H

#include "sim/network/route.h"
#include "tests/support/flow_step.h"

enum { MOST_FLOWS = 8192, MOST_LINKS = 512, MOST_CHUNKS = 2, MOST_PP = 4, MOST_GPUS = 64 };

typedef enum flow_kind { A_SEND, AN_EXCHANGE, A_SHARE, A_REDUCTION } flow_kind;

typedef struct flowing {
    flow_kind kind;
    int of;            // rank that sends or exchanges; pipeline rank that reduces
    int64_t *there_ns; // of a send
    int64_t begins_ns; // the latency has passed
    double bytes_left, most, rate;
    sp_route route;
    bool ended;
} flowing;

typedef struct rank_state {
    size_t done;
    bool runs;
    int64_t start_ns, end_ns; // of the action that runs; -1: not known
    int awaited;              // sends that it waits for
    // Turns of an action that exchanges: before its work, beside it, behind it.
    int turn, flows; // under way
    int64_t turn_ns[3], turn_end_ns;
    bool keys_wait; // what computation hides of keys or heads begins with the work
    int64_t hidden_ns;
    double hidden_bytes;
    int64_t shown_ns[2]; // of its exchange, behind what is hidden: of keys, of heads
    double shown_bytes[2];
    // Of the parameters and gradients of all data-parallel ranks: gathered before the work,
    // gathered and scattered beside it, scattered behind it.
    int share; // that comes next
    int64_t share_ns[4];
    double share_bytes[4];
} rank_state;

typedef struct reduction_state {
    int to_begin[MOST_CHUNKS], to_end[MOST_CHUNKS]; // ranks, and actions that make gradients
    bool made[MOST_CHUNKS];
    int64_t first_ns[MOST_CHUNKS], last_ns[MOST_CHUNKS];
    int actions, chunk, phase; // first buckets, last bucket, reduction, gather, over
    bool under_way;
    int64_t free_ns, ready_ns, gathered_ns;
} reduction_state;

typedef struct world {
    const flow_step *s;
    sp_topology *topology;
    flowing flow[MOST_FLOWS];
    int flows;
    rank_state *ranks;
    reduction_state reductions[MOST_PP];
    int64_t *table; // when what was given is at the rank that reads it; -1: not yet
    int64_t now_ns;
} world;

// ---- flows over links (flow_step_network.c) ----

bool world_flow_is_open(const world *w, const flowing *f);
// Gives every flow its rate.
void world_share_links(world *w);
// Takes the route.
flowing *world_start_flow(world *w, flow_kind kind, int of, sp_route route, int64_t at_ns,
                          double bytes, int rounds, int64_t alone_ns);
// Seconds that a transfer takes less alone than by its formula.
double world_saved_s(const world *w, const sp_route *route, double bytes, int rounds,
                     double closed_s);
int64_t world_gpu_at(const sp_layout *layout, int tp, int cp, int rank, int pp);
// The context-parallel ranks of `ranks` data-parallel ranks from one on, by TP rank.
int world_list_members(const world *w, int first_rank, int ranks, int64_t gpus[MOST_GPUS]);
// Rings over all of those.
sp_route world_rings(const world *w, int first_rank, int ranks);
// Over the ranks of one data-parallel rank: rings of every n-th of them, of which there are n.
sp_route world_rings_of_every(const world *w, int rank, int n);
// All-to-alls of n neighbours each.
sp_route world_all_to_alls(const world *w, int rank, int n);

// ---- reductions of gradients and gathers of parameters (flow_step_reductions.c) ----

bool world_makes_gradients(sp_action action);
void world_prepare_reductions(world *w);
// An action begins and ends.
void world_note_begin(world *w, int rank, sp_action action, int64_t took_ns);
void world_note_end(world *w, int pp, sp_action action);
void world_end_reduction_part(world *w, int pp, int64_t end_ns);
// Begins what can.
void world_reduce(world *w, int pp);

// ---- actions of ranks (flow_step_actions.c) ----

// Of a part of it: 0 keys and values, 1 heads, which are the first where they are alone.
void world_start_exchange(world *w, int rank, double bytes, int part, int64_t alone_ns);
// The next of the turn's, if there is one.
void world_start_share(world *w, int rank);
// Ends what is over now, and begins what can.
void world_act(world *w, sp_timeline *ran);

#endif
