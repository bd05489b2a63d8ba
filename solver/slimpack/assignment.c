#include "solver/slimpack/makespan.h"

#include <math.h>
#include <stdlib.h>

#include "sim/base/alloc.h"

// GLPK's, for values near 1; what is claimed allows for it.
#define TOLERANCE 1e-7
#define LEAST_GAP 1e-6

enum { MOST_COLUMNS = 32767 };

// Equal samples from `first` on.
typedef struct sample_class {
    size_t first, count;
    int ranks; // the first ones, to which they may go
} sample_class;

static bool next_class(const sp_i_assignment_model *model, sample_class *c)
{
    c->first += c->count;
    c->count = 0;
    size_t end = c->first;
    while (end < model->count && !(model->work_s[end] < model->work_s[c->first])) {
        end++;
    }
    c->count = end - c->first;
    c->ranks = end < (size_t)model->ranks ? (int)end : model->ranks;
    return c->count > 0;
}

void sp_i_assignment_write(const sp_i_assignment_model *model, sp_i_mip *mip)
{
    sp_i_mip_init(mip);
    int largest = sp_i_mip_add_column(mip, model->least, model->most, 1.0, false);
    for (sample_class c = {0}; next_class(model, &c);) {
        sp_i_mip_add_row(mip, (double)c.count, (double)c.count);
        for (int r = 0; r < c.ranks; r++) {
            int column = sp_i_mip_add_column(mip, 0.0, (double)c.count, 0.0, true);
            sp_i_mip_add_term(mip, column, 1.0);
        }
    }
    for (int r = 0; r < model->ranks; r++) {
        int column = largest + 1;
        sp_i_mip_add_row(mip, -HUGE_VAL, 0.0);
        sp_i_mip_add_term(mip, largest, -1.0);
        for (sample_class c = {0}; next_class(model, &c); column += c.ranks) {
            if (r < c.ranks) {
                sp_i_mip_add_term(mip, column + r, model->work_s[c.first] / model->unit_s);
            }
        }
    }
}

void sp_i_assignment_read(const sp_i_assignment_model *model, const double *value, int *rank)
{
    size_t column = 1;
    for (sample_class c = {0}; next_class(model, &c); column += (size_t)c.ranks) {
        size_t sample = c.first;
        for (int r = 0; r < c.ranks; r++) {
            for (double left = value[column + (size_t)r]; left > 0.5 && sample < c.first + c.count;
                 left -= 1.0) {
                rank[sample++] = r;
            }
        }
    }
}

// ---- heuristic, program, certificate ----

typedef struct sample_work {
    double work_s;
    size_t sample;
} sample_work;

typedef struct solving {
    sp_arena memory; // of the arrays
    sp_i_makespan m;
    sample_work *order;
    double *work_s, *pace, *load_s;
    int *size, *heap, *rank, *tried; // rank: of the sorted samples
} solving;

static int descending(const void *a, const void *b)
{
    const sample_work *x = a;
    const sample_work *y = b;
    if (x->work_s < y->work_s || x->work_s > y->work_s) {
        return x->work_s < y->work_s ? 1 : -1;
    }
    return x->sample < y->sample ? -1 : x->sample > y->sample;
}

static void solving_init(solving *s, const double *work_s, size_t count, int ranks)
{
    size_t r = (size_t)ranks;
    *s = (solving){.order = NULL};
    s->order = sp_arena_take(&s->memory, count, sizeof *s->order);
    s->work_s = sp_arena_take(&s->memory, count, sizeof *s->work_s);
    s->rank = sp_arena_take(&s->memory, count, sizeof *s->rank);
    s->tried = sp_arena_take(&s->memory, count, sizeof *s->tried);
    s->pace = sp_arena_take(&s->memory, r, sizeof *s->pace);
    s->load_s = sp_arena_take(&s->memory, r, sizeof *s->load_s);
    s->size = sp_arena_take(&s->memory, r, sizeof *s->size);
    s->heap = sp_arena_take(&s->memory, r, sizeof *s->heap);
    for (size_t i = 0; i < count; i++) {
        s->order[i] = (sample_work){work_s[i], i};
    }
    qsort(s->order, count, sizeof *s->order, descending);
    for (size_t i = 0; i < count; i++) {
        s->work_s[i] = s->order[i].work_s;
    }
    for (int g = 0; g < ranks; g++) {
        s->size[g] = 1;
        s->pace[g] = 1.0;
    }
    s->m = (sp_i_makespan){.work_s = s->work_s,
                           .jobs = count,
                           .size = s->size,
                           .pace = s->pace,
                           .machines = ranks,
                           .machine_of = s->rank,
                           .load_s = s->load_s};
}

