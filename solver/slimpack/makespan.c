// Jobs on machines: longest first, exchanges between machines, and integer programs that prove how
// near that is.
#include "solver/slimpack/slimpack_search.h"

#include <math.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdlib.h>

#include "sim/base/alloc.h"

// An exchange has to win this share of the makespan; less is rounding.
#define LEAST_GAIN 1e-12

enum { EXCHANGES = 256, EXCHANGES_PER_MACHINE = 64 };

// Each exchange looks at all machines: of more than 4096 machines there are fewer exchanges.
#define MOST_LOOKS (INT64_C(1) << 30)

static bool may_take(const sp_i_makespan *m, int machine, size_t job)
{
    return m->least == NULL || m->least[job] <= m->size[machine] || m->size[machine] == m->size[0];
}

double sp_i_makespan_largest_s(const sp_i_makespan *m)
{
    double largest_s = 0.0;
    for (int g = 0; g < m->machines; g++) {
        largest_s = fmax(largest_s, m->load_s[g]);
    }
    return largest_s;
}

// ---- longest first ----

static bool ends_before(const sp_i_makespan *m, int a, int b)
{
    double x = m->load_s[a];
    double y = m->load_s[b];
    return x < y || (!(x > y) && a < b);
}

// The machine on top of a heap of `count` has got later.
static void sink(const sp_i_makespan *m, int *heap, int count)
{
    int moved = heap[0];
    int at = 0;
    for (int child = 1; child < count; child = 2 * at + 1) {
        child += child + 1 < count && ends_before(m, heap[child + 1], heap[child]);
        if (!ends_before(m, heap[child], moved)) {
            break;
        }
        heap[at] = heap[child];
        at = child;
    }
    heap[at] = moved;
}

// The machines of a size, which stand side by side, have a heap of their own: its top is the first
// of them for any job.
void sp_i_makespan_longest_first(sp_i_makespan *m, int *heap)
{
    enum { SIZES = 32 };
    int begin[SIZES + 1] = {0};
    int sizes = 0;
    for (int g = 0; g < m->machines; g++) {
        heap[g] = g;
        m->load_s[g] = 0.0;
        if (g == 0 || (m->size[g] != m->size[g - 1] && sizes < SIZES)) {
            begin[sizes++] = g;
        }
    }
    begin[sizes] = m->machines;
    for (size_t i = 0; i < m->jobs; i++) {
        int best = 0;
        double best_s = HUGE_VAL;
        for (int s = sizes - 1; s >= 0; s--) {
            int top = heap[begin[s]];
            double end_s = m->load_s[top] + m->work_s[i] * m->pace[top];
            if (may_take(m, top, i) && end_s < best_s) {
                best = s;
                best_s = end_s;
            }
        }
        int machine = heap[begin[best]];
        m->machine_of[i] = machine;
        m->load_s[machine] = best_s;
        sink(m, heap + begin[best], begin[best + 1] - begin[best]);
    }
}

// ---- exchanges ----

// The jobs of each machine as linked lists, longest first.
typedef struct lists {
    size_t *first; // [machines]
    size_t *next;  // [jobs]
    size_t end;    // no job: a job of no work, for moves without return
} lists;

typedef struct exchange {
    size_t out, in; // of the later machine; in may be none
    int with;
    double end_s; // of the later of the two machines afterwards
} exchange;

static void consider(const sp_i_makespan *m, const lists *l, int late, int other, size_t out,
                     size_t in, exchange *best)
{
    double moved_s = m->work_s[out] - (in == l->end ? 0.0 : m->work_s[in]);
    double end_s = fmax(m->load_s[late] - moved_s * m->pace[late],
                        m->load_s[other] + moved_s * m->pace[other]);
    if (moved_s > 0.0 && end_s < best->end_s && may_take(m, other, out) &&
        (in == l->end || may_take(m, late, in))) {
        *best = (exchange){.out = out, .in = in, .with = other, .end_s = end_s};
    }
}

// Both lists are read once: the shorter the job that goes out, the shorter the one that comes in.
static void find_exchange(const sp_i_makespan *m, const lists *l, int late, int other,
                          exchange *best)
{
    double wanted_s = (m->load_s[late] - m->load_s[other]) / (m->pace[late] + m->pace[other]);
    if (!(wanted_s > 0.0)) {
        return;
    }
    size_t in = l->first[other];
    size_t longer = l->end;
    for (size_t out = l->first[late]; out != l->end; out = l->next[out]) {
        double limit_s = m->work_s[out] - wanted_s;
        while (in != l->end && m->work_s[in] > limit_s) {
            longer = in;
            in = l->next[in];
        }
        consider(m, l, late, other, out, in, best);
        if (longer != l->end) {
            consider(m, l, late, other, out, longer, best);
        }
    }
}

