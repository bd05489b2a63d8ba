// Samples to data-parallel ranks: the project's heuristic beside the differencing method of
// Karmarkar and Karp, and beside GLPK and CBC (Debian: coinor-cbc) on one and the same integer
// program without an incumbent: assignment [TIME_LIMIT_MS], by default 1000 for each program. Then
// how far beyond shorter limits GLPK goes. Lengths as of Wikipedia's articles, those above the
// context left out; work is that of a layer with hidden size 5120, linear and quadratic in tokens.
#include <fcntl.h>
#include <math.h>
#include <spawn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "sim/base/progress.h"
#include "sim/workload/batch.h"
#include "solver/rows.h"
#include "solver/slimpack/slimpack_search.h"
#include "tests/bench/bench.h"

extern char **environ;

// Of tokens a and pairs b: 24 h^2 and 4 h FLOPs per token and pair forward, thrice that with the
// backward, half the pairs causal; 400 TFLOP/s.
#define TOKEN_S (3.0 * 24.0 * 5120.0 * 5120.0 / 400e12)
#define SQUARE_S (3.0 * 2.0 * 5120.0 / 400e12)

enum { MOST_NAME = 64 };

typedef struct instance {
    int samples, ranks;
    int64_t context;
    double *work_s; // descending
    double bound_s;
    int *rank;
} instance;

typedef struct answer {
    bool found;
    double largest_s, ms;
} answer;

static void *room_for(size_t count, size_t size)
{
    void *room = calloc(count, size);
    if (room == NULL) {
        perror("bench");
        exit(1);
    }
    return room;
}

static int descending(const void *a, const void *b)
{
    double x = *(const double *)a;
    double y = *(const double *)b;
    return (x < y) - (x > y);
}

static void draw(instance *i)
{
    const sp_workload_spec spec = {.distribution = sp_distribution_find("wikipedia"),
                                   .context = i->context,
                                   .over_length = SP_OVER_DROP,
                                   .samples_per_batch = i->samples,
                                   .batches = 1,
                                   .seed = 1,
                                   .source = "wikipedia"};
    sp_batches batches;
    sp_error err = {0};
    require(sp_batches_make(&spec, &batches, &err), &err);
    i->work_s = room_for((size_t)i->samples, sizeof *i->work_s);
    i->rank = room_for((size_t)i->samples, sizeof *i->rank);
    for (int k = 0; k < i->samples; k++) {
        double tokens = (double)batches.batch[0].tokens[k];
        i->work_s[k] = TOKEN_S * tokens + SQUARE_S * tokens * tokens;
    }
    qsort(i->work_s, (size_t)i->samples, sizeof *i->work_s, descending);
    i->bound_s = sp_i_makespan_bound_s(i->work_s, (size_t)i->samples, i->ranks);
    sp_batches_fini(&batches);
}

// The largest rank's work of i->rank, summed anew.
static answer weigh(const instance *i, double ms)
{
    double *load_s = room_for((size_t)i->ranks, sizeof *load_s);
    answer a = {.found = true, .ms = ms};
    for (int k = 0; k < i->samples; k++) {
        load_s[i->rank[k]] += i->work_s[k];
        a.largest_s = fmax(a.largest_s, load_s[i->rank[k]]);
    }
    free(load_s);
    if (a.largest_s < i->bound_s * (1.0 - 1e-9)) {
        fprintf(stderr, "%d samples on %d ranks: below the bound\n", i->samples, i->ranks);
        exit(1);
    }
    return a;
}

// The median of several runs.
static answer run_heuristic(instance *i)
{
    enum { RUNS = 21 };
    double ms[RUNS];
    const sp_i_assignment_options none = {0};
    sp_i_assignment result;
    sp_error err = {0};
    for (int run = 0; run < RUNS; run++) {
        double started_s = sp_clock_s();
        require(sp_i_assignment_solve(i->work_s, (size_t)i->samples, i->ranks, &none, i->rank,
                                      &result, &err),
                &err);
        ms[run] = (sp_clock_s() - started_s) * 1e3;
    }
    qsort(ms, RUNS, sizeof *ms, descending);
    return weigh(i, ms[RUNS / 2]);
}

static answer run_differencing(instance *i)
{
    double started_s = sp_clock_s();
    sp_i_karmarkar_karp(i->work_s, (size_t)i->samples, i->ranks, i->rank);
    return weigh(i, (sp_clock_s() - started_s) * 1e3);
}

// The heuristic, and GLPK from there on.
static answer run_both(instance *i, int64_t limit_ms)
{
    const sp_i_assignment_options options = {.time_limit_ms = limit_ms};
    sp_i_assignment result;
    sp_error err = {0};
    double started_s = sp_clock_s();
    require(sp_i_assignment_solve(i->work_s, (size_t)i->samples, i->ranks, &options, i->rank,
                                  &result, &err),
            &err);
    return weigh(i, (sp_clock_s() - started_s) * 1e3);
}

