// Where a timeline has each action, share and copy that a plan names.
#include <stdint.h>

#include "sim/metrics/predecessors_private.h"

enum { LAST_OUT = 0, LAST_BACK = 1 };

static void note(const sp_predecessors *p, const sp_rank_timeline *rank, const sp_span *span,
                 size_t index)
{
    const sp_plan_place place = {.dp = rank->dp, .pp = rank->pp, .action = span->action};
    int64_t *table = p->at[sp_i_table_of(span->action)];
    if (table != NULL) {
        table[sp_i_entry_of(p, &place)] = (int64_t)index;
    }
}

static size_t share_table(const sp_share_span *share)
{
    return 2 * (size_t)share->part + (share->span.action.kind == SP_ACTION_R);
}

static void note_shares(const sp_predecessors *p, const sp_rank_timeline *rank)
{
    size_t pp = (size_t)p->depends.plan->layout.pp;
    for (size_t i = 0; i < rank->share_count; i++) {
        const sp_share_span *share = &rank->shares[i];
        size_t slot = sp_depends_slot(&p->depends, share->span.action, rank->dp);
        p->share_at[share_table(share)][slot * pp + (size_t)rank->pp] = (int64_t)i;
    }
}

// The places of a rank's copies among its actions, from the plan's list.
static void note_copies(const sp_predecessors *p, size_t r)
{
    const sp_rank_timeline *rank = &p->timeline->ranks[r];
    const sp_stage_plan *stage = sp_plan_stage(p->depends.plan, rank->dp, rank->pp);
    int64_t last[2] = {SP_NOT_YET, SP_NOT_YET};
    int64_t spans = 0;
    for (size_t a = 0; a < stage->count; a++) {
        const sp_plan_place place = {.dp = rank->dp, .pp = rank->pp, .action = stage->actions[a]};
        if (!sp_action_is_copy(place.action)) {
            p->leaving[p->first_span[r] + (size_t)spans++] =
                place.action.kind == SP_ACTION_F ? last[LAST_OUT] : SP_NOT_YET;
            continue;
        }
        int64_t copy = p->at[place.action.kind][sp_i_entry_of(p, &place)];
        int64_t *before = &last[place.action.kind == SP_ACTION_O ? LAST_OUT : LAST_BACK];
        p->copy_before[p->first_copy[r] + (size_t)copy] = *before;
        p->copy_after[p->first_copy[r] + (size_t)copy] = spans - 1;
        *before = copy;
    }
}

static void fill_tables(const sp_predecessors *p)
{
    for (size_t r = 0; r < p->timeline->rank_count; r++) {
        const sp_rank_timeline *rank = &p->timeline->ranks[r];
        for (size_t i = 0; i < rank->count; i++) {
            note(p, rank, &rank->spans[i], i);
        }
        for (size_t i = 0; i < rank->copy_count; i++) {
            note(p, rank, &rank->copies[i], i);
        }
        note_shares(p, rank);
        if (p->leaving != NULL) {
            note_copies(p, r);
        }
    }
}

// The kinds of what ran, as bits.
static unsigned kinds_of(const sp_timeline *timeline)
{
    unsigned kinds = 0;
    for (size_t r = 0; r < timeline->rank_count; r++) {
        const sp_rank_timeline *rank = &timeline->ranks[r];
        for (size_t i = 0; i < rank->count; i++) {
            kinds |= 1u << sp_i_table_of(rank->spans[i].action);
        }
        for (size_t i = 0; i < rank->copy_count; i++) {
            kinds |= 1u << rank->copies[i].action.kind;
        }
    }
    return kinds & ~(1u << SP_ACTION_W); // nothing waits for weight gradients
}

static void make_tables(sp_predecessors *p, size_t spans, size_t copies, size_t shares)
{
    unsigned kinds = kinds_of(p->timeline);
    size_t pp = (size_t)p->depends.plan->layout.pp;
    for (int k = 0; k < SP_ACTION_KINDS; k++) {
        if ((kinds & 1u << k) != 0) {
            p->at[k] = sp_depends_timestamps(&p->depends, k == SP_ACTION_B);
        }
    }
    for (size_t t = 0; t < SP_I_SHARE_TABLES && shares > 0; t++) {
        size_t part = t / 2;
        bool backward = part == SP_SHARE_EMBEDDING_BACKWARD || part == SP_SHARE_HEAD_BACKWARD;
        size_t count = p->depends.slots[backward] * pp;
        p->share_at[t] = sp_arena_take(&p->work, count, sizeof *p->share_at[t]);
        for (size_t i = 0; i < count; i++) {
            p->share_at[t][i] = SP_NOT_YET;
        }
    }
    if (copies > 0) {
        p->leaving = sp_arena_take(&p->work, spans, sizeof *p->leaving);
        p->copy_before = sp_arena_take(&p->work, copies, sizeof *p->copy_before);
        p->copy_after = sp_arena_take(&p->work, copies, sizeof *p->copy_after);
    }
}

// Numbers the ranks of the timeline; data-parallel ranks without an entry do not run.
static void make_ranks(sp_predecessors *p, uint8_t **runs, size_t *spans, size_t *copies,
                       size_t *shares)
{
    const sp_layout *layout = &p->timeline->plan->layout;
    size_t count = p->timeline->rank_count;
    *runs = sp_arena_take(&p->work, (size_t)layout->dp, sizeof **runs);
    p->rank_of =
        sp_arena_take(&p->work, (size_t)layout->dp * (size_t)layout->pp, sizeof *p->rank_of);
    p->first_span = sp_arena_take(&p->work, count, sizeof *p->first_span);
    p->first_copy = sp_arena_take(&p->work, count, sizeof *p->first_copy);
    for (size_t r = 0; r < count; r++) {
        const sp_rank_timeline *rank = &p->timeline->ranks[r];
        p->rank_of[(size_t)rank->dp * (size_t)layout->pp + (size_t)rank->pp] = r;
        (*runs)[rank->dp] = 1;
        p->first_span[r] = *spans;
        p->first_copy[r] = *copies;
        *spans += rank->count;
        *copies += rank->copy_count;
        *shares += rank->share_count;
    }
}

sp_status sp_predecessors_new(const sp_timeline *timeline, const sp_step_costs *costs,
                              sp_predecessors **predecessors, sp_error *err)
{
    uint8_t *runs;
    size_t spans = 0;
    size_t copies = 0;
    size_t shares = 0;
    sp_predecessors *p = sp_calloc(1, sizeof *p);
    (void)err;
    *predecessors = p;
    p->timeline = timeline;
    p->costs = costs;
    make_ranks(p, &runs, &spans, &copies, &shares);
    sp_depends_init(&p->depends, timeline->plan, runs, NULL);
    make_tables(p, spans, copies, shares);
    fill_tables(p);
    return SP_OK;
}

void sp_predecessors_free(sp_predecessors *p)
{
    if (p == NULL) {
        return;
    }
    for (int k = 0; k < SP_ACTION_KINDS; k++) {
        sp_free(p->at[k]);
    }
    sp_depends_fini(&p->depends);
    sp_arena_free(&p->work);
    sp_free(p);
}
