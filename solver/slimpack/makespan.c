#include "solver/slimpack/makespan.h"

#include <math.h>
#include <stdbool.h>
#include <stdint.h>

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