static sp_i_assignment_model model_of(const instance *i)
{
    return (sp_i_assignment_model){.work_s = i->work_s,
                                   .count = (size_t)i->samples,
                                   .ranks = i->ranks,
                                   .unit_s = i->bound_s,
                                   .most = HUGE_VAL};
}

static answer run_glpk(instance *i, const sp_i_mip *mip, int64_t limit_ms)
{
    const sp_i_assignment_model model = model_of(i);
    const sp_i_mip_options options = {.time_limit_ms = limit_ms};
    sp_i_mip_result result;
    sp_error err = {0};
    double *value = room_for(mip->column_count, sizeof *value);
    double started_s = sp_clock_s();
    require(sp_i_mip_solve(mip, &options, &result, value, &err), &err);
    answer a = {.ms = (sp_clock_s() - started_s) * 1e3};
    if (result.outcome == SP_I_MIP_OPTIMAL || result.outcome == SP_I_MIP_FEASIBLE) {
        sp_i_assignment_read(&model, value, i->rank);
        a = weigh(i, a.ms);
    }
    free(value);
    return a;
}

// ---- CBC, a program of its own ----

// In CPLEX's LP format. The program has rows "= a" and "<= b" only, and terms row by row.
static void write_lp(const sp_i_mip *mip, FILE *file)
{
    fputs("Minimize\n obj:", file);
    for (size_t j = 0; j < mip->column_count; j++) {
        if (mip->columns[j].cost != 0.0) {
            fprintf(file, " + %.17g c%zu", mip->columns[j].cost, j);
        }
    }
    fputs("\nSubject To\n", file);
    size_t t = 0;
    for (size_t r = 0; r < mip->row_count; r++) {
        fprintf(file, " r%zu:", r);
        for (; t < mip->term_count && mip->terms[t].row == (int)r; t++) {
            fprintf(file, "\n %+.17g c%d", mip->terms[t].coefficient, mip->terms[t].column);
        }
        bool equal = mip->rows[r].lower > -HUGE_VAL;
        fprintf(file, "\n %s %.17g\n", equal ? "=" : "<=", mip->rows[r].upper);
    }
    fputs("Bounds\n", file);
    for (size_t j = 0; j < mip->column_count; j++) {
        if (mip->columns[j].upper < HUGE_VAL) {
            fprintf(file, " c%zu <= %.17g\n", j, mip->columns[j].upper);
        }
    }
    fputs("Generals\n", file);
    for (size_t j = 0; j < mip->column_count; j++) {
        if (mip->columns[j].integer) {
            fprintf(file, " c%zu\n", j);
        }
    }
    fputs("End\n", file);
}

static bool spawn_cbc(const char *problem, const char *solution, int64_t limit_ms)
{
    char seconds[MOST_NAME];
    snprintf(seconds, sizeof seconds, "%.3f", (double)limit_ms / 1e3);
    const char *arguments[] = {"cbc",   problem, "timeMode", "elapsed", "seconds",
                               seconds, "solve", "solution", solution,  NULL};
    char *argv[sizeof arguments / sizeof arguments[0]];
    memcpy(argv, arguments, sizeof arguments); // posix_spawn takes them without const
    posix_spawn_file_actions_t actions;
    posix_spawn_file_actions_init(&actions);
    posix_spawn_file_actions_addopen(&actions, STDOUT_FILENO, "/dev/null", O_WRONLY, 0);
    pid_t pid;
    int status = 0;
    bool ok = posix_spawnp(&pid, "cbc", &actions, NULL, argv, environ) == 0 &&
              waitpid(pid, &status, 0) == pid && WIFEXITED(status) && WEXITSTATUS(status) == 0;
    posix_spawn_file_actions_destroy(&actions);
    return ok;
}

// A line with the status and one for every column that is not 0: number, name, value, cost.
static bool read_solution(const char *path, double *value, size_t columns)
{
    char line[256];
    FILE *file = fopen(path, "r");
    bool found = file != NULL && fgets(line, sizeof line, file) != NULL &&
                 strstr(line, "objective value") != NULL && strstr(line, "no integer") == NULL &&
                 strstr(line, "nfeasible") == NULL;
    while (found && fgets(line, sizeof line, file) != NULL) {
        size_t column;
        double x;
        if (sscanf(line, " %*u c%zu %lf", &column, &x) == 2 && column < columns) {
            value[column] = x;
        }
    }
    if (file != NULL) {
        fclose(file);
    }
    return found;
}

static answer run_cbc(instance *i, const sp_i_mip *mip, int64_t limit_ms)
{
    const sp_i_assignment_model model = model_of(i);
    char problem[MOST_NAME], solution[MOST_NAME];
    snprintf(problem, sizeof problem, "assignment_%ld.lp", (long)getpid());
    snprintf(solution, sizeof solution, "assignment_%ld.sol", (long)getpid());
    FILE *file = fopen(problem, "w");
    if (file == NULL) {
        perror(problem);
        exit(1);
    }
    write_lp(mip, file);
    fclose(file);
    double *value = room_for(mip->column_count, sizeof *value);
    double started_s = sp_clock_s();
    bool ran = spawn_cbc(problem, solution, limit_ms);
    answer a = {.ms = (sp_clock_s() - started_s) * 1e3};
    if (ran && read_solution(solution, value, mip->column_count)) {
        sp_i_assignment_read(&model, value, i->rank);
        a = weigh(i, a.ms);
    }
    free(value);
    remove(problem);
    remove(solution);
    return a;
}

