// What the writer and the readers of results (result.h) share.
#ifndef SLIMPACK_BACKENDS_RECORD_RESULT_PRIVATE_H
#define SLIMPACK_BACKENDS_RECORD_RESULT_PRIVATE_H

#include "sim/base/json.h"
#include "sim/plan/timeline.h"

// ---- names (result_write.c) ----

extern const char *const sp_i_status_names[]; // "ok", "infeasible", ..., NULL; by sp_status
extern const char *const sp_i_share_names[];  // "head", ..., NULL; by sp_share_part

// The times of a span in the order of a result.
enum { SP_I_SPAN_TIMES = 7 };
void sp_i_span_times(const sp_span *span, int64_t times[SP_I_SPAN_TIMES]);
void sp_i_span_set_times(sp_span *span, const int64_t times[SP_I_SPAN_TIMES]);

// ---- reading one rank (result_rank.c) ----

// The array `key` of an object if it has `count` elements; else NULL, with an error in object->err.
const json_t *sp_i_result_array(sp_object *object, const char *key, size_t count);

// Fills a rank of a timeline that sp_timeline_init made and its memory from `json`, the value at
// `path`. `shares` are the `share_count` of this rank. What does not fit the plan is an error in
// err, with the value; false when memory runs out.
bool sp_i_result_rank(const json_t *json, const char *source, const char *path, const sp_plan *plan,
                      const sp_share *shares, size_t share_count, sp_rank_timeline *rank,
                      sp_rank_memory *memory, sp_error *err);

#endif
