// FlexSP (Wang et al., arXiv 2412.01523): micro-batches of like lengths, each on groups of
// data-parallel ranks of the degree that suits its samples. The micro-batches follow each other
// without the barrier that ZeRO-3's gathers are in the paper: a rank waits only where it shares a
// pack. Times of groups come from the cost model's forward times, as their linear model from a
// profile.
#include <math.h>

#include "sim/base/alloc.h"
#include "sim/base/progress.h"
#include "sim/base/units.h"
#include "solver/flexsp/flexsp.h"
#include "solver/mip.h"
#include "solver/rows.h"
#include "solver/strategy_list.h"
#include "solver/time_limit.h"

#define DEFAULT_GAP 0.01

// The solver in the paper's artifact has 5 s a batch. That is so many simplex iterations of
// programs with some 200 columns, and unlike time it gives one plan on every machine.
enum { MOST_ITERATIONS = 150000, LEAST_ITERATIONS = 10 };

// Numbers of micro-batches that are tried one by one.
enum { SINGLE_STEPS = 64 };

// A pack of `count` samples with `tokens` in all, the same to a token.
static double time_of(const sp_strategy_input *input, int degree, int64_t count, int64_t tokens,
                      double *squares)
{
    sp_pack_list list = {0};
    sp_pack_list_begin(&list, 0, degree);
    *squares = 0.0;
    for (int64_t i = 0; i < count; i++) {
        int64_t n = tokens / count + (i < tokens % count);
        sp_slice slice = {.sample = (int32_t)i, .tokens = n, .computed_tokens = n};
        sp_pack_list_add(&list, slice, true);
        *squares += (double)n * (double)n;
    }
    double time_s = sp_cost_model_forward_s(input->cost, &list, &list.packs[0]);
    sp_free(list.packs);
    sp_free(list.slices);
    return time_s;
}

// The three coefficients of a degree from three packs: full of short samples, full of one, and an
// eighth full of one.
static sp_i_flexsp_time fit(const sp_strategy_input *input, int degree, int64_t rank_tokens)
{
    const sp_batch *batch = input->batch;
    int64_t mean = batch->total_tokens / (int64_t)batch->count;
    int64_t full = rank_tokens * degree < 16 ? 16 : rank_tokens * degree;
    int64_t shorts = full / (mean > 0 ? mean : 1);
    shorts = shorts < 2 ? 2 : shorts > 4096 ? 4096 : shorts;
    double seconds[3];
    double squares[3];
    seconds[0] = time_of(input, degree, shorts, full, &squares[0]);
    seconds[1] = time_of(input, degree, 1, full, &squares[1]);
    seconds[2] = time_of(input, degree, 1, full / 8, &squares[2]);
    sp_i_flexsp_time time = {.degree = degree};
    time.per_square = fmax(0.0, (seconds[1] - seconds[0]) / (squares[1] - squares[0]));
    double many_s = seconds[0] - time.per_square * squares[0];
    double few_s = seconds[2] - time.per_square * squares[2];
    time.per_token = fmax(0.0, (many_s - few_s) / (double)(full - full / 8));
    time.per_pack = fmax(0.0, many_s - time.per_token * (double)full);
    return time;
}

static void add_packs(const sp_i_flexsp_plan *plan, const int32_t *order, sp_packing *packing)
{
    size_t count = packing->batch->count;
    size_t *next = sp_calloc(plan->group_count + 2, sizeof *next);
    int32_t *sorted = sp_malloc(count * sizeof *sorted);
    for (size_t i = 0; i < count; i++) {
        next[plan->group_of[i] + 2]++;
    }
    for (size_t g = 2; g < plan->group_count + 2; g++) {
        next[g] += next[g - 1];
    }
    for (size_t i = 0; i < count; i++) {
        sorted[next[plan->group_of[i] + 1]++] = order[i];
    }
    for (size_t g = 0; g < plan->group_count; g++) {
        const sp_i_flexsp_group *group = &plan->groups[g];
        sp_pack_list_begin(&packing->forward, group->first_rank, group->degree);
        for (size_t i = next[g]; i < next[g + 1]; i++) {
            sp_i_add_sample(packing, sorted[i]);
        }
    }
    sp_free(next);
    sp_free(sorted);
}

