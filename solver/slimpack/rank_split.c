#include "solver/slimpack/rank_split.h"

#include <math.h>
#include <string.h>

#include "sim/base/alloc.h"
#include "solver/rows.h"
#include "solver/slimpack/makespan.h"

// So close to the bound no further exchange is looked for: a ten-thousandth of a percent.
#define LEVEL 1e-6

static double sample_s(const sp_i_work *work, const sp_batch *batch, int32_t sample)
{
    return sp_i_slice_work_s(work, 0, batch->tokens[sample]);
}

static double speed_of(const sp_i_rank_split *split, const sp_i_rank_group *group)
{
    return 1.0 / sp_i_merge_pace(&split->costs, group->dp_count);
}

// The samples in descending order, and what the search for a split works on.
typedef struct split_job {
    int32_t *order;        // [samples]
    sp_arena memory;       // of what follows
    double *work_s;        // [samples]
    int *least, *group_of; // [samples]
    int *size, *heap;      // [dp]
    double *pace, *load_s; // [dp]
    sp_i_group_problem problem;
} split_job;

static void split_job_init(split_job *job, const sp_i_work *work, const sp_batch *batch, int dp,
                           const sp_i_merge_costs *costs, double merge_share, int64_t token_limit)
{
    size_t n = batch->count;
    size_t ranks = (size_t)dp;
    *job = (split_job){.order = sp_i_order_descending(batch)};
    job->work_s = sp_arena_take(&job->memory, n, sizeof *job->work_s);
    job->least = sp_arena_take(&job->memory, n, sizeof *job->least);
    job->group_of = sp_arena_take(&job->memory, n, sizeof *job->group_of);
    job->size = sp_arena_take(&job->memory, ranks, sizeof *job->size);
    job->heap = sp_arena_take(&job->memory, ranks, sizeof *job->heap);
    job->pace = sp_arena_take(&job->memory, ranks, sizeof *job->pace);
    job->load_s = sp_arena_take(&job->memory, ranks, sizeof *job->load_s);
    int most = 1 << (costs->levels - 1);
    for (size_t i = 0; i < batch->count; i++) {
        int64_t tokens = batch->tokens[job->order[i]];
        job->work_s[i] = sample_s(work, batch, job->order[i]);
        job->least[i] = 1;
        while (token_limit > 0 && tokens / job->least[i] > token_limit && job->least[i] < most) {
            job->least[i] *= 2;
        }
    }
    job->problem = (sp_i_group_problem){.work_s = job->work_s,
                                        .least = job->least,
                                        .count = batch->count,
                                        .dp = dp,
                                        .costs = costs,
                                        .merge_share = merge_share};
}

static void make_groups(split_job *job, sp_i_rank_split *split)
{
    const sp_i_group_problem *p = &job->problem;
    sp_i_makespan m = {.work_s = p->work_s,
                       .least = p->least,
                       .jobs = p->count,
                       .size = job->size,
                       .pace = job->pace,
                       .machines = sp_i_group_sizes(p, job->size),
                       .machine_of = job->group_of,
                       .load_s = job->load_s};
    int first = 0;
    double speed = 0.0;
    for (int g = 0; g < m.machines; g++) {
        job->pace[g] = sp_i_merge_pace(p->costs, job->size[g]);
        speed += 1.0 / job->pace[g];
        split->groups[g] = (sp_i_rank_group){.dp_first = first, .dp_count = job->size[g]};
        first += job->size[g];
    }
    double total_s = 0.0;
    for (size_t i = 0; i < p->count; i++) {
        total_s += p->work_s[i];
    }
    split->count = m.machines;
    split->bound_s = sp_i_group_bound_s(p);
    // What these groups can reach, which the cost of merging keeps from the bound.
    double level_s = fmax(split->bound_s, total_s / speed);
    sp_i_makespan_longest_first(&m, job->heap);
    sp_i_makespan_exchange(&m, level_s * (1.0 + LEVEL));
}

// From group_of, longest first in each group.
static void gather(const split_job *job, sp_i_rank_split *split)
{
    for (size_t i = 0; i < job->problem.count; i++) {
        split->groups[job->group_of[i]].count++;
    }
    for (int g = 0; g < split->count; g++) {
        sp_i_rank_group *group = &split->groups[g];
        group->sample = sp_malloc((group->count + 1) * sizeof *group->sample);
        group->count = 0;
        group->work_s = job->load_s[g];
    }
    for (size_t i = 0; i < job->problem.count; i++) {
        sp_i_rank_group *group = &split->groups[job->group_of[i]];
        group->sample[group->count++] = job->order[i];
    }
}

