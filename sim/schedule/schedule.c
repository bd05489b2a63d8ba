#include "sim/schedule/schedule.h"

#include <string.h>

#include "sim/base/alloc.h"
#include "sim/schedule/schedule_family.h"

const char *const sp_schedule_names[] = {"gpipe", "1f1b", "interleaved", NULL};

// Packs of every data-parallel rank: list[first[d] .. first[d+1]) ascending.
typedef struct local_lists {
    int32_t *list;
    size_t *first;
} local_lists;

static bool collect(const sp_packing *packing, local_lists *lists)
{
    size_t dp = (size_t)packing->dp;
    size_t total = 0;
    for (size_t k = 0; k < packing->forward.count; k++) {
        total += (size_t)packing->forward.packs[k].dp_count;
    }
    lists->list = sp_i_malloc(total * sizeof *lists->list);
    lists->first = sp_i_calloc(dp + 2, sizeof *lists->first);
    if (lists->list == NULL || lists->first == NULL) {
        return false;
    }
    // Counting sort by rank; first[d + 1] runs ahead as the write position of rank d.
    for (size_t k = 0; k < packing->forward.count; k++) {
        const sp_pack *pack = &packing->forward.packs[k];
        for (int d = pack->dp_first; d < pack->dp_first + pack->dp_count; d++) {
            lists->first[d + 2]++;
        }
    }
    for (size_t d = 2; d < dp + 2; d++) {
        lists->first[d] += lists->first[d - 1];
    }
    for (size_t k = 0; k < packing->forward.count; k++) {
        const sp_pack *pack = &packing->forward.packs[k];
        for (int d = pack->dp_first; d < pack->dp_first + pack->dp_count; d++) {
            lists->list[lists->first[d + 1]++] = (int32_t)k;
        }
    }
    return true;
}

static sp_status check_fit(const sp_schedule_spec *spec, const char *source, const sp_plan *plan,
                           const local_lists *lists, sp_error *err)
{
    const char *name = sp_schedule_names[spec->kind];
    const sp_layout *layout = &plan->layout;
    if (spec->kind != SP_SCHEDULE_INTERLEAVED && layout->chunks != 1) {
        return sp_error_in(err, SP_ERR_CONTENT, source, "schedule.kind",
                           "\"%s\" runs one chunk per rank, parallel.chunks_per_rank is %d", name,
                           layout->chunks);
    }
    if (layout->placement != SP_PLACE_LINEAR) {
        return sp_error_in(err, SP_ERR_CONTENT, source, "schedule.kind",
                           "\"%s\" needs linear placement of the chunks", name);
    }
    if (plan->packing->backward.count > 0) {
        return sp_error_in(err, SP_ERR_CONTENT, source, "schedule.kind",
                           "\"%s\" cannot run backward packs that differ from the forward packs",
                           name);
    }
    if (spec->kind == SP_SCHEDULE_INTERLEAVED && layout->pp == 1 && layout->chunks > 1) {
        return sp_error_in(err, SP_ERR_CONTENT, source, "schedule.kind",
                           "\"interleaved\" with several chunks needs parallel.pp of at least 2");
    }
    for (int d = 0; spec->kind == SP_SCHEDULE_INTERLEAVED && d < layout->dp; d++) {
        int m = (int)(lists->first[d + 1] - lists->first[d]);
        if (!sp_i_interleaved_group_fits(m, layout->pp, spec->group)) {
            return sp_error_in(err, SP_ERR_CONTENT, source, "schedule.group",
                               "%d micro-batches in groups of %d leave a group smaller than the "
                               "%d pipeline ranks",
                               m, spec->group, layout->pp);
        }
    }
    return SP_OK;
}

static bool generate_rank(const sp_schedule_spec *spec, const sp_plan *plan, sp_i_local_packs local,
                          int pp_rank, sp_stage_plan *stage)
{
    switch (spec->kind) {
    case SP_SCHEDULE_GPIPE:
        return sp_i_schedule_gpipe(plan, local, pp_rank, stage);
    case SP_SCHEDULE_1F1B:
        return sp_i_schedule_1f1b(plan, local, pp_rank, stage);
    case SP_SCHEDULE_INTERLEAVED:
        return sp_i_schedule_interleaved(plan, local, pp_rank, spec->group, stage);
    case SP_SCHEDULE_KINDS:
        break;
    }
    SP_UNREACHABLE("a schedule kind");
}

// A plan of this size takes some 10 GB and a minute.
#define MOST_ACTIONS ((int64_t)1 << 26)

// Every pack has a forward and a backward on every virtual stage of each of its ranks.
static sp_status check_size(const sp_plan *plan, sp_error *err)
{
    int64_t visits = 0;
    for (size_t k = 0; k < plan->packing->forward.count; k++) {
        visits += plan->packing->forward.packs[k].dp_count;
    }
    int64_t most = MOST_ACTIONS / 2 / sp_layout_vstages(&plan->layout);
    if (visits <= most) {
        return SP_OK;
    }
    return sp_error_set(err, SP_ERR_LIMIT,
                        "%lld packs on %d virtual stages make more than the %lld actions that a "
                        "plan can have",
                        (long long)visits, sp_layout_vstages(&plan->layout),
                        (long long)MOST_ACTIONS);
}

sp_status sp_schedule_generate(const sp_schedule_spec *spec, const char *source, sp_plan *plan,
                               sp_error *err)
{
    local_lists lists = {0};
    sp_status status = check_size(plan, err);
    if (status != SP_OK) {
        return status;
    }
    if (!collect(plan->packing, &lists)) {
        status = sp_error_no_memory(err, "a schedule");
        goto out;
    }
    status = check_fit(spec, source, plan, &lists, err);
    for (int d = 0; status == SP_OK && d < plan->layout.dp; d++) {
        sp_i_local_packs local = {.pack = lists.list + lists.first[d],
                                  .count = (int)(lists.first[d + 1] - lists.first[d])};
        for (int r = 0; status == SP_OK && r < plan->layout.pp; r++) {
            if (!generate_rank(spec, plan, local, r, sp_plan_stage(plan, d, r))) {
                status = sp_error_no_memory(err, "a schedule");
            }
        }
    }
out:
    sp_i_free(lists.list);
    sp_i_free(lists.first);
    return status;
}
