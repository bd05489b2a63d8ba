// Batches per second of a stream of plans, and how long a training loop waits for each plan:
// plan_stream [SCENARIO [BATCHES [STEP_MS [KEY=VALUE...]]]], by default 512 Wikipedia samples a
// batch on experiments/demo.json, 400 batches, steps of 20 ms. Twice at full speed, with one thread
// and with one per core, which must give the same answers; then with a loop that trains (sleeps)
// STEP_MS per plan, with and without plans made ahead. One JSON line on stdout; times in
// milliseconds. With STEP_MS 0 one run alone, by one thread that has no plan ahead but the next:
// how often a loop whose steps take as long as each plan predicts would wait.
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "experiments/stream/plan_stream.h"
#include "sim/base/order.h"
#include "sim/base/progress.h"
#include "solver/evaluate/evaluate.h"
#include "tests/bench/bench.h"

enum { MOST_BATCHES = 100000, AHEAD = 16 };

typedef struct loop {
    double step_ms;       // 0: as fast as it goes
    double asked_s;       // when the loop began to wait
    double *waited_ms;    // for each plan
    double *predicted_ms; // of each plan's step; NULL: not asked
    int count;
    uint64_t hash; // of all answers (FNV-1a)
    uint64_t bytes;
} loop;

static sp_status take(void *context, const stream_answer *answer, sp_error *err)
{
    loop *l = context;
    l->waited_ms[l->count] = (sp_clock_s() - l->asked_s) * 1e3;
    if (l->predicted_ms != NULL) {
        const char *found = strstr(answer->text, "\"predicted_ms\":");
        l->predicted_ms[l->count] = found != NULL ? strtod(strchr(found, ':') + 1, NULL) : 0.0;
    }
    l->count++;
    l->bytes += answer->bytes;
    for (size_t i = 0; i < answer->bytes; i++) {
        l->hash = (l->hash ^ (unsigned char)answer->text[i]) * 1099511628211u;
    }
    if (l->step_ms > 0.0) {
        const struct timespec step = {.tv_sec = (time_t)(l->step_ms / 1e3),
                                      .tv_nsec = (long)(l->step_ms * 1e6) % 1000000000};
        nanosleep(&step, NULL);
    }
    l->asked_s = sp_clock_s();
    return SP_OK;
}

// The lines in a file without a name; the caller closes it.
static FILE *write_lines(const sp_batches *batches)
{
    FILE *file = tmpfile();
    if (file == NULL) {
        perror("tmpfile");
        exit(1);
    }
    for (int b = 0; b < batches->count; b++) {
        for (size_t s = 0; s < batches->batch[b].count; s++) {
            fprintf(file, "%s%lld", s > 0 ? ", " : "[", (long long)batches->batch[b].tokens[s]);
        }
        fputs("]\n", file);
    }
    fflush(file);
    return file;
}

typedef struct measured {
    double batches_per_s, median_ms, p95_ms, max_ms;
    uint64_t hash, bytes;
} measured;

// The first plan has nothing to hide behind: its wait is not counted.
static measured run(const sp_scenario *scenario, FILE *lines, int batches, int threads, int ahead,
                    double step_ms)
{
    sp_error err = {0};
    loop l = {.step_ms = step_ms, .hash = 14695981039346656037u};
    l.waited_ms = calloc((size_t)batches, sizeof *l.waited_ms);
    stream_options options = {.threads = threads, .ahead = ahead, .name = "bench"};
    if (l.waited_ms == NULL || lseek(fileno(lines), 0, SEEK_SET) != 0) {
        perror("bench");
        exit(1);
    }
    double started_s = sp_clock_s();
    l.asked_s = started_s;
    require(stream_plans(scenario, fileno(lines), &options, take, &l, &err), &err);
    double seconds = sp_clock_s() - started_s;
    if (l.count != batches) {
        fprintf(stderr, "%d answers to %d batches\n", l.count, batches);
        exit(1);
    }
    int counted = batches - 1;
    double *waits = l.waited_ms + 1;
    qsort(waits, (size_t)counted, sizeof *waits, sp_ascending_doubles);
    measured m = {.batches_per_s = (double)batches / seconds,
                  .median_ms = waits[counted / 2],
                  .p95_ms = waits[(int)((double)(counted - 1) * 0.95)],
                  .max_ms = waits[counted - 1],
                  .hash = l.hash,
                  .bytes = l.bytes};
    free(l.waited_ms);
    return m;
}

