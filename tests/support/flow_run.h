// Runs of steps whose ranks send over a network that they share.
#ifndef SLIMPACK_TESTS_SUPPORT_FLOW_RUN_H
#define SLIMPACK_TESTS_SUPPORT_FLOW_RUN_H

#include "tests/support/flow_step.h"

// The actions of one rank, as F0B0 names them.
void flow_add_actions(flow_step *s, int dp, int pp, const char *actions);

// Simulates a step, over `network` or, with NULL, by closed formulas, with igraph's longest path
// beside it.
void flow_run(const flow_step *s, const sp_network *network, sp_timeline *timeline);

// Reductions wait for the last action of their pipeline rank on any data-parallel rank.
void flow_reduced_last(const sp_timeline *timeline);

#endif
