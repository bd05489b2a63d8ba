#include "sim/plan/plan_check.h"

#include <stdio.h>

#include "sim/base/alloc.h"

enum {
    NAME = 32,         // bytes of an action's name
    IN_BACKWARD = 128, // beside 1 << sp_action_kind: a backward of the forward pack's slices ran
    FREE_SLOTS = 4096, // slots that need no actions to justify their memory
};

// For each pack the packs it depends on: to[first[pack] .. first[pack + 1]), each once.
typedef struct edges {
    size_t *first;
    int32_t *to;
} edges;

typedef struct edge {
    int32_t from, to;
} edge;

// What the current stage has done for one pack and chunk; `stage` tells entries of earlier stages.
typedef struct progress {
    uint32_t stage;
    uint32_t seen; // bits 1 << sp_action_kind
} progress;

typedef struct checker {
    sp_i_plan_check *check;
    int chunks;
    edges forwards;        // of a backward pack: the forward packs of its slices
    edges earlier, later;  // forward pack to packs with slices just before, backward to just after
    size_t *own_f, *own_b; // packs of each data-parallel rank
    progress *f_slots, *b_slots; // [pack * chunks + chunk]
    int dp_rank, pp_rank;
    uint32_t stage;
    sp_arena work;
} checker;

static void build_edges(checker *c);
static size_t *count_own(checker *c, const sp_pack_list *list);
static bool enough_actions(checker *c);
static void check_stage(checker *c);

void sp_i_plan_check_actions(sp_i_plan_check *check)
{
    const sp_layout *layout = &check->plan->layout;
    checker c = {.check = check, .chunks = layout->chunks};
    size_t chunks = (size_t)layout->chunks;
    build_edges(&c);
    c.own_f = count_own(&c, check->forward.list);
    c.own_b = count_own(&c, check->backward.list);
    if (enough_actions(&c)) {
        size_t slots[2] = {check->forward.list->count * chunks,
                           check->backward.list->count * chunks};
        c.f_slots = sp_arena_take(&c.work, slots[0], sizeof *c.f_slots);
        c.b_slots = sp_arena_take(&c.work, slots[1], sizeof *c.b_slots);
        for (c.dp_rank = 0; c.dp_rank < layout->dp; c.dp_rank++) {
            for (c.pp_rank = 0; c.pp_rank < layout->pp && !sp_i_plan_check_full(check);
                 c.pp_rank++) {
                c.stage++;
                check_stage(&c);
            }
        }
    }
    sp_arena_free(&c.work);
}

// Groups the edges by their `from` (below from_count), dropping repetitions; `to` is below
// to_count.
static edges group_edges(sp_arena *work, const edge *list, size_t count, size_t from_count,
                         size_t to_count)
{
    edges out = {.first = sp_arena_take(work, from_count + 2, sizeof *out.first),
                 .to = sp_arena_take(work, count, sizeof *out.to)};
    size_t *seen_for = sp_arena_take(work, to_count, sizeof *seen_for); // from + 1
    size_t *next = out.first + 1;
    for (size_t i = 0; i < count; i++) {
        next[list[i].from + 1]++;
    }
    for (size_t p = 0; p < from_count; p++) {
        next[p + 1] += next[p];
    }
    for (size_t i = 0; i < count; i++) {
        out.to[next[list[i].from]++] = list[i].to;
    }
    size_t kept = 0;
    for (size_t p = 0, i = 0; p < from_count; p++) {
        size_t end = out.first[p + 1];
        out.first[p] = kept;
        for (; i < end; i++) {
            int32_t to = out.to[i];
            if (seen_for[to] != p + 1) {
                seen_for[to] = p + 1;
                out.to[kept++] = to;
            }
        }
    }
    out.first[from_count] = kept;
    return out;
}

// From the packs of a side to those that hold, of the same sample, the slice just before (forward)
// or just behind (backward). `list` is scratch.
static edges find_neighbours(sp_arena *work, const sp_i_side *side, bool behind, edge *list)
{
    size_t count = 0;
    for (size_t k = 1; k < side->list->slice_count; k++) {
        sp_i_placed a = side->placed[k - 1];
        sp_i_placed b = side->placed[k];
        if (a.slice->sample == b.slice->sample && a.pack != b.pack) {
            list[count++] = behind ? (edge){a.pack, b.pack} : (edge){b.pack, a.pack};
        }
    }
    return group_edges(work, list, count, side->list->count, side->list->count);
}

