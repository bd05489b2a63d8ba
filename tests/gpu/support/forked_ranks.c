#include "tests/gpu/support/forked_ranks.h"

#include <stdio.h>
#include <sys/wait.h>
#include <unistd.h>

void forked_ranks_init(forked_ranks *f, int ranks)
{
    static int count;
    *f = (forked_ranks){.place = {.ranks = ranks, .local_rank = -1, .folder = "."}};
    snprintf(f->place.run, sizeof f->place.run, "run-%d-%d", (int)getpid(), count++);
}

bool forked_ranks_left_nothing(const forked_ranks *f)
{
    return access(f->place.run, F_OK) != 0;
}

void forked_rank_start(forked_ranks *f, int rank, rank_body body, void *context)
{
    int ends[2];
    SP_ASSERT(pipe(ends) == 0);
    (void)fflush(NULL);
    f->pid[rank] = fork();
    SP_ASSERT(f->pid[rank] >= 0);
    if (f->pid[rank] == 0) {
        sp_error err = {0};
        rank_result result = {0};
        sp_i_place place = f->place;
        place.rank = rank;
        result.status = body(&place, context, &err);
        snprintf(result.text, sizeof result.text, "%s", err.message[0]);
        _exit(write(ends[1], &result, sizeof result) == (ssize_t)sizeof result ? 0 : 1);
    }
    close(ends[1]);
    f->pipe[rank] = ends[0];
}

rank_result forked_rank_end(forked_ranks *f, int rank)
{
    rank_result result = {0};
    int code = 0;
    if (read(f->pipe[rank], &result, sizeof result) != (ssize_t)sizeof result) {
        result = (rank_result){SP_ERR_INTERNAL, "died"};
    }
    close(f->pipe[rank]);
    SP_ASSERT(waitpid(f->pid[rank], &code, 0) == f->pid[rank]);
    return result;
}

void forked_ranks_run(forked_ranks *f, rank_body body, void *context, rank_result *results)
{
    for (int i = 0; i < f->place.ranks; i++) {
        forked_rank_start(f, i, body, context);
    }
    for (int i = 0; i < f->place.ranks; i++) {
        results[i] = forked_rank_end(f, i);
    }
}
