// The paths that a step's transfers take over the network of its cluster, and the transfers
// themselves: lists of legs, which one driver starts as flows (sim/network/flows.h) one after
// another. The caller says what is transferred and what follows (traffic.h, epilogue.h).
#ifndef SLIMPACK_SIM_SIMULATE_TRANSFERS_H
#define SLIMPACK_SIM_SIMULATE_TRANSFERS_H

#include "sim/base/alloc.h"
#include "sim/cost/step_costs.h"
#include "sim/network/collective_route.h"
#include "sim/plan/plan.h"

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
    sp_arena work;                      // holds all but the topology and the links of routes
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

#endif
