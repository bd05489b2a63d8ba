// Which data-parallel ranks run their packs together, and which samples they get.
#include "solver/slimpack/slimpack_search.h"

#include <math.h>
#include <stdbool.h>
#include <string.h>

#include "sim/base/alloc.h"
#include "solver/rows.h"

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
    // The level that these groups can reach, which the cost of merging keeps from the bound.
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

// ---- sizes of groups ----

// Late enough to look for other groups, as a share of the bound; a choice that wins less than this
// is not worth merging other ranks for.
#define LATE 0.002

// Samples below this share of a rank's are sand that fills whatever room is left.
#define SAND 0.125

// ---- sizes ----

typedef struct choice {
    int count[SP_I_MERGE_LEVELS]; // groups of 1, 2, 4, ... ranks
    double end_s;                 // of the last group
    double overload;              // squares of what is beyond the bound, over all ranks
} choice;

typedef struct chooser {
    const sp_i_group_problem *p;
    double bound_s, total_s;
    int levels;     // sizes to choose from
    int most_least; // level of the group that has to be there for the longest sample
    sp_i_makespan m;
    sp_arena memory; // of the arrays
    int *size, *machine_of, *heap;
    double *pace, *load_s;
} chooser;

// The least group in which a sample does not exceed the share.
static int ranks_for(const sp_i_group_problem *p, double share_s, size_t sample)
{
    int most = 1 << (p->costs->levels - 1);
    int ranks = p->least[sample] < most ? p->least[sample] : most;
    while (2 * ranks <= most && p->work_s[sample] / ranks > p->merge_share * share_s) {
        ranks *= 2;
    }
    return ranks;
}

// Groups for the longest samples as long as there are ranks, then single ranks.
static void choose_by_rule(const chooser *c, choice *chosen)
{
    const sp_i_group_problem *p = c->p;
    *chosen = (choice){0};
    int left = p->dp;
    for (size_t i = 0; i < p->count && left > 0; i++) {
        int ranks = ranks_for(p, c->total_s / p->dp, i);
        while (ranks > left) {
            ranks /= 2;
        }
        if (ranks == 1) {
            break;
        }
        chosen->count[sp_i_merge_level(ranks)]++;
        left -= ranks;
    }
    chosen->count[0] = left;
}

static int write_sizes(const choice *chosen, int levels, int *size)
{
    int groups = 0;
    for (int l = levels - 1; l >= 0; l--) {
        for (int k = 0; k < chosen->count[l]; k++) {
            size[groups++] = 1 << l;
        }
    }
    return groups;
}

// Longest first with the samples that are no sand; the sand evens out what it can.
static void weigh(chooser *c, choice *chosen)
{
    sp_i_makespan *m = &c->m;
    m->machines = write_sizes(chosen, c->levels, c->size);
    for (int g = 0; g < m->machines; g++) {
        c->pace[g] = sp_i_merge_pace(c->p->costs, c->size[g]);
    }
    sp_i_makespan_longest_first(m, c->heap);
    double speed = 0.0;
    double sand_s = c->total_s;
    for (size_t i = 0; i < m->jobs; i++) {
        sand_s -= m->work_s[i];
    }
    double done_s = fmax(0.0, sand_s);
    for (int g = 0; g < m->machines; g++) {
        speed += 1.0 / c->pace[g];
        done_s += c->load_s[g] / c->pace[g];
    }
    double level_s = fmax(done_s / speed, c->bound_s);
    chosen->end_s = fmax(level_s, sp_i_makespan_largest_s(m));
    chosen->overload = 0.0;
    for (int g = 0; g < m->machines; g++) {
        double late = fmax(c->load_s[g], level_s) / c->bound_s - 1.0;
        chosen->overload += c->size[g] * late * late;
    }
}

