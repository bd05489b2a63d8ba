// Groups of a micro-batch by an integer program (FlexSP, section 4.1.3): virtual groups of every
// degree, each used or not, and how many samples of each length bucket go to it.
#include <math.h>

#include "sim/base/alloc.h"
#include "solver/flexsp/flexsp.h"

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
    sp_i_flexsp_part *part;
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
    // Of a length, among the samples.
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
static int groups_of(const sp_i_flexsp_part *part, int k)
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
    sp_i_flexsp_part *part = p->part;
    sp_i_flexsp_part other;
    sp_i_flexsp_part_init(&other, part->problem, part->first, part->count);
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
    other.time = sp_i_flexsp_part_time(&other);
    bool improved = other.time < part->time;
    if (improved) {
        sp_i_flexsp_part worse = *part;
        *part = other;
        other = worse;
    }
    sp_i_flexsp_part_fini(&other);
    return improved;
}

sp_status sp_i_flexsp_improve(sp_i_flexsp_part *part, int64_t time_limit_ms,
                              int64_t iteration_limit, sp_i_mip_result *result, bool *improved,
                              sp_error *err)
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
