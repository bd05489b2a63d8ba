// The bytes that links carry in a step.
#include "sim/base/alloc.h"
#include "sim/engine/engine.h"
#include "tests/support/flow_run.h"
#include "tests/support/test_main.h"
#include "tests/support/uniform_packing.h"
#include "tests/support/uniform_step.h"

// Both pipelines send a hidden state from node to node and a gradient back; both stages reduce
// inside their nodes.
TEST(bytes_on_links)
{
    flow_step s = {.layout = {.tp = 1, .cp = 1, .pp = 2, .dp = 2, .chunks = 1, .zero = 0}};
    sp_topology *topology;
    double *bytes;
    double sums[SP_LINK_KINDS][2] = {{0.0}};
    must_succeed(uniform_packing(&s.packing, 2, 1, ERR));
    sp_i_step_costs_init(&s.costs, &s.layout, &s.packing, 1, false);
    flow_step_set_bytes(&s.costs, 40000.0, 30000.0);
    for (int k = 0; k < 2; k++) {
        s.costs.forward[k].p2p_ns = s.costs.backward[k].p2p_ns = 100000;
        s.costs.ranks[k].epilogue.grad_reduce_ns = 100000;
        s.costs.ranks[k].epilogue.reduce_bytes = 5000.0;
    }
    must_succeed(plan_by_schedule(&s.plan, &s.layout, &s.packing, SP_SCHEDULE_1F1B, ERR));
    flow_step_set_cluster(&s, SP_NETWORK_CLOSED);
    must_succeed(sp_step_traffic(&s.plan, &s.costs, &s.network, &topology, &bytes, ERR));
    for (int32_t l = 0; l < sp_topology_links(topology); l++) {
        sp_link link = sp_topology_link(topology, l);
        sums[link.kind][link.inward] += bytes[l];
    }
    for (int inward = 0; inward < 2; inward++) {
        // An all-reduce of n ranks sends 2 (n - 1) / n of the tensor from each.
        assert_close(sums[SP_LINK_NIC][inward], 2 * (40000.0 + 30000.0), 1e-12);
        assert_close(sums[SP_LINK_NVLINK][inward], 2 * 2 * 5000.0, 1e-12);
    }
    sp_topology_free(topology);
    sp_free(bytes);
    flow_step_fini(&s);
}

// Four data-parallel ranks in two nodes of two GPUs reduce 5000 bytes: a ring over all sends three
// quarters of them twice from each node, trees send all of them from each, and so do rings of one
// GPU of each node, with half of them; those have sent half of them twice inside the nodes before
// and after.
TEST(bytes_on_links_by_algorithm)
{
    const struct {
        sp_collective_algorithm by;
        double nic, nvlink; // of a node, of a GPU
    } cases[] = {{SP_ALGORITHM_PROFILE, 1.5, 0.75},
                 {SP_ALGORITHM_RING, 1.5, 0.75},
                 {SP_ALGORITHM_TREE, 1.0, 1.0},
                 {SP_ALGORITHM_NVLS, 1.0, 1.5},
                 {SP_ALGORITHM_HIERARCHICAL, 1.0, 1.0}};
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        flow_step s = {.layout = {.tp = 1, .cp = 1, .pp = 1, .dp = 4, .chunks = 1, .zero = 0}};
        sp_topology *topology;
        double *bytes;
        must_succeed(uniform_packing(&s.packing, 4, 1, ERR));
        sp_i_step_costs_init(&s.costs, &s.layout, &s.packing, 1, false);
        flow_step_set_bytes(&s.costs, 0.0, 0.0);
        s.costs.ranks[0].epilogue = (sp_epilogue_cost){
            .grad_reduce_ns = 100000, .reduce_bytes = 5000.0, .reduces_by = cases[i].by};
        must_succeed(plan_by_schedule(&s.plan, &s.layout, &s.packing, SP_SCHEDULE_1F1B, ERR));
        flow_step_set_cluster(&s, SP_NETWORK_FLOWS);
        must_succeed(sp_step_traffic(&s.plan, &s.costs, &s.network, &topology, &bytes, ERR));
        for (int32_t l = 0; l < sp_topology_links(topology); l++) {
            sp_link link = sp_topology_link(topology, l);
            if (link.kind == SP_LINK_NIC) {
                assert_close(bytes[l], cases[i].nic * 5000.0, 1e-9);
            }
        }
        double nvlink = 0.0;
        for (int32_t l = 0; l < sp_topology_links(topology); l++) {
            nvlink += sp_topology_link(topology, l).kind == SP_LINK_NVLINK ? bytes[l] : 0.0;
        }
        assert_close(nvlink, 8 * cases[i].nvlink * 5000.0, 1e-9);
        sp_topology_free(topology);
        sp_free(bytes);
        flow_step_fini(&s);
    }
}

static void assert_same_bytes(const double *a, const double *b, const sp_topology *topology)
{
    for (int32_t l = 0; l < sp_topology_links(topology); l++) {
        assert_within(a[l], b[l], 1e-9 * a[l]);
    }
}

// How fast links are, how late, and how long everything takes alone: none of it moves a byte.
TEST(bytes_depend_on_no_rate_and_no_latency)
{
    sp_prng prng = prng_seeded(16);
    for (int round = 0; round < test_rounds(60); round++) {
        flow_step s;
        sp_topology *topology[2];
        double *bytes[2];
        flow_step_draw(&prng, &s, true);
        s.cluster.fabric.nodes_per_leaf = 1;
        flow_step_draw_algorithms(&prng, &s);
        must_succeed(sp_step_traffic(&s.plan, &s.costs, &s.network, &topology[0], &bytes[0], ERR));
        flow_step_draw_spine(&prng, &s);
        s.cluster.nic_bytes_per_s *= 0.1 + sp_prng_uniform(&prng);
        s.network.rates.nvlink_bytes_per_s *= 0.1 + sp_prng_uniform(&prng);
        s.network.rates.nic_latency_s *= 1000.0 * sp_prng_uniform(&prng);
        for (int r = 0; r < s.layout.pp; r++) {
            s.costs.ranks[r].epilogue.param_gather_ns = 1 + prng_below(&prng, 40000);
        }
        must_succeed(sp_step_traffic(&s.plan, &s.costs, &s.network, &topology[1], &bytes[1], ERR));
        assert_same_bytes(bytes[0], bytes[1], topology[0]);
        for (int i = 0; i < 2; i++) {
            sp_topology_free(topology[i]);
            sp_free(bytes[i]);
        }
        flow_step_fini(&s);
    }
}
