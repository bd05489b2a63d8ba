// Greedy orders for a V placement under a memory cap, by simulating the ranks.
#ifndef SLIMPACK_SIM_SCHEDULE_V_GREEDY_H
#define SLIMPACK_SIM_SCHEDULE_V_GREEDY_H

#include "sim/schedule/v_order.h"

enum { SP_I_V_RULES = 4 };

// Writes the order of a rule (0 .. SP_I_V_RULES-1) into an empty one; its setting has a cap of 2p
// chunks or more. SP_OK or SP_ERR_NO_MEMORY. O(operations * p).
sp_status sp_i_v_greedy(int rule, sp_i_v_order *order);

#endif
