// Traffic is all that a step sends over the network of its cluster, as flows that share links
// (sim/network/flows.h): the driver's part of the walk. Each flow alone on its links takes what its
// closed formula says, to the nanosecond, and what the spine and PCIe add (route.h); flows that
// meet slow each other.
//
// A pipeline rank of a data-parallel rank is tp * cp GPUs, which send side by side: one flow. So
// are the rings of all TP ranks over the data- and context-parallel ranks of a stage, and the
// exchanges of the context-parallel ranks of a pack, which last as long on all of its ranks. What
// ZeRO 2 and 3 exchange in actions is a flow for each data-parallel rank, of what its GPUs get:
// it waits for no other rank, as in the closed formula (sim/cost/data_parallel.c), though all meet
// on links. Zones of a pack (sim/cost/pack_time.c) have a flow for each, and for each move of
// tokens.
//
// Ranks that share experts send them rows in every layer. Of a group over several data-parallel
// ranks each of these has a flow of what its GPUs get, as with ZeRO: all of them together put on
// links what the group sends. What nothing hides comes behind the work of the action, all layers
// together, latencies and counts of rows first; what runs behind shared experts or the other action
// of a pair goes at the pace of the work. A rank whose links others slow is not waited for by its
// group in each layer.
#ifndef SLIMPACK_SIM_SIMULATE_PRIVATE_H
#define SLIMPACK_SIM_SIMULATE_PRIVATE_H

#include "sim/base/alloc.h"
#include "sim/cost/step_costs.h"
#include "sim/network/route.h"
#include "sim/network/topology.h"
#include "sim/plan/plan.h"
#include "sim/plan/timeline.h"
#include "sim/plan/walk.h"

// ---- paths and transfers ----

// The paths that a step's transfers take over the network of its cluster, and the transfers
// themselves: lists of legs, which one driver starts as flows (sim/network/flows.h) one after
// another. The caller decides what is transferred, and what follows.

// ---- paths ----

// A route that the plan uses. Its transfers are flows, or take their closed times where they cannot
// meet others.
typedef struct sp_i_path {
    sp_route route;
    bool is_used, is_flow;
    int32_t owner;          // transfers along paths of one owner follow each other
    struct sp_i_path *next; // of those used
} sp_i_path;

// The paths of one kind of collective by one algorithm, one for each of its phases.
typedef struct sp_i_collective_paths {
    sp_collective_algorithm algorithm;
    sp_collective kind;
    sp_collective_route route; // its links belong to the paths
    sp_i_path phases[SP_COLLECTIVE_PHASES];
    struct sp_i_collective_paths *next;
} sp_i_collective_paths;

// Context-parallel ranks that exchange something: those of `dp_count` merged data-parallel ranks
// from one on. head_ranks neighbours exchange heads, and all at one place among them keys and
// values. Groups that begin with the same rank are a list.
typedef struct sp_i_group_paths {
    int dp_count, head_ranks, ring_nics;
    sp_i_path heads, keys; // used where more than one rank is there
    struct sp_i_group_paths *next;
} sp_i_group_paths;

// Tokens move from one data-parallel rank of a pipeline rank to their zone on another, and come
// back. Those from one rank are a list.
typedef struct sp_i_move_paths {
    int to, node_ranks;
    sp_i_path there, back;
    struct sp_i_move_paths *next;
} sp_i_move_paths;

// Ranks that share experts send rows by these ways (step_costs.h): the part of one data-parallel
// rank, which is what its GPUs get. Latencies of calls stand apart from the routes.
typedef struct sp_i_expert_paths {
    sp_i_path way[SP_EXPERT_WAYS];
    double latency_s[SP_EXPERT_WAYS];
} sp_i_expert_paths;

typedef struct sp_i_paths {
    const sp_plan *plan;        // not owned, nor the costs
    const sp_step_costs *costs; // not owned
    sp_topology *topology;
    sp_i_path *used;                    // a list
    int32_t owners;                     // of them
    sp_i_path *sends;                   // [(dp * pp + pp rank) * 2]: to the next rank, and back
    sp_i_group_paths **groups;          // [dp * pp]: by first rank
    sp_i_move_paths **moves;            // [dp * pp]: by first rank; NULL: no pack has zones
    sp_i_collective_paths **reductions; // [pp]: of all data-parallel ranks together
    sp_i_collective_paths **sharded;    // [dp * pp]: exchanges of ZeRO inside actions; NULL: none
    bool *sharded_by_flows;             // [pp]: some of these exchanges are flows
    sp_i_collective_paths **expert_reductions; // [pp]: of those that hold the same experts
    sp_i_expert_paths *experts;                // [dp * pp]; NULL: each rank has them for itself
    sp_arena work;                             // holds all but the topology and the links of routes
} sp_i_paths;

// Finds the paths that the plan uses over a topology, which it takes; with detail auto only those
// are flows whose transfers may meet others. O(actions + links + hops of all routes, sorted).
void sp_i_paths_init(sp_i_paths *paths, const sp_plan *plan, const sp_step_costs *costs,
                     sp_topology *topology, sp_network_detail detail);
void sp_i_paths_fini(sp_i_paths *paths);
bool sp_i_paths_any_flow(const sp_i_paths *paths);

static inline int sp_i_paths_rank(const sp_i_paths *paths, int dp, int pp)
{
    return dp * paths->plan->layout.pp + pp;
}

// From a pipeline rank to a neighbour on the ring of pp.
sp_i_path *sp_i_paths_send(const sp_i_paths *paths, int dp, int from, int to);
// NULL: there are none.
sp_i_group_paths *sp_i_paths_group(const sp_i_paths *paths, int dp_first, int dp_count, int pp,
                                   const sp_cp_exchange *exchange);
