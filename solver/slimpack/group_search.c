#include "sim/base/alloc.h"
#include "sim/base/parallel.h"
#include "sim/base/units.h"
#include "solver/slimpack/search_state.h"
#include "solver/step/step.h"
#include "solver/time_limit.h"

enum { VAIN = 3 }; // improvements

bool sp_i_search_is_late(const sp_i_search *s)
{
    return sp_i_is_late(s->input->scenario, s->options.deadline_s);
}

static sp_i_rank_samples samples_of(const sp_i_rank_group *group)
{
    return (sp_i_rank_samples){group->sample, group->count, group->dp_first, group->dp_count};
}

static sp_i_shape_search shapes_of(sp_i_search *s, int worker, int64_t effort)
{
    const sp_strategy_spec *spec = &s->input->scenario->strategy;
    return (sp_i_shape_search){.scorer = &s->scorers[worker],
                               .work = &s->work,
                               .batch = s->input->batch,
                               .split = s->options.split,
                               .taper = spec->taper,
                               .whole = spec->slices && !s->input->zoned,
                               .slice_tokens = spec->slices ? spec->slice_tokens : INT64_MAX / 4,
                               .retained = s->retained,
                               .effort = effort,
                               .enough_ns = s->enough_ns,
                               .seed = s->round,
                               .deadline_s = s->options.deadline_s};
}

// ---- groups that go on at the same time ----

// From the best shape so far, or from none where a group has none yet.
static sp_status search_group(void *context, int worker, int index, sp_error *err)
{
    sp_i_search *s = context;
    int group = s->order[index];
    const sp_i_rank_group *ranks = &s->ranks.groups[group];
    sp_i_rank_samples samples = samples_of(ranks);
    sp_i_shape_search shapes = shapes_of(s, worker, s->share);
    sp_i_best_shape *best = &s->best[group];
    bool warm = sp_i_taper_packs(&best->shape.forward) > 0;
    sp_status status = s->regroups
                           ? sp_i_search_regrouped(&shapes, &samples, best, err)
                           : sp_i_search_shape(&shapes, &samples, ranks->work_s, warm, best, err);
    s->used[index] = s->share - shapes.effort;
    s->spent[index] = shapes.spent;
    return status;
}

static void take_used(sp_i_search *s, int index)
{
    s->left -= s->used[index];
    sp_i_spend(s->input->scenario, s->spent[index]);
}

static sp_status search_groups(sp_i_search *s, int count, int64_t effort, int64_t enough_ns,
                               sp_error *err)
{
    s->share = count > 0 ? effort / count : 0;
    s->enough_ns = enough_ns;
    sp_status status = sp_parallel_for(s->threads, count, search_group, s, err);
    for (int i = 0; i < count; i++) {
        take_used(s, i);
    }
    return status;
}

// The group with samples that takes longest.
static int slowest_of(const sp_i_search *s)
{
    int slow = 0;
    for (int g = 1; g < s->ranks.count; g++) {
        slow = sp_packflow_is_better(&s->best[slow].out, &s->best[g].out) ? g : slow;
    }
    return slow;
}

// ---- the phases of the search ----

// The first group of each number of ranks is searched for itself. The others begin with its shape,
// and need to be no slower than it.
sp_status sp_i_search_leaders(sp_i_search *s, int64_t effort, sp_error *err)
{
    int leaders = 0;
    int leader = -1;
    for (int g = 0; g < s->ranks.count; g++) {
        const sp_i_rank_group *group = &s->ranks.groups[g];
        s->best[g] = (sp_i_best_shape){0};
        if (group->count > 0 &&
            (leader < 0 || group->dp_count != s->ranks.groups[leader].dp_count)) {
            leader = g;
            s->order[leaders++] = g;
        }
    }
    return search_groups(s, leaders, effort, 0, err);
}

static sp_status search_followers(sp_i_search *s, sp_error *err)
{
    int followers = 0;
    int leader = -1;
    int64_t slowest_ns = s->ranks.count > 0 ? s->best[slowest_of(s)].out.makespan_ns : 0;
    for (int g = 0; g < s->ranks.count; g++) {
        if (s->ranks.groups[g].count == 0) {
            continue;
        }
        if (leader < 0 || s->ranks.groups[g].dp_count != s->ranks.groups[leader].dp_count) {
            leader = g;
        } else {
            s->best[g] = s->best[leader];
            s->order[followers++] = g;
        }
    }
    // Without time their packs stay as they are: to time them would change nothing.
    return sp_i_search_is_late(s)
               ? SP_OK
               : search_groups(s, followers, s->options.effort / 4, slowest_ns, err);
}

