#include "sim/plan/vocab_shares.h"

#include <stdlib.h>

#include "sim/base/alloc.h"
#include "sim/schedule/unit_clock.h"

// A place in the order of all actions and shares. At one time ends come in the order of
// sp_share_end, so that what one rank runs there is in the order of its list; then other actions.
typedef struct moment {
    int64_t time;
    int rank;
} moment;

enum { OTHER_ACTION = SP_SHARE_HEAD_BACKWARD + 1 };

// The work of an end for one pack and data-parallel rank.
typedef struct meeting {
    moment at;
    int dp, pp; // whose action needs it
    size_t place;
    sp_share_end end;
    sp_action action;
} meeting;

typedef struct maker {
    const sp_plan *plan;
    sp_i_unit_clock clock;
    meeting *meetings; // by dp, then in order
    size_t *of_dp;     // [dp + 1]
    uint8_t *split;    // [2][backward packs]: the rank at hand has an I on its first, last chunk
    sp_share *next;
} maker;

bool sp_shares_are(const sp_layout *layout)
{
    return layout->vocab_parallel && layout->pp > 1;
}

int sp_share_stage(const sp_layout *layout, sp_share_end end)
{
    bool head = end == SP_SHARE_HEAD || end == SP_SHARE_HEAD_BACKWARD;
    return head ? sp_layout_vstages(layout) - 1 : 0;
}

bool sp_share_end_of(const sp_layout *layout, int vstage, sp_action action, sp_share_end *end)
{
    bool last = vstage + 1 == sp_layout_vstages(layout);
    bool forward = action.kind == SP_ACTION_F || action.kind == SP_ACTION_R;
    bool backward = action.kind == SP_ACTION_B || action.kind == SP_ACTION_I;
    *end = last ? (forward ? SP_SHARE_HEAD : SP_SHARE_HEAD_BACKWARD)
                : (forward ? SP_SHARE_EMBEDDING : SP_SHARE_EMBEDDING_BACKWARD);
    return sp_shares_are(layout) && (last || vstage == 0) && (forward || backward);
}

static bool is_copy(sp_action action)
{
    return action.kind == SP_ACTION_O || action.kind == SP_ACTION_L;
}

static const sp_pack *pack_of(const sp_plan *plan, sp_action action)
{
    bool backward = action.kind == SP_ACTION_B || action.kind == SP_ACTION_I;
    const sp_pack_list *list =
        backward ? sp_packing_backward(plan->packing) : &plan->packing->forward;
    return &list->packs[action.pack];
}

// Does a rank's action need all ranks?
static bool meets(const maker *m, int pp, sp_action action, sp_share_end *end)
{
    int vstage = sp_layout_vstage(&m->plan->layout, pp, action.chunk);
    return sp_share_end_of(&m->plan->layout, vstage, action, end) &&
           pack_of(m->plan, action)->computed > 0;
}

static moment moment_of(const maker *m, int dp, int pp, size_t place)
{
    size_t lane = (size_t)dp * (size_t)m->plan->layout.pp + (size_t)pp;
    sp_action action = m->plan->stages[lane].actions[place];
    int64_t start = m->clock.start[m->clock.first[lane] + place];
    sp_share_end end;
    if (!meets(m, pp, action, &end)) {
        return (moment){start + sp_i_unit_length(action) / 4, OTHER_ACTION};
    }
    bool ends = end == SP_SHARE_HEAD || end == SP_SHARE_EMBEDDING_BACKWARD;
    return (moment){start + (ends ? sp_i_unit_length(action) : 0), (int)end};
}

static int compare_moments(const moment *a, const moment *b)
{
    return a->time != b->time ? (a->time > b->time) - (a->time < b->time) : a->rank - b->rank;
}

static int compare_meetings(const void *a, const void *b)
{
    const meeting *x = a;
    const meeting *y = b;
    int order = compare_moments(&x->at, &y->at);
    return order != 0 ? order
                      : (x->action.pack > y->action.pack) - (x->action.pack < y->action.pack);
}

// All meetings; with `meetings` NULL only their number by rank.
static void find_meetings(maker *m)
{
    const sp_layout *layout = &m->plan->layout;
    size_t count = 0;
    for (int d = 0; d < layout->dp; d++) {
        m->of_dp[d] = count;
        for (int p = 0; p < layout->pp; p++) {
            const sp_stage_plan *stage = sp_plan_stage(m->plan, d, p);
            for (size_t a = 0; a < stage->count; a++) {
                meeting found = {.dp = d, .pp = p, .place = a, .action = stage->actions[a]};
                if (!meets(m, p, found.action, &found.end)) {
                    continue;
                }
                if (m->meetings != NULL) {
                    found.at = moment_of(m, d, p, a);
                    m->meetings[count] = found;
                }
                count++;
            }
        }
    }
    m->of_dp[layout->dp] = count;
}

// The place of the next action that is no copy.
static size_t next_place(const sp_stage_plan *stage, size_t place)
{
    while (place < stage->count && is_copy(stage->actions[place])) {
        place++;
    }
    return place;
}

