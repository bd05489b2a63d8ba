#include "sim/schedule/schedule.h"

#include <string.h>

#include "sim/base/alloc.h"
#include "sim/base/units.h"
#include "sim/plan/depends.h"
#include "sim/schedule/schedule_family.h"

const char *const sp_schedule_names[] = {
#define X(kind, name, generator, ...) name,
    SP_SCHEDULE_LIST(X)
#undef X
        NULL};

const char *const sp_slice_rule_names[] = {"tokens", "flops", "shortest", NULL};

static const struct {
    sp_i_schedule_family generate;
    sp_schedule_traits traits;
} families[SP_SCHEDULE_KINDS] = {
#define X(kind, name, generator, ...) {sp_i_schedule_##generator, {__VA_ARGS__}},
    SP_SCHEDULE_LIST(X)
#undef X
};

// Packs of every data-parallel rank: list[first[d] .. first[d+1]) ascending.
typedef struct local_lists {
    int32_t *list;
    size_t *first;
} local_lists;

// A plan of this size takes some 4 GB and 10 s.
#define MOST_ACTIONS ((int64_t)1 << 25)

sp_schedule_traits sp_schedule_traits_of(sp_schedule_kind kind)
{
    return families[kind].traits;
}

sp_placement sp_schedule_placement(sp_schedule_kind kind, int chunks)
{
    const sp_schedule_traits *traits = &families[kind].traits;
    return traits->v_of_two && chunks == 2 ? SP_PLACE_V : traits->placement;
}

// Where the micro-batches of a rank begin in its packs: a run of packs of one micro-batch.
static int find_microbatches(const sp_pack_list *packs, const int32_t *local, int count, int *first)
{
    int microbatches = 0;
    for (int k = 0; k < count; k++) {
        if (k == 0 || packs->packs[local[k]].microbatch != packs->packs[local[k - 1]].microbatch) {
            first[microbatches++] = k;
        }
    }
    first[microbatches] = count;
    return microbatches;
}

static bool same_microbatches(const sp_i_schedule_job *a, const sp_i_schedule_job *b)
{
    return a->microbatches == b->microbatches &&
           memcmp(a->first, b->first, ((size_t)a->microbatches + 1) * sizeof *a->first) == 0;
}

static local_lists collect(sp_arena *work, const sp_pack_list *packs, size_t dp)
{
    size_t total = 0;
    for (size_t k = 0; k < packs->count; k++) {
        total += (size_t)packs->packs[k].dp_count;
    }
    local_lists lists = {.list = sp_arena_take(work, total, sizeof *lists.list),
                         .first = sp_arena_take(work, dp + 2, sizeof *lists.first)};
    // Counting sort by rank; first[d + 1] runs ahead as the write position of rank d.
    for (size_t k = 0; k < packs->count; k++) {
        const sp_pack *pack = &packs->packs[k];
        for (int d = pack->dp_first; d < pack->dp_first + pack->dp_count; d++) {
            lists.first[d + 2]++;
        }
    }
    for (size_t d = 2; d < dp + 2; d++) {
        lists.first[d] += lists.first[d - 1];
    }
    for (size_t k = 0; k < packs->count; k++) {
        const sp_pack *pack = &packs->packs[k];
        for (int d = pack->dp_first; d < pack->dp_first + pack->dp_count; d++) {
            lists.list[lists.first[d + 1]++] = (int32_t)k;
        }
    }
    return lists;
}

static sp_status check_fit(const sp_schedule_spec *spec, const char *source, const sp_plan *plan,
                           sp_error *err)
{
    const char *name = sp_schedule_names[spec->kind];
    const sp_layout *layout = &plan->layout;
    sp_schedule_traits traits = families[spec->kind].traits;
    if (traits.chunks != 0 && layout->chunks != traits.chunks) {
        return sp_error_in(err, SP_ERR_CONTENT, source, "schedule.kind",
                           "\"%s\" runs %d chunk%s per rank, parallel.chunks_per_rank is %d", name,
                           traits.chunks, sp_plural((int64_t)traits.chunks), layout->chunks);
    }
    sp_placement placement = sp_schedule_placement(spec->kind, layout->chunks);
    if (layout->placement != placement) {
        return sp_error_in(err, SP_ERR_CONTENT, source, "schedule.kind",
                           "\"%s\" needs %s placement of the chunks", name,
                           placement == SP_PLACE_V ? "V" : "linear");
    }
    if (!traits.sliced && plan->packing->backward.count > 0) {
        return sp_error_in(err, SP_ERR_CONTENT, source, "schedule.kind",
                           "\"%s\" runs whole micro-batches, the same packs forward and backward",
                           name);
    }
    return SP_OK;
}

// With the packs of a side that stand where theirs do. The pointers stay in registers: a store of
// an action may change whatever lies in memory.
static void copy_actions(const sp_action *from, size_t count, const int32_t *const own[2],
                         int32_t *const place[2], sp_action *to)
{
    const int32_t *const forward = own[0];
    const int32_t *const backward = own[1];
    const int32_t *const forward_place = place[0];
    const int32_t *const backward_place = place[1];
    for (size_t a = 0; a < count; a++) {
        sp_action action = from[a];
        action.pack = sp_action_is_backward(action) ? backward[backward_place[action.pack]]
                                                    : forward[forward_place[action.pack]];
        to[a] = action;
    }
}