// Two groups after samples went from one to the other.
typedef struct moved {
    sp_i_search *s;
    sp_i_rank_split *split;
    int group[2];
    sp_i_best_shape best[2];
} moved;

static sp_status search_moved(void *context, int worker, int which, sp_error *err)
{
    moved *m = context;
    const sp_i_rank_group *ranks = &m->split->groups[m->group[which]];
    sp_i_rank_samples samples = samples_of(ranks);
    sp_i_shape_search shapes = shapes_of(m->s, worker, m->s->share);
    bool warm = m->s->best[m->group[which]].out.makespan_ns > 0;
    m->best[which] = m->s->best[m->group[which]];
    sp_status status =
        sp_i_search_shape(&shapes, &samples, ranks->work_s, warm, &m->best[which], err);
    m->s->used[which] = m->s->share - shapes.effort;
    m->s->spent[which] = shapes.spent;
    return status;
}

// Equal work is not equal time: the rank with the longest sample has more idle time. Samples go
// from the slowest group to the fastest as long as the slower of the two gets faster.
static sp_status level_once(sp_i_search *s, bool *improved, sp_error *err)
{
    int slow = slowest_of(s);
    int fast = 0;
    *improved = false;
    for (int g = 1; g < s->ranks.count; g++) {
        fast = s->best[g].out.makespan_ns < s->best[fast].out.makespan_ns ? g : fast;
    }
    double slow_ns = (double)s->best[slow].out.makespan_ns;
    double fast_ns = (double)s->best[fast].out.makespan_ns;
    double moved_s = 0.5 * (1.0 - fast_ns / slow_ns) * s->ranks.groups[slow].work_s;
    sp_i_rank_split tried;
    sp_status status = SP_OK;
    sp_i_rank_split_copy(&s->ranks, &tried);
    moved m = {.s = s, .split = &tried, .group = {slow, fast}};
    if (sp_i_rank_split_move(&s->work, s->input->batch, &tried, slow, fast, moved_s)) {
        // Slower than the slowest is of no use, a little faster is.
        s->enough_ns = sp_whole(0.5 * (slow_ns + fast_ns));
        status = sp_parallel_for(s->threads, 2, search_moved, &m, err);
        take_used(s, 0);
        take_used(s, 1);
        *improved = status == SP_OK && sp_packflow_is_better(&m.best[0].out, &s->best[slow].out) &&
                    sp_packflow_is_better(&m.best[1].out, &s->best[slow].out);
    }
    if (*improved) {
        sp_i_rank_split_fini(&s->ranks);
        s->ranks = tried;
        s->best[slow] = m.best[0];
        s->best[fast] = m.best[1];
    } else {
        sp_i_rank_split_fini(&tried);
    }
    return status;
}

// Of all groups but one.
static int64_t second_slowest_ns(const sp_i_search *s, int slow)
{
    int64_t second_ns = 0;
    for (int g = 0; g < s->ranks.count; g++) {
        if (g != slow && s->best[g].out.makespan_ns > second_ns) {
            second_ns = s->best[g].out.makespan_ns;
        }
    }
    return second_ns;
}

// Makes the slowest group faster, by other samples or by other packs, until that is in vain.
static sp_status improve(sp_i_search *s, int64_t reserve, sp_error *err)
{
    sp_status status = SP_OK;
    int64_t part = s->left > reserve ? (s->left - reserve) / SP_I_SEARCH_PARTS : 0;
    int vain = 0;
    while (status == SP_OK && s->left > reserve && part > 0 && vain < VAIN &&
           !sp_i_search_is_late(s)) {
        bool improved = false;
        s->round++;
        if (s->ranks.count > 1) {
            s->share = part / 2;
            status = level_once(s, &improved, err);
        }
        if (status == SP_OK && !improved) {
            int slow = slowest_of(s);
            int64_t was_ns = s->best[slow].out.makespan_ns;
            s->order[0] = slow;
            status = search_groups(s, 1, part, second_slowest_ns(s, slow), err);
            improved = s->best[slow].out.makespan_ns < was_ns;
        }
        vain = improved ? 0 : vain + 1;
    }
    return status;
}

// Backward packs of their own, where a group is slowest, and for every other group that would then
// be slower. Nothing changes where they are of no use to the slowest.
static sp_status regroup(sp_i_search *s, bool *changed, sp_error *err)
{
    int slow = slowest_of(s);
    *changed = false;
    if (s->ranks.groups[slow].count == 0) {
        return SP_OK;
    }
    s->order[0] = slow;
    s->regroups = true;
    sp_status status = search_groups(s, 1, s->left / 2, 0, err);
    *changed = s->best[slow].shape.regrouped;
    int64_t slowest_ns = s->best[slow].out.makespan_ns;
    int slower = 0;
    for (int g = 0; g < s->ranks.count; g++) {
        if (s->best[g].out.makespan_ns > slowest_ns) {
            s->order[slower++] = g;
        }
    }
    return status == SP_OK ? search_groups(s, slower, s->left, slowest_ns, err) : status;
}

