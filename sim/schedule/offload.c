#include "sim/schedule/offload.h"

#include "sim/base/alloc.h"
#include "sim/plan/regroup.h"

// What one rank does with a forward pack on one chunk, by positions in its list.
typedef struct use {
    size_t forward, reader; // reader: NEVER before one is found
    size_t load;            // its L stands before the action here
    bool again;             // R runs its forward again
    bool loaded;            // its L is in the new list
} use;

#define NEVER SIZE_MAX

typedef struct offloading {
    const sp_plan *plan;
    const sp_pack_list *backward;
    int32_t *forward_pack; // of each backward slice; NULL where backward packs are the forward
    use *uses;             // [forward packs * chunks], of the rank at hand
} offloading;

// The forward packs that an action reads: a range of forward_pack, or the action's own pack.
typedef struct reads {
    size_t first, count;
} reads;

static bool has_copies(const sp_plan *plan);
static void find_uses(const offloading *o, const sp_stage_plan *stage);
static bool rewrite(const offloading *o, sp_stage_plan *stage);

sp_status sp_schedule_add_offload(sp_plan *plan, sp_error *err)
{
    if (has_copies(plan)) {
        return SP_OK;
    }
    offloading o = {.plan = plan, .backward = sp_packing_backward(plan->packing)};
    size_t uses = plan->packing->forward.count * (size_t)plan->layout.chunks;
    size_t stages = (size_t)plan->layout.dp * (size_t)plan->layout.pp;
    sp_status status = sp_regroup(plan->packing, &o.forward_pack, err);
    if (status == SP_OK) {
        o.uses = sp_i_calloc(uses, sizeof *o.uses);
        status = o.uses != NULL ? SP_OK : sp_error_no_memory(err, "offloading");
    }
    for (size_t s = 0; status == SP_OK && s < stages; s++) {
        find_uses(&o, &plan->stages[s]);
        status = rewrite(&o, &plan->stages[s]) ? SP_OK : sp_error_no_memory(err, "offloading");
    }
    sp_i_free(o.uses);
    sp_i_free(o.forward_pack);
    return status;
}

static bool has_copies(const sp_plan *plan)
{
    size_t stages = (size_t)plan->layout.dp * (size_t)plan->layout.pp;
    for (size_t s = 0; s < stages; s++) {
        for (size_t a = 0; a < plan->stages[s].count; a++) {
            sp_action action = plan->stages[s].actions[a];
            if (action.kind == SP_ACTION_O || action.kind == SP_ACTION_L) {
                return true;
            }
        }
    }
    return false;
}

static use *use_of(const offloading *o, int32_t pack, unsigned chunk)
{
    return &o->uses[(size_t)pack * (size_t)o->plan->layout.chunks + chunk];
}

static reads reads_of(const offloading *o, sp_action action)
{
    bool backward = action.kind == SP_ACTION_B || action.kind == SP_ACTION_I;
    if (!backward && action.kind != SP_ACTION_R) {
        return (reads){0};
    }
    if (!backward || o->forward_pack == NULL) {
        return (reads){.count = 1};
    }
    const sp_pack *pack = &o->backward->packs[action.pack];
    return (reads){.first = pack->first_slice, .count = pack->slice_count};
}

static int32_t read_pack(const offloading *o, sp_action action, size_t index)
{
    bool regrouped = o->forward_pack != NULL && action.kind != SP_ACTION_R;
    return regrouped ? o->forward_pack[index] : action.pack;
}

// A copy back starts with the action that reads before its own reader does; where that one is too
// early for it, or the reader is the first, one action before the reader.
static size_t load_position(const use *u, size_t earlier_reader)
{
    bool between = earlier_reader != NEVER && earlier_reader > u->forward + 1;
    return between ? earlier_reader : u->reader - 1;
}

static void find_uses(const offloading *o, const sp_stage_plan *stage)
{
    size_t earlier_reader = NEVER;
    for (size_t a = 0; a < stage->count; a++) {
        sp_action action = stage->actions[a];
        if (action.kind == SP_ACTION_F) {
            *use_of(o, action.pack, action.chunk) = (use){.forward = a, .reader = NEVER};
            continue;
        }
        reads range = reads_of(o, action);
        for (size_t i = range.first; i < range.first + range.count; i++) {
            use *found = use_of(o, read_pack(o, action, i), action.chunk);
            if (found->reader == NEVER) {
                found->reader = a;
                found->load = load_position(found, earlier_reader);
            }
            found->again = found->again || (action.kind == SP_ACTION_R && o->forward_pack != NULL);
        }
        earlier_reader = range.count > 0 ? a : earlier_reader;
    }
}

static bool leaves(const use *u)
{
    return u->reader != NEVER && u->reader > u->forward + 1 && !u->again;
}

// The copies back that start with the action at `position`, of those that the action at `reader` is
// the first to need, in the order in which it reads.
static bool add_loads(const offloading *o, sp_action action, size_t position, size_t reader,
                      sp_stage_plan *to)
{
    reads range = reads_of(o, action);
    bool ok = true;
    for (size_t i = range.first; ok && i < range.first + range.count; i++) {
        int32_t pack = read_pack(o, action, i);
        use *found = use_of(o, pack, action.chunk);
        if (found->reader == reader && found->load == position && leaves(found) && !found->loaded) {
            found->loaded = true;
            ok = sp_stage_plan_add(to, SP_ACTION_L, action.chunk, pack);
        }
    }
    return ok;
}

// The next reader behind the action at `position`, as far as its copies back can start there.
static size_t reader_behind(const offloading *o, const sp_stage_plan *stage, size_t position)
{
    bool reads_itself = reads_of(o, stage->actions[position]).count > 0;
    size_t a = position + 1;
    while (reads_itself && a < stage->count && reads_of(o, stage->actions[a]).count == 0) {
        a++;
    }
    return a;
}

static bool rewrite(const offloading *o, sp_stage_plan *stage)
{
    sp_stage_plan to = {0};
    bool ok = true;
    for (size_t a = 0; ok && a < stage->count; a++) {
        sp_action action = stage->actions[a];
        size_t reader = reader_behind(o, stage, a);
        if (reader < stage->count) {
            ok = add_loads(o, stage->actions[reader], a, reader, &to);
        }
        ok = ok && sp_stage_plan_add(&to, (sp_action_kind)action.kind, action.chunk, action.pack);
        if (ok && action.kind == SP_ACTION_F && leaves(use_of(o, action.pack, action.chunk))) {
            ok = sp_stage_plan_add(&to, SP_ACTION_O, action.chunk, action.pack);
        }
    }
    if (!ok) {
        sp_i_free(to.actions);
        return false;
    }
    sp_i_free(stage->actions);
    *stage = to;
    return true;
}
