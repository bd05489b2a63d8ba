// FlexSP (Wang et al., arXiv 2412.01523): micro-batches of like lengths, each on groups of
// data-parallel ranks of the degree that suits its samples. The micro-batches follow each other
// without the barrier that ZeRO-3's gathers are in the paper: a rank waits only where it shares a
// pack. Times of groups come from the cost model's forward times, as their linear model from a
// profile.
#include "solver/flexsp/flexsp.h"

#include <math.h>
#include <string.h>

#include "sim/base/alloc.h"
#include "sim/base/progress.h"
#include "sim/base/units.h"
#include "solver/mip.h"
#include "solver/rows.h"
#include "solver/search.h"
#include "solver/strategy_list.h"

// A micro-batch: samples [first, first + count) of the problem, and groups for it.
typedef struct microbatch_groups {
    const sp_i_flexsp_problem *problem;
    size_t first, count;
    int *degree; // [ranks] index into problem->times, by descending degree
    int groups;
    int32_t *group_of; // [count]
    double time;       // of the slowest group; HUGE_VAL: none holds all samples
} microbatch_groups;

// Time that a sample adds to a group.
static inline double group_work(const sp_i_flexsp_time *time, int64_t tokens)
{
    double n = (double)tokens;
    return (time->per_square * n + time->per_token) * n;
}

#define DEFAULT_GAP 0.01

// The solver in the paper's artifact has 5 s a batch. That is so many simplex iterations of
// programs with some 200 columns, and unlike time it gives one plan on every machine.
enum { MOST_ITERATIONS = 150000, LEAST_ITERATIONS = 10 };

// Numbers of micro-batches that are tried one by one.
enum { SINGLE_STEPS = 64 };

static void groups_init(microbatch_groups *part, const sp_i_flexsp_problem *problem, size_t first,
                        size_t count);
static void groups_fini(microbatch_groups *part);
static double slowest_time(const microbatch_groups *part);
static void search_groups(microbatch_groups *part);
static sp_status improve_by_program(microbatch_groups *part, int64_t time_limit_ms,
                                    int64_t iteration_limit, sp_i_mip_result *result,
                                    bool *improved, sp_error *err);

