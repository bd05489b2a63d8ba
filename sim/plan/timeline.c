#include "sim/plan/timeline.h"

#include <stdlib.h>
#include <string.h>

#include "sim/base/alloc.h"
#include "sim/base/order.h"
#include "sim/base/units.h"

// How many shares each pipeline rank of a data-parallel rank has at most: one for each action that
// all of them work for.
static size_t count_shares(const sp_plan *plan, int dp)
{
    const sp_layout *layout = &plan->layout;
    size_t count = 0;
    for (int p = 0; sp_shares_are(layout) && p < layout->pp; p++) {
        const sp_stage_plan *stage = sp_plan_stage(plan, dp, p);
        for (size_t a = 0; a < stage->count; a++) {
            sp_share_part part;
            count += sp_action_is_shared(plan, p, stage->actions[a], &part);
        }
    }
    return count;
}

static size_t count_copies(const sp_stage_plan *stage)
{
    size_t copies = 0;
    for (size_t a = 0; a < stage->count; a++) {
        copies += sp_action_is_copy(stage->actions[a]);
    }
    return copies;
}

// Counts the actions and shares of the kinds.
static void count(const sp_plan *plan, const sp_alike_ranks *alike, size_t *actions, size_t *shares)
{
    *actions = 0;
    *shares = 0;
    for (int k = 0; k < alike->kinds; k++) {
        int dp = alike->members[alike->first[k]];
        for (int p = 0; p < plan->layout.pp; p++) {
            *actions += sp_plan_stage(plan, dp, p)->count;
        }
        *shares += count_shares(plan, dp) * (size_t)plan->layout.pp;
    }
}

static void place_ranks(sp_timeline *timeline, const sp_alike_ranks *alike)
{
    const sp_plan *plan = timeline->plan;
    sp_span *next = timeline->span_store;
    sp_share_span *next_share = timeline->share_store;
    sp_rank_timeline *rank = timeline->ranks;
    for (int k = 0; k < alike->kinds; k++) {
        int dp = alike->members[alike->first[k]];
        size_t shares = count_shares(plan, dp);
        for (int p = 0; p < plan->layout.pp; p++, rank++) {
            const sp_stage_plan *stage = sp_plan_stage(plan, dp, p);
            *rank = (sp_rank_timeline){.dp = dp,
                                       .pp = p,
                                       .alike = alike->first[k + 1] - alike->first[k],
                                       .dp_alike = timeline->alike_store + alike->first[k],
                                       .spans = next,
                                       .copies = next + (stage->count - count_copies(stage)),
                                       .shares = next_share};
            next += stage->count;
            next_share += shares;
        }
    }
}

void sp_timeline_init_alike(sp_timeline *timeline, const sp_plan *plan, const sp_alike_ranks *alike)
{
    size_t dp = (size_t)plan->layout.dp;
    size_t actions;
    size_t shares;
    *timeline =
        (sp_timeline){.plan = plan, .rank_count = (size_t)alike->kinds * (size_t)plan->layout.pp};
    count(plan, alike, &actions, &shares);
    timeline->ranks = sp_calloc(timeline->rank_count, sizeof *timeline->ranks);
    timeline->span_store = sp_malloc((actions + 1) * sizeof *timeline->span_store);
    timeline->share_store = sp_calloc(shares + 1, sizeof *timeline->share_store);
    timeline->alike_store = sp_malloc(dp * sizeof *timeline->alike_store);
    memcpy(timeline->alike_store, alike->members, dp * sizeof *timeline->alike_store);
    place_ranks(timeline, alike);
}

void sp_timeline_init(sp_timeline *timeline, const sp_plan *plan)
{
    int dp = plan->layout.dp;
    int *each = sp_malloc(((size_t)dp + 1) * sizeof *each);
    for (int d = 0; d <= dp; d++) {
        each[d] = d;
    }
    const sp_alike_ranks all = {.kinds = dp, .members = each, .first = each};
    sp_timeline_init_alike(timeline, plan, &all);
    sp_free(each);
}

