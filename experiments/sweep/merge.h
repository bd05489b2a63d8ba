// Puts the results files of a sweep's shards together.
#ifndef SLIMPACK_EXPERIMENTS_SWEEP_MERGE_H
#define SLIMPACK_EXPERIMENTS_SWEEP_MERGE_H

#include "experiments/sweep/choice.h"

// Writes the lines of `count` files, one for each shard, in the order of the points to `path`, and
// adds them to `summary`, which has begun. The files may stand in any order. A content error names
// the file and line where a point is missing or another one is found, or the shard that is missing
// or there twice; `path` is then not made.
sp_status sweep_merge(const sweep_spec *spec, const sweep_choice_options *options,
                      const char *const *files, int count, const char *path, sweep_summary *summary,
                      sp_error *err);

#endif
