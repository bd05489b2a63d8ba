// A backend that does no work: actions take the simulator's times, or scripted ones, in virtual
// time. For tests of whoever calls a backend, with failures on demand.
#ifndef SLIMPACK_BACKENDS_FAKE_FAKE_H
#define SLIMPACK_BACKENDS_FAKE_FAKE_H

#include "backends/api/backend.h"

// Device 0 can do everything but keep the wall clock; device 1, "plain", runs whole samples,
// forward and full backward, one model chunk per rank, at most 16 ranks, in fp64.
//
// Times and memory come from request->costs. Without costs every kind of action of the plan needs
// a scripted duration, and nothing is held. With jitter 0 and costs alone timeline and memory are
// the simulator's.
//
// Options. SELECTOR is a letter, then if wanted the pack, the chunk after a dot and the rank
// (dp.pp) after '@': "F", "B3", "F3.1@0.2"; what is left out matches all. For failures the first
// action run that matches counts; a selector that no action matches is an error.
//   durations SELECTOR=NS,...  what actions take, in place of the costs; the last match counts
//   p2p_ns    NS               of a transfer between ranks; only without costs
//   jitter    J                in [0, 1): each action takes 1 +- up to J of its time, by the seed
//   fail      SELECTOR         the action fails (SP_ERR_INTERNAL)
//   stall     SELECTOR         the action never ends (SP_ERR_LIMIT)
//   exhaust   SELECTOR         the action allocates over the limit (SP_ERR_INFEASIBLE)
//   damage    KIND:SELECTOR    what is handed back is wrong there: order (with the action before it
//                              on its rank), overlap, early (before all inputs), missing, leak
//                              (memory after the step)
//   loss      NUMBER           of every step
//   tensor    NAME=V;V;...     can be read after the run
extern const sp_backend_ops sp_fake_backend;

#endif
