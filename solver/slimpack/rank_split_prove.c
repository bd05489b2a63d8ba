#include "solver/slimpack/rank_split.h"

#include "sim/base/alloc.h"
#include "solver/slimpack/assignment.h"

// Larger programs are not solved in a second (experiments/results/assignment.txt), and exchanges
// are within 1e-4 there. A second is about 4,000 nodes of 60 samples on 4 ranks; their relaxations
// take some 12,000 iterations.
enum { MOST_SAMPLES = 60, MOST_RANKS = 4, MOST_NODES = 4000, MOST_ITERATIONS = 20000 };

#define USUAL_GAP 1e-3

static size_t samples_of(const sp_i_rank_split *split)
{
    size_t count = 0;
    for (int g = 0; g < split->count; g++) {
        count += split->groups[g].count;
    }
    return count;
}

static bool is_small(const sp_i_rank_split *split, double gap)
{
    for (int g = 0; g < split->count; g++) {
        if (split->groups[g].dp_count > 1) {
            return false;
        }
    }
    return split->count > 1 && split->count <= MOST_RANKS && samples_of(split) <= MOST_SAMPLES &&
           sp_i_rank_split_gap(split) > gap;
}

// The order within a group: longest first, batch order breaks ties.
static bool comes_before(const sp_batch *batch, int32_t a, int32_t b)
{
    int64_t x = batch->tokens[a];
    int64_t y = batch->tokens[b];
    return x != y ? x > y : a < b;
}

static void insert(const sp_batch *batch, int32_t sample, sp_i_rank_group *group)
{
    size_t at = group->count++;
    for (; at > 0 && comes_before(batch, sample, group->sample[at - 1]); at--) {
        group->sample[at] = group->sample[at - 1];
    }
    group->sample[at] = sample;
}

static sp_status assign(const sp_batch *batch, const int32_t *sample, const double *work_s,
                        const int *rank, size_t count, sp_i_rank_split *split, sp_error *err)
{
    bool ok = true;
    int32_t *fresh[MOST_RANKS] = {0};
    for (int g = 0; g < split->count; g++) {
        fresh[g] = sp_i_malloc(count * sizeof **fresh);
        ok = ok && fresh[g] != NULL;
    }
    for (int g = 0; g < split->count; g++) {
        if (ok) {
            sp_i_free(split->groups[g].sample);
            split->groups[g].sample = fresh[g];
            split->groups[g].count = 0;
            split->groups[g].work_s = 0.0;
        } else {
            sp_i_free(fresh[g]);
        }
    }
    for (size_t i = 0; ok && i < count; i++) {
        insert(batch, sample[i], &split->groups[rank[i]]);
        split->groups[rank[i]].work_s += work_s[i];
    }
    return ok ? SP_OK : sp_error_no_memory(err, "ranks of samples");
}

sp_status sp_i_rank_split_prove(const sp_i_work *work, const sp_batch *batch, int64_t time_limit_ms,
                                double gap, sp_i_rank_split *split, sp_error *err)
{
    gap = gap < 0.0 ? USUAL_GAP : gap;
    if (!is_small(split, gap)) {
        return SP_OK;
    }
    int32_t sample[MOST_SAMPLES];
    double work_s[MOST_SAMPLES];
    int rank[MOST_SAMPLES];
    double largest_s = 0.0;
    size_t count = 0;
    for (int g = 0; g < split->count; g++) {
        const sp_i_rank_group *group = &split->groups[g];
        largest_s = group->work_s > largest_s ? group->work_s : largest_s;
        for (size_t i = 0; i < group->count; i++) {
            sample[count] = group->sample[i];
            work_s[count++] = sp_i_slice_work_s(work, 0, batch->tokens[group->sample[i]]);
        }
    }
    const sp_i_assignment_options options = {
        .time_limit_ms = time_limit_ms > 0 ? time_limit_ms : SP_I_NO_TIME_LIMIT,
        .node_limit = MOST_NODES,
        .iteration_limit = MOST_ITERATIONS,
        .gap = gap};
    sp_i_assignment found;
    sp_status status =
        sp_i_assignment_solve(work_s, count, split->count, &options, rank, &found, err);
    if (status != SP_OK) {
        return status;
    }
    split->bound_s = found.bound_s > split->bound_s ? found.bound_s : split->bound_s;
    return found.largest_s < largest_s ? assign(batch, sample, work_s, rank, count, split, err)
                                       : SP_OK;
}
