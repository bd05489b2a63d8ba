// Private to the merging of shards.
#ifndef SLIMPACK_EXPERIMENTS_SWEEP_MERGE_PRIVATE_H
#define SLIMPACK_EXPERIMENTS_SWEEP_MERGE_PRIVATE_H

#include "experiments/sweep/choice.h"

// Where files do not fit together because a shard is missing or there twice, or they are shards of
// different divisions: says so in place of the error in `err`, and returns its status. Reads the
// first two lines of each file, which tell what shard it is.
sp_status sweep_i_explain_shards(const sweep_spec *spec, const sweep_choice_options *options,
                                 const char *const *files, int count, sp_error *err);

#endif
