// Groups of a micro-batch by local search over how many there are of each degree. The samples of
// given groups are placed longest first, each where the group's time is then least.
#include <math.h>
#include <string.h>

#include "sim/base/alloc.h"
#include "solver/flexsp/flexsp.h"
#include "solver/time_limit.h"

// Placements of samples tried against groups, for one micro-batch: about a second.
#define MOST_STEPS 2e8

typedef struct numbers {
    int of[SP_I_FLEXSP_DEGREES];
} numbers;

typedef struct search {
    sp_i_flexsp_part *best;
    numbers best_numbers;
    double best_time;
    int *degree; // [ranks]
    double *time;
    int64_t *room;
    int32_t *group_of; // [count]
    double steps;
} search;

void sp_i_flexsp_part_init(sp_i_flexsp_part *part, const sp_i_flexsp_problem *problem, size_t first,
                           size_t count)
{
    *part =
        (sp_i_flexsp_part){.problem = problem, .first = first, .count = count, .time = HUGE_VAL};
    part->degree = sp_malloc((size_t)problem->ranks * sizeof *part->degree);
    part->group_of = sp_malloc(count * sizeof *part->group_of);
}

void sp_i_flexsp_part_fini(sp_i_flexsp_part *part)
{
    sp_free(part->degree);
    sp_free(part->group_of);
    *part = (sp_i_flexsp_part){0};
}

double sp_i_flexsp_part_time(const sp_i_flexsp_part *part)
{
    double *of = sp_calloc((size_t)part->groups, sizeof *of);
    double slowest = 0.0;
    for (size_t i = 0; i < part->count; i++) {
        int g = part->group_of[i];
        const sp_i_flexsp_time *t = &part->problem->times[part->degree[g]];
        of[g] += (of[g] > 0.0 ? 0.0 : t->per_pack) +
                 sp_i_flexsp_work(t, part->problem->tokens[part->first + i]);
        slowest = fmax(slowest, of[g]);
    }
    sp_free(of);
    return slowest;
}

static int list_groups(search *s, const numbers *n)
{
    const sp_i_flexsp_problem *problem = s->best->problem;
    int groups = 0;
    for (int k = problem->degrees - 1; k >= 0; k--) {
        for (int j = 0; j < n->of[k]; j++) {
            s->degree[groups] = k;
            s->time[groups] = 0.0;
            s->room[groups++] = problem->rank_tokens * problem->times[k].degree;
        }
    }
    return groups;
}

// The slowest group's time with these groups, HUGE_VAL where a sample finds no room.
static double place(search *s, int groups)
{
    const sp_i_flexsp_problem *problem = s->best->problem;
    double slowest = 0.0;
    s->steps += (double)groups * (double)s->best->count;
    for (size_t i = 0; i < s->best->count; i++) {
        int64_t tokens = problem->tokens[s->best->first + i];
        int chosen = -1;
        double least = HUGE_VAL;
        double work = 0.0;
        for (int g = 0, of = -1; g < groups; g++) {
            const sp_i_flexsp_time *t = &problem->times[s->degree[g]];
            if (s->degree[g] != of) {
                of = s->degree[g];
                work = sp_i_flexsp_work(t, tokens);
            }
            double time = (s->time[g] > 0.0 ? s->time[g] : t->per_pack) + work;
            if (time < least && s->room[g] >= tokens) {
                least = time;
                chosen = g;
            }
        }
        if (chosen < 0) {
            return HUGE_VAL;
        }
        s->time[chosen] = least;
        s->room[chosen] -= tokens;
        s->group_of[i] = chosen;
        slowest = fmax(slowest, least);
        if (slowest >= s->best_time) {
            return HUGE_VAL;
        }
    }
    return slowest;
}

static bool try_numbers(search *s, const numbers *n)
{
    int groups = list_groups(s, n);
    double time = place(s, groups);
    if (time >= s->best_time) {
        return false;
    }
    s->best_time = time;
    s->best_numbers = *n;
    s->best->groups = groups;
    s->best->time = time;
    memcpy(s->best->degree, s->degree, (size_t)groups * sizeof *s->degree);
    memcpy(s->best->group_of, s->group_of, s->best->count * sizeof *s->group_of);
    return true;
}

// Move 2k splits a group of degree index k + 1, move 2k + 1 joins two of index k; the degree of all
// ranks, where it is no power of two, takes no part.
static bool apply(const sp_i_flexsp_problem *problem, int move, numbers *n)
{
    int k = move / 2;
    if (problem->times[k + 1].degree != 2 * problem->times[k].degree) {
        return false;
    }
    int small = move % 2 == 0 ? 2 : -2;
    n->of[k] += small;
    n->of[k + 1] -= small / 2;
    return n->of[k] >= 0 && n->of[k + 1] >= 0;
}

// To the best neighbour, one or two moves away, as long as it is better.
static void climb(search *s, numbers from)
{
    const sp_i_flexsp_problem *problem = s->best->problem;
    int moves = 2 * (problem->degrees - 1);
    bool better = true;
    while (better && s->steps < MOST_STEPS) {
        better = false;
        for (int a = 0; a < moves && !sp_i_deadline_is_past(problem->deadline_s); a++) {
            numbers one = from;
            if (!apply(problem, a, &one)) {
                continue;
            }
            better = try_numbers(s, &one) || better;
            for (int b = a; b < moves && s->steps < MOST_STEPS; b++) {
                numbers two = one;
                better = (apply(problem, b, &two) && try_numbers(s, &two)) || better;
            }
        }
        from = s->best_numbers;
    }
}

// As many groups of a degree as there is room for beside one for the longest sample, the rest of
// the ranks in the largest that fit.
static numbers start_of(const sp_i_flexsp_part *part, int k)
{
    const sp_i_flexsp_problem *problem = part->problem;
    numbers n = {0};
    int left = problem->ranks;
    int needed = 0;
    while (problem->times[needed].degree * problem->rank_tokens < problem->tokens[part->first]) {
        needed++;
    }
    if (needed > k) {
        n.of[needed] = 1;
        left -= problem->times[needed].degree;
    }
    for (; k >= 0; k--) {
        n.of[k] += left / problem->times[k].degree;
        left %= problem->times[k].degree;
    }
    return n;
}

void sp_i_flexsp_search(sp_i_flexsp_part *part)
{
    const sp_i_flexsp_problem *problem = part->problem;
    size_t ranks = (size_t)problem->ranks;
    search s = {.best = part, .best_time = HUGE_VAL};
    sp_arena memory = {0};
    s.degree = sp_arena_take(&memory, ranks, sizeof *s.degree);
    s.time = sp_arena_take(&memory, ranks, sizeof *s.time);
    s.room = sp_arena_take(&memory, ranks, sizeof *s.room);
    s.group_of = sp_arena_take(&memory, part->count, sizeof *s.group_of);
    // The homogeneous ones and their like first: what comes after can only be better.
    for (int k = 0; k < problem->degrees; k++) {
        numbers start = start_of(part, k);
        try_numbers(&s, &start);
    }
    for (int k = 0; k < problem->degrees; k++) {
        climb(&s, start_of(part, k));
    }
    sp_arena_free(&memory);
}
