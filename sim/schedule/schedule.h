// Schedules: from a packing to a plan, one file per family.
#ifndef SLIMPACK_SIM_SCHEDULE_SCHEDULE_H
#define SLIMPACK_SIM_SCHEDULE_SCHEDULE_H

#include "sim/schedule/plan.h"

typedef enum sp_schedule_kind {
    SP_SCHEDULE_GPIPE,
    SP_SCHEDULE_1F1B,
    SP_SCHEDULE_INTERLEAVED,
    SP_SCHEDULE_KINDS
} sp_schedule_kind;

extern const char *const sp_schedule_names[]; // "gpipe", "1f1b", "interleaved", NULL

typedef struct sp_schedule_spec {
    sp_schedule_kind kind;
    int group; // interleaved: micro-batches of one chunk in a row; 0: pp
} sp_schedule_spec;

// Fills the plan (initialised, empty) from its packing and layout. A schedule that does not fit the
// layout (1F1B with several chunks, ...) is a content error at `source`: schedule.kind.
sp_status sp_schedule_generate(const sp_schedule_spec *spec, const char *source, sp_plan *plan,
                               sp_error *err);

#endif
