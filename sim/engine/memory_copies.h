// Copies to the host and back among the actions of a rank.
#ifndef SLIMPACK_SIM_ENGINE_MEMORY_COPIES_H
#define SLIMPACK_SIM_ENGINE_MEMORY_COPIES_H

#include "sim/engine/memory_walk.h"

// Runs a rank that copies: starts and ends of its actions, shares and copies in order of time; at
// one time what frees comes before what allocates. False without memory.
bool sp_i_walk_spans_and_copies(sp_i_memory_walk *w);

#endif
