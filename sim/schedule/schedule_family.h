// What the schedule families share.
#ifndef SLIMPACK_SIM_SCHEDULE_SCHEDULE_FAMILY_H
#define SLIMPACK_SIM_SCHEDULE_SCHEDULE_FAMILY_H

#include "sim/schedule/schedule.h"

// The packs that one data-parallel rank runs, ascending.
typedef struct sp_i_local_packs {
    const int32_t *pack;
    int count;
} sp_i_local_packs;

// Each family writes the action list of one pipeline rank; false when memory runs out.
bool sp_i_schedule_gpipe(const sp_plan *plan, sp_i_local_packs local, int pp_rank,
                         sp_stage_plan *stage);
bool sp_i_schedule_1f1b(const sp_plan *plan, sp_i_local_packs local, int pp_rank,
                        sp_stage_plan *stage);
bool sp_i_schedule_interleaved(const sp_plan *plan, sp_i_local_packs local, int pp_rank, int group,
                               sp_stage_plan *stage);

// Is `group` a legal number of micro-batches in a row for m micro-batches on p ranks (0: choose)?
bool sp_i_interleaved_group_fits(int microbatches, int pp, int group);

#endif
