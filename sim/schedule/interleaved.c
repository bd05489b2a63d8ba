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

bool sp_i_interleaved_group_fits(int microbatches, int pp, int group)
{
    if (group == 0) {
        return true;
    }
    int rest = microbatches % group;
    return group >= pp && (rest == 0 || rest >= pp);
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

bool sp_i_schedule_interleaved(const sp_plan *plan, sp_i_local_packs local, int pp_rank, int group,
                               sp_stage_plan *stage)
{
    if (local.count == 0) {
        return true;
    }
    int chunks = plan->layout.chunks;
    grouping groups = group_microbatches(local.count, plan->layout.pp, group);
    int64_t warmup =
        2 * (plan->layout.pp - 1 - pp_rank) + (int64_t)(chunks - 1) * largest_group(&groups);
    int64_t units = (int64_t)local.count * chunks;
    if (warmup > units) {
        warmup = units;
    }
    unit_walk forward = {.groups = &groups};
    unit_walk backward = {.groups = &groups};
    int microbatch;
    int step;
    bool ok = true;
    for (int64_t k = 0; ok && k < warmup && next_unit(&forward, chunks, &microbatch, &step); k++) {
        ok = sp_stage_plan_add(stage, SP_ACTION_F, step, local.pack[microbatch]);
    }
    while (ok) {
        if (next_unit(&forward, chunks, &microbatch, &step)) {
            ok = sp_stage_plan_add(stage, SP_ACTION_F, step, local.pack[microbatch]);
        }
        if (!next_unit(&backward, chunks, &microbatch, &step)) {
            break;
        }
        ok = ok && sp_stage_plan_add(stage, SP_ACTION_B, chunks - 1 - step, local.pack[microbatch]);
    }
    return ok;
}