void sp_timeline_keep_arrivals(sp_timeline *timeline)
{
    const sp_rank_timeline *last = &timeline->ranks[timeline->rank_count - 1];
    size_t actions = (size_t)(last->copies - timeline->span_store) +
                     sp_plan_stage(timeline->plan, last->dp, last->pp)->count;
    timeline->there_store = sp_malloc(actions * sizeof *timeline->there_store);
    for (size_t r = 0; r < timeline->rank_count; r++) {
        sp_rank_timeline *rank = &timeline->ranks[r];
        rank->there_ns = timeline->there_store + (rank->spans - timeline->span_store);
    }
}

int64_t sp_rank_last_ns(const sp_rank_timeline *rank)
{
    int64_t action_ns = rank->count > 0 ? rank->spans[rank->count - 1].end_ns : 0;
    size_t shares = rank->share_count;
    return sp_larger(action_ns, shares > 0 ? rank->shares[shares - 1].span.end_ns : 0);
}

// By start; the rest only settles ties.
static int compare_copies(const void *a, const void *b)
{
    const sp_span *x = a;
    const sp_span *y = b;
    int times = SP_ORDER_2(x, y, start_ns, end_ns);
    return times != 0 ? times : SP_ORDER_3(x, y, action.kind, action.chunk, action.pack);
}

static void order_copies(sp_timeline *timeline)
{
    for (size_t i = 0; i < timeline->rank_count; i++) {
        sp_rank_timeline *rank = &timeline->ranks[i];
        if (rank->copy_count > 0) {
            qsort(rank->copies, rank->copy_count, sizeof *rank->copies, compare_copies);
        }
    }
}

void sp_timeline_finish(sp_timeline *timeline)
{
    order_copies(timeline);
    timeline->makespan_ns = 0;
    timeline->iteration_ns = 0;
    for (size_t r = 0; r < timeline->rank_count; r++) {
        sp_rank_timeline *rank = &timeline->ranks[r];
        int64_t last_ns = sp_rank_last_ns(rank);
        if (rank->gather_end_ns == 0) {
            rank->reduce_start_ns = last_ns;
            rank->reduce_end_ns = last_ns;
            rank->optimizer_end_ns = last_ns;
            rank->gather_end_ns = last_ns;
        }
        timeline->makespan_ns = sp_larger(timeline->makespan_ns, last_ns);
        timeline->iteration_ns = sp_larger(timeline->iteration_ns, rank->gather_end_ns);
    }
    timeline->iteration_ns = sp_larger(timeline->iteration_ns, timeline->makespan_ns);
}

void sp_timeline_fini(sp_timeline *timeline)
{
    sp_free(timeline->ranks);
    sp_free(timeline->span_store);
    sp_free(timeline->there_store);
    sp_free(timeline->share_store);
    sp_free(timeline->alike_store);
    *timeline = (sp_timeline){0};
}

void sp_memory_timeline_init(sp_memory_timeline *memory, const sp_timeline *timeline)
{
    *memory = (sp_memory_timeline){.rank_count = timeline->rank_count};
    memory->ranks = sp_calloc(timeline->rank_count, sizeof *memory->ranks);
}

void sp_rank_memory_note(sp_rank_memory *memory, int64_t time_ns, const sp_bytes *bytes,
                         const sp_action *action, bool points)
{
    if (sp_bytes_total(bytes) > sp_bytes_total(&memory->peak)) {
        memory->peak = *bytes;
        memory->peak_ns = time_ns;
        memory->peak_action = action != NULL ? *action : (sp_action){0};
        memory->has_peak_action = action != NULL;
    }
    if (!points) {
        return;
    }
    if (memory->point_count > 0) {
        const sp_memory_point *last = &memory->points[memory->point_count - 1];
        if (last->time_ns == time_ns && memcmp(&last->bytes, bytes, sizeof *bytes) == 0) {
            return;
        }
    }
    *SP_ADDED(memory->points, memory->point_capacity, memory->point_count) =
        (sp_memory_point){.time_ns = time_ns, .bytes = *bytes};
}

void sp_memory_timeline_fini(sp_memory_timeline *memory)
{
    for (size_t r = 0; r < memory->rank_count; r++) {
        sp_free(memory->ranks[r].points);
    }
    sp_free(memory->ranks);
    *memory = (sp_memory_timeline){0};
}
