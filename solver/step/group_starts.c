// The cold start of groups: the first pack of a job that some data-parallel ranks share, or whose
// attention some of them share, makes NCCL connect them. Groups stay for later batches.
#include "solver/step/group_starts.h"

#include <string.h>

#include "sim/base/alloc.h"
#include "sim/base/units.h"

// Codes of zones go up to 2 * first + ranks < 3 * dp; 0 stands for all ranks.
static size_t codes_of(const sp_i_group_starts *starts)
{
    return 3 * (size_t)starts->dp;
}

static void take_tables(sp_i_group_starts *starts)
{
    if (starts->start_ms > 0.0) {
        starts->started = sp_calloc(codes_of(starts), sizeof *starts->started);
        starts->joined = sp_calloc((size_t)starts->dp, sizeof *starts->joined);
    }
}

void sp_i_group_starts_init(sp_i_group_starts *starts, const sp_scenario *scenario)
{
    *starts = (sp_i_group_starts){.start_ms = scenario->strategy.group_start_ms,
                                  .dp = scenario->layout.dp};
    take_tables(starts);
}

void sp_i_group_starts_fini(sp_i_group_starts *starts)
{
    sp_free(starts->started);
    sp_free(starts->joined);
    *starts = (sp_i_group_starts){0};
}

// Lets the ranks join the group unless it is there already.
static void join(sp_i_group_starts *starts, int first, int ranks)
{
    int32_t code = ranks == starts->dp ? 0 : sp_zone_of(first, ranks);
    bool new = ranks > 1 && !starts->started[code];
    starts->started[code] = starts->started[code] || new;
    for (int r = first; new &&r < first + ranks; r++) {
        starts->joined[r]++;
    }
}

static int most_joined(sp_i_group_starts *starts, const sp_pack_list *list, const sp_pack *pack)
{
    int most = 0;
    join(starts, pack->dp_first, pack->dp_count);
    for (size_t s = 0; s < pack->slice_count; s++) {
        int32_t zone = list->slices[pack->first_slice + s].zone;
        if (zone != 0) {
            join(starts, sp_zone_first(zone), sp_zone_ranks(zone));
        }
    }
    for (int r = pack->dp_first; r < pack->dp_first + pack->dp_count; r++) {
        most = starts->joined[r] > most ? starts->joined[r] : most;
        starts->joined[r] = 0;
    }
    return most;
}

void sp_i_group_starts_add(sp_i_group_starts *starts, const sp_packing *packing,
                           sp_step_costs *costs)
{
    const sp_pack_list *list = &packing->forward;
    for (size_t k = 0; starts->start_ms > 0.0 && k < list->count; k++) {
        int64_t ns =
            sp_ns_from_s(1e-3 * starts->start_ms) * most_joined(starts, list, &list->packs[k]);
        for (int c = 0; c < costs->classes; c++) {
            costs->f[k * (size_t)costs->classes + (size_t)c].cp_ns += ns;
        }
    }
}

void sp_i_group_starts_try(const sp_i_group_starts *starts, const sp_packing *packing,
                           sp_step_costs *costs)
{
    if (starts == NULL || !(starts->start_ms > 0.0)) {
        return;
    }
    sp_i_group_starts tried = {.start_ms = starts->start_ms, .dp = starts->dp};
    take_tables(&tried);
    memcpy(tried.started, starts->started, codes_of(starts) * sizeof *tried.started);
    sp_i_group_starts_add(&tried, packing, costs);
    sp_i_group_starts_fini(&tried);
}
