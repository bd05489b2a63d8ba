// What a step sends over the network of its cluster, as flows that share links
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
#ifndef SLIMPACK_SIM_SIMULATE_TRAFFIC_H
#define SLIMPACK_SIM_SIMULATE_TRAFFIC_H

#include "sim/cost/step_costs.h"
#include "sim/network/topology.h"
#include "sim/plan/plan.h"
#include "sim/plan/walk.h"

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