// A pack of `count` samples with `tokens` in all, the same to a token.
static double time_of(const sp_strategy_input *input, int degree, int64_t count, int64_t tokens,
                      double *squares)
{
    sp_pack_list list = {.padding = input->batch->padding};
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
    SP_TRY(sp_i_merged_check(input, err));
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
    sp_status status = sp_i_flexsp_solve(&problem, &plan, err);
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

// The rest of a limit of time that began at `started_s`.
static int64_t left_ms(int64_t limit_ms, double started_s)
{
    return limit_ms == SP_I_NO_TIME_LIMIT ? limit_ms
                                          : limit_ms - (int64_t)(1e3 * (sp_clock_s() - started_s));
}

// The rest of a limit of iterations, at least one; 0: any.
static int64_t share_of(int64_t limit, int64_t spent, int64_t parts)
{
    return limit == 0 ? 0 : limit > spent + parts ? (limit - spent) / parts : 1;
}

static void add_part(const microbatch_groups *part, int microbatch, sp_i_flexsp_plan *plan)
{
    size_t base = plan->group_count;
    SP_RESERVE(plan->groups, plan->group_capacity, base + (size_t)part->groups);
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
        microbatch_groups part;
        groups_init(&part, problem, first[m], first[m + 1] - first[m]);
        search_groups(&part);
        *fits = part.time < HUGE_VAL;
        if (*fits && problem->time_limit_ms > 0 && leaves_iterations(problem, runs)) {
            sp_i_mip_result result;
            bool improved = false;
            int64_t parts = (int64_t)(runs - m);
            status = improve_by_program(&part, left_ms(problem->time_limit_ms, started_s) / parts,
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
        groups_fini(&part);
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

// ---- by an integer program ----

// Groups of a micro-batch by an integer program (FlexSP, section 4.1.3): virtual groups of every
// degree, each used or not, and how many samples of each length bucket go to it.

enum {
    BUCKETS = 16,        // the paper's
    MOST_LENGTHS = 2048, // different lengths of a micro-batch: the bucketing is quadratic in them
    MOST_COLUMNS = 600,
    MOST_NODES = 400,
    FEW_RANKS = 8,
    SPARE = 1,
};

// The solver takes a value this close to a whole number for whole. Samples that fill less of a
// group would leave it unused, and get a row of their own.
#define LEAST_SHARE 1e-4

typedef struct bucket {
    int64_t tokens; // of the longest, as which all count against the room of a rank
    size_t first;   // of the part's samples, longest first
    int64_t count;
    double sum, sum_squares; // of the real tokens
} bucket;

typedef struct group {
    int degree; // index into problem->times
    int used;   // columns; of each bucket, -1: none
    int column[BUCKETS];
} group;

typedef struct program {
    microbatch_groups *part;
    bucket buckets[BUCKETS];
    int bucket_count;
    group *groups;
    int group_count;
    sp_i_mip mip;
} program;

// Boundaries with the least sum of (longest of the bucket - sample), by dynamic programming over
// the different lengths: least[b][j] for the lengths below j in b + 1 buckets. False: there are too
// many.
static bool make_buckets(program *p)
{
    const int64_t *tokens = p->part->problem->tokens + p->part->first;
    size_t n = p->part->count;
    size_t lengths = 0;
    for (size_t i = 0; i < n; i++) {
        lengths += i == 0 || tokens[i] != tokens[i - 1];
    }
    if (lengths > MOST_LENGTHS) {
        return false;
    }
    sp_arena memory = {0};
    // Counts the samples of a length.
    size_t *begin = sp_arena_take(&memory, lengths + 1, sizeof *begin);
    double *sum = sp_arena_take(&memory, lengths + 1, sizeof *sum);
    double *least = sp_arena_take(&memory, BUCKETS * (lengths + 1), sizeof *least);
    size_t *from = sp_arena_take(&memory, BUCKETS * (lengths + 1), sizeof *from);
    size_t u = 0;
    sum[0] = 0.0;
    for (size_t i = 0; i < n; i++) {
        if (i == 0 || tokens[i] != tokens[i - 1]) {
            begin[u++] = i;
            sum[u] = sum[u - 1];
        }
        sum[u] += (double)tokens[i];
    }
    begin[lengths] = n;
    for (size_t b = 0; b < BUCKETS; b++) {
        for (size_t j = 0; j <= lengths; j++) {
            double *best = &least[b * (lengths + 1) + j];
            *best = j == 0 ? 0.0 : HUGE_VAL;
            from[b * (lengths + 1) + j] = 0;
            // The last bucket holds lengths i .. j - 1, the longest first.
            for (size_t i = b == 0 ? 0 : 1; i < j && (b > 0 || i == 0); i++) {
                double before = b == 0 ? 0.0 : least[(b - 1) * (lengths + 1) + i];
                double error =
                    (double)tokens[begin[i]] * (double)(begin[j] - begin[i]) - (sum[j] - sum[i]);
                if (before + error < *best) {
                    *best = before + error;
                    from[b * (lengths + 1) + j] = i;
                }
            }
        }
    }
    p->bucket_count = lengths < BUCKETS ? (int)lengths : BUCKETS;
    size_t j = lengths;
    for (int b = p->bucket_count - 1; b >= 0; b--) {
        size_t i = from[(size_t)b * (lengths + 1) + j];
        bucket *k = &p->buckets[b];
        *k = (bucket){.tokens = tokens[begin[i]],
                      .first = begin[i],
                      .count = (int64_t)(begin[j] - begin[i]),
                      .sum = sum[j] - sum[i]};
        for (size_t s = begin[i]; s < begin[j]; s++) {
            k->sum_squares += (double)tokens[s] * (double)tokens[s];
        }
        j = i;
    }
    sp_arena_free(&memory);
    return true;
}

// Virtual groups of a degree: all there is room for where few ranks make few groups, else one more
// than the search found. (All 127 of 64 ranks are beyond GLPK: their relaxation uses a
// little of each.)
static int groups_of(const microbatch_groups *part, int k)
{
    int most = part->problem->ranks / part->problem->times[k].degree;
    int known = 0;
    for (int g = 0; g < part->groups; g++) {
        known += part->degree[g] == k;
    }
    if (part->problem->ranks > FEW_RANKS && known + SPARE < most) {
        most = known + SPARE;
    }
    return (size_t)most < part->count ? most : (int)part->count;
}

// False: they have too many columns.
static bool make_groups(program *p)
{
    const sp_i_flexsp_problem *problem = p->part->problem;
    int groups = 0;
    for (int k = 0; k < problem->degrees; k++) {
        groups += groups_of(p->part, k);
    }
    if (groups > MOST_COLUMNS / (p->bucket_count + 1)) {
        return false;
    }
    p->groups = sp_malloc((size_t)groups * sizeof *p->groups);
    for (int k = problem->degrees - 1; k >= 0; k--) {
        for (int j = groups_of(p->part, k); j > 0; j--) {
            p->groups[p->group_count++] = (group){.degree = k};
        }
    }
    return true;
}

static double room_of(const program *p, const group *g)
{
    const sp_i_flexsp_problem *problem = p->part->problem;
    return (double)problem->rank_tokens * problem->times[g->degree].degree;
}

// A group with any sample is used.
static void count_samples(program *p, const group *of)
{
    sp_i_mip *mip = &p->mip;
    if ((double)p->buckets[p->bucket_count - 1].tokens / room_of(p, of) >= LEAST_SHARE) {
        return;
    }
    sp_i_mip_add_row(mip, -HUGE_VAL, 0.0);
    sp_i_mip_add_term(mip, of->used, -1.0);
    for (int b = 0; b < p->bucket_count; b++) {
        if (of->column[b] >= 0) {
            sp_i_mip_add_term(mip, of->column[b], 1.0 / (double)p->part->count);
        }
    }
}

// Minimise the slowest group's time, which has to be at least `gap` below that of the groups known.
static void write_program(program *p)
{
    const sp_i_flexsp_problem *problem = p->part->problem;
    sp_i_mip *mip = &p->mip;
    // Divided by the known time, all coefficients are near 1.
    double unit = p->part->time;
    int slowest = sp_i_mip_add_column(mip, 0.0, 1.0 - problem->mip_gap, 1.0, false);
    for (int g = 0; g < p->group_count; g++) {
        group *of = &p->groups[g];
        of->used = sp_i_mip_add_column(mip, 0.0, 1.0, 0.0, true);
        for (int b = 0; b < p->bucket_count; b++) {
            const bucket *k = &p->buckets[b];
            double most = floor(room_of(p, of) / (double)k->tokens);
            most = fmin(most, (double)k->count);
            of->column[b] = most < 1.0 ? -1 : sp_i_mip_add_column(mip, 0.0, most, 0.0, true);
        }
    }
    for (int b = 0; b < p->bucket_count; b++) {
        sp_i_mip_add_row(mip, (double)p->buckets[b].count, (double)p->buckets[b].count);
        for (int g = 0; g < p->group_count; g++) {
            if (p->groups[g].column[b] >= 0) {
                sp_i_mip_add_term(mip, p->groups[g].column[b], 1.0);
            }
        }
    }
    for (int g = 0; g < p->group_count; g++) {
        const group *of = &p->groups[g];
        const sp_i_flexsp_time *t = &problem->times[of->degree];
        sp_i_mip_add_row(mip, -HUGE_VAL, 0.0);
        sp_i_mip_add_term(mip, of->used, -1.0);
        for (int b = 0; b < p->bucket_count; b++) {
            if (of->column[b] >= 0) {
                sp_i_mip_add_term(mip, of->column[b],
                                  (double)p->buckets[b].tokens / room_of(p, of));
            }
        }
        count_samples(p, of);
        sp_i_mip_add_row(mip, -HUGE_VAL, 0.0);
        sp_i_mip_add_term(mip, slowest, -1.0);
        sp_i_mip_add_term(mip, of->used, t->per_pack / unit);
        for (int b = 0; b < p->bucket_count; b++) {
            const bucket *k = &p->buckets[b];
            if (of->column[b] >= 0) {
                double work = t->per_square * k->sum_squares + t->per_token * k->sum;
                sp_i_mip_add_term(mip, of->column[b], work / (double)k->count / unit);
            }
        }
        // Groups of a degree are alike: the first are used.
        if (g > 0 && p->groups[g - 1].degree == of->degree) {
            sp_i_mip_add_row(mip, 0.0, HUGE_VAL);
            sp_i_mip_add_term(mip, p->groups[g - 1].used, 1.0);
            sp_i_mip_add_term(mip, of->used, -1.0);
        }
    }
    sp_i_mip_add_row(mip, -HUGE_VAL, problem->ranks);
    for (int g = 0; g < p->group_count; g++) {
        sp_i_mip_add_term(mip, p->groups[g].used, problem->times[p->groups[g].degree].degree);
    }
}

static int64_t samples_in(const program *p, const group *of, const double *value)
{
    int64_t samples = 0;
    for (int b = 0; b < p->bucket_count; b++) {
        samples += of->column[b] < 0 ? 0 : (int64_t)value[of->column[b]];
    }
    return samples;
}

// Does every sample have a group, and every group its ranks? What is whole only within the solver's
// tolerance may break either.
static bool is_whole(const program *p, const double *value)
{
    int64_t ranks = 0;
    int64_t left[BUCKETS] = {0};
    for (int b = 0; b < p->bucket_count; b++) {
        left[b] = p->buckets[b].count;
    }
    for (int g = 0; g < p->group_count; g++) {
        const group *of = &p->groups[g];
        ranks += samples_in(p, of, value) > 0 ? p->part->problem->times[of->degree].degree : 0;
        for (int b = 0; b < p->bucket_count; b++) {
            left[b] -= of->column[b] < 0 ? 0 : (int64_t)value[of->column[b]];
        }
    }
    bool whole = ranks <= p->part->problem->ranks;
    for (int b = 0; b < p->bucket_count; b++) {
        whole = whole && left[b] == 0;
    }
    return whole;
}

// The program's groups with the real lengths; true: they are faster, and kept.
static bool adopt(program *p, const double *value)
{
    microbatch_groups *part = p->part;
    microbatch_groups other;
    groups_init(&other, part->problem, part->first, part->count);
    size_t next[BUCKETS];
    for (int b = 0; b < p->bucket_count; b++) {
        next[b] = p->buckets[b].first;
    }
    for (int g = 0; g < p->group_count; g++) {
        if (samples_in(p, &p->groups[g], value) == 0) {
            continue;
        }
        for (int b = 0; b < p->bucket_count; b++) {
            int column = p->groups[g].column[b];
            for (double x = column < 0 ? 0.0 : value[column]; x > 0.5; x -= 1.0) {
                other.group_of[next[b]++] = other.groups;
            }
        }
        other.degree[other.groups++] = p->groups[g].degree;
    }
    other.time = slowest_time(&other);
    bool improved = other.time < part->time;
    if (improved) {
        microbatch_groups worse = *part;
        *part = other;
        other = worse;
    }
    groups_fini(&other);
    return improved;
}

// Replaces the part's groups by those of the integer program if they are faster.
static sp_status improve_by_program(microbatch_groups *part, int64_t time_limit_ms,
                                    int64_t iteration_limit, sp_i_mip_result *result,
                                    bool *improved, sp_error *err)
{
    program p = {.part = part};
    double *value = NULL;
    // A program in units of the known time; no groups are faster than none.
    bool small = part->groups > 0 && part->problem->ranks > 1 && part->time > 0.0;
    sp_status status = SP_OK;
    *result = (sp_i_mip_result){.outcome = SP_I_MIP_UNKNOWN};
    *improved = false;
    sp_i_mip_init(&p.mip);
    if (small && make_buckets(&p) && make_groups(&p)) {
        write_program(&p);
        value = sp_malloc((p.mip.column_count + 1) * sizeof *value);
        const sp_i_mip_options options = {.time_limit_ms = time_limit_ms,
                                          .gap = part->problem->mip_gap,
                                          .node_limit = MOST_NODES,
                                          .iteration_limit = iteration_limit};
        status = sp_i_mip_solve(&p.mip, &options, result, value, err);
    }
    bool found = result->outcome == SP_I_MIP_OPTIMAL || result->outcome == SP_I_MIP_FEASIBLE;
    if (status == SP_OK && found && !result->timed_out && is_whole(&p, value)) {
        *improved = adopt(&p, value);
    }
    sp_i_mip_fini(&p.mip);
    sp_free(p.groups);
    sp_free(value);
    return status;
}

// ---- by a local search ----

// Groups of a micro-batch by local search over how many there are of each degree. The samples of
// given groups are placed longest first, each where the group's time is then least.

// Placements of samples tried against groups, for one micro-batch: about a second.
#define MOST_STEPS 2e8

typedef struct numbers {
    int of[SP_I_FLEXSP_DEGREES];
} numbers;

typedef struct search {
    microbatch_groups *best;
    numbers best_numbers;
    double best_time;
    int *degree; // [ranks]
    double *time;
    int64_t *room;
    int32_t *group_of; // [count]
    double steps;
} search;

static void groups_init(microbatch_groups *part, const sp_i_flexsp_problem *problem, size_t first,
                        size_t count)
{
    *part =
        (microbatch_groups){.problem = problem, .first = first, .count = count, .time = HUGE_VAL};
    part->degree = sp_malloc((size_t)problem->ranks * sizeof *part->degree);
    part->group_of = sp_malloc(count * sizeof *part->group_of);
}

static void groups_fini(microbatch_groups *part)
{
    sp_free(part->degree);
    sp_free(part->group_of);
    *part = (microbatch_groups){0};
}

// The slowest group of the part as it stands.
static double slowest_time(const microbatch_groups *part)
{
    double *of = sp_calloc((size_t)part->groups, sizeof *of);
    double slowest = 0.0;
    for (size_t i = 0; i < part->count; i++) {
        int g = part->group_of[i];
        const sp_i_flexsp_time *t = &part->problem->times[part->degree[g]];
        of[g] += (of[g] > 0.0 ? 0.0 : t->per_pack) +
                 group_work(t, part->problem->tokens[part->first + i]);
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
                work = group_work(t, tokens);
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
static numbers start_of(const microbatch_groups *part, int k)
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

// Fills the part by local search.
static void search_groups(microbatch_groups *part)
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
