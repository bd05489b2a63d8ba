#include "solver/slimpack/rank_split.h"

#include <math.h>
#include <stdbool.h>

#include "sim/base/alloc.h"
#include "solver/slimpack/makespan.h"

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

#define ASSUMED 1.05

// Of the time on half as many ranks, so that more of them are worth while.
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

sp_i_merge_costs sp_i_merge_costs_assumed(int most)
{
    sp_i_merge_costs costs = {.levels = sp_i_merge_level(sp_i_power_of_two(most)) + 1};
    for (int l = 0; l < costs.levels; l++) {
        costs.cost[l] = l == 0 ? 1.0 : ASSUMED;
    }
    return costs;
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
        size_t at = pack * (size_t)costs->classes + (size_t)costs->class_of_vstage[v];
        sum_s += 1e-9 * (double)sp_action_cost_ns(&costs->f[at]);
        sum_s += 1e-9 * (double)sp_action_cost_ns(&costs->b[at]);
    }
    return sum_s;
}

sp_status sp_i_merge_costs_measure(sp_cost_model *cost, int64_t tokens, int64_t slice_tokens,
                                   sp_i_merge_costs *costs, sp_error *err)
{
    sp_packing packing;
    sp_step_costs priced = {0};
    *costs = sp_i_merge_costs_assumed(1);
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