// What the program found, levelled by exchanges, where it is better.
static void adopt(solving *s, const sp_i_assignment_model *model, const double *value,
                  sp_i_assignment *result)
{
    sp_i_assignment_read(model, value, s->tried);
    s->m.machine_of = s->tried;
    sp_i_makespan_exchange(&s->m, result->bound_s);
    double largest_s = sp_i_makespan_largest_s(&s->m);
    if (largest_s < result->largest_s) {
        result->largest_s = largest_s;
        int *better = s->tried;
        s->tried = s->rank;
        s->rank = better;
    }
    s->m.machine_of = s->rank;
}

// The incumbent is in the program as a bound on the objective: that nothing is found below it is a
// certificate too.
static sp_status solve_program(solving *s, const sp_i_assignment_options *options, double gap,
                               sp_i_assignment *result, sp_error *err)
{
    const sp_i_assignment_model model = {.work_s = s->work_s,
                                         .count = s->m.jobs,
                                         .ranks = s->m.machines,
                                         .unit_s = result->heuristic_s,
                                         .least = result->bound_s / result->heuristic_s,
                                         .most = 1.0 - gap};
    const sp_i_mip_options mip_options = {.time_limit_ms = options->time_limit_ms,
                                          .node_limit = options->node_limit,
                                          .iteration_limit = options->iteration_limit,
                                          .gap = options->gap};
    sp_i_mip mip;
    sp_i_mip_result solved;
    sp_i_assignment_write(&model, &mip);
    double *value = sp_malloc((mip.column_count + 1) * sizeof *value);
    sp_status status = sp_i_mip_solve(&mip, &mip_options, &solved, value, err);
    if (status == SP_OK) {
        bool proven = solved.outcome == SP_I_MIP_INFEASIBLE;
        double bound = proven ? model.most : solved.bound;
        result->bound_s = fmax(result->bound_s, (bound - TOLERANCE) * model.unit_s);
        result->timed_out = solved.timed_out;
        if (solved.outcome == SP_I_MIP_OPTIMAL || proven) {
            result->outcome = SP_I_MIP_OPTIMAL;
        }
        if (solved.outcome == SP_I_MIP_OPTIMAL || solved.outcome == SP_I_MIP_FEASIBLE) {
            adopt(s, &model, value, result);
        }
    }
    sp_free(value);
    sp_i_mip_fini(&mip);
    return status;
}

sp_status sp_i_assignment_solve(const double *work_s, size_t count, int ranks,
                                const sp_i_assignment_options *options, int *rank,
                                sp_i_assignment *result, sp_error *err)
{
    solving s;
    double gap = fmax(options->gap, LEAST_GAP);
    *result = (sp_i_assignment){.outcome = SP_I_MIP_FEASIBLE};
    sp_status status = SP_OK;
    solving_init(&s, work_s, count, ranks);
    result->bound_s = sp_i_makespan_bound_s(s.work_s, count, ranks);
    sp_i_makespan_longest_first(&s.m, s.heap);
    sp_i_makespan_exchange(&s.m, result->bound_s);
    result->heuristic_s = sp_i_makespan_largest_s(&s.m);
    result->largest_s = result->heuristic_s;
    bool small = count < (size_t)(MOST_COLUMNS / ranks);
    if (result->heuristic_s * (1.0 - gap) <= result->bound_s) {
        result->outcome = SP_I_MIP_OPTIMAL;
    } else if (small && options->time_limit_ms > 0) {
        status = solve_program(&s, options, gap, result, err);
    }
    result->bound_s = fmin(result->bound_s, result->largest_s);
    for (size_t i = 0; status == SP_OK && i < count; i++) {
        rank[s.order[i].sample] = s.rank[i];
    }
    sp_arena_free(&s.memory);
    return status;
}