// The neighbours of a choice: two groups of a level made one, or one of the level above split in
// two; `all` does it as often as it can be done. False where there is none.
static bool change(const chooser *c, choice *chosen, int level, bool join, bool all)
{
    int *small = &chosen->count[level];
    int *large = &chosen->count[level + 1];
    int most = join ? *small / 2 : *large;
    int times = all ? most : 1;
    if (most < times || most == 0) {
        return false;
    }
    *small += join ? -2 * times : 2 * times;
    *large += join ? times : -times;
    for (int l = c->most_least; l < c->levels; l++) {
        if (chosen->count[l] > 0) {
            return true;
        }
    }
    return false;
}

// Jobs that a descent may try to place, at each level of groups.
#define MOST_PLACED (INT64_C(1) << 24)

// Steepest descent. That the last group ends earlier often takes several steps; the overload of all
// of them says whether a step was one of these.
static void descend(chooser *c, choice *chosen)
{
    enum { WAYS = 4 };
    const int64_t each = (int64_t)c->m.jobs * c->levels + c->p->dp;
    int64_t left = MOST_PLACED / each;
    bool better = true;
    while (better && left > 0 && chosen->end_s > (1.0 + LATE) * c->bound_s) {
        choice best = *chosen;
        for (int k = 0; k < WAYS * (c->levels - 1); k++) {
            choice tried = *chosen;
            if (change(c, &tried, k / WAYS, k % 2 == 0, k % WAYS >= 2)) {
                weigh(c, &tried);
                left--;
                best = tried.overload < best.overload ? tried : best;
            }
        }
        better = best.overload < chosen->overload * (1.0 - 1e-9);
        *chosen = best;
    }
}

static void chooser_init(chooser *c, const sp_i_group_problem *p)
{
    *c = (chooser){.p = p, .bound_s = sp_i_group_bound_s(p), .levels = p->costs->levels};
    for (size_t i = 0; i < p->count; i++) {
        c->total_s += p->work_s[i];
    }
    size_t jobs = 0;
    while (jobs < p->count && p->work_s[jobs] > SAND * c->total_s / p->dp) {
        jobs++;
    }
    size_t dp = (size_t)p->dp;
    c->size = sp_arena_take(&c->memory, dp, sizeof *c->size);
    c->heap = sp_arena_take(&c->memory, dp, sizeof *c->heap);
    c->pace = sp_arena_take(&c->memory, dp, sizeof *c->pace);
    c->load_s = sp_arena_take(&c->memory, dp, sizeof *c->load_s);
    c->machine_of = sp_arena_take(&c->memory, jobs, sizeof *c->machine_of);
    c->m = (sp_i_makespan){.work_s = p->work_s,
                           .least = p->least,
                           .jobs = jobs,
                           .size = c->size,
                           .pace = c->pace,
                           .machine_of = c->machine_of,
                           .load_s = c->load_s};
}

int sp_i_group_sizes(const sp_i_group_problem *p, int *size)
{
    chooser c;
    choice rule;
    chooser_init(&c, p);
    choose_by_rule(&c, &rule);
    if (c.levels > 1 && c.bound_s > 0.0) {
        int largest = c.levels - 1;
        while (rule.count[largest] == 0) {
            largest--;
        }
        int least = p->count > 0 ? sp_i_merge_level(p->least[0]) : 0;
        c.most_least = least < largest ? least : largest;
        weigh(&c, &rule);
        choice other = rule;
        descend(&c, &other);
        rule = other.end_s < rule.end_s * (1.0 - LATE) ? other : rule;
    }
    int groups = write_sizes(&rule, c.levels, size);
    sp_arena_free(&c.memory);
    return groups;
}

// ---- bound ----

// The least that a sample costs where all is to end by end_s; HUGE_VAL: it cannot be.
static double least_cost(const sp_i_group_problem *p, size_t sample, double end_s)
{
    int least = sp_i_merge_level(p->least[sample]);
    double cost = HUGE_VAL;
    for (int l = least < p->costs->levels ? least : p->costs->levels - 1; l < p->costs->levels;
         l++) {
        bool in_time = p->work_s[sample] * sp_i_merge_pace(p->costs, 1 << l) <= end_s;
        cost = in_time ? fmin(cost, p->costs->cost[l]) : cost;
    }
    return cost;
}