static void build_edges(checker *c)
{
    const sp_i_side *forward = &c->check->forward;
    const sp_i_side *backward = &c->check->backward;
    // Without slices only equal packs can be paired.
    bool equal = c->check->shared;
    size_t slices = forward->list->slice_count;
    size_t pairs = equal ? forward->list->count : slices;
    edge *list = sp_arena_take(&c->work, slices > pairs ? slices : pairs, sizeof *list);
    for (size_t k = 0; k < pairs; k++) {
        list[k] = equal ? (edge){(int32_t)k, (int32_t)k}
                        : (edge){backward->placed[k].pack, forward->placed[k].pack};
    }
    c->forwards = group_edges(&c->work, list, pairs, backward->list->count, forward->list->count);
    c->earlier = find_neighbours(&c->work, forward, false, list);
    c->later = find_neighbours(&c->work, backward, true, list);
}

static size_t *count_own(checker *c, const sp_pack_list *list)
{
    size_t dp = (size_t)c->check->plan->layout.dp;
    size_t *count = sp_arena_take(&c->work, dp + 1, sizeof *count);
    // Where packs begin and end on the line of ranks; unsigned sums may pass through "negative".
    for (size_t p = 0; p < list->count; p++) {
        count[list->packs[p].dp_first]++;
        count[list->packs[p].dp_first + list->packs[p].dp_count]--;
    }
    for (size_t d = 1; d < dp; d++) {
        count[d] += count[d - 1];
    }
    return count;
}

static const sp_stage_plan *current_stage(const checker *c)
{
    return sp_plan_stage(c->check->plan, c->dp_rank, c->pp_rank);
}

// Memory for packs times chunks is asked for only when the actions of each rank are about as many:
// a small file cannot ask for much of it.
static bool enough_actions(checker *c)
{
    const sp_layout *layout = &c->check->plan->layout;
    for (c->dp_rank = 0; c->dp_rank < layout->dp; c->dp_rank++) {
        for (c->pp_rank = 0; c->pp_rank < layout->pp; c->pp_rank++) {
            size_t packs = c->own_f[c->dp_rank] + c->own_b[c->dp_rank];
            size_t count = current_stage(c)->count;
            if (packs > (4 * count + FREE_SLOTS) / (size_t)c->chunks) {
                sp_i_plan_report(c->check, NULL,
                                 "stage dp %d pp %d: %zu actions, but %zu forward and %zu "
                                 "backward packs with %d chunks need more",
                                 c->dp_rank, c->pp_rank, count, c->own_f[c->dp_rank],
                                 c->own_b[c->dp_rank], c->chunks);
                return false;
            }
        }
    }
    return true;
}

static progress *slot_of(checker *c, progress *slots, int32_t pack, unsigned chunk)
{
    progress *found = &slots[(size_t)pack * (size_t)c->chunks + chunk];
    if (found->stage != c->stage) {
        *found = (progress){.stage = c->stage};
    }
    return found;
}

static const sp_pack_list *list_of(const checker *c, sp_action action)
{
    return sp_action_is_backward(action) ? c->check->backward.list : c->check->forward.list;
}

static bool runs_here(const checker *c, const sp_pack_list *list, int32_t pack)
{
    const sp_pack *p = &list->packs[pack];
    return p->dp_first <= c->dp_rank && c->dp_rank - p->dp_first < p->dp_count;
}

static bool saw(const progress *slot, sp_action_kind kind)
{
    return (slot->seen & (1u << kind)) != 0;
}

static void report(checker *c, sp_action action, const char *text)
{
    char name[NAME];
    sp_action_name(action, c->chunks, name);
    sp_i_plan_report(c->check, NULL, "stage dp %d pp %d: %s %s", c->dp_rank, c->pp_rank, name,
                     text);
}

// "F3 comes before F1, which ..." with F1 the action of `kind` on `pack`.
static void report_before(checker *c, sp_action action, sp_action_kind kind, int32_t pack,
                          const char *why)
{
    char name[NAME];
    char text[160];
    sp_action_name((sp_action){.kind = (uint8_t)kind, .chunk = action.chunk, .pack = pack},
                   c->chunks, name);
    snprintf(text, sizeof text, "comes before %s%s", name, why);
    report(c, action, text);
}

