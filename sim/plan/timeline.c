#include "sim/plan/timeline.h"

#include <stdlib.h>
#include <string.h>

#include "sim/base/alloc.h"

sp_status sp_timeline_init(sp_timeline *timeline, const sp_plan *plan, sp_error *err)
{
    size_t dp = (size_t)plan->layout.dp;
    size_t pp = (size_t)plan->layout.pp;
    size_t actions = 0;
    for (size_t r = 0; r < dp * pp; r++) {
        actions += plan->stages[r].count;
    }
    *timeline = (sp_timeline){.plan = plan, .rank_count = dp * pp};
    timeline->ranks = sp_i_calloc(dp * pp, sizeof *timeline->ranks);
    timeline->span_store = sp_i_calloc(actions, sizeof *timeline->span_store);
    timeline->alike_store = sp_i_calloc(dp, sizeof *timeline->alike_store);
    if (timeline->ranks == NULL || timeline->span_store == NULL || timeline->alike_store == NULL) {
        sp_timeline_fini(timeline);
        return sp_error_no_memory(err, "the timeline");
    }
    sp_shares shares;
    sp_status status = sp_shares_make(plan, &shares, err);
    size_t share_count = status == SP_OK && shares.items != NULL ? shares.first[dp * pp] : 0;
    timeline->share_store = sp_i_calloc(share_count + 1, sizeof *timeline->share_store);
    if (status == SP_OK && timeline->share_store == NULL) {
        status = sp_error_no_memory(err, "the timeline");
    }
    if (status != SP_OK) {
        sp_shares_fini(&shares);
        sp_timeline_fini(timeline);
        return status;
    }
    sp_span *next = timeline->span_store;
    for (size_t r = 0; r < dp * pp; r++) {
        sp_rank_timeline *rank = &timeline->ranks[r];
        const sp_stage_plan *stage = &plan->stages[r];
        size_t copies = 0;
        for (size_t a = 0; a < stage->count; a++) {
            copies +=
                stage->actions[a].kind == SP_ACTION_O || stage->actions[a].kind == SP_ACTION_L;
        }
        timeline->alike_store[r / pp] = (int)(r / pp);
        *rank = (sp_rank_timeline){.dp = (int)(r / pp),
                                   .pp = (int)(r % pp),
                                   .alike = 1,
                                   .dp_alike = &timeline->alike_store[r / pp],
                                   .spans = next,
                                   .copies = next + (stage->count - copies),
                                   .shares = timeline->share_store +
                                             (share_count > 0 ? shares.first[r] : 0)};
        next += stage->count;
    }
    sp_shares_fini(&shares);
    return SP_OK;
}

static int64_t later(int64_t a, int64_t b)
{
    return a > b ? a : b;
}

int64_t sp_i_rank_last_ns(const sp_rank_timeline *rank)
{
    int64_t action_ns = rank->count > 0 ? rank->spans[rank->count - 1].end_ns : 0;
    size_t shares = rank->share_count;
    return later(action_ns, shares > 0 ? rank->shares[shares - 1].span.end_ns : 0);
}

void sp_timeline_finish(sp_timeline *timeline)
{
    sp_i_timeline_order_copies(timeline);
    timeline->makespan_ns = 0;
    timeline->iteration_ns = 0;
    for (size_t r = 0; r < timeline->rank_count; r++) {
        sp_rank_timeline *rank = &timeline->ranks[r];
        int64_t last_ns = sp_i_rank_last_ns(rank);
        if (rank->gather_end_ns == 0) {
            rank->reduce_start_ns = last_ns;
            rank->reduce_end_ns = last_ns;
            rank->optimizer_end_ns = last_ns;
            rank->gather_end_ns = last_ns;
        }
        timeline->makespan_ns = later(timeline->makespan_ns, last_ns);
        timeline->iteration_ns = later(timeline->iteration_ns, rank->gather_end_ns);
    }
    timeline->iteration_ns = later(timeline->iteration_ns, timeline->makespan_ns);
}

void sp_timeline_fini(sp_timeline *timeline)
{
    sp_i_free(timeline->ranks);
    sp_i_free(timeline->span_store);
    sp_i_free(timeline->share_store);
    sp_i_free(timeline->alike_store);
    *timeline = (sp_timeline){0};
}

// By start; the rest only settles ties.
static int compare_copies(const void *a, const void *b)
{
    const sp_span *x = a;
    const sp_span *y = b;
    const int64_t keys[][2] = {{x->start_ns, y->start_ns},
                               {x->end_ns, y->end_ns},
                               {x->action.kind, y->action.kind},
                               {x->action.chunk, y->action.chunk},
                               {x->action.pack, y->action.pack}};
    for (size_t k = 0; k < sizeof keys / sizeof keys[0]; k++) {
        if (keys[k][0] != keys[k][1]) {
            return keys[k][0] < keys[k][1] ? -1 : 1;
        }
    }
    return 0;
}

void sp_i_timeline_order_copies(sp_timeline *timeline)
{
    for (size_t i = 0; i < timeline->rank_count; i++) {
        sp_rank_timeline *rank = &timeline->ranks[i];
        if (rank->copy_count > 0) {
            qsort(rank->copies, rank->copy_count, sizeof *rank->copies, compare_copies);
        }
    }
}

sp_status sp_memory_timeline_init(sp_memory_timeline *memory, const sp_timeline *timeline,
                                  sp_error *err)
{
    *memory = (sp_memory_timeline){.rank_count = timeline->rank_count};
    memory->ranks = sp_i_calloc(timeline->rank_count, sizeof *memory->ranks);
    return memory->ranks != NULL ? SP_OK : sp_error_no_memory(err, "the memory timeline");
}

bool sp_rank_memory_note(sp_rank_memory *memory, int64_t time_ns, const sp_bytes *bytes,
                         const sp_action *action, bool points)
{
    if (sp_bytes_total(bytes) > sp_bytes_total(&memory->peak)) {
        memory->peak = *bytes;
        memory->peak_ns = time_ns;
        memory->peak_action = action != NULL ? *action : (sp_action){0};
        memory->has_peak_action = action != NULL;
    }
    if (!points) {
        return true;
    }
    if (memory->point_count > 0) {
        const sp_memory_point *last = &memory->points[memory->point_count - 1];
        if (last->time_ns == time_ns && memcmp(&last->bytes, bytes, sizeof *bytes) == 0) {
            return true;
        }
    }
    if (!sp_i_reserve((void **)&memory->points, &memory->point_capacity, memory->point_count + 1,
                      sizeof *memory->points)) {
        return false;
    }
    memory->points[memory->point_count++] = (sp_memory_point){.time_ns = time_ns, .bytes = *bytes};
    return true;
}

void sp_memory_timeline_fini(sp_memory_timeline *memory)
{
    for (size_t r = 0; memory->ranks != NULL && r < memory->rank_count; r++) {
        sp_i_free(memory->ranks[r].points);
    }
    sp_i_free(memory->ranks);
    *memory = (sp_memory_timeline){0};
}
