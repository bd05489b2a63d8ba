// Reading one rank of a result (result.h).
#ifndef SLIMPACK_BACKENDS_RECORD_RESULT_RANK_H
#define SLIMPACK_BACKENDS_RECORD_RESULT_RANK_H

#include "sim/base/json.h"
#include "sim/plan/timeline.h"

// The array `key` of an object if it has `count` elements; else NULL, with an error in object->err.
const json_t *sp_i_result_array(sp_object *object, const char *key, size_t count);

// Fills a rank of a timeline that sp_timeline_init made and its memory from `json`, the value at
// `path`. `shares` are the `share_count` of this rank. What does not fit the plan is an error in
// err, with the value; false when memory runs out.
bool sp_i_result_rank(const json_t *json, const char *source, const char *path, const sp_plan *plan,
                      const sp_share *shares, size_t share_count, sp_rank_timeline *rank,
                      sp_rank_memory *memory, sp_error *err);

#endif
