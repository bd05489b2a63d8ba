// A data loader that plans ahead: one thread plans batch after batch while another runs the steps,
// and waits for a plan only where it is not there yet. Trains for show: documents of random
// lengths, steps that sleep.
//
//     cc loader.c $(pkg-config --cflags --libs slimpack) -lpthread -o loader
//     ./loader scenario.json BATCHES SAMPLES STEP_MS
#define _POSIX_C_SOURCE 200809L
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

#include <slimpack/slimpack.h>

enum { MOST_SAMPLES = 65536 };

// A plan that is ready is handed over through `ready`; meanwhile the next one is being made.
typedef struct loader {
    sp_planner *planner;
    long batches, samples; // to draw, and of each
    uint64_t drawn;        // state of the random lengths
    pthread_t thread;
    pthread_mutex_t lock;
    pthread_cond_t turn;
    sp_batch_plan *ready; // NULL: none yet
    double ready_ms;      // that planning it took
    bool ended;           // nothing will be ready any more
    sp_error err;
} loader;

static double now_ms(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return 1e3 * (double)now.tv_sec + 1e-6 * (double)now.tv_nsec;
}

// A training job has the lengths of its own documents. Here every octave up to 32768 tokens is as
// likely as any other.
static int64_t draw_length(loader *l)
{
    l->drawn = l->drawn * 6364136223846793005u + 1442695040888963407u;
    int octave = (int)(l->drawn >> 60);
    int64_t from = (int64_t)1 << (octave < 15 ? octave : 14);
    return from + (int64_t)(l->drawn >> 20 & 0xffffffff) % from;
}

// Fills the rest of a batch whose first `count` samples an earlier plan delayed.
static size_t draw_batch(loader *l, long batch, int64_t *tokens, size_t count)
{
    for (long i = 0; batch < l->batches && i < l->samples && count < MOST_SAMPLES; i++) {
        tokens[count++] = draw_length(l);
    }
    return count;
}

// Samples that a plan delays come again with the next batch. Returns their number.
static size_t keep_delayed(const sp_batch_plan *plan, int64_t *tokens)
{
    for (size_t i = 0; i < plan->packing.delayed_count; i++) {
        tokens[i] = plan->batch.tokens[plan->packing.delayed[i]];
    }
    return plan->packing.delayed_count;
}

static void hand_over(loader *l, sp_batch_plan *plan, double took_ms)
{
    pthread_mutex_lock(&l->lock);
    while (l->ready != NULL) {
        pthread_cond_wait(&l->turn, &l->lock);
    }
    l->ready = plan;
    l->ready_ms = took_ms;
    l->ended = plan == NULL;
    pthread_cond_broadcast(&l->turn);
    pthread_mutex_unlock(&l->lock);
}

static void *plan_batches(void *context)
{
    loader *l = context;
    static int64_t tokens[MOST_SAMPLES];
    size_t count = 0;
    for (long batch = 0; (count = draw_batch(l, batch, tokens, count)) > 0; batch++) {
        sp_batch_plan *plan = NULL;
        double begun_ms = now_ms();
        if (sp_plan_batch(l->planner, tokens, count, &plan, &l->err) != SP_OK) {
            break;
        }
        double took_ms = now_ms() - begun_ms;
        count = keep_delayed(plan, tokens);
        hand_over(l, plan, took_ms);
    }
    hand_over(l, NULL, 0.0);
    return NULL;
}

// The next plan, which the caller frees; NULL at the end.
static sp_batch_plan *take_plan(loader *l, double *planned_ms, double *waited_ms)
{
    double begun_ms = now_ms();
    pthread_mutex_lock(&l->lock);
    while (l->ready == NULL && !l->ended) {
        pthread_cond_wait(&l->turn, &l->lock);
    }
    sp_batch_plan *plan = l->ready;
    l->ready = NULL;
    *planned_ms = l->ready_ms;
    pthread_cond_broadcast(&l->turn);
    pthread_mutex_unlock(&l->lock);
    *waited_ms = now_ms() - begun_ms;
    return plan;
}

// In a training job: the step itself, by the packs and the actions of this rank (plan_batch.c
// prints them).
static void train(const sp_batch_plan *plan, double step_ms)
{
    (void)plan;
    struct timespec step = {.tv_sec = (time_t)(step_ms / 1e3)};
    step.tv_nsec = (long)(1e6 * (step_ms - 1e3 * (double)step.tv_sec));
    nanosleep(&step, NULL);
}

// The first plan has no step to hide behind; it is told by itself.
static void run_steps(loader *l, double step_ms)
{
    double planned_ms;
    double waited_ms;
    double first_ms = 0.0;
    double planned_sum_ms = 0.0;
    double waited_sum_ms = 0.0;
    long step = 0;
    sp_batch_plan *plan;
    puts("step  samples  packs  predicted ms  planned ms  waited ms");
    for (; (plan = take_plan(l, &planned_ms, &waited_ms)) != NULL; step++) {
        printf("%4ld  %7zu  %5zu  %12.1f  %10.1f  %9.1f\n", step, plan->batch.count,
               plan->packing.forward.count, plan->predicted_ms, planned_ms, waited_ms);
        first_ms = step == 0 ? waited_ms : first_ms;
        planned_sum_ms += step == 0 ? 0.0 : planned_ms;
        waited_sum_ms += step == 0 ? 0.0 : waited_ms;
        train(plan, step_ms);
        sp_batch_plan_free(plan);
    }
    double hidden = planned_sum_ms > 0.0 ? 1.0 - waited_sum_ms / planned_sum_ms : 1.0;
    printf("%ld plans: waited %.1f ms for the first; planned %.1f ms behind steps, waited %.1f ms, "
           "%.1f %% hidden\n",
           step, first_ms, planned_sum_ms, waited_sum_ms, 100.0 * (hidden > 0.0 ? hidden : 0.0));
}

static int fail(const sp_error *err)
{
    fprintf(stderr, "%s\n", err->count > 0 ? err->message[0] : sp_status_text(err->status));
    return sp_status_exit(err->status);
}

int main(int argc, char **argv)
{
    static loader l = {.lock = PTHREAD_MUTEX_INITIALIZER, .turn = PTHREAD_COND_INITIALIZER};
    if (argc != 5) {
        fprintf(stderr, "usage: loader SCENARIO BATCHES SAMPLES STEP_MS\n");
        return 2;
    }
    l.batches = atol(argv[2]);
    l.samples = atol(argv[3]);
    if (sp_planner_open(argv[1], NULL, NULL, 0, &l.planner, &l.err) == SP_OK &&
        pthread_create(&l.thread, NULL, plan_batches, &l) == 0) {
        run_steps(&l, atof(argv[4]));
        pthread_join(l.thread, NULL);
    }
    sp_planner_free(l.planner);
    return l.err.status == SP_OK ? 0 : fail(&l.err);
}
