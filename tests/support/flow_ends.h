// When each of a set of transfers ends that have a network to themselves.
#ifndef SLIMPACK_TESTS_SUPPORT_FLOW_ENDS_H
#define SLIMPACK_TESTS_SUPPORT_FLOW_ENDS_H

#include "sim/network/flows.h"
#include "sim/network/topology.h"

sp_status flow_ends(const sp_topology *topology, const sp_flow *flows, int count, int64_t *ends_ns,
                    sp_error *err);

#endif
