// Flows simulated by SimGrid (Casanova, Giersch, Legrand, Quinson, Suter: Versatile, Scalable, and
// Accurate Simulation of Distributed Applications and Platforms, 2014), with its factors for TCP
// off: what is left is max-min fairness. Once in a process, which has one SimGrid.
#ifndef SLIMPACK_TESTS_SUPPORT_SIMGRID_SIMGRID_PEER_H
#define SLIMPACK_TESTS_SUPPORT_SIMGRID_SIMGRID_PEER_H

#include "sim/network/flows.h"

typedef struct simgrid_problem {
    const double *link_bytes_per_s;
    int links;
    const sp_flow *flows; // each link once on a path
    const int *path_of;   // [flow]; flows with equal numbers have equal paths
    int count, paths;
} simgrid_problem;

// ends_s[flow]; returns the processor's seconds that the
// simulation took once its platform was read. Ends the
// process with a message where the platform cannot be written into the working directory.
double simgrid_run_flows(const simgrid_problem *problem, double *ends_s);

#endif