static bool has_cbc(void)
{
    return system("command -v cbc >/dev/null 2>&1") == 0;
}

// ---- tables ----

static void print_answer(const instance *i, const answer *a, double limit_ms)
{
    char over[MOST_NAME] = "-";
    char gap[MOST_NAME] = "none";
    if (a->found) {
        snprintf(gap, sizeof gap, "%.1e", fmax(0.0, a->largest_s / i->bound_s - 1.0));
    }
    if (limit_ms > 0.0 && a->ms > limit_ms) {
        snprintf(over, sizeof over, "%.0f", a->ms - limit_ms);
    }
    printf(" %8s %8.*f", gap, a->ms < 10.0 ? 3 : 0, a->ms);
    if (limit_ms > 0.0) {
        printf(" %5s", over);
    }
}

static void print_instance(instance *i, bool cbc, int64_t limit_ms)
{
    const sp_i_assignment_model model = model_of(i);
    sp_i_mip mip;
    sp_i_assignment_write(&model, &mip);
    printf("%7d %5d %7lld %7zu", i->samples, i->ranks, (long long)i->context, mip.column_count);
    answer a = run_heuristic(i);
    print_answer(i, &a, 0.0);
    a = run_differencing(i);
    print_answer(i, &a, 0.0);
    a = run_both(i, limit_ms);
    print_answer(i, &a, (double)limit_ms);
    a = run_glpk(i, &mip, limit_ms);
    print_answer(i, &a, (double)limit_ms);
    if (cbc) {
        a = run_cbc(i, &mip, limit_ms);
        print_answer(i, &a, (double)limit_ms);
    }
    printf("\n");
    fflush(stdout);
    sp_i_mip_fini(&mip);
}

static void print_limits(instance *i)
{
    static const int64_t limits_ms[] = {10, 50, 200};
    const sp_i_assignment_model model = model_of(i);
    sp_i_mip mip;
    sp_i_assignment_write(&model, &mip);
    printf("%7d %5d %7lld %7zu", i->samples, i->ranks, (long long)i->context, mip.column_count);
    for (int l = 0; l < 3; l++) {
        answer a = run_glpk(i, &mip, limits_ms[l]);
        double over_ms = a.ms - (double)limits_ms[l];
        printf(" %9.1f", fmax(0.0, over_ms));
    }
    printf("\n");
    sp_i_mip_fini(&mip);
}

int main(int argc, char **argv)
{
    static instance instances[] = {
        {.samples = 16, .ranks = 2, .context = 8192},
        {.samples = 24, .ranks = 2, .context = 8192},
        {.samples = 24, .ranks = 4, .context = 8192},
        {.samples = 40, .ranks = 4, .context = 8192},
        {.samples = 60, .ranks = 4, .context = 8192},
        {.samples = 128, .ranks = 8, .context = 8192},
        {.samples = 512, .ranks = 8, .context = 16384},
        {.samples = 512, .ranks = 16, .context = 16384},
        {.samples = 1024, .ranks = 16, .context = 32768},
        {.samples = 1024, .ranks = 32, .context = 262144},
        {.samples = 2048, .ranks = 32, .context = 32768},
    };
    int64_t limit_ms = argc > 1 ? strtoll(argv[1], NULL, 10) : 1000;
    bool cbc = has_cbc();
    printf("slimpack %s: samples to ranks. Largest rank's work over the lower bound, less 1; time "
           "in ms, and by\nhow much it is over the limit of %lld ms for each program.\n",
           SP_VERSION, (long long)limit_ms);
    if (!cbc) {
        printf("CBC is left out: no program `cbc` (Debian: coinor-cbc).\n");
    }
    printf("\n%29s%18s%18s%24s%24s%s\n", "", "heuristic", "differencing", "heuristic + GLPK",
           "GLPK alone", cbc ? "                     CBC" : "");
    printf("samples ranks context columns      gap       ms      gap       ms"
           "      gap       ms  over      gap       ms  over%s\n",
           cbc ? "      gap       ms  over" : "");
    for (size_t k = 0; k < sizeof instances / sizeof instances[0]; k++) {
        draw(&instances[k]);
        print_instance(&instances[k], cbc, limit_ms);
    }
    printf(
        "\nGLPK alone, ms over shorter limits\n\nsamples ranks context columns   10 ms     50 ms "
        "   200 ms\n");
    for (size_t k = 0; k < sizeof instances / sizeof instances[0]; k++) {
        print_limits(&instances[k]);
        free(instances[k].work_s);
        free(instances[k].rank);
    }
    return 0;
}
