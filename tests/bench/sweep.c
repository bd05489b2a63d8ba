// Points per second of a sweep: sweep [SPEC [THREADS]], by default the layouts of Llama-70B on 512
// H100 with one thread and with one per core. The runs must write the same lines. One JSON line on
// stdout. For comparison: Calculon (Isaev et al., SC 2023), a closed form of uniform batches,
// searches about 83 layouts a second and core.
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "experiments/sweep/sweep.h"
#include "sim/base/progress.h"
#include "tests/bench/bench.h"

enum { MOST_RUNS = 2, LINE = 1 << 20 };

typedef struct measured {
    char path[64];
    int threads;
    double seconds;
    sweep_summary summary;
} measured;

static void run(const sweep_spec *spec, measured *m)
{
    sp_error err = {0};
    snprintf(m->path, sizeof m->path, "/tmp/slimpack-bench-XXXXXX");
    int fd = mkstemp(m->path);
    if (fd < 0) {
        perror(m->path);
        exit(1);
    }
    close(fd);
    sweep_run_options options = {.threads = m->threads};
    double started_s = sp_clock_s();
    require(sweep_summary_begin(&m->summary, spec, NULL, &err), &err);
    require(sweep_run(spec, m->path, &options, &m->summary, &err), &err);
    m->seconds = sp_clock_s() - started_s;
}

static bool same_files(const char *a, const char *b)
{
    static char line_a[LINE], line_b[LINE];
    FILE *file_a = fopen(a, "r");
    FILE *file_b = fopen(b, "r");
    bool same = file_a != NULL && file_b != NULL;
    while (same && fgets(line_a, LINE, file_a) != NULL) {
        same = fgets(line_b, LINE, file_b) != NULL && strcmp(line_a, line_b) == 0;
    }
    same = same && fgets(line_b, LINE, file_b) == NULL;
    if (file_a != NULL) {
        fclose(file_a);
    }
    if (file_b != NULL) {
        fclose(file_b);
    }
    return same;
}

int main(int argc, char **argv)
{
    const char *path = argc > 1 ? argv[1] : "experiments/sweep_layouts.json";
    long cores = sysconf(_SC_NPROCESSORS_ONLN);
    int most = argc > 2 ? atoi(argv[2]) : (int)cores;
    most = most < 1 ? 1 : most < SWEEP_MOST_THREADS ? most : SWEEP_MOST_THREADS;
    sp_error err = {0};
    sweep_spec spec;
    measured runs[MOST_RUNS] = {{.threads = 1}, {.threads = most}};
    require(sweep_spec_read(path, &spec, &err), &err);
    for (int i = 0; i < MOST_RUNS; i++) {
        run(&spec, &runs[i]);
    }
    bool same = same_files(runs[0].path, runs[1].path);
    for (int i = 0; i < MOST_RUNS; i++) {
        remove(runs[i].path);
    }
    sweep_spec_fini(&spec);
    if (!same) {
        fprintf(stderr, "1 and %d threads write different lines\n", most);
        return 1;
    }
    const sweep_summary *summary = &runs[0].summary;
    double points = (double)summary->points;
    printf("{\"bench\": \"sweep\", \"version\": \"%s\", \"compiler\": \"%s\", \"points\": %lld, "
           "\"ok\": %lld, \"oom\": %lld, \"infeasible\": %lld, \"invalid\": %lld, \"cores\": %ld, "
           "\"one_thread_s\": %.3f, \"one_thread_points_per_s\": %.1f, \"threads\": %d, "
           "\"threads_s\": %.3f, \"threads_points_per_s\": %.1f}\n",
           SP_VERSION, __VERSION__, (long long)summary->points,
           (long long)summary->of_status[SWEEP_OK], (long long)summary->of_status[SWEEP_OOM],
           (long long)summary->of_status[SWEEP_INFEASIBLE],
           (long long)summary->of_status[SWEEP_INVALID], cores, runs[0].seconds,
           points / runs[0].seconds, most, runs[1].seconds, points / runs[1].seconds);
    for (int i = 0; i < MOST_RUNS; i++) {
        sweep_summary_fini(&runs[i].summary);
    }
    return 0;
}
