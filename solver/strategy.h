// Strategies: from the samples of a batch to a packing. One file per strategy.
#ifndef SLIMPACK_SOLVER_STRATEGY_H
#define SLIMPACK_SOLVER_STRATEGY_H

#include <stdbool.h>

#include "sim/scenario/scenario.h"
#include "sim/schedule/packing.h"

extern const char *const sp_strategy_names[]; // NULL-terminated

// Does the strategy train every sample of the batch in this step, whole?
bool sp_strategy_is_lossless(const char *name);

// Is `name` a strategy? Otherwise a content error at `source`: strategy.kind, with the nearest
// name.
sp_status sp_strategy_check(const char *name, const char *source, sp_error *err);

// Packs a batch for `dp` data-parallel ranks into rows of at most `context` tokens, spec->
// microbatch_samples rows to a micro-batch; micro-batch k runs on rank k % dp. The packing refers
// to the batch.
sp_status sp_strategy_pack(const sp_strategy_spec *spec, const sp_batch *batch, int64_t context,
                           int dp, sp_packing *packing, sp_error *err);

#endif
