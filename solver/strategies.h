// Every strategy's packing function, each in a file of its own. Private to solver.
#ifndef SLIMPACK_SOLVER_STRATEGIES_H
#define SLIMPACK_SOLVER_STRATEGIES_H

#include "solver/strategy.h"

#define SP_I_STRATEGY(name) \
    sp_status sp_i_pack_##name(const sp_strategy_input *input, sp_packing *packing, sp_error *err)

SP_I_STRATEGY(padded);
SP_I_STRATEGY(packed);
SP_I_STRATEGY(packed_tuned);
SP_I_STRATEGY(sorted);
SP_I_STRATEGY(ffd);
SP_I_STRATEGY(hybrid_cp);
SP_I_STRATEGY(flexsp);
SP_I_STRATEGY(bytescale);
SP_I_STRATEGY(bfd);
SP_I_STRATEGY(lpfhp);
SP_I_STRATEGY(balanced);
SP_I_STRATEGY(slimpack_symmetric);
SP_I_STRATEGY(slimpack);
SP_I_STRATEGY(slimpack_zb);
SP_I_STRATEGY(dynapipe);
SP_I_STRATEGY(chunkflow);
SP_I_STRATEGY(slimpipe);

#endif
