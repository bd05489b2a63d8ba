// FlexSP (Wang et al., arXiv 2412.01523): micro-batches of like lengths, each on groups of
// data-parallel ranks of the degree that suits its samples. The micro-batches follow each other
// without the barrier that ZeRO-3's gathers are in the paper: a rank waits only where it shares a
// pack. Times of groups come from the cost model's forward times, as their linear model from a
// profile.
#include <math.h>

#include "sim/base/alloc.h"
#include "solver/flexsp/flexsp_solve.h"
#include "solver/merged.h"
#include "solver/mip.h"
#include "solver/rows.h"
#include "solver/strategy_list.h"

#define DEFAULT_GAP 0.01

// The solver in the paper's artifact has 5 s a batch. That is so many simplex iterations of
// programs with some 200 columns, and unlike time it gives one plan on every machine.
enum { MOST_ITERATIONS = 150000 };

// A pack of `count` samples with `tokens` in all, the same to a token.
static sp_status time_of(const sp_strategy_input *input, int degree, int64_t count, int64_t tokens,
                         double *time_s, double *squares, sp_error *err)
{
    sp_pack_list list = {0};
    bool ok = sp_pack_list_begin(&list, 0, degree);
    *squares = 0.0;
    for (int64_t i = 0; ok && i < count; i++) {
        int64_t n = tokens / count + (i < tokens % count);
        sp_slice slice = {.sample = (int32_t)i, .tokens = n, .computed_tokens = n};
        ok = sp_pack_list_add(&list, slice, true);
        *squares += (double)n * (double)n;
    }
    if (ok) {
        *time_s = sp_cost_model_forward_s(input->cost, &list, &list.packs[0]);
    }
    sp_i_free(list.packs);
    sp_i_free(list.slices);
    return ok ? SP_OK : sp_error_no_memory(err, "a pack");
}

// The three coefficients of a degree from three packs: full of short samples, full of one, and an
// eighth full of one.
static sp_status fit(const sp_strategy_input *input, int degree, int64_t rank_tokens,
                     sp_i_flexsp_time *time, sp_error *err)
{
    const sp_batch *batch = input->batch;
    int64_t mean = batch->total_tokens / (int64_t)batch->count;
    int64_t full = rank_tokens * degree < 16 ? 16 : rank_tokens * degree;
    int64_t shorts = full / (mean > 0 ? mean : 1);
    shorts = shorts < 2 ? 2 : shorts > 4096 ? 4096 : shorts;
    double seconds[3] = {0};
    double squares[3] = {0};
    sp_status status = time_of(input, degree, shorts, full, &seconds[0], &squares[0], err);
    if (status == SP_OK) {
        status = time_of(input, degree, 1, full, &seconds[1], &squares[1], err);
    }
    if (status == SP_OK) {
        status = time_of(input, degree, 1, full / 8, &seconds[2], &squares[2], err);
    }
    time->degree = degree;
    time->per_square = fmax(0.0, (seconds[1] - seconds[0]) / (squares[1] - squares[0]));
    double many_s = seconds[0] - time->per_square * squares[0];
    double few_s = seconds[2] - time->per_square * squares[2];
    time->per_token = fmax(0.0, (many_s - few_s) / (double)(full - full / 8));
    time->per_pack = fmax(0.0, many_s - time->per_token * (double)full);
    return status;
}

static sp_status add_packs(const sp_i_flexsp_plan *plan, const int32_t *order, sp_packing *packing,
                           sp_error *err)
{
    size_t count = packing->batch->count;
    size_t *next = sp_i_calloc(plan->group_count + 2, sizeof *next);
    int32_t *sorted = sp_i_malloc(count * sizeof *sorted);
    bool ok = next != NULL && sorted != NULL;
    for (size_t i = 0; ok && i < count; i++) {
        next[plan->group_of[i] + 2]++;
    }
    for (size_t g = 2; ok && g < plan->group_count + 2; g++) {
        next[g] += next[g - 1];
    }
    for (size_t i = 0; ok && i < count; i++) {
        sorted[next[plan->group_of[i] + 1]++] = order[i];
    }
    for (size_t g = 0; ok && g < plan->group_count; g++) {
        const sp_i_flexsp_group *group = &plan->groups[g];
        ok = sp_pack_list_begin(&packing->forward, group->first_rank, group->degree);
        for (size_t i = next[g]; ok && i < next[g + 1]; i++) {
            ok = sp_i_merged_add(packing, sorted[i]);
        }
    }
    sp_i_free(next);
    sp_i_free(sorted);
    return ok ? SP_OK : sp_error_no_memory(err, "a packing");
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
        .time_limit_ms = spec->time_limit_ms > 0 ? spec->time_limit_ms : SP_I_NO_TIME_LIMIT,
        .iteration_limit = MOST_ITERATIONS,
        .mip_gap = spec->mip_gap >= 0.0 ? spec->mip_gap : DEFAULT_GAP,
    };
    sp_i_flexsp_plan plan = {0};
    int32_t *order = NULL;
    int64_t *tokens = NULL;
    sp_status status = sp_i_merged_check(input, err);
    for (int degree = 1; status == SP_OK; degree = sp_i_merged_next(degree, dp)) {
        status = fit(input, degree, problem.rank_tokens, &problem.times[problem.degrees++], err);
        if (degree == dp) {
            break;
        }
    }
    if (status == SP_OK) {
        status = sp_i_order_descending(batch, &order, err);
    }
    if (status == SP_OK) {
        tokens = sp_i_malloc(batch->count * sizeof *tokens);
        status = tokens != NULL ? SP_OK : sp_error_no_memory(err, "sorting samples");
    }
    for (size_t i = 0; status == SP_OK && i < batch->count; i++) {
        tokens[i] = batch->tokens[order[i]];
    }
    if (status == SP_OK) {
        problem.tokens = tokens;
        status = sp_i_flexsp_solve(&problem, &plan, err);
    }
    if (status == SP_OK) {
        status = add_packs(&plan, order, packing, err);
    }
    if (status == SP_OK) {
        status = sp_i_merged_order(input, packing, err);
    }
    if (status != SP_OK) {
        sp_packing_fini(packing);
    }
    sp_i_flexsp_plan_fini(&plan);
    sp_i_free(order);
    sp_i_free(tokens);
    return status;
}
