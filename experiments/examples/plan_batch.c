// Plans inside a data loader: while the training job runs one step, a thread plans the next.
//
//     cc plan_batch.c $(pkg-config --cflags --libs slimpack) -lpthread -o plan_batch
//     ./plan_batch scenario.json "5321 812 40960" "700 700 16000" ...
//
// Each argument after the scenario stands for the lengths of one batch.
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>

#include <slimpack/slimpack.h>

enum { MOST_SAMPLES = 4096 };

// The work of the planning thread.
typedef struct order {
    sp_planner *planner;
    const char *lengths;
    sp_batch_plan *plan;
    sp_error err;
} order;

static void *plan_next(void *context)
{
    order *next = context;
    static int64_t tokens[MOST_SAMPLES]; // one order at a time
    size_t count = 0;
    char *end = (char *)next->lengths;
    for (const char *at = end; count < MOST_SAMPLES; at = end) {
        int64_t length = strtoll(at, &end, 10);
        if (end == at) {
            break;
        }
        tokens[count++] = length;
    }
    sp_plan_batch(next->planner, tokens, count, &next->plan, &next->err);
    return NULL;
}

// In a training job: the step itself, by the packs and the actions of this rank.
static void train(int step, const sp_batch_plan *plan)
{
    const sp_pack_list *packs = &plan->packing.forward;
    printf("step %d: %zu samples in %zu packs, predicted %.3f ms%s\n", step, plan->batch.count,
           packs->count, plan->predicted_ms, plan->oom ? ", out of memory" : "");
    for (size_t p = 0; p < packs->count; p++) {
        printf("  pack %zu on rank %d:", p, (int)packs->packs[p].dp_first);
        for (size_t s = 0; s < packs->packs[p].slice_count; s++) {
            const sp_slice *slice = &packs->slices[packs->packs[p].first_slice + s];
            printf(" %lld[%lld..%lld)", (long long)plan->batch.ids[slice->sample],
                   (long long)slice->begin, (long long)(slice->begin + slice->tokens));
        }
        putchar('\n');
    }
}

static int fail(const sp_error *err)
{
    fprintf(stderr, "%s\n", err->count > 0 ? err->message[0] : sp_status_text(err->status));
    return sp_status_exit(err->status);
}

int main(int argc, char **argv)
{
    static order next;
    pthread_t thread;
    int status = 0;
    if (argc < 3) {
        fprintf(stderr, "usage: plan_batch SCENARIO LENGTHS...\n");
        return 2;
    }
    if (sp_planner_open(argv[1], NULL, NULL, 0, &next.planner, &next.err) != SP_OK) {
        return fail(&next.err);
    }
    next.lengths = argv[2];
    plan_next(&next); // there is no step yet to hide behind
    for (int step = 0; next.plan != NULL; step++) {
        sp_batch_plan *plan = next.plan;
        next.plan = NULL;
        bool more = step + 3 < argc;
        if (more) {
            next.lengths = argv[step + 3];
            more = pthread_create(&thread, NULL, plan_next, &next) == 0;
        }
        train(step, plan);
        sp_batch_plan_free(plan);
        if (more) {
            pthread_join(thread, NULL);
        }
    }
    if (next.err.status != SP_OK) {
        status = fail(&next.err);
    }
    sp_planner_free(next.planner);
    return status;
}
