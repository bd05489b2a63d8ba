// Time of collectives and point-to-point transfers: size tables inside a node, else alpha-beta with
// the better of ring and tree.
#ifndef SLIMPACK_SIM_COST_COLLECTIVE_H
#define SLIMPACK_SIM_COST_COLLECTIVE_H

#include "sim/cost/op_time.h"
#include "sim/model/cluster.h"

// Seconds of one collective over `group` for a full tensor of `bytes` (the reduced tensor, the
// gathered result, the tensor before scattering). 0 for a group of one. Inside a node: from
// the profile's tables of times by group size (collective_times.h); else bytes * f(n) /
// busbw(bytes), f = 2(n-1)/n for all-reduce and (n-1)/n otherwise, busbw from the profile's table,
// else alpha-beta. Across nodes: ring, S*f(n)/B + steps*alpha with B the slower of NVLink and the
// NICs that the members of the least populated node share; tree for all-reduce, 2*log2(nodes)
// steps, where it is faster.
double sp_time_collective(const sp_op_timer *timer, sp_collective kind, sp_group group,
                          double bytes);

// Seconds of a transfer between two GPUs: latency + bytes / rate of NVLink, or of one GPU's share
// of the node's NICs.
double sp_time_p2p(const sp_op_timer *timer, double bytes, int crosses_node);

#endif