// Ranks with as many micro-batches as an earlier one have its actions over their own packs. place:
// of the earlier one's packs on each side, where they stand among them.
static void copy_rank(sp_i_schedule_job *job, const sp_i_schedule_job *earlier,
                      int32_t *const place[2])
{
    const int32_t *const own[2] = {job->forward, job->backward};
    for (int r = 0; r < job->pp; r++) {
        const sp_stage_plan *from = sp_plan_stage(job->plan, earlier->dp_rank, r);
        sp_stage_plan *to = sp_plan_stage(job->plan, job->dp_rank, r);
        SP_RESERVE(to->actions, to->capacity, from->count);
        to->count = from->count;
        copy_actions(from->actions, from->count, own, place, to->actions);
    }
}

static sp_status finish(sp_i_schedule_job *job)
{
    sp_arena_free(&job->work);
    return job->status;
}

static sp_status generate_ranks(const sp_i_schedule_job *all)
{
    const sp_plan *plan = all->plan;
    size_t dp = (size_t)plan->layout.dp;
    sp_arena work = {0};
    local_lists forward = collect(&work, &plan->packing->forward, dp);
    local_lists backward = collect(&work, sp_packing_backward(plan->packing), dp);
    int *first = sp_arena_take(&work, forward.first[dp] + dp, sizeof *first);
    int32_t *place[2] = {
        sp_arena_take(&work, plan->packing->forward.count, sizeof *place[0]),
        sp_arena_take(&work, sp_packing_backward(plan->packing)->count, sizeof *place[1])};
    int *counts = sp_arena_take(&work, dp, sizeof *counts);
    for (size_t d = 0; d < dp; d++) {
        counts[d] = find_microbatches(&plan->packing->forward, forward.list + forward.first[d],
                                      (int)(forward.first[d + 1] - forward.first[d]),
                                      first + forward.first[d] + d);
    }
    sp_status status = SP_OK;
    sp_i_schedule_job earlier = {.dp_rank = -1};
    for (size_t d = 0; status == SP_OK && d < dp; d++) {
        sp_i_schedule_job job = *all;
        int *begins = first + forward.first[d] + d;
        int count = (int)(forward.first[d + 1] - forward.first[d]);
        SP_ASSERT((size_t)count == backward.first[d + 1] - backward.first[d]);
        job.dp_rank = (int)d;
        job.forward = forward.list + forward.first[d];
        job.backward = backward.list + backward.first[d];
        job.first = begins;
        job.counts = counts;
        job.microbatches = counts[d];
        if (earlier.dp_rank >= 0 && same_microbatches(&earlier, &job)) {
            copy_rank(&job, &earlier, place);
        } else {
            families[all->spec->kind].generate(&job);
            for (int k = 0; k < count; k++) {
                place[0][job.forward[k]] = k;
                place[1][job.backward[k]] = k;
            }
            earlier = job;
        }
        status = finish(&job);
    }
    sp_arena_free(&work);
    return status;
}

static bool is_merged(const sp_packing *packing, sp_action action)
{
    const sp_pack_list *list =
        sp_action_is_backward(action) ? sp_packing_backward(packing) : &packing->forward;
    return list->packs[action.pack].dp_count > 1;
}

// Ranks that share a pack wait for each other at each of its actions: of a pair with such a pack
// one action follows the other. Ranks with as many micro-batches may share others of them.
static void part_merged_pairs(sp_plan *plan)
{
    for (int i = 0; i < plan->layout.dp * plan->layout.pp; i++) {
        sp_stage_plan *stage = &plan->stages[i];
        for (size_t a = 0; a + 1 < stage->count; a++) {
            sp_action *pair = &stage->actions[a];
            if (pair[0].with_next &&
                (is_merged(plan->packing, pair[0]) || is_merged(plan->packing, pair[1]))) {
                pair[0].with_next = 0;
            }
        }
    }
}

// Every pack has a forward and a backward on every virtual stage of each of its ranks.
sp_status sp_schedule_check_size(const sp_layout *layout, const sp_packing *packing, sp_error *err)
{
    int64_t visits = 0;
    for (size_t k = 0; k < packing->forward.count; k++) {
        visits += packing->forward.packs[k].dp_count;
    }
    int64_t most = MOST_ACTIONS / 2 / sp_layout_vstages(layout);
    if (visits <= most) {
        return SP_OK;
    }
    return sp_error_set(err, SP_ERR_LIMIT,
                        "%lld packs on %d virtual stages make more than the %lld actions that a "
                        "plan can have; use fewer samples a batch, or longer packs",
                        (long long)visits, sp_layout_vstages(layout), (long long)MOST_ACTIONS);
}

sp_status sp_schedule_generate(const sp_schedule_spec *spec, const sp_schedule_costs *costs,
                               const char *source, sp_plan *plan, sp_error *err)
{
    SP_ASSERT(costs != NULL || !families[spec->kind].traits.timed);
    SP_ASSERT(!families[spec->kind].traits.by_pack || costs->pack_f_ns != NULL);
    SP_TRY(sp_schedule_check_size(&plan->layout, plan->packing, err));
    SP_TRY(check_fit(spec, source, plan, err));
    sp_i_schedule_job all = {.spec = spec,
                             .costs = costs,
                             .source = source,
                             .plan = plan,
                             .dp_rank = -1,
                             .pp = plan->layout.pp,
                             .err = err};
    if (families[spec->kind].traits.by_pack) {
        families[spec->kind].generate(&all);
        return finish(&all);
    }
    SP_TRY(generate_ranks(&all));
    part_merged_pairs(plan);
    return SP_OK;
}

// ---- Offloading ----

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
