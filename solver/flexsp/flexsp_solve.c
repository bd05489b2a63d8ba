#include "solver/flexsp/flexsp_solve.h"

#include <math.h>

#include "sim/base/alloc.h"
#include "sim/base/progress.h"
#include "sim/base/units.h"

// Where consecutive runs of at most `most` tokens begin. Returns their number.
static size_t cut(const sp_i_flexsp_problem *problem, int64_t most, size_t *first)
{
    size_t runs = 0;
    int64_t sum = 0;
    for (size_t i = 0; i < problem->count; i++) {
        if (i == 0 || sum + problem->tokens[i] > most) {
            first[runs++] = i;
            sum = 0;
        }
        sum += problem->tokens[i];
    }
    first[runs] = problem->count;
    return runs;
}

// The smallest largest sum of at most `runs` consecutive runs (by bisection where the paper has a
// dynamic programme: the same optimum).
static int64_t least_largest_sum(const sp_i_flexsp_problem *problem, size_t runs, int64_t total,
                                 size_t *first)
{
    int64_t low = problem->tokens[0];
    int64_t high = total;
    while (low < high) {
        int64_t middle = low + (high - low) / 2;
        if (cut(problem, middle, first) <= runs) {
            high = middle;
        } else {
            low = middle + 1;
        }
    }
    return low;
}

// What is left of a limit of time that began at `started_s`.
static int64_t left_ms(int64_t limit_ms, double started_s)
{
    return limit_ms == SP_I_NO_TIME_LIMIT ? limit_ms
                                          : limit_ms - (int64_t)(1e3 * (sp_clock_s() - started_s));
}

// Of what is left of a limit of iterations, at least one; 0: any.
static int64_t share_of(int64_t limit, int64_t spent, int64_t parts)
{
    return limit == 0 ? 0 : limit > spent + parts ? (limit - spent) / parts : 1;
}

static bool add_part(const sp_i_flexsp_part *part, int microbatch, sp_i_flexsp_plan *plan)
{
    size_t base = plan->group_count;
    if (!sp_i_reserve((void **)&plan->groups, &plan->group_capacity, base + (size_t)part->groups,
                      sizeof *plan->groups)) {
        return false;
    }
    int rank = 0;
    for (int g = 0; g < part->groups; g++) {
        int degree = part->problem->times[part->degree[g]].degree;
        plan->groups[plan->group_count++] =
            (sp_i_flexsp_group){.microbatch = microbatch, .first_rank = rank, .degree = degree};
        rank += degree;
    }
    for (size_t i = 0; i < part->count; i++) {
        plan->group_of[part->first + i] = (int32_t)base + part->group_of[i];
    }
    plan->time += part->time;
    return true;
}

// Groups without samples go.
static sp_status drop_empty(sp_i_flexsp_plan *plan, size_t count, sp_error *err)
{
    int32_t *renamed = sp_i_malloc(plan->group_count * sizeof *renamed);
    if (renamed == NULL) {
        return sp_error_no_memory(err, "groups");
    }
    for (size_t g = 0; g < plan->group_count; g++) {
        renamed[g] = -1;
    }
    for (size_t i = 0; i < count; i++) {
        renamed[plan->group_of[i]] = 0;
    }
    size_t kept = 0;
    for (size_t g = 0; g < plan->group_count; g++) {
        if (renamed[g] == 0) {
            renamed[g] = (int32_t)kept;
            plan->groups[kept++] = plan->groups[g];
        }
    }
    plan->group_count = kept;
    for (size_t i = 0; i < count; i++) {
        plan->group_of[i] = renamed[plan->group_of[i]];
    }
    sp_i_free(renamed);
    return SP_OK;
}

// *fits: every micro-batch found groups.
static sp_status solve_parts(const sp_i_flexsp_problem *problem, const size_t *first, size_t runs,
                             sp_i_flexsp_plan *plan, bool *fits, sp_error *err)
{
    double started_s = sp_clock_s();
    int64_t spent = 0; // simplex iterations
    sp_status status = SP_OK;
    *fits = true;
    plan->group_count = 0;
    plan->microbatches = (int)runs;
    plan->improved = 0;
    plan->proven = 0;
    plan->time = 0.0;
    for (size_t m = 0; status == SP_OK && *fits && m < runs; m++) {
        sp_i_flexsp_part part;
        status = sp_i_flexsp_part_init(&part, problem, first[m], first[m + 1] - first[m], err);
        if (status == SP_OK) {
            status = sp_i_flexsp_search(&part, err);
        }
        *fits = status == SP_OK && part.time < HUGE_VAL;
        if (*fits && problem->time_limit_ms > 0) {
            sp_i_mip_result result;
            bool improved = false;
            int64_t parts = (int64_t)(runs - m);
            status = sp_i_flexsp_improve(&part, left_ms(problem->time_limit_ms, started_s) / parts,
                                         share_of(problem->iteration_limit, spent, parts), &result,
                                         &improved, err);
            spent += result.iterations;
            plan->improved += improved;
            plan->proven += result.outcome == SP_I_MIP_INFEASIBLE ||
                            (improved && result.outcome == SP_I_MIP_OPTIMAL);
            plan->timed_out = plan->timed_out || result.timed_out;
        }
        if (*fits && status == SP_OK && !add_part(&part, (int)m, plan)) {
            status = sp_error_no_memory(err, "groups");
        }
        sp_i_flexsp_part_fini(&part);
    }
    return status;
}

sp_status sp_i_flexsp_solve(const sp_i_flexsp_problem *problem, sp_i_flexsp_plan *plan,
                            sp_error *err)
{
    *plan = (sp_i_flexsp_plan){0};
    size_t *first = sp_i_malloc((problem->count + 1) * sizeof *first);
    plan->group_of = sp_i_malloc(problem->count * sizeof *plan->group_of);
    sp_status status = SP_OK;
    if (first == NULL || plan->group_of == NULL) {
        status = sp_error_no_memory(err, "groups");
    }
    int64_t total = 0;
    for (size_t i = 0; i < problem->count; i++) {
        total += problem->tokens[i];
    }
    // Every sample fits all ranks, so as many micro-batches as samples always do.
    size_t runs = (size_t)sp_ceil_div(total, problem->rank_tokens * problem->ranks);
    bool fits = problem->count == 0;
    while (status == SP_OK && !fits) {
        int64_t most = least_largest_sum(problem, runs, total, first);
        if (most <= problem->rank_tokens * problem->ranks) {
            size_t made = cut(problem, most, first);
            status = solve_parts(problem, first, made, plan, &fits, err);
        }
        runs++;
    }
    if (status == SP_OK) {
        status = drop_empty(plan, problem->count, err);
    }
    if (status != SP_OK) {
        sp_i_flexsp_plan_fini(plan);
    }
    sp_i_free(first);
    return status;
}

void sp_i_flexsp_plan_fini(sp_i_flexsp_plan *plan)
{
    sp_i_free(plan->groups);
    sp_i_free(plan->group_of);
    *plan = (sp_i_flexsp_plan){0};
}
