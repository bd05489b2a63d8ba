// Runs of steps whose ranks send over a network that they share.
#ifndef SLIMPACK_TESTS_SUPPORT_FLOW_RUN_H
#define SLIMPACK_TESTS_SUPPORT_FLOW_RUN_H

#include "sim/schedule/schedule.h"
#include "tests/support/flow_step.h"

// The packing and costs of a step whose layout is set: a pack on each data-parallel rank, of so
// many bytes between stages, without exchanges.
void flow_step_uniform(flow_step *s, double f_bytes, double b_bytes);
// Its plan, by a schedule, and its cluster (flow_step_set_cluster).
void flow_step_schedule(flow_step *s, sp_schedule_kind kind, sp_network_detail detail);

// Simulates a step, over `network` or, with NULL, by closed formulas, with igraph's longest path
// beside it.
void flow_run(const flow_step *s, const sp_network *network, sp_timeline *timeline);

// All of two runs is the same.
void flow_assert_same(const sp_timeline *a, const sp_timeline *b);

// Bytes over all links of a kind, outward and inward.
void flow_link_bytes(const flow_step *s, double bytes[SP_LINK_KINDS][2]);

// Reductions wait for the last action of their pipeline rank on any data-parallel rank.
void flow_reduced_last(const sp_timeline *timeline);

#endif