static sp_status write_packing(const sp_i_search *s, sp_packing *packing, sp_error *err)
{
    int dp = s->input->scenario->layout.dp;
    sp_status status = SP_OK;
    sp_packing_init(packing, s->input->batch, dp);
    packing->spare_bytes = s->spare_bytes;
    packing->whole_backwards = s->options.whole;
    for (int g = 0; status == SP_OK && g < s->ranks.count; g++) {
        sp_i_rank_samples samples = samples_of(&s->ranks.groups[g]);
        sp_packing rank;
        sp_packing_init(&rank, s->input->batch, dp);
        if (samples.count > 0) {
            sp_i_micropacks_make(&s->work, s->input->batch, &samples, &s->best[g].shape, &rank,
                                 NULL);
        }
        status = sp_i_micropacks_append(&rank, packing, err);
        sp_packing_fini(&rank);
    }
    if (status != SP_OK) {
        sp_packing_fini(packing);
    }
    return status;
}

// The slowest group's.
sp_packflow_outcome sp_i_search_outcome(const sp_i_search *s)
{
    sp_packflow_outcome all = {0};
    for (int g = 0; g < s->ranks.count; g++) {
        const sp_packflow_outcome *out = &s->best[g].out;
        if (s->ranks.groups[g].count > 0) {
            all.lacking_bytes = sp_larger(all.lacking_bytes, out->lacking_bytes);
            all.makespan_ns = sp_larger(all.makespan_ns, out->makespan_ns);
        }
    }
    return all;
}

// The packs as they stand take the place of *packing, which is empty at first, where they are
// better in the whole step; that is not asked of the first when time is up.
static sp_status judge(const sp_i_search *s, sp_packing *packing, sp_packflow_outcome *outcome,
                       sp_error *err)
{
    sp_packing now;
    sp_packflow_outcome judged = {0};
    sp_status status = write_packing(s, &now, err);
    if (status != SP_OK) {
        return status;
    }
    bool first = packing->forward.count == 0;
    if (first && sp_i_search_is_late(s)) {
        judged = sp_i_search_outcome(s);
    } else {
        status = sp_step_judge_blocks(s->input, &now, first ? &SP_PACKFLOW_WORST : outcome, &judged,
                                      err);
    }
    bool better = status == SP_OK && (first || sp_packflow_is_better(&judged, outcome));
    sp_packing_fini(better ? packing : &now);
    if (better) {
        *packing = now;
        *outcome = judged;
    }
    return status;
}

sp_status sp_i_search_begin(sp_i_search *s, sp_error *err)
{
    s->left = s->options.effort;
    s->round = 0;
    s->regroups = false;
    sp_status status = sp_i_search_leaders(s, s->options.effort / 4, err);
    return status == SP_OK ? search_followers(s, err) : status;
}

sp_status sp_i_search_is_slower(sp_i_search *s, bool *slower, sp_error *err)
{
    sp_status status = SP_OK;
    *slower = false;
    for (int g = 0; status == SP_OK && g < s->ranks.count && !*slower; g++) {
        const sp_i_rank_group *ranks = &s->ranks.groups[g];
        sp_i_rank_samples samples = samples_of(ranks);
        sp_i_shape_search shapes = shapes_of(s, 0, 0);
        sp_i_best_shape again = s->best[g];
        if (ranks->count > 0) {
            status = sp_i_search_shape(&shapes, &samples, ranks->work_s, true, &again, err);
            sp_i_spend(s->input->scenario, shapes.spent);
            *slower = status == SP_OK && sp_packflow_is_better(&s->best[g].out, &again.out);
        }
    }
    return status;
}

sp_status sp_i_search_finish(sp_i_search *s, sp_packing *best, sp_packflow_outcome *judged,
                             sp_error *err)
{
    // As much without backward packs of their own, so that those are on top of the best others.
    sp_status status = improve(s, s->options.effort / 4, err);
    if (status == SP_OK) {
        status = judge(s, best, judged, err);
    }
    if (status == SP_OK && s->options.asymmetric && s->retained == 0 && !sp_i_search_is_late(s)) {
        bool changed;
        status = regroup(s, &changed, err);
        if (status == SP_OK && changed) {
            status = judge(s, best, judged, err);
        }
    }
    return status;
}