static bool may_end_by(const sp_i_group_problem *p, double total_s, double end_s)
{
    double all_s = total_s;
    for (size_t i = 0; i < p->count && (p->least[i] > 1 || p->work_s[i] > end_s); i++) {
        double cost = least_cost(p, i, end_s);
        if (!(cost < HUGE_VAL)) {
            return false;
        }
        all_s += (cost - 1.0) * p->work_s[i];
    }
    return all_s <= p->dp * end_s;
}

double sp_i_group_bound_s(const sp_i_group_problem *p)
{
    enum { HALVINGS = 50 };
    if (p->costs->levels < 2) {
        return sp_i_makespan_bound_s(p->work_s, p->count, p->dp);
    }
    double total_s = 0.0;
    for (size_t i = 0; i < p->count; i++) {
        total_s += p->work_s[i];
    }
    double below_s = total_s / p->dp;
    double end_s = SP_I_MERGE_LEVELS * total_s;
    if (may_end_by(p, total_s, below_s)) {
        return below_s;
    }
    for (int k = 0; k < HALVINGS; k++) {
        double middle_s = 0.5 * (below_s + end_s);
        if (may_end_by(p, total_s, middle_s)) {
            end_s = middle_s;
        } else {
            below_s = middle_s;
        }
    }
    return below_s;
}

// More ranks are worth while where they take less than this share of the time on half as many.
#define WORTH 0.95

int sp_i_power_of_two(int number)
{
    int power = 1;
    while (power <= number / 2) {
        power *= 2;
    }
    return power;
}

int sp_i_merge_level(int ranks)
{
    int level = 0;
    for (; ranks > 1; ranks /= 2) {
        level++;
    }
    return level;
}

double sp_i_merge_pace(const sp_i_merge_costs *costs, int ranks)
{
    return costs->cost[sp_i_merge_level(ranks)] / ranks;
}

// Packs of a slice from the middle of a sample, which has the mean of all slices' pairs, on 1, 2,
// 4, ... ranks.
static void add_packs(const sp_layout *layout, int64_t tokens, int64_t slice_tokens,
                      sp_pack_list *list)
{
    int64_t length = tokens < slice_tokens ? tokens : slice_tokens;
    const sp_slice slice = {
        .begin = (tokens - length) / 2, .tokens = length, .computed_tokens = length};
    for (int ranks = 1; ranks <= sp_i_power_of_two(layout->dp); ranks *= 2) {
        sp_pack_list_begin(list, 0, ranks);
        sp_pack_list_add(list, slice, true);
    }
}

// Forward and backward, summed over the virtual stages.
static double pack_s(const sp_step_costs *costs, const sp_layout *layout, size_t pack)
{
    double sum_s = 0.0;
    for (int v = 0; v < sp_layout_vstages(layout); v++) {
        size_t at = pack * (size_t)costs->classes + (size_t)costs->stages[v].cost_class;
        sum_s += 1e-9 * (double)sp_action_cost_ns(&costs->action[SP_ACTION_F][at]);
        sum_s += 1e-9 * (double)sp_action_cost_ns(&costs->action[SP_ACTION_B][at]);
    }
    return sum_s;
}

sp_status sp_i_merge_costs_measure(sp_cost_model *cost, int64_t tokens, int64_t slice_tokens,
                                   sp_i_merge_costs *costs, sp_error *err)
{
    sp_packing packing;
    sp_step_costs priced = {0};
    *costs = (sp_i_merge_costs){.levels = 1, .cost = {1.0}};
    sp_packing_init(&packing, NULL, cost->layout->dp);
    add_packs(cost->layout, tokens, slice_tokens, &packing.forward);
    sp_status status = sp_cost_model_build(cost, &packing, &priced, err);
    double alone_s = status == SP_OK ? pack_s(&priced, cost->layout, 0) : 0.0;
    for (size_t l = 1; status == SP_OK && l < packing.forward.count; l++) {
        double merged_s = pack_s(&priced, cost->layout, l);
        // Work that is less in sum on several ranks is none that they save.
        costs->cost[costs->levels++] = fmax(1.0, ldexp(merged_s, (int)l) / alone_s);
    }
    sp_step_costs_fini(&priced);
    sp_packing_fini(&packing);
    return status;
}

