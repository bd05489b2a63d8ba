#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>

#include "sim/base/alloc.h"
#include "sim/base/order.h"
#include "sim/plan/plan.h"

// A slice with the pack that holds it.
typedef struct placed_slice {
    const sp_slice *slice;
    int32_t pack;
} placed_slice;

// The forward or the backward packs, and their slices ordered by sample and begin: those of sample
// s are placed[first[s] .. first[s + 1]).
typedef struct check_side {
    const sp_pack_list *list;
    const char *name; // key in plan.json
    size_t *first;
    placed_slice *placed;
} check_side;

// Where the backward packs are the forward packs the two sides share their arrays.
typedef struct plan_check {
    const sp_plan *plan;
    const char *source, *path;
    sp_error *err;
    int errors;
    size_t samples;
    check_side forward, backward;
    bool shared;
    sp_arena work;
} plan_check;

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

// The progress of the current stage for one pack and chunk; `stage` tells entries of earlier
// stages.
typedef struct progress {
    uint32_t stage;
    uint32_t seen; // bits 1 << sp_action_kind
} progress;

typedef struct checker {
    plan_check *check;
    int chunks;
    edges forwards;        // of a backward pack: the forward packs of its slices
    edges earlier, later;  // forward pack to packs with slices just before, backward to just after
    size_t *own_f, *own_b; // packs of each data-parallel rank
    progress *f_slots, *b_slots; // [pack * chunks + chunk]
    int dp_rank, pp_rank;
    uint32_t stage;
    sp_arena work;
} checker;

enum { WHERE = 192, TEXT = 400 }; // bytes of a path and of the text of a finding

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
static edges find_neighbours(sp_arena *work, const check_side *side, bool behind, edge *list)
{
    size_t count = 0;
    for (size_t k = 1; k < side->list->slice_count; k++) {
        placed_slice a = side->placed[k - 1];
        placed_slice b = side->placed[k];
        if (a.slice->sample == b.slice->sample && a.pack != b.pack) {
            list[count++] = behind ? (edge){a.pack, b.pack} : (edge){b.pack, a.pack};
        }
    }
    return group_edges(work, list, count, side->list->count, side->list->count);
}

