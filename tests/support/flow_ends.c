#include "tests/support/flow_ends.h"

sp_status flow_ends(const sp_topology *topology, const sp_flow *flows, int count, int64_t *ends_ns,
                    sp_error *err)
{
    sp_flows *network = NULL;
    sp_status status =
        sp_flows_new(sp_topology_bytes_per_s(topology), sp_topology_links(topology), &network, err);
    for (int i = 0; i < count && status == SP_OK; i++) {
        sp_flow flow = flows[i];
        flow.tag = i;
        status = sp_flows_start(network, &flow, NULL, err);
    }
    while (status == SP_OK && sp_flows_left(network) > 0) {
        int32_t ended;
        int64_t now_ns = sp_flows_advance(network, INT64_MAX);
        const sp_flow_end *end = sp_flows_ended(network, &ended);
        for (int32_t i = 0; i < ended; i++) {
            ends_ns[end[i].tag] = now_ns;
        }
    }
    sp_flows_free(network);
    return status;
}