static void unlink_job(lists *l, size_t *first, size_t job)
{
    size_t *at = first;
    while (*at != job) {
        at = &l->next[*at];
    }
    *at = l->next[job];
}

static void link_job(lists *l, size_t *first, size_t job)
{
    size_t *at = first;
    while (*at < job) {
        at = &l->next[*at];
    }
    l->next[job] = *at;
    *at = job;
}

static void move(sp_i_makespan *m, lists *l, size_t job, int from, int to)
{
    unlink_job(l, &l->first[from], job);
    link_job(l, &l->first[to], job);
    m->machine_of[job] = to;
    m->load_s[from] -= m->work_s[job] * m->pace[from];
    m->load_s[to] += m->work_s[job] * m->pace[to];
}

// With the machine that ends first, which is likely to have room; else the best of all.
static bool improve(sp_i_makespan *m, lists *l, double stop_s)
{
    int late = 0;
    int early = 0;
    for (int g = 1; g < m->machines; g++) {
        late = m->load_s[g] > m->load_s[late] ? g : late;
        early = m->load_s[g] < m->load_s[early] ? g : early;
    }
    double limit_s = m->load_s[late] * (1.0 - LEAST_GAIN);
    exchange best = {.end_s = limit_s};
    if (m->load_s[late] <= stop_s) {
        return false;
    }
    find_exchange(m, l, late, early, &best);
    bool found = best.end_s < limit_s;
    for (int g = 0; !found && g < m->machines; g++) {
        find_exchange(m, l, late, g, &best);
    }
    if (!(best.end_s < limit_s)) {
        return false;
    }
    move(m, l, best.out, late, best.with);
    if (best.in != l->end) {
        move(m, l, best.in, best.with, late);
    }
    return true;
}

// Afterwards too: without what the exchanges rounded.
static void sum_loads(sp_i_makespan *m)
{
    for (int g = 0; g < m->machines; g++) {
        m->load_s[g] = 0.0;
    }
    for (size_t i = 0; i < m->jobs; i++) {
        m->load_s[m->machine_of[i]] += m->work_s[i] * m->pace[m->machine_of[i]];
    }
}

void sp_i_makespan_exchange(sp_i_makespan *m, double stop_s)
{
    sp_arena memory = {0};
    lists l = {.first = sp_arena_take(&memory, (size_t)m->machines, sizeof *l.first),
               .next = sp_arena_take(&memory, m->jobs + 1, sizeof *l.next),
               .end = m->jobs};
    sum_loads(m);
    for (int g = 0; g < m->machines; g++) {
        l.first[g] = l.end;
    }
    for (size_t i = m->jobs; i > 0; i--) {
        int machine = m->machine_of[i - 1];
        l.next[i - 1] = l.first[machine];
        l.first[machine] = i - 1;
    }
    int64_t left = EXCHANGES + (int64_t)EXCHANGES_PER_MACHINE * m->machines;
    left = left < MOST_LOOKS / m->machines ? left : MOST_LOOKS / m->machines;
    while (left-- > 0 && improve(m, &l, stop_s)) {
    }
    sum_loads(m);
    sp_arena_free(&memory);
}

// ---- bound ----

double sp_i_makespan_bound_s(const double *work_s, size_t jobs, int machines)
{
    size_t m = (size_t)machines;
    double total_s = 0.0;
    for (size_t i = 0; i < jobs; i++) {
        total_s += work_s[i];
    }
    double bound_s = fmax(total_s / machines, jobs > 0 ? work_s[0] : 0.0);
    // A window of k + 1 jobs that moves on by m - 1 and grows by one, so each job enters once.
    double window_s = jobs > 0 ? work_s[0] : 0.0;
    size_t begin = 0;
    for (size_t k = 1; k < jobs && k * m < jobs; k++) {
        size_t next = k * (m - 1);
        for (size_t i = (k - 1) * m + 1; i <= k * m; i++) {
            window_s += work_s[i];
        }
        for (; begin < next; begin++) {
            window_s -= work_s[begin];
        }
        bound_s = fmax(bound_s, window_s);
    }
    return bound_s;
}

// ---- by integer programs ----

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

// Takes the program's answer, levelled by exchanges, where it is better.
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
