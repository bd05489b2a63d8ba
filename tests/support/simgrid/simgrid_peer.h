// Flows simulated by SimGrid (Casanova, Giersch, Legrand, Quinson, Suter: Versatile, Scalable, and
// Accurate Simulation of Distributed Applications and Platforms, 2014), with its factors for TCP
// off: what is left is max-min fairness. Once in a process, which has one SimGrid.
#ifndef SLIMPACK_TESTS_SUPPORT_SIMGRID_SIMGRID_PEER_H
#define SLIMPACK_TESTS_SUPPORT_SIMGRID_SIMGRID_PEER_H

#include "sim/network/flows.h"

typedef struct simgrid_problem {
    const double *link_bytes_per_s;
    int links;
    const sp_flow *flows;
    const int *path_of; // [flow]; flows with equal numbers have equal paths
    int count, paths;
} simgrid_problem;

// ends_s[flow]; returns the processor's seconds that the simulation took once its platform was
// read. Ends the process with a message where the platform cannot be written into the working
// directory.
double simgrid_run_flows(const simgrid_problem *problem, double *ends_s);

// Runs what runs SimGrid in a process of its own, and hands over the `count` numbers that it
// leaves.
void simgrid_apart(void (*run)(const void *of, double *results), const void *of, double *results,
                   int count);

// Begins SimGrid with the network: a path leads from host aN to host bN, N its number. Beside them
// there is a host that computes as much at a time as is asked for, each at 1e9 a second.
void simgrid_load(const simgrid_problem *problem);
extern const char *const simgrid_worker;

#endif
