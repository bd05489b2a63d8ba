// Micro-batches assigned to the data-parallel ranks by their time. Private to solver.
#ifndef SLIMPACK_SOLVER_STRATEGIES_KARMARKAR_KARP_H
#define SLIMPACK_SOLVER_STRATEGIES_KARMARKAR_KARP_H

#include <stddef.h>

#include "sim/cost/cost_model.h"

// Partitions weights >= 0 into `parts` parts, none of them much heavier than the others: part[i] <
// parts. The differencing method of Karmarkar and Karp (1982): of the two partitions that are most
// uneven one is turned over on the other, heavy parts on light ones, until one partition is left.
// O(n (parts + log n)) time, O(n) memory.
void sp_i_karmarkar_karp(const double *weight, size_t n, int parts, int *part);

// Puts each micro-batch of a packing whose micro-batches are numbered from 0 on the rank that
// sp_i_karmarkar_karp gives it, forward and backward. The weight of a micro-batch is the forward
// and backward time of its forward packs; with `retained` > 0 also the second forward of all packs
// of a micro-batch but the last `retained` (ChunkFlow).
void sp_i_assign_by_time(sp_packing *packing, sp_cost_model *cost, int retained);

#endif