static bool known_action(checker *c, sp_action action)
{
    if (action.kind >= SP_ACTION_KINDS) {
        sp_i_plan_report(c->check, NULL, "stage dp %d pp %d: unknown action kind %d", c->dp_rank,
                         c->pp_rank, (int)action.kind);
        return false;
    }
    const sp_pack_list *list = list_of(c, action);
    char text[160];
    if (action.pack < 0 || (size_t)action.pack >= list->count) {
        snprintf(text, sizeof text, "names an unknown pack, there are %zu %s packs", list->count,
                 sp_action_is_backward(action) ? "backward" : "forward");
        report(c, action, text);
    } else if (action.chunk >= c->chunks) {
        snprintf(text, sizeof text, "names unknown chunk %d, a rank has %d", (int)action.chunk,
                 c->chunks);
        report(c, action, text);
    } else if (!runs_here(c, list, action.pack)) {
        const sp_pack *pack = &list->packs[action.pack];
        snprintf(text, sizeof text, "is of a pack that runs on data-parallel ranks %d..%d",
                 (int)pack->dp_first, (int)(pack->dp_first + pack->dp_count - 1));
        report(c, action, text);
    } else {
        return true;
    }
    return false;
}

static void check_forward(checker *c, sp_action action)
{
    for (size_t i = c->earlier.first[action.pack]; i < c->earlier.first[action.pack + 1]; i++) {
        int32_t pack = c->earlier.to[i];
        if (runs_here(c, c->check->forward.list, pack) &&
            !saw(slot_of(c, c->f_slots, pack, action.chunk), SP_ACTION_F)) {
            report_before(c, action, SP_ACTION_F, pack,
                          ", which holds an earlier slice of a sample of it");
            return;
        }
    }
}

// R, O and L of a forward pack.
static void check_extra(checker *c, sp_action action, const progress *slot)
{
    if (!saw(slot, SP_ACTION_F)) {
        report_before(c, action, SP_ACTION_F, action.pack, "");
    } else if (action.kind == SP_ACTION_L && !saw(slot, SP_ACTION_O)) {
        report_before(c, action, SP_ACTION_O, action.pack, "");
    } else if ((slot->seen & IN_BACKWARD) != 0) {
        report(c, action, "comes after a backward of its slices");
    }
}

// The slice that pack `f` has forward and pack `b` backward.
static void report_forward_missing(checker *c, sp_action action, sp_action_kind kind, int32_t pack)
{
    const sp_i_plan_check *check = c->check;
    char why[96] = "";
    for (size_t k = 0; !check->shared && k < check->forward.list->slice_count; k++) {
        const sp_slice *slice = check->forward.placed[k].slice;
        if (check->forward.placed[k].pack == pack &&
            check->backward.placed[k].pack == action.pack) {
            snprintf(why, sizeof why, " (both hold sample %d, tokens %lld..%lld)",
                     (int)slice->sample, (long long)slice->begin,
                     (long long)(slice->begin + slice->tokens - 1));
            break;
        }
    }
    report_before(c, action, kind, pack, why);
}

// B or I.
static void check_backward(checker *c, sp_action action, const progress *own)
{
    bool bad = false;
    if ((own->seen & (1u << SP_ACTION_B | 1u << SP_ACTION_I)) != 0) {
        report(c, action, "repeats a backward: a pack has either one B, or one I and one W");
        bad = true;
    }
    for (size_t i = c->forwards.first[action.pack]; i < c->forwards.first[action.pack + 1]; i++) {
        progress *forward = slot_of(c, c->f_slots, c->forwards.to[i], action.chunk);
        if (!bad && !saw(forward, SP_ACTION_F)) {
            report_forward_missing(c, action, SP_ACTION_F, c->forwards.to[i]);
            bad = true;
        } else if (!bad && saw(forward, SP_ACTION_O) && !saw(forward, SP_ACTION_L)) {
            report_forward_missing(c, action, SP_ACTION_L, c->forwards.to[i]);
            bad = true;
        }
        forward->seen |= IN_BACKWARD;
    }
    for (size_t i = c->later.first[action.pack]; i < c->later.first[action.pack + 1] && !bad; i++) {
        int32_t pack = c->later.to[i];
        const progress *other = runs_here(c, c->check->backward.list, pack)
                                    ? slot_of(c, c->b_slots, pack, action.chunk)
                                    : NULL;
        if (other != NULL && !saw(other, SP_ACTION_B) && !saw(other, SP_ACTION_I)) {
            report_before(c, action, (sp_action_kind)action.kind, pack,
                          ", which holds a later slice of a sample of it");
            bad = true;
        }
    }
}

