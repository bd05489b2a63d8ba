// What the actions of a rank, and its shares of a vocabulary, take and give back when they begin
// and end. All return false where memory for the points of the course runs out.
#ifndef SLIMPACK_SIM_ENGINE_MEMORY_SPANS_H
#define SLIMPACK_SIM_ENGINE_MEMORY_SPANS_H

#include "sim/engine/memory_walk.h"

bool sp_i_walk_begin_span(sp_i_memory_walk *w, const sp_span *span);
bool sp_i_walk_end_span(sp_i_memory_walk *w, const sp_span *span);

// The share that the rank runs before a span, or with NULL the next one; NULL: none.
const sp_share_span *sp_i_walk_share_before(const sp_i_memory_walk *w, const sp_span *span);
bool sp_i_walk_begin_share(sp_i_memory_walk *w, const sp_share_span *share);
bool sp_i_walk_end_share(sp_i_memory_walk *w, const sp_share_span *share);
// All shares before a span, or with NULL all that are left.
bool sp_i_walk_run_shares(sp_i_memory_walk *w, const sp_span *before);

#endif