static void build_edges(checker *c)
{
    const check_side *forward = &c->check->forward;
    const check_side *backward = &c->check->backward;
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

// Notes a broken rule at `where` (a path below check->path, or NULL).
static void note_broken(plan_check *check, const char *where, const char *format, ...)
{
    char path[WHERE];
    char text[TEXT];
    bool both = check->path[0] != '\0' && where != NULL;
    snprintf(path, sizeof path, "%s%s%s", check->path, both ? "." : "", where == NULL ? "" : where);
    va_list args;
    va_start(args, format);
    vsnprintf(text, sizeof text, format, args);
    va_end(args);
    check->errors++;
    sp_error_in(check->err, SP_ERR_CONTENT, check->source, path, "%s", text);
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
                note_broken(c->check, NULL,
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

static bool saw(const progress *slot, sp_action_kind kind)
{
    return (slot->seen & (1u << kind)) != 0;
}

static void report(checker *c, sp_action action, const char *text)
{
    char name[NAME];
    sp_action_name(action, c->chunks, name);
    note_broken(c->check, NULL, "stage dp %d pp %d: %s %s", c->dp_rank, c->pp_rank, name, text);
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

static const sp_pack_list *list_of(const checker *c, sp_action action)
{
    return sp_action_is_backward(action) ? c->check->backward.list : c->check->forward.list;
}

static bool runs_here(const checker *c, const sp_pack_list *list, int32_t pack)
{
    const sp_pack *p = &list->packs[pack];
    return p->dp_first <= c->dp_rank && c->dp_rank - p->dp_first < p->dp_count;
}

static bool known_action(checker *c, sp_action action)
{
    if (action.kind >= SP_ACTION_KINDS) {
        note_broken(c->check, NULL, "stage dp %d pp %d: unknown action kind %d", c->dp_rank,
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
    const plan_check *check = c->check;
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

// As many findings as an error record holds: further ones are not looked for.
static bool is_full(const plan_check *check)
{
    return check->errors >= SP_ERROR_MESSAGES;
}

static void check_stage(checker *c)
{
    const sp_stage_plan *stage = current_stage(c);
    int errors = c->check->errors;
    size_t forwards = 0;
    size_t full = 0;
    size_t inputs = 0;
    size_t weights = 0;
    for (size_t i = 0; i < stage->count && !is_full(c->check); i++) {
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

// Checks the action lists; the slices have been found in order. Time and memory
// O(slices + actions).
static void check_actions(plan_check *check)
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
            for (c.pp_rank = 0; c.pp_rank < layout->pp && !is_full(check); c.pp_rank++) {
                c.stage++;
                check_stage(&c);
            }
        }
    }
    sp_arena_free(&c.work);
}

sp_status sp_plan_check(const sp_plan *plan, const char *source, sp_error *err)
{
    return sp_i_plan_check_at(plan, source, "", err);
}

static bool is_zone_of(const sp_pack *pack, int32_t zone)
{
    return zone > 0 && sp_zone_first(zone) >= pack->dp_first &&
           sp_zone_first(zone) + sp_zone_ranks(zone) <= pack->dp_first + pack->dp_count;
}

static void check_slice(plan_check *check, const check_side *side, size_t pack, size_t number)
{
    const sp_slice *slice = &side->list->slices[side->list->packs[pack].first_slice + number];
    char where[WHERE];
    snprintf(where, sizeof where, "%s[%zu]", side->name, pack);
    if (slice->sample < 0 || (size_t)slice->sample >= check->samples) {
        note_broken(check, where, "slice %zu is of sample %d, but there are %zu samples", number,
                    (int)slice->sample, check->samples);
        return;
    }
    int64_t tokens = check->plan->packing->batch->tokens[slice->sample];
    if (slice->begin < 0 || slice->tokens < 1 || slice->begin > tokens - slice->tokens) {
        note_broken(check, where,
                    "slice %zu (sample %d) has %lld tokens from %lld on, but the sample has "
                    "%lld",
                    number, (int)slice->sample, (long long)slice->tokens, (long long)slice->begin,
                    (long long)tokens);
    } else if (slice->computed_tokens < slice->tokens) {
        note_broken(check, where, "slice %zu (sample %d) computes %lld of its %lld tokens", number,
                    (int)slice->sample, (long long)slice->computed_tokens,
                    (long long)slice->tokens);
    } else if (slice->zone != 0 && !is_zone_of(&side->list->packs[pack], slice->zone)) {
        note_broken(check, where,
                    "slice %zu (sample %d) has its attention on ranks %d..%d, which are not "
                    "all of the pack's",
                    number, (int)slice->sample, sp_zone_first(slice->zone),
                    sp_zone_first(slice->zone) + sp_zone_ranks(slice->zone) - 1);
    }
}

static void check_packs(plan_check *check, const check_side *side)
{
    int dp = check->plan->layout.dp;
    for (size_t p = 0; p < side->list->count && !is_full(check); p++) {
        const sp_pack *pack = &side->list->packs[p];
        if (pack->dp_first < 0 || pack->dp_count < 1 || pack->dp_count > dp - pack->dp_first) {
            char where[WHERE];
            snprintf(where, sizeof where, "%s[%zu].dp", side->name, p);
            note_broken(check, where, "ranks %d to %lld, but the data-parallel ranks are 0 to %d",
                        (int)pack->dp_first, (long long)pack->dp_first + pack->dp_count - 1,
                        dp - 1);
        }
        // Packs of uniform costs hold no slices; other backward packs could not be paired then.
        if (!check->shared && pack->slice_count == 0) {
            char where[WHERE];
            snprintf(where, sizeof where, "%s[%zu]", side->name, p);
            note_broken(check, where, "holds no slice");
        }
        for (size_t i = 0; i < pack->slice_count && !is_full(check); i++) {
            check_slice(check, side, p, i);
        }
    }
}

static int by_begin(const void *left, const void *right)
{
    const sp_slice *a = ((const placed_slice *)left)->slice;
    const sp_slice *b = ((const placed_slice *)right)->slice;
    return a->begin != b->begin ? SP_ORDER(a->begin, b->begin) : SP_ORDER(a, b);
}

// The slices of one sample come in pack order: ascending forward, descending backward, unless
// several share a pack.
static void order_by_begin(placed_slice *placed, size_t count)
{
    bool ascending = true;
    bool descending = true;
    for (size_t i = 1; i < count; i++) {
        ascending = ascending && placed[i - 1].slice->begin <= placed[i].slice->begin;
        descending = descending && placed[i - 1].slice->begin > placed[i].slice->begin;
    }
    if (ascending) {
        return;
    }
    if (!descending) {
        qsort(placed, count, sizeof *placed, by_begin);
        return;
    }
    for (size_t i = 0; i < count / 2; i++) {
        placed_slice swap = placed[i];
        placed[i] = placed[count - 1 - i];
        placed[count - 1 - i] = swap;
    }
}

static void place_slices(plan_check *check, check_side *side)
{
    const sp_pack_list *list = side->list;
    side->first = sp_arena_take(&check->work, check->samples + 2, sizeof *side->first);
    side->placed = sp_arena_take(&check->work, list->slice_count, sizeof *side->placed);
    // first[s + 2] counts sample s, then first[s + 1] is where its next slice goes, and in the end
    // where the next sample begins.
    size_t *next = side->first + 1;
    for (size_t i = 0; i < list->slice_count; i++) {
        next[list->slices[i].sample + 1]++;
    }
    for (size_t s = 0; s < check->samples; s++) {
        next[s + 1] += next[s];
    }
    for (size_t p = 0; p < list->count; p++) {
        size_t begin = list->packs[p].first_slice;
        for (size_t i = begin; i < begin + list->packs[p].slice_count; i++) {
            const sp_slice *slice = &list->slices[i];
            side->placed[next[slice->sample]++] =
                (placed_slice){.slice = slice, .pack = (int32_t)p};
        }
    }
    for (size_t s = 0; s < check->samples; s++) {
        order_by_begin(side->placed + side->first[s], side->first[s + 1] - side->first[s]);
    }
}

// A broken rule of a slice: "forward_packs[3]: slice 2 (sample 17, tokens 4096..8191) ...".
SP_PRINTF(4, 5)
static void report_slice(plan_check *check, const check_side *side, placed_slice placed,
                         const char *format, ...)
{
    char where[WHERE];
    char text[TEXT];
    snprintf(where, sizeof where, "%s[%d]", side->name, (int)placed.pack);
    va_list args;
    va_start(args, format);
    vsnprintf(text, sizeof text, format, args);
    va_end(args);
    const sp_slice *slice = placed.slice;
    size_t number =
        (size_t)(slice - side->list->slices) - side->list->packs[placed.pack].first_slice;
    note_broken(check, where, "slice %zu (sample %d, tokens %lld..%lld) %s", number,
                (int)slice->sample, (long long)slice->begin,
                (long long)(slice->begin + slice->tokens - 1), text);
}

static void report_gap(plan_check *check, const check_side *side, size_t sample, int64_t from,
                       int64_t to)
{
    char where[WHERE];
    snprintf(where, sizeof where, "samples[%zu]", sample);
    note_broken(check, where, "tokens %lld..%lld are in none of the %s", (long long)from,
                (long long)(to - 1), side->name);
}

// Do the slices of the sample on this side cover each of its tokens once?
static bool check_cover(plan_check *check, const check_side *side, size_t sample)
{
    int errors = check->errors;
    int64_t tokens = check->plan->packing->batch->tokens[sample];
    int64_t covered = 0;
    size_t furthest = side->first[sample];
    for (size_t k = side->first[sample]; k < side->first[sample + 1]; k++) {
        const sp_slice *slice = side->placed[k].slice;
        if (slice->begin > covered) {
            report_gap(check, side, sample, covered, slice->begin);
        } else if (slice->begin < covered) {
            const placed_slice *other = &side->placed[furthest];
            report_slice(
                check, side, side->placed[k], "overlaps tokens %lld..%lld of the sample in pack %d",
                (long long)other->slice->begin,
                (long long)(other->slice->begin + other->slice->tokens - 1), (int)other->pack);
        }
        if (slice->zone != check->forward.placed[check->forward.first[sample]].slice->zone) {
            report_slice(check, side, side->placed[k],
                         "has its attention on other ranks than the sample's first slice");
        }
        if (check->errors > errors) {
            return false;
        }
        if (slice->begin + slice->tokens > covered) {
            covered = slice->begin + slice->tokens;
            furthest = k;
        }
    }
    if (covered < tokens) {
        report_gap(check, side, sample, covered, tokens);
        return false;
    }
    return true;
}

// Forward and backward packs are two partitions of the same slices, on the same ranks.
static bool check_same_slices(plan_check *check, size_t sample)
{
    size_t begin = check->forward.first[sample];
    size_t other = check->backward.first[sample];
    for (size_t k = begin; k < check->forward.first[sample + 1]; k++, other++) {
        placed_slice forward = check->forward.placed[k];
        placed_slice backward = check->backward.placed[other];
        // Both sides cover the sample and agree so far, hence begin at the same token here.
        if (forward.slice->tokens != backward.slice->tokens ||
            forward.slice->computed_tokens != backward.slice->computed_tokens) {
            report_slice(check, &check->backward, backward,
                         "is cut or padded otherwise than in forward pack %d (tokens %lld..%lld)",
                         (int)forward.pack, (long long)forward.slice->begin,
                         (long long)(forward.slice->begin + forward.slice->tokens - 1));
            return false;
        }
        const sp_pack *f = &check->forward.list->packs[forward.pack];
        const sp_pack *b = &check->backward.list->packs[backward.pack];
        if (f->dp_first != b->dp_first || f->dp_count != b->dp_count) {
            report_slice(check, &check->backward, backward,
                         "runs on data-parallel ranks %d..%d, but forward, in pack %d, on %d..%d",
                         (int)b->dp_first, (int)(b->dp_first + b->dp_count - 1), (int)forward.pack,
                         (int)f->dp_first, (int)(f->dp_first + f->dp_count - 1));
            return false;
        }
    }
    return true;
}

// Late slices read the keys and values of earlier ones; the gradients of those come from the late
// slices first.
static void check_order(plan_check *check, size_t sample)
{
    const check_side *sides[] = {&check->forward, &check->backward};
    for (int back = 0; back < 2; back++) {
        const check_side *side = sides[back];
        for (size_t k = side->first[sample] + 1; k < side->first[sample + 1]; k++) {
            int32_t pack = side->placed[k].pack;
            int32_t earlier = side->placed[k - 1].pack;
            if (back ? pack > earlier : pack < earlier) {
                report_slice(check, side, side->placed[k],
                             "comes %s pack %d, which holds an earlier slice of the sample",
                             back ? "after" : "before", (int)earlier);
                return;
            }
        }
    }
}

// Marks the samples of dropped[] or delayed[] with `mark`.
static void mark_left_out(plan_check *check, const char *name, const int64_t *list, size_t count,
                          char mark, char *left_out)
{
    for (size_t i = 0; i < count && !is_full(check); i++) {
        char where[WHERE];
        snprintf(where, sizeof where, "%s[%zu]", name, i);
        if (list[i] < 0 || (uint64_t)list[i] >= check->samples) {
            note_broken(check, where, "sample %lld, but there are %zu samples", (long long)list[i],
                        check->samples);
        } else if (left_out[list[i]] != 0) {
            note_broken(check, where, "sample %lld stands twice in dropped and delayed",
                        (long long)list[i]);
        } else {
            left_out[list[i]] = mark;
        }
    }
}

static void check_left_out(plan_check *check, const check_side *side, size_t sample,
                           const char *what)
{
    if (side->first[sample] < side->first[sample + 1]) {
        report_slice(check, side, side->placed[side->first[sample]],
                     "belongs to a sample that is %s", what);
    }
}

static void check_samples(plan_check *check)
{
    const sp_packing *packing = check->plan->packing;
    char *left_out = sp_arena_take(&check->work, check->samples, 1);
    mark_left_out(check, "dropped", packing->dropped, packing->dropped_count, 1, left_out);
    mark_left_out(check, "delayed", packing->delayed, packing->delayed_count, 2, left_out);
    for (size_t s = 0; s < check->samples && !is_full(check); s++) {
        if (left_out[s] != 0) {
            const char *what = left_out[s] == 1 ? "dropped" : "delayed";
            check_left_out(check, &check->forward, s, what);
            check_left_out(check, &check->backward, s, what);
        } else if (check_cover(check, &check->forward, s) &&
                   (check->shared ||
                    (check_cover(check, &check->backward, s) && check_same_slices(check, s)))) {
            check_order(check, s);
        }
    }
}

sp_status sp_i_plan_check_at(const sp_plan *plan, const char *source, const char *path,
                             sp_error *err)
{
    const sp_packing *packing = plan->packing;
    plan_check check = {
        .plan = plan,
        .source = source,
        .path = path,
        .err = err,
        .samples = packing->batch == NULL ? 0 : packing->batch->count,
        .forward = {.list = &packing->forward, .name = "forward_packs"},
        .backward = {.list = sp_packing_backward(packing), .name = "backward_packs"},
    };
    check.shared = check.backward.list == check.forward.list;

    check_packs(&check, &check.forward);
    if (!check.shared) {
        check_packs(&check, &check.backward);
    }
    // The following checks index by the samples and ranks checked just now.
    if (check.errors > 0) {
        return SP_ERR_CONTENT;
    }
    place_slices(&check, &check.forward);
    if (check.shared) {
        check.backward.first = check.forward.first;
        check.backward.placed = check.forward.placed;
    } else {
        place_slices(&check, &check.backward);
    }
    check_samples(&check);
    if (check.errors == 0) {
        check_actions(&check);
    }
    sp_arena_free(&check.work);
    return check.errors > 0 ? SP_ERR_CONTENT : SP_OK;
}