static void check_action(checker *c, sp_action action)
{
    if (!known_action(c, action)) {
        return;
    }
    progress *own = slot_of(c, sp_action_is_backward(action) ? c->b_slots : c->f_slots, action.pack,
                            action.chunk);
    if (saw(own, (sp_action_kind)action.kind)) {
        report(c, action, "stands twice");
        return;
    }
    switch ((sp_action_kind)action.kind) {
    case SP_ACTION_F:
        check_forward(c, action);
        break;
    case SP_ACTION_R:
    case SP_ACTION_O:
    case SP_ACTION_L:
        check_extra(c, action, own);
        break;
    case SP_ACTION_B:
    case SP_ACTION_I:
        check_backward(c, action, own);
        break;
    case SP_ACTION_W:
        if (saw(own, SP_ACTION_B)) {
            report(c, action, "repeats a backward: a pack has either one B, or one I and one W");
        } else if (!saw(own, SP_ACTION_I)) {
            report_before(c, action, SP_ACTION_I, action.pack, "");
        }
        break;
    case SP_ACTION_KINDS:
        break;
    }
    own->seen |= 1u << action.kind;
}

// Names the first action of the rank that `list` asks for and the stage lacks.
static void check_complete(checker *c, const sp_pack_list *list, progress *slots, bool backward)
{
    for (size_t p = 0; p < list->count; p++) {
        for (int chunk = 0; chunk < c->chunks && runs_here(c, list, (int32_t)p); chunk++) {
            const progress *own = slot_of(c, slots, (int32_t)p, (unsigned)chunk);
            sp_action action = {.chunk = (uint16_t)chunk, .pack = (int32_t)p};
            if (!backward && !saw(own, SP_ACTION_F)) {
                action.kind = SP_ACTION_F;
            } else if (backward && saw(own, SP_ACTION_I) && !saw(own, SP_ACTION_W)) {
                action.kind = SP_ACTION_W;
            } else if (backward && !saw(own, SP_ACTION_B) && !saw(own, SP_ACTION_I)) {
                action.kind = SP_ACTION_B;
            } else {
                continue;
            }
            report(c, action, "is missing");
            return;
        }
    }
}

// A forward and a full backward of the rank alone can run side by side.
static void check_pair(checker *c, const sp_stage_plan *stage, size_t i)
{
    sp_action action = stage->actions[i];
    if (!action.with_next) {
        return;
    }
    sp_action next = i + 1 < stage->count ? stage->actions[i + 1] : action;
    bool kinds = (action.kind == SP_ACTION_F && next.kind == SP_ACTION_B) ||
                 (action.kind == SP_ACTION_B && next.kind == SP_ACTION_F);
    if (!kinds || next.with_next) {
        report(c, action, "cannot run beside the next action: a pair is one F and one B");
        return;
    }
    bool forward = action.kind == SP_ACTION_F;
    const sp_pack_list *own = forward ? c->check->forward.list : c->check->backward.list;
    const sp_pack_list *other = forward ? c->check->backward.list : c->check->forward.list;
    if (own->packs[action.pack].dp_count > 1 || other->packs[next.pack].dp_count > 1) {
        report(c, action, "cannot run beside the next action: a pack of the two is merged");
    }
}

static void check_stage(checker *c)
{
    const sp_stage_plan *stage = current_stage(c);
    int errors = c->check->errors;
    size_t forwards = 0;
    size_t full = 0;
    size_t inputs = 0;
    size_t weights = 0;
    for (size_t i = 0; i < stage->count && !sp_i_plan_check_full(c->check); i++) {
        sp_action action = stage->actions[i];
        check_action(c, action);
        forwards += action.kind == SP_ACTION_F;
        full += action.kind == SP_ACTION_B;
        inputs += action.kind == SP_ACTION_I;
        weights += action.kind == SP_ACTION_W;
    }
    for (size_t i = 0; c->check->errors == errors && i < stage->count; i++) {
        check_pair(c, stage, i);
    }
    // With all actions legal, hence none repeated, the numbers tell whether one is missing.
    size_t chunks = (size_t)c->chunks;
    size_t backwards = c->own_b[c->dp_rank] * chunks;
    if (c->check->errors > errors || forwards != c->own_f[c->dp_rank] * chunks) {
        check_complete(c, c->check->forward.list, c->f_slots, false);
    }
    if (c->check->errors > errors || full + inputs != backwards || full + weights != backwards) {
        check_complete(c, c->check->backward.list, c->b_slots, true);
    }
}