sp_i_move_paths *sp_i_paths_move(const sp_i_paths *paths, const sp_zone_move *move, int node_ranks,
                                 int pp);
const sp_i_collective_paths *sp_i_paths_collective(const sp_i_collective_paths *list,
                                                   sp_collective_algorithm algorithm,
                                                   sp_collective kind);

// ---- transfers ----

// Bytes along a path, or only time.
typedef struct sp_i_leg {
    const sp_i_path *path; // NULL: only time passes
    double bytes;
    int rounds;
    int64_t alone_ns; // that it takes on links of its own
    bool is_beside;   // runs side by side with the leg before it, else after it
} sp_i_leg;

typedef struct sp_i_transfer {
    sp_i_leg *legs;
    size_t count, capacity, next;
    int under_way; // flows
} sp_i_transfer;

typedef struct sp_i_transfers {
    sp_flows *flows;
    double *link_bytes;  // [links]: sent so far
    sp_i_transfer *list; // [count]: by the tag of their flows
    size_t count;
} sp_i_transfers;

sp_status sp_i_transfers_init(sp_i_transfers *transfers, const sp_topology *topology, size_t count,
                              sp_error *err);
void sp_i_transfers_fini(sp_i_transfers *transfers);

// Adds a leg behind those of a transfer that has not begun.
void sp_i_transfer_add(sp_i_transfer *transfer, sp_i_leg leg);
// Adds a collective over a tensor of `bytes`, that takes alone_ns in all; paths NULL: only time.
void sp_i_transfer_add_collective(sp_i_transfer *transfer, const sp_i_collective_paths *paths,
                                  double bytes, int64_t alone_ns);

// Goes on with the transfer that has this tag up to legs that are flows; *is_over: there are none
// left, and all of it ended at *at_ns.
sp_status sp_i_transfers_go_on(sp_i_transfers *transfers, size_t tag, int64_t *at_ns, bool *is_over,
                               sp_error *err);
// The same when a flow of it has ended.
sp_status sp_i_transfers_ended(sp_i_transfers *transfers, size_t tag, int64_t *at_ns, bool *is_over,
                               sp_error *err);

// Counts bytes that are sent along a route, or by a collective over a tensor of `bytes`, however
// fast, of which a flow may put less on links (route.h). Paths that are not used count nothing.
void sp_i_transfers_count(sp_i_transfers *transfers, const sp_i_path *path, double bytes);
void sp_i_transfers_count_collective(sp_i_transfers *transfers, const sp_i_collective_paths *paths,
                                     double bytes);

// By how much formulas say more than a collective takes alone (sp_route_lone_s).
double sp_i_collective_saved_s(const sp_i_collective_paths *paths, double bytes, double closed_s);

// ---- reductions after the last action ----

// The data-parallel exchanges of a step that are not inside actions, as flows: for each pipeline
// rank the gradient buckets of its model chunks, what is left to reduce, and the gather of its
// parameters, one after another. They fill the epilogues of the timeline as sp_epilogue_fill
// (engine.h) does by closed times.

typedef struct sp_i_reductions sp_i_reductions;

// The transfer of pipeline rank p has tag first_tag + p. Everything referenced must outlive it.
sp_i_reductions *sp_i_reductions_new(const sp_i_paths *paths, sp_i_transfers *transfers,
                                     sp_timeline *timeline, size_t first_tag);
void sp_i_reductions_free(sp_i_reductions *reductions);

// An action begins, which takes as long alone; an action has ended.
void sp_i_reductions_begun(sp_i_reductions *reductions, const sp_plan_place *place,
                           int64_t start_ns, int64_t took_ns);
void sp_i_reductions_made(sp_i_reductions *reductions, const sp_plan_place *place, int64_t end_ns);
// Begins what can begin, once all that ran stands in the timeline.
sp_status sp_i_reductions_begin(sp_i_reductions *reductions, sp_error *err);
// The transfer of a pipeline rank is over.
sp_status sp_i_reductions_ended(sp_i_reductions *reductions, int pp_rank, int64_t end_ns,
                                sp_error *err);

// ---- the traffic of a step ----

typedef struct sp_i_traffic sp_i_traffic;

// Everything referenced must outlive it, and `timeline` be one of all ranks once the walk begins;
// its epilogues are filled as well. *traffic is NULL where nothing has to be a flow: detail
// closed, and auto where no transfer can meet another. Errors: SP_ERR_CONTENT for costs that know
// no bytes, and where pipeline ranks share a vocabulary (walk.h) unless detail is auto, which then
// is closed; those of sp_topology_new and sp_flows_new.
// O(actions + links + hops of all routes, sorted).
sp_status sp_i_traffic_new(const sp_plan *plan, const sp_step_costs *costs,
                           const sp_network *network, sp_timeline *timeline, sp_i_traffic **traffic,
                           sp_error *err);
void sp_i_traffic_free(sp_i_traffic *traffic);

// After the walk with detail flows hands over the topology and the bytes that the step sends over
// its links. Only freeing is left then.
void sp_i_traffic_take(sp_i_traffic *traffic, sp_topology **topology, double **link_bytes);

// The walk's `begin`, `send` and `next`.
sp_status sp_i_traffic_begin(sp_i_traffic *traffic, const sp_walk_action *action, int64_t start_ns,
                             const sp_action_cost *took, bool *exchanges, sp_error *err);
sp_status sp_i_traffic_send(sp_i_traffic *traffic, const sp_plan_place *from, int to, int64_t at_ns,
                            int64_t *there_ns, sp_error *err);
sp_status sp_i_traffic_next(sp_i_traffic *traffic, const sp_walk_event **events, size_t *count,
                            sp_error *err);

#endif
