// Jobs on machines: bounds against exhaustive search, and that exchanges end where none helps.
#include "solver/slimpack/slimpack_search.h"
#include "tests/support/test_main.h"

enum { MOST_JOBS = 120, MOST_MACHINES = 12 };

typedef struct drawn {
    double work_s[MOST_JOBS], pace[MOST_MACHINES], load_s[MOST_MACHINES];
    int least[MOST_JOBS], size[MOST_MACHINES], heap[MOST_MACHINES], machine_of[MOST_JOBS];
    sp_i_makespan m;
} drawn;

static void sort_descending(double *values, size_t count)
{
    for (size_t i = 1; i < count; i++) {
        for (size_t j = i; j > 0 && values[j] > values[j - 1]; j--) {
            double swapped = values[j];
            values[j] = values[j - 1];
            values[j - 1] = swapped;
        }
    }
}

// Machines of sizes 4, 2 and 1, of which the larger are a little slower than their size; the first
// jobs ask for some size. Without `sizes` all are alike.
static void draw(drawn *d, sp_prng *prng, size_t jobs, int machines, bool sizes)
{
    d->m = (sp_i_makespan){.work_s = d->work_s,
                           .least = sizes ? d->least : NULL,
                           .jobs = jobs,
                           .size = d->size,
                           .pace = d->pace,
                           .machines = machines,
                           .machine_of = d->machine_of,
                           .load_s = d->load_s};
    int large = sizes ? (int)sp_prng_below(prng, (uint64_t)machines + 1) : 0;
    for (int g = 0; g < machines; g++) {
        d->size[g] = g < large / 2 ? 4 : g < large ? 2 : 1;
        d->pace[g] = (d->size[g] > 1 ? 1.05 : 1.0) / d->size[g];
    }
    for (size_t i = 0; i < jobs; i++) {
        d->work_s[i] = pow(100.0, sp_prng_uniform(prng)) - 1.0;
        d->least[i] = i < jobs / 20 ? 4 : i < jobs / 10 ? 2 : 1;
    }
    sort_descending(d->work_s, jobs);
}

static bool may_take(const drawn *d, int machine, size_t job)
{
    return d->m.least == NULL || d->least[job] <= d->size[machine] ||
           d->size[machine] == d->size[0];
}

static void assert_loads(const drawn *d)
{
    double load_s[MOST_MACHINES] = {0};
    for (size_t i = 0; i < d->m.jobs; i++) {
        int machine = d->machine_of[i];
        assert_true(machine >= 0 && machine < d->m.machines);
        assert_true(may_take(d, machine, i));
        load_s[machine] += d->work_s[i] * d->pace[machine];
    }
    for (int g = 0; g < d->m.machines; g++) {
        assert_within(load_s[g], d->load_s[g], 1e-9 * (load_s[g] + 1e-9));
    }
}

static double least_of_all(drawn *d, size_t i, double *load_s, double best_s)
{
    double largest_s = 0.0;
    for (int g = 0; g < d->m.machines; g++) {
        largest_s = fmax(largest_s, load_s[g]);
    }
    if (largest_s >= best_s || i == d->m.jobs) {
        return fmin(largest_s, best_s);
    }
    for (int g = 0; g < d->m.machines; g++) {
        double before_s = load_s[g];
        load_s[g] += d->work_s[i] * d->pace[g];
        best_s = may_take(d, g, i) ? least_of_all(d, i + 1, load_s, best_s) : best_s;
        load_s[g] = before_s;
    }
    return best_s;
}

TEST(against_exhaustive_search)
{
    static drawn d;
    sp_prng prng = prng_seeded(31);
    int tight = 0;
    for (int round = 0; round < 300; round++) {
        int machines = 1 + prng_below(&prng, 3);
        draw(&d, &prng, 1 + (size_t)sp_prng_below(&prng, 8), machines, round % 2 == 0);
        double load_s[MOST_MACHINES] = {0};
        double least_s = least_of_all(&d, 0, load_s, HUGE_VAL);
        double bound_s = sp_i_makespan_bound_s(d.work_s, d.m.jobs, machines);
        sp_i_makespan_longest_first(&d.m, d.heap);
        assert_loads(&d);
        sp_i_makespan_exchange(&d.m, 0.0);
        assert_loads(&d);
        double largest_s = sp_i_makespan_largest_s(&d.m);
        assert_true(largest_s >= least_s * (1.0 - 1e-12));
        if (round % 2 == 1) {
            assert_true(bound_s <= least_s * (1.0 + 1e-12));
            tight += bound_s >= least_s * (1.0 - 1e-12);
        }
    }
    assert_true(tight > 20);
}

// Five jobs of 3 and 2 on two machines, mean 6: three of them share a machine. Seven equal ones on
// three: three share one, which is more than the mean and than two of the longest.
TEST(bound_of_shared_machines)
{
    const double equal[] = {1.0, 1.0, 1.0, 1.0, 1.0, 1.0, 1.0};
    assert_within(sp_i_makespan_bound_s(equal, 7, 3), 3.0, 1e-12);
    assert_within(sp_i_makespan_bound_s(equal, 6, 3), 2.0, 1e-12);
    const double falling[] = {5.0, 4.0, 4.0, 0.5};
    assert_within(sp_i_makespan_bound_s(falling, 4, 2), 8.0, 1e-12);
    assert_within(sp_i_makespan_bound_s(falling, 1, 2), 5.0, 1e-12);
    assert_true(sp_i_makespan_bound_s(falling, 0, 2) < 1e-12);
}

static double end_of(const drawn *d, int late, int other, double moved_s)
{
    return fmax(d->load_s[late] - moved_s * d->pace[late],
                d->load_s[other] + moved_s * d->pace[other]);
}

// No move and no exchange of one job with the machine that ends last makes both end earlier.
TEST(exchanges_end_where_none_helps)
{
    static drawn d;
    sp_prng prng = prng_seeded(37);
    int better = 0;
    for (int round = 0; round < 300; round++) {
        int machines = 2 + prng_below(&prng, MOST_MACHINES - 1);
        draw(&d, &prng, 1 + (size_t)sp_prng_below(&prng, MOST_JOBS), machines, round % 2 == 0);
        sp_i_makespan_longest_first(&d.m, d.heap);
        assert_loads(&d);
        double first_s = sp_i_makespan_largest_s(&d.m);
        sp_i_makespan_exchange(&d.m, 0.0);
        assert_loads(&d);
        double largest_s = sp_i_makespan_largest_s(&d.m);
        assert_true(largest_s <= first_s * (1.0 + 1e-12));
        better += largest_s < first_s * (1.0 - 1e-12);
        int late = 0;
        for (int g = 1; g < machines; g++) {
            late = d.load_s[g] > d.load_s[late] ? g : late;
        }
        for (size_t i = 0; i < d.m.jobs; i++) {
            for (int g = 0; d.machine_of[i] == late && g < machines; g++) {
                if (g != late && may_take(&d, g, i)) {
                    assert_true(end_of(&d, late, g, d.work_s[i]) >= largest_s * (1.0 - 1e-9));
                }
            }
            for (size_t j = 0; d.machine_of[i] == late && j < d.m.jobs; j++) {
                int g = d.machine_of[j];
                if (g != late && may_take(&d, g, i) && may_take(&d, late, j)) {
                    double moved_s = d.work_s[i] - d.work_s[j];
                    assert_true(end_of(&d, late, g, moved_s) >= largest_s * (1.0 - 1e-9));
                }
            }
        }
    }
    assert_true(better > 100);
}