void sp_i_rank_split_priced(const sp_i_work *work, const sp_batch *batch, int dp,
                            const sp_i_merge_costs *costs, double merge_share, int64_t token_limit,
                            sp_i_rank_split *split)
{
    split_job job;
    *split =
        (sp_i_rank_split){.groups = sp_calloc((size_t)dp, sizeof *split->groups), .costs = *costs};
    int most = merge_share > 0.0 ? sp_i_merge_level(sp_i_power_of_two(dp)) + 1 : 1;
    split->costs.levels = most < costs->levels ? most : costs->levels;
    split_job_init(&job, work, batch, dp, &split->costs, merge_share, token_limit);
    make_groups(&job, split);
    gather(&job, split);
    sp_free(job.order);
    sp_arena_free(&job.memory);
}

double sp_i_rank_split_largest_s(const sp_i_rank_split *split)
{
    double largest_s = 0.0;
    for (int g = 0; g < split->count; g++) {
        largest_s = fmax(largest_s, split->groups[g].work_s);
    }
    return largest_s;
}

double sp_i_rank_split_excess(const sp_i_rank_split *split, int dp)
{
    double total_s = 0.0;
    for (int g = 0; g < split->count; g++) {
        total_s += split->groups[g].work_s * speed_of(split, &split->groups[g]);
    }
    return total_s > 0.0 ? sp_i_rank_split_largest_s(split) / (total_s / dp) - 1.0 : 0.0;
}

double sp_i_rank_split_gap(const sp_i_rank_split *split)
{
    double largest_s = sp_i_rank_split_largest_s(split);
    return split->bound_s > 0.0 ? fmax(0.0, largest_s / split->bound_s - 1.0) : 0.0;
}

void sp_i_rank_split_fini(sp_i_rank_split *split)
{
    for (int g = 0; g < split->count; g++) {
        sp_free(split->groups[g].sample);
    }
    sp_free(split->groups);
    *split = (sp_i_rank_split){0};
}

void sp_i_rank_split_copy(const sp_i_rank_split *from, sp_i_rank_split *to)
{
    *to = (sp_i_rank_split){.groups = sp_calloc((size_t)from->count + 1, sizeof *to->groups),
                            .costs = from->costs,
                            .bound_s = from->bound_s};
    for (int g = 0; g < from->count; g++) {
        sp_i_rank_group *group = &to->groups[to->count++];
        *group = from->groups[g];
        group->sample = sp_malloc((group->count + 1) * sizeof *group->sample);
        memcpy(group->sample, from->groups[g].sample, group->count * sizeof *group->sample);
    }
}

// Descending length, then batch order, as sp_i_order_descending.
static bool comes_before(const sp_batch *batch, int32_t a, int32_t b)
{
    return batch->tokens[a] != batch->tokens[b] ? batch->tokens[a] > batch->tokens[b] : a < b;
}

bool sp_i_rank_split_move(const sp_i_work *work, const sp_batch *batch, sp_i_rank_split *split,
                          int from, int to, double work_s)
{
    sp_i_rank_group *source = &split->groups[from];
    sp_i_rank_group *target = &split->groups[to];
    int32_t *merged = sp_malloc((source->count + target->count + 1) * sizeof *merged);
    double left_s = work_s * speed_of(split, source);
    size_t kept = 0;
    size_t count = 0;
    // The moved ones stay in order; the two ordered lists are then merged.
    int32_t *going = merged + target->count;
    for (size_t i = 0; i < source->count; i++) {
        double s = sample_s(work, batch, source->sample[i]);
        if (s <= left_s && (kept > 0 || i + 1 < source->count)) {
            left_s -= s;
            source->work_s -= s / speed_of(split, source);
            target->work_s += s / speed_of(split, target);
            going[count++] = source->sample[i];
        } else {
            source->sample[kept++] = source->sample[i];
        }
    }
    source->count = kept;
    size_t a = 0;
    size_t b = 0;
    for (size_t i = 0; i < target->count + count; i++) {
        bool own =
            b == count || (a < target->count && comes_before(batch, target->sample[a], going[b]));
        merged[i] = own ? target->sample[a++] : going[b++];
    }
    target->count += count;
    sp_free(target->sample);
    target->sample = merged;
    return count > 0;
}

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

static void insert(const sp_batch *batch, int32_t sample, sp_i_rank_group *group)
{
    size_t at = group->count++;
    for (; at > 0 && comes_before(batch, sample, group->sample[at - 1]); at--) {
        group->sample[at] = group->sample[at - 1];
    }
    group->sample[at] = sample;
}

static void assign(const sp_batch *batch, const int32_t *sample, const double *work_s,
                   const int *rank, size_t count, sp_i_rank_split *split)
{
    for (int g = 0; g < split->count; g++) {
        sp_i_rank_group *group = &split->groups[g];
        sp_free(group->sample);
        group->sample = sp_malloc(count * sizeof *group->sample);
        group->count = 0;
        group->work_s = 0.0;
    }
    for (size_t i = 0; i < count; i++) {
        insert(batch, sample[i], &split->groups[rank[i]]);
        split->groups[rank[i]].work_s += work_s[i];
    }
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
    const sp_i_assignment_options options = {.time_limit_ms = time_limit_ms,
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
    if (found.largest_s < largest_s) {
        assign(batch, sample, work_s, rank, count, split);
    }
    return SP_OK;
}
