// Names that the writer and the reader of results (result.h) share.
#ifndef SLIMPACK_BACKENDS_RECORD_RESULT_PRIVATE_H
#define SLIMPACK_BACKENDS_RECORD_RESULT_PRIVATE_H

#include "sim/plan/timeline.h"

extern const char *const sp_i_status_names[]; // "ok", "infeasible", ..., NULL; by sp_status
extern const char *const sp_i_share_names[];  // "head", ..., NULL; by sp_share_part

// The times of a span in the order of a result.
enum { SP_I_SPAN_TIMES = 7 };
void sp_i_span_times(const sp_span *span, int64_t times[SP_I_SPAN_TIMES]);
void sp_i_span_set_times(sp_span *span, const int64_t times[SP_I_SPAN_TIMES]);

#endif
