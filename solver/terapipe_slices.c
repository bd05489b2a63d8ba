#include "solver/slicing.h"

#include <stdlib.h>

#include "sim/base/alloc.h"
#include "sim/base/order.h"
#include "solver/time_limit.h"

// Positions 0 .. count are where slices may begin and end.
typedef struct search {
    const sp_terapipe_problem *problem;
    sp_arena memory; // of the tables
    size_t count;
    size_t most;      // positions of a slice
    int64_t *time;    // of the slice from position i to j, i < j <= i + most: [(j-1) most + j-1-i]
    int64_t *longest; // of the slices that there may be, sp_ascending_int64s
    size_t times;
    int64_t *sum; // [count + 1]: least sum up to a position, -1 for none
    size_t *from; // [count + 1]: where its last slice begins
} search;

static void prepare(search *s);
static bool solve(search *s, int64_t longest_ns);
static int64_t total_time(const search *s);
static void read_slices(const search *s, sp_terapipe_slices *slices);

void sp_terapipe_slices_find(const sp_terapipe_problem *problem, sp_terapipe_slices *slices)
{
    SP_ASSERT(problem->tokens > 0 && problem->granularity > 0 && problem->stages > 0);
    *slices = (sp_terapipe_slices){0};
    search s = {.problem = problem,
                .count = (size_t)((problem->tokens - 1) / problem->granularity + 1)};
    int64_t most = problem->most_tokens / problem->granularity;
    s.most = most > 0 && (size_t)most < s.count ? (size_t)most : s.count;
    prepare(&s);
    // Without a limit the sum is least: a bound for every longest slice.
    int64_t least_ns = 0;
    bool any = s.times > 0 && solve(&s, s.longest[s.times - 1]);
    if (any) {
        least_ns = s.sum[s.count];
        read_slices(&s, slices);
    }
    for (size_t i = 0; any && i < s.times && !sp_i_deadline_is_past(problem->deadline_s);) {
        int64_t low_ns = s.longest[i];
        if (least_ns + (problem->stages - 1) * low_ns >= slices->total_ns) {
            break;
        }
        while (i + 1 < s.times && s.longest[i + 1] - low_ns <= problem->tolerance_ns) {
            i++;
        }
        if (solve(&s, s.longest[i]) && total_time(&s) < slices->total_ns) {
            sp_terapipe_slices_fini(slices);
            read_slices(&s, slices);
        }
        i++;
    }
    sp_arena_free(&s.memory);
}

void sp_terapipe_slices_fini(sp_terapipe_slices *slices)
{
    sp_free(slices->tokens);
    *slices = (sp_terapipe_slices){0};
}

static int64_t position(const search *s, size_t i)
{
    return i == s->count ? s->problem->tokens : (int64_t)i * s->problem->granularity;
}

static size_t first_begin(const search *s, size_t end)
{
    return end > s->most ? end - s->most : 0;
}

static int64_t slice_ns(const search *s, size_t begin, size_t end)
{
    return s->time[(end - 1) * s->most + (end - 1 - begin)];
}

static void prepare(search *s)
{
    size_t n = s->count;
    SP_ASSERT(n <= UINT32_MAX / s->most);
    s->time = sp_arena_take(&s->memory, n * s->most, sizeof *s->time);
    s->longest = sp_arena_take(&s->memory, n * s->most, sizeof *s->longest);
    s->sum = sp_arena_take(&s->memory, n + 1, sizeof *s->sum);
    s->from = sp_arena_take(&s->memory, n + 1, sizeof *s->from);
    for (size_t end = 1; end <= n; end++) {
        for (size_t begin = first_begin(s, end); begin < end; begin++) {
            int64_t prefix = position(s, begin);
            int64_t tokens = position(s, end) - prefix;
            int64_t ns = s->problem->time(s->problem->context, tokens, prefix);
            s->time[(end - 1) * s->most + (end - 1 - begin)] = ns;
            if (ns >= 0) {
                s->longest[s->times++] = ns;
            }
        }
    }
    qsort(s->longest, s->times, sizeof *s->longest, sp_ascending_int64s);
}

// S*(L; t_max) of the paper: the least sum of slices none of which is longer. False: there is none.
static bool solve(search *s, int64_t longest_ns)
{
    s->sum[0] = 0;
    for (size_t end = 1; end <= s->count; end++) {
        s->sum[end] = -1;
        for (size_t begin = first_begin(s, end); begin < end; begin++) {
            int64_t ns = slice_ns(s, begin, end);
            if (s->sum[begin] >= 0 && ns >= 0 && ns <= longest_ns &&
                (s->sum[end] < 0 || s->sum[begin] + ns < s->sum[end])) {
                s->sum[end] = s->sum[begin] + ns;
                s->from[end] = begin;
            }
        }
    }
    return s->sum[s->count] >= 0;
}

static int64_t total_time(const search *s)
{
    int64_t longest_ns = 0;
    for (size_t end = s->count; end > 0; end = s->from[end]) {
        int64_t ns = slice_ns(s, s->from[end], end);
        longest_ns = ns > longest_ns ? ns : longest_ns;
    }
    return s->sum[s->count] + (s->problem->stages - 1) * longest_ns;
}

static void read_slices(const search *s, sp_terapipe_slices *slices)
{
    for (size_t end = s->count; end > 0; end = s->from[end]) {
        slices->count++;
    }
    slices->tokens = sp_calloc(slices->count, sizeof *slices->tokens);
    size_t k = slices->count;
    for (size_t end = s->count; end > 0; end = s->from[end]) {
        slices->tokens[--k] = position(s, end) - position(s, s->from[end]);
    }
    slices->total_ns = total_time(s);
}
