// The list of all strategies, and their functions.
#ifndef SLIMPACK_SOLVER_STRATEGY_LIST_H
#define SLIMPACK_SOLVER_STRATEGY_LIST_H

#include "solver/strategy.h"

// Every strategy in one row: X("name", function, traits...). The function is sp_i_pack_<function>,
// in a file of its own (solver/strategies, solver/slimpack, solver/flexsp); the traits are those of
// sp_strategy. The order is that of lists.
#define SP_STRATEGY_LIST(X)                                                                    \
    X("padded", padded, .rows = true)                                                          \
    X("packed", packed, .rows = true)                                                          \
    X("packed-tuned", packed_tuned, .rows = false)                                             \
    X("sorted", sorted, .rows = true)                                                          \
    X("ffd", ffd, .rows = true)                                                                \
    X("bfd", bfd, .rows = true)                                                                \
    X("lpfhp", lpfhp, .rows = true)                                                            \
    X("hybrid-cp", hybrid_cp, .rows = false)                                                   \
    X("flexsp", flexsp, .rows = false)                                                         \
    X("bytescale", bytescale, .rows = false)                                                   \
    X("slimpack-symmetric", slimpack_symmetric, .sliced = true, SP_BRINGS(PACKFLOW))           \
    X("slimpack", slimpack, .sliced = true, SP_BRINGS(PACKFLOW))                               \
    X("slimpack-zb", slimpack_zb, .sliced = true, SP_BRINGS(PACKFLOW), .split_backward = true, \
      .choose_chunks = sp_i_choose_chunks)                                                     \
    X("dynapipe", dynapipe, .rows = false)                                                     \
    X("chunkflow", chunkflow, .sliced = true, SP_BRINGS(CHUNKFLOW))                            \
    X("slimpipe", slimpipe, .sliced = true, SP_BRINGS(SLIMPIPE))                               \
    X("balanced", balanced, .outlier_queues = true)

#define SP_BRINGS(order) .brings_order = true, .schedule = SP_SCHEDULE_##order

#define X(name, function, ...)                                                          \
    sp_status sp_i_pack_##function(const sp_strategy_input *input, sp_packing *packing, \
                                   sp_error *err);
SP_STRATEGY_LIST(X)
#undef X
sp_status sp_i_choose_chunks(sp_scenario *scenario, sp_error *err);

#endif
