// Interleaved 1F1B (Narayanan et al., arXiv 2104.04473, section 2.2). The units (micro-batch,
// chunk) run in groups of g >= p micro-batches: inside a group chunk 0 of all g, then chunk 1, ...;
// backwards take the same list with the chunks mirrored. Rank r runs 2(p-1-r) + (v-1)g forwards
// first. Bubble (p-1)(F+B)/v for g = p; (v-1)g + 2(p-1-r) + 1 chunks in flight.
#include "sim/schedule/schedule_family.h"

// Groups of one pipeline. With a given size the last group takes the remainder; without one the
// micro-batches are spread evenly over floor(m/p) groups, so that no group falls below p (fewer
// than p micro-batches make one group).
typedef struct grouping {
    int microbatches;
    int given; // 0: spread evenly
    int groups;
} grouping;

static grouping group_microbatches(int microbatches, int pp, int given)
{
    grouping g = {.microbatches = microbatches, .given = given};
    if (given > 0) {
        g.groups = (microbatches + given - 1) / given;
    } else {
        g.groups = microbatches >= pp ? microbatches / pp : 1;
    }
    return g;
}

static int group_begin(const grouping *g, int index)
{
    if (g->given > 0) {
        int begin = index * g->given;
        return begin < g->microbatches ? begin : g->microbatches;
    }
    return (int)((int64_t)g->microbatches * index / g->groups);
}

static int largest_group(const grouping *g)
{
    int largest = 0;
    for (int i = 0; i < g->groups; i++) {
        int size = group_begin(g, i + 1) - group_begin(g, i);
        largest = size > largest ? size : largest;
    }
    return largest;
}

// Walks the units of one direction in order.
typedef struct unit_walk {
    const grouping *groups;
    int group, chunk_step, offset; // the next unit
} unit_walk;

static bool next_unit(unit_walk *walk, int chunks, int *microbatch, int *chunk_step)
{
    if (walk->group == walk->groups->groups) {
        return false;
    }
    int begin = group_begin(walk->groups, walk->group);
    int size = group_begin(walk->groups, walk->group + 1) - begin;
    *microbatch = begin + walk->offset;
    *chunk_step = walk->chunk_step;
    if (++walk->offset == size) {
        walk->offset = 0;
        if (++walk->chunk_step == chunks) {
            walk->chunk_step = 0;
            walk->group++;
        }
    }
    return true;
}

static bool schedule_rank(const sp_i_schedule_job *job, const grouping *groups, int pp_rank)
{
    int chunks = job->plan->layout.chunks;
    int64_t warmup =
        2 * (job->plan->layout.pp - 1 - pp_rank) + (int64_t)(chunks - 1) * largest_group(groups);
    int64_t units = (int64_t)job->microbatches * chunks;
    if (warmup > units) {
        warmup = units;
    }
    unit_walk forward = {.groups = groups};
    unit_walk backward = {.groups = groups};
    int microbatch;
    int step;
    bool ok = true;
    for (int64_t k = 0; ok && k < warmup && next_unit(&forward, chunks, &microbatch, &step); k++) {
        ok = sp_i_schedule_add(job, pp_rank, SP_ACTION_F, step, microbatch, 0);
    }
    while (ok) {
        if (next_unit(&forward, chunks, &microbatch, &step)) {
            ok = sp_i_schedule_add(job, pp_rank, SP_ACTION_F, step, microbatch, 0);
        }
        if (!next_unit(&backward, chunks, &microbatch, &step)) {
            break;
        }
        ok = ok && sp_i_schedule_add(job, pp_rank, SP_ACTION_B, chunks - 1 - step, microbatch, 0);
    }
    return ok;
}

// Megatron-LM asks the same of its groups (microbatch_group_size_per_virtual_pipeline_stage).
static sp_status check_group(const sp_i_schedule_job *job, sp_error *err)
{
    int group = job->spec->group;
    int pp = job->plan->layout.pp;
    int rest = group > 0 ? job->microbatches % group : 0;
    if (group == 0 || (group >= pp && (rest == 0 || rest >= pp))) {
        return SP_OK;
    }
    return sp_error_in(err, SP_ERR_CONTENT, job->source, "schedule.group",
                       "%d micro-batches in groups of %d leave a group smaller than the %d "
                       "pipeline ranks",
                       job->microbatches, group, pp);
}

sp_status sp_i_schedule_interleaved(const sp_i_schedule_job *job, sp_error *err)
{
    if (job->plan->layout.pp == 1 && job->plan->layout.chunks > 1) {
        return sp_error_in(err, SP_ERR_CONTENT, job->source, "schedule.kind",
                           "\"interleaved\" with several chunks needs parallel.pp of at least 2");
    }
    sp_status status = check_group(job, err);
    if (status != SP_OK || job->microbatches == 0) {
        return status;
    }
    grouping groups = group_microbatches(job->microbatches, job->plan->layout.pp, job->spec->group);
    bool ok = true;
    for (int r = 0; ok && r < job->plan->layout.pp; r++) {
        ok = schedule_rank(job, &groups, r);
    }
    return ok ? SP_OK : SP_ERR_NO_MEMORY;
}