static uint8_t *split_of(const maker *m, bool head, int32_t pack)
{
    return &m->split[(head ? sp_packing_backward(m->plan->packing)->count : 0) + (size_t)pack];
}

// Which backwards of the ends' chunks a rank splits.
static void find_splits(const maker *m, const sp_stage_plan *stage)
{
    for (size_t a = 0; a < stage->count; a++) {
        sp_action action = stage->actions[a];
        for (int head = 0; head < 2; head++) {
            int chunk = head ? m->plan->layout.chunks - 1 : 0;
            if (action.chunk == chunk &&
                (action.kind == SP_ACTION_B || action.kind == SP_ACTION_I)) {
                *split_of(m, head != 0, action.pack) = action.kind == SP_ACTION_I;
            }
        }
    }
}

// As B or I, what the rank does itself on the chunk.
static sp_action own_action(const maker *m, const meeting *of)
{
    bool head = of->end == SP_SHARE_HEAD || of->end == SP_SHARE_HEAD_BACKWARD;
    sp_action action = of->action;
    action.with_next = 0;
    action.chunk = (uint16_t)(head ? m->plan->layout.chunks - 1 : 0);
    if (action.kind == SP_ACTION_B || action.kind == SP_ACTION_I) {
        action.kind = *split_of(m, head, action.pack) ? SP_ACTION_I : SP_ACTION_B;
    }
    return action;
}

static void place_shares(maker *m, int dp, int pp)
{
    const sp_stage_plan *stage = sp_plan_stage(m->plan, dp, pp);
    size_t place = next_place(stage, 0);
    find_splits(m, stage);
    for (size_t i = m->of_dp[dp]; i < m->of_dp[dp + 1]; i++) {
        const meeting *of = &m->meetings[i];
        bool own = of->pp == pp;
        bool head = of->end == SP_SHARE_HEAD || of->end == SP_SHARE_HEAD_BACKWARD;
        while (place < stage->count) {
            moment at = moment_of(m, dp, pp, place);
            bool done = own ? place < of->place || (of->end == SP_SHARE_HEAD && place == of->place)
                            : compare_moments(&at, &of->at) < 0;
            if (!done) {
                break;
            }
            place = next_place(stage, place + 1);
        }
        if (head || !own) {
            *m->next++ = (sp_share){
                .end = of->end, .action = own_action(m, of), .own = own, .before = place};
        }
    }
}

static sp_status make(maker *m, sp_shares *shares, sp_error *err)
{
    const sp_layout *layout = &m->plan->layout;
    size_t lanes = (size_t)layout->dp * (size_t)layout->pp;
    find_meetings(m);
    size_t count = m->of_dp[layout->dp];
    m->meetings = sp_i_calloc(count + 1, sizeof *m->meetings);
    shares->items = sp_i_calloc(count * (size_t)layout->pp + 1, sizeof *shares->items);
    shares->first = sp_i_calloc(lanes + 1, sizeof *shares->first);
    m->split = sp_i_calloc(2 * sp_packing_backward(m->plan->packing)->count, sizeof *m->split);
    if (m->meetings == NULL || shares->items == NULL || shares->first == NULL || m->split == NULL) {
        return sp_error_no_memory(err, "shares of the vocabulary");
    }
    find_meetings(m);
    m->next = shares->items;
    for (int d = 0; d < layout->dp; d++) {
        qsort(m->meetings + m->of_dp[d], m->of_dp[d + 1] - m->of_dp[d], sizeof *m->meetings,
              compare_meetings);
        for (int p = 0; p < layout->pp; p++) {
            place_shares(m, d, p);
            shares->first[d * layout->pp + p + 1] = (size_t)(m->next - shares->items);
        }
    }
    return SP_OK;
}

sp_status sp_shares_make(const sp_plan *plan, sp_shares *shares, sp_error *err)
{
    maker m = {.plan = plan};
    bool ends = false;
    *shares = (sp_shares){0};
    if (!sp_shares_are(&plan->layout)) {
        return SP_OK;
    }
    sp_status status = sp_i_unit_clock_make(plan, &m.clock, &ends, err);
    if (status == SP_OK && ends) {
        m.of_dp = sp_i_calloc((size_t)plan->layout.dp + 1, sizeof *m.of_dp);
        status = m.of_dp != NULL ? make(&m, shares, err)
                                 : sp_error_no_memory(err, "shares of the vocabulary");
    }
    sp_i_unit_clock_fini(&m.clock);
    sp_i_free(m.meetings);
    sp_i_free(m.split);
    sp_i_free(m.of_dp);
    if (status != SP_OK) {
        sp_shares_fini(shares);
    }
    return status;
}

void sp_shares_fini(sp_shares *shares)
{
    sp_i_free(shares->items);
    sp_i_free(shares->first);
    *shares = (sp_shares){0};
}

const sp_share *sp_shares_of(const sp_shares *shares, const sp_layout *layout, int dp, int pp,
                             size_t *count)
{
    if (shares->items == NULL) {
        *count = 0;
        return NULL;
    }
    const size_t *first = &shares->first[dp * layout->pp + pp];
    *count = first[1] - first[0];
    return &shares->items[first[0]];
}