sp_status sp_i_pack_flexsp(const sp_strategy_input *input, sp_packing *packing, sp_error *err)
{
    const sp_batch *batch = input->batch;
    const sp_strategy_spec *spec = &input->scenario->strategy;
    int dp = input->scenario->layout.dp;
    sp_packing_init(packing, batch, dp);
    sp_i_flexsp_problem problem = {
        .ranks = dp,
        .rank_tokens = sp_i_merged_rank_tokens(input),
        .count = batch->count,
        .time_limit_ms = sp_i_deadline_left_ms(input->deadline_s),
        .deadline_s = input->deadline_s,
        .iteration_limit = MOST_ITERATIONS,
        .mip_gap = spec->mip_gap >= 0.0 ? spec->mip_gap : DEFAULT_GAP,
    };
    sp_i_flexsp_plan plan;
    sp_status status = sp_i_merged_check(input, err);
    if (status != SP_OK) {
        return status;
    }
    for (int degree = 1;; degree = sp_i_merged_next(degree, dp)) {
        problem.times[problem.degrees++] = fit(input, degree, problem.rank_tokens);
        if (degree == dp) {
            break;
        }
    }
    int32_t *order = sp_i_order_descending(batch);
    int64_t *tokens = sp_malloc(batch->count * sizeof *tokens);
    for (size_t i = 0; i < batch->count; i++) {
        tokens[i] = batch->tokens[order[i]];
    }
    problem.tokens = tokens;
    status = sp_i_flexsp_solve(&problem, &plan, err);
    if (status == SP_OK) {
        add_packs(&plan, order, packing);
        sp_i_merged_order(input, packing);
    }
    sp_i_flexsp_plan_fini(&plan);
    sp_free(order);
    sp_free(tokens);
    return status;
}

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
// dynamic programme; both give the optimum).
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

static void add_part(const sp_i_flexsp_part *part, int microbatch, sp_i_flexsp_plan *plan)
{
    size_t base = plan->group_count;
    sp_reserve((void **)&plan->groups, &plan->group_capacity, base + (size_t)part->groups,
               sizeof *plan->groups);
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
}

// Groups without samples go.
static void drop_empty(sp_i_flexsp_plan *plan, size_t count)
{
    int32_t *renamed = sp_malloc(plan->group_count * sizeof *renamed);
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
    sp_free(renamed);
}

// Enough for each micro-batch, that a program may come to an end?
static bool leaves_iterations(const sp_i_flexsp_problem *problem, size_t runs)
{
    return problem->iteration_limit == 0 ||
           (int64_t)runs <= problem->iteration_limit / LEAST_ITERATIONS;
}

// *fits: every micro-batch found groups.
static sp_status solve_parts(const sp_i_flexsp_problem *problem, double started_s,
                             const size_t *first, size_t runs, sp_i_flexsp_plan *plan, bool *fits,
                             sp_error *err)
{
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
        sp_i_flexsp_part_init(&part, problem, first[m], first[m + 1] - first[m]);
        sp_i_flexsp_search(&part);
        *fits = part.time < HUGE_VAL;
        if (*fits && problem->time_limit_ms > 0 && leaves_iterations(problem, runs)) {
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
        if (*fits && status == SP_OK) {
            add_part(&part, (int)m, plan);
        }
        sp_i_flexsp_part_fini(&part);
    }
    return status;
}

sp_status sp_i_flexsp_solve(const sp_i_flexsp_problem *problem, sp_i_flexsp_plan *plan,
                            sp_error *err)
{
    double started_s = sp_clock_s();
    *plan = (sp_i_flexsp_plan){0};
    size_t *first = sp_malloc((problem->count + 1) * sizeof *first);
    plan->group_of = sp_malloc(problem->count * sizeof *plan->group_of);
    sp_status status = SP_OK;
    int64_t total = 0;
    for (size_t i = 0; i < problem->count; i++) {
        total += problem->tokens[i];
    }
    // Filled one after the other they are as few as hold no more than all ranks do. Every sample
    // fits all ranks, so as many micro-batches as samples always do. After some steps of one they
    // are larger, so that few more follow.
    bool fits = problem->count == 0;
    size_t runs = fits ? 0 : cut(problem, problem->rank_tokens * problem->ranks, first);
    for (int tried = 0; status == SP_OK && !fits; tried++) {
        int64_t most = least_largest_sum(problem, runs, total, first);
        size_t made = cut(problem, most, first);
        status = solve_parts(problem, started_s, first, made, plan, &fits, err);
        runs += 1 + (tried < SINGLE_STEPS ? 0 : runs / SINGLE_STEPS);
    }
    if (status == SP_OK) {
        drop_empty(plan, problem->count);
    } else {
        sp_i_flexsp_plan_fini(plan);
    }
    sp_free(first);
    return status;
}

void sp_i_flexsp_plan_fini(sp_i_flexsp_plan *plan)
{
    sp_free(plan->groups);
    sp_free(plan->group_of);
    *plan = (sp_i_flexsp_plan){0};
}
