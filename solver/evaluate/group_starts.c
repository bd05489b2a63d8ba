// The cold start of groups (strategy.group_start_ms): the first pack of a job that some
// data-parallel ranks share, or whose attention some of them share, makes NCCL connect them. Groups
// stay for later batches.
#include "solver/evaluate/group_starts.h"

#include "sim/base/alloc.h"
#include "sim/base/units.h"

sp_status sp_i_group_starts_init(sp_i_group_starts *starts, const sp_scenario *scenario,
                                 sp_error *err)
{
    *starts = (sp_i_group_starts){.start_ms = scenario->strategy.group_start_ms,
                                  .dp = scenario->layout.dp};
    if (starts->start_ms > 0.0) {
        // Codes of zones go up to 2 * first + ranks < 3 * dp; 0 stands for all ranks.
        starts->started = sp_calloc(3 * (size_t)starts->dp, 1);
    }
    return starts->start_ms > 0.0 && starts->started == NULL
               ? sp_error_no_memory(err, "groups of ranks")
               : SP_OK;
}

void sp_i_group_starts_fini(sp_i_group_starts *starts)
{
    sp_free(starts->started);
    *starts = (sp_i_group_starts){0};
}

// Is the group new? From now on it is not.
static bool starts_group(sp_i_group_starts *starts, int first, int ranks)
{
    int32_t code = ranks == starts->dp ? 0 : sp_zone_of(first, ranks);
    bool new = ranks > 1 && !starts->started[code];
    starts->started[code] = starts->started[code] || new;
    return new;
}

static int new_groups(sp_i_group_starts *starts, const sp_pack_list *list, const sp_pack *pack)
{
    int count = starts_group(starts, pack->dp_first, pack->dp_count);
    for (size_t s = 0; s < pack->slice_count; s++) {
        int32_t zone = list->slices[pack->first_slice + s].zone;
        count += zone != 0 && starts_group(starts, sp_zone_first(zone), sp_zone_ranks(zone));
    }
    return count;
}

void sp_i_group_starts_add(sp_i_group_starts *starts, const sp_packing *packing,
                           sp_step_costs *costs)
{
    const sp_pack_list *list = &packing->forward;
    for (size_t k = 0; starts->start_ms > 0.0 && k < list->count; k++) {
        int64_t ns =
            sp_ns_from_s(1e-3 * starts->start_ms) * new_groups(starts, list, &list->packs[k]);
        for (int c = 0; c < costs->classes; c++) {
            costs->f[k * (size_t)costs->classes + (size_t)c].cp_ns += ns;
        }
    }
}
