#include "sim/schedule/schedule.h"

#include "sim/base/alloc.h"
#include "sim/plan/depends.h"

// One rank's use of a forward pack on one chunk, by positions in its list.
typedef struct use {
    size_t forward, reader; // reader: NEVER before one is found
    size_t load;            // its L stands before the action here
    bool again;             // R runs its forward again
    bool loaded;            // its L is in the new list
} use;

#define NEVER SIZE_MAX

typedef struct offloading {
    sp_depends depends;
    use *uses; // [forward packs * chunks], of the rank at hand
} offloading;

static void find_uses(const offloading *o, const sp_stage_plan *stage);
static void rewrite(const offloading *o, sp_stage_plan *stage);

void sp_schedule_add_offload(sp_plan *plan)
{
    if (sp_plan_find(plan, SP_ACTION_O) != NULL || sp_plan_find(plan, SP_ACTION_L) != NULL) {
        return;
    }
    offloading o;
    size_t uses = plan->packing->forward.count * (size_t)plan->layout.chunks;
    size_t stages = (size_t)plan->layout.dp * (size_t)plan->layout.pp;
    sp_depends_init(&o.depends, plan, NULL);
    o.uses = sp_calloc(uses, sizeof *o.uses);
    for (size_t s = 0; s < stages; s++) {
        find_uses(&o, &plan->stages[s]);
        rewrite(&o, &plan->stages[s]);
    }
    sp_free(o.uses);
    sp_depends_fini(&o.depends);
}

static use *use_of(const offloading *o, int32_t pack, unsigned chunk)
{
    return &o->uses[(size_t)pack * (size_t)o->depends.plan->layout.chunks + chunk];
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
        size_t reads = sp_depends_reads(&o->depends, action);
        for (size_t i = 0; i < reads; i++) {
            use *found = use_of(o, sp_depends_read(&o->depends, action, i), action.chunk);
            if (found->reader == NEVER) {
                found->reader = a;
                found->load = load_position(found, earlier_reader);
            }
            found->again =
                found->again || (action.kind == SP_ACTION_R && o->depends.forward_pack != NULL);
        }
        earlier_reader = reads > 0 ? a : earlier_reader;
    }
}

static bool leaves(const use *u)
{
    return u->reader != NEVER && u->reader > u->forward + 1 && !u->again;
}

// The copies back that start with the action at `position`, of those that the action at `reader` is
// the first to need, in the order in which it reads.
static void add_loads(const offloading *o, sp_action action, size_t position, size_t reader,
                      sp_stage_plan *to)
{
    for (size_t i = 0; i < sp_depends_reads(&o->depends, action); i++) {
        int32_t pack = sp_depends_read(&o->depends, action, i);
        use *found = use_of(o, pack, action.chunk);
        if (found->reader == reader && found->load == position && leaves(found) && !found->loaded) {
            found->loaded = true;
            sp_stage_plan_add(to, SP_ACTION_L, action.chunk, pack);
        }
    }
}

// The next reader behind the action at `position`, as far as its copies back can start there.
static size_t reader_behind(const offloading *o, const sp_stage_plan *stage, size_t position)
{
    bool reads_itself = sp_depends_reads(&o->depends, stage->actions[position]) > 0;
    size_t a = position + 1;
    while (reads_itself && a < stage->count &&
           sp_depends_reads(&o->depends, stage->actions[a]) == 0) {
        a++;
    }
    return a;
}

static void rewrite(const offloading *o, sp_stage_plan *stage)
{
    sp_stage_plan to = {0};
    for (size_t a = 0; a < stage->count; a++) {
        sp_action action = stage->actions[a];
        size_t reader = reader_behind(o, stage, a);
        if (reader < stage->count) {
            add_loads(o, stage->actions[reader], a, reader, &to);
        }
        sp_stage_plan_add(&to, (sp_action_kind)action.kind, action.chunk, action.pack);
        if (action.kind == SP_ACTION_F && leaves(use_of(o, action.pack, action.chunk))) {
            sp_stage_plan_add(&to, SP_ACTION_O, action.chunk, action.pack);
        }
    }
    sp_free(stage->actions);
    *stage = to;
}