void sp_i_merge_costs_keep_worth(sp_i_merge_costs *costs)
{
    int l = 1;
    while (l < costs->levels &&
           sp_i_merge_pace(costs, 1 << l) < WORTH * sp_i_merge_pace(costs, 1 << (l - 1))) {
        l++;
    }
    costs->levels = l;
}

// ---- other groups ----

// The lengths of slices that groups are priced for: a sample of one slice, then each so many times
// shorter, down to those that are about the shortest of use.
enum { SHORTER = 8, SHORTEST = 8192 };

// Groups that hold samples, of any index from *at on; NULL: there is no more.
static const sp_i_rank_group *next_in_use(const sp_i_rank_split *split, int *at)
{
    while (*at < split->count && split->groups[*at].count == 0) {
        (*at)++;
    }
    return *at < split->count ? &split->groups[(*at)++] : NULL;
}

static bool are_same_groups(const sp_i_rank_split *a, const sp_i_rank_split *b)
{
    int at_a = 0;
    int at_b = 0;
    for (;;) {
        const sp_i_rank_group *group_a = next_in_use(a, &at_a);
        const sp_i_rank_group *group_b = next_in_use(b, &at_b);
        if (group_a == NULL || group_b == NULL) {
            return group_a == group_b;
        }
        if (group_a->dp_count != group_b->dp_count) {
            return false;
        }
    }
}

// Keeps the order of their largest groups; takes the split, or ends it where it is none other.
static void add(sp_i_groupings *all, const sp_i_rank_split *first, sp_i_rank_split *split)
{
    bool other = all->count < SP_I_GROUPINGS && !are_same_groups(split, first);
    for (int i = 0; other && i < all->count; i++) {
        other = !are_same_groups(split, &all->split[i]);
    }
    if (!other) {
        sp_i_rank_split_fini(split);
        return;
    }
    double largest_s = sp_i_rank_split_largest_s(split);
    int at = all->count++;
    for (; at > 0 && largest_s < sp_i_rank_split_largest_s(&all->split[at - 1]); at--) {
        all->split[at] = all->split[at - 1];
    }
    all->split[at] = *split;
}

sp_status sp_i_groupings_make(sp_cost_model *cost, const sp_i_work *work, const sp_batch *batch,
                              double merge_share, int64_t token_limit, const sp_i_rank_split *first,
                              sp_i_groupings *groupings, sp_error *err)
{
    int64_t longest = sp_batch_longest(batch);
    sp_status status = SP_OK;
    *groupings = (sp_i_groupings){.count = 0};
    for (int64_t slice = longest; status == SP_OK && slice > SHORTEST / SHORTER; slice /= SHORTER) {
        sp_i_merge_costs costs;
        status = sp_i_merge_costs_measure(cost, longest, slice, &costs, err);
        for (int most = costs.levels; status == SP_OK && most > 0; most--) {
            sp_i_rank_split split;
            costs.levels = most;
            sp_i_rank_split_priced(work, batch, cost->layout->dp, &costs, merge_share, token_limit,
                                   &split);
            add(groupings, first, &split);
        }
    }
    if (status != SP_OK) {
        sp_i_groupings_fini(groupings);
    }
    return status;
}

void sp_i_groupings_fini(sp_i_groupings *groupings)
{
    for (int i = 0; i < groupings->count; i++) {
        sp_i_rank_split_fini(&groupings->split[i]);
    }
    groupings->count = 0;
}
