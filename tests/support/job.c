#include "tests/support/job.h"

#include <pthread.h>
#include <stdio.h>
#include <sys/wait.h>
#include <unistd.h>

typedef struct job_rank {
    int rank, pipe;
    job_body *body;
    void *context;
} job_rank;

static void *run_rank(void *data)
{
    const job_rank *r = data;
    sp_error err = {0};
    job_end end = {.rank = r->rank};
    end.status = r->body(r->rank, r->context, &err);
    if (end.status != SP_OK) {
        snprintf(end.text, sizeof end.text, "%s", err.message[0]);
        _exit(write(r->pipe, &end, sizeof end) == (ssize_t)sizeof end ? 0 : 1);
    }
    return NULL;
}

static void run_process(int ranks, job_body *body, void *context, int pipe)
{
    const job_end good = {0};
    job_rank all[JOB_RANKS];
    pthread_t threads[JOB_RANKS];
    for (int r = 0; r < ranks; r++) {
        all[r] = (job_rank){r, pipe, body, context};
        SP_ASSERT(pthread_create(&threads[r], NULL, run_rank, &all[r]) == 0);
    }
    for (int r = 0; r < ranks; r++) {
        SP_ASSERT(pthread_join(threads[r], NULL) == 0);
    }
    _exit(write(pipe, &good, sizeof good) == (ssize_t)sizeof good ? 0 : 1);
}

// Two ranks may fail at once: what the first has written is read, and the other's left.
job_end job_run(int ranks, job_body *body, void *context)
{
    job_end end = {SP_ERR_INTERNAL, -1, "the job died"};
    int ends[2];
    int code = 0;
    SP_ASSERT(ranks <= JOB_RANKS && pipe(ends) == 0);
    (void)fflush(NULL);
    pid_t child = fork();
    SP_ASSERT(child >= 0);
    if (child == 0) {
        run_process(ranks, body, context, ends[1]);
    }
    (void)close(ends[1]);
    job_end read_end;
    if (read(ends[0], &read_end, sizeof read_end) == (ssize_t)sizeof read_end) {
        end = read_end;
    }
    (void)close(ends[0]);
    SP_ASSERT(waitpid(child, &code, 0) == child);
    return end;
}