// One thread plans one batch after the other; a step begins when its plan is there and the step
// before has ended, and lasts as long as predicted.
static int count_late(const sp_scenario *scenario, const char *path, FILE *lines, int batches)
{
    sp_error err = {0};
    loop l = {.waited_ms = calloc((size_t)batches, sizeof(double)),
              .predicted_ms = calloc((size_t)batches, sizeof(double))};
    stream_options options = {.threads = 1, .ahead = 1, .name = "bench"};
    if (l.waited_ms == NULL || l.predicted_ms == NULL || lseek(fileno(lines), 0, SEEK_SET) != 0) {
        perror("bench");
        return 1;
    }
    l.asked_s = sp_clock_s();
    require(stream_plans(scenario, fileno(lines), &options, take, &l, &err), &err);
    double planned_ms = 0.0;
    double trained_ms = 0.0;
    double steps_ms = 0.0;
    int late = 0;
    for (int b = 0; b < l.count; b++) {
        planned_ms += l.waited_ms[b];
        late += b > 0 && planned_ms > trained_ms;
        trained_ms = fmax(trained_ms, planned_ms) + l.predicted_ms[b];
        steps_ms += l.predicted_ms[b];
    }
    printf(
        "{\"bench\": \"plan_stream\", \"scenario\": \"%s\", \"strategy\": \"%s\", \"batches\": %d, "
        "\"plan_mean_ms\": %.1f, \"step_mean_ms\": %.1f, \"not_hidden\": %d}\n",
        path, scenario->strategy.kind, l.count, planned_ms / l.count, steps_ms / l.count, late);
    free(l.waited_ms);
    free(l.predicted_ms);
    return 0;
}

static void print(const char *name, const measured *m)
{
    printf(", \"%s\": {\"batches_per_s\": %.1f, \"wait_median_ms\": %.4f, \"wait_p95_ms\": %.4f, "
           "\"wait_max_ms\": %.4f}",
           name, m->batches_per_s, m->median_ms, m->p95_ms, m->max_ms);
}

int main(int argc, char **argv)
{
    const char *path = argc > 1 ? argv[1] : "experiments/demo.json";
    int batches = argc > 2 ? atoi(argv[2]) : 400;
    double step_ms = argc > 3 ? atof(argv[3]) : 20.0;
    long cores = sysconf(_SC_NPROCESSORS_ONLN);
    sp_scenario scenario;
    sp_batches made;
    sp_error err = {0};
    if (batches < 2 || batches > MOST_BATCHES) {
        fprintf(stderr, "expected 2 to %d batches\n", MOST_BATCHES);
        return 2;
    }
    require(sp_scenario_read(path, (const char *const *)(argv + 4), argc > 4 ? argc - 4 : 0,
                             &scenario, &err),
            &err);
    scenario.workload.batches = batches;
    require(sp_evaluate_batches(&scenario, &made, &err), &err);
    FILE *lines = write_lines(&made);
    if (step_ms == 0.0) {
        int failed = count_late(&scenario, path, lines, batches);
        fclose(lines);
        sp_batches_fini(&made);
        sp_scenario_fini(&scenario);
        return failed;
    }
    int threads = cores > 1 ? (int)cores : 1;
    run(&scenario, lines, batches, threads, AHEAD, 0.0); // to warm up
    measured one = run(&scenario, lines, batches, 1, AHEAD, 0.0);
    measured all = run(&scenario, lines, batches, threads, AHEAD, 0.0);
    measured loop_alone = run(&scenario, lines, batches, 1, 1, step_ms);
    measured loop_ahead = run(&scenario, lines, batches, threads, AHEAD, step_ms);
    bool same = one.hash == all.hash && one.hash == loop_alone.hash && one.hash == loop_ahead.hash;
    if (!same) {
        fprintf(stderr, "the answers depend on the threads\n");
        return 1;
    }
    printf("{\"bench\": \"plan_stream\", \"version\": \"%s\", \"compiler\": \"%s\", \"scenario\": "
           "\"%s\", \"seed\": %llu, \"batches\": %d, \"samples_per_batch\": %zu, "
           "\"bytes_per_plan\": %.0f, \"cores\": %ld, \"step_ms\": %g",
           SP_VERSION, __VERSION__, path, (unsigned long long)scenario.workload.seed, batches,
           made.batch[0].count, (double)one.bytes / batches, cores, step_ms);
    print("one_thread", &one);
    print("all_cores", &all);
    print("loop_without_ahead", &loop_alone);
    print("loop_with_ahead", &loop_ahead);
    puts("}");
    fclose(lines);
    sp_batches_fini(&made);
    sp_scenario_fini(&scenario);
    return 0;
}
