// The edges of the dependency graph: what every action waits for, and for how long after.
#ifndef SLIMPACK_SIM_VERIFY_STRUCTURE_EDGES_H
#define SLIMPACK_SIM_VERIFY_STRUCTURE_EDGES_H

#include "sim/verify/structure_map.h"

// Of all numbered vertices. False without memory.
bool sp_i_structure_connect(sp_structure *s, const sp_step_costs *costs,
                            const sp_i_vertex_map *map);

#endif
