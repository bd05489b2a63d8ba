#include "sim/engine/timeline.h"

#include "sim/base/alloc.h"

void sp_timeline_fini(sp_timeline *timeline)
{
    sp_i_free(timeline->ranks);
    sp_i_free(timeline->span_store);
    sp_i_free(timeline->alike_store);
    *timeline = (sp_timeline){0};
}
