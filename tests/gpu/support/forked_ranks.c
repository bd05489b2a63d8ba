#include "tests/gpu/support/forked_ranks.h"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

// An address of the loopback for each process: what other programs use there is 127.0.0.1.
static struct sockaddr_in own_address(void)
{
    struct sockaddr_in at = {.sin_family = AF_INET};
    unsigned pid = (unsigned)getpid();
    at.sin_addr.s_addr = htonl(127u << 24 | 1u << 22 | (pid & 0x3fffffu));
    return at;
}

void forked_ranks_init(forked_ranks *f, int ranks)
{
    *f = (forked_ranks){.place = {.ranks = ranks, .run = "a test's run"}};
    struct sockaddr_in at = own_address();
    socklen_t bytes = sizeof at;
    int listener = socket(AF_INET, SOCK_STREAM, 0);
    SP_ASSERT(listener >= 0 && bind(listener, (struct sockaddr *)&at, bytes) == 0);
    SP_ASSERT(getsockname(listener, (struct sockaddr *)&at, &bytes) == 0);
    close(listener);
    f->place.port = ntohs(at.sin_port);
    SP_ASSERT(inet_ntop(AF_INET, &at.sin_addr, f->place.address, sizeof f->place.address) != NULL);
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
        sp_i_bootstrap_place place = f->place;
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

int forked_ranks_connect(const forked_ranks *f)
{
    struct sockaddr_in at = {.sin_family = AF_INET, .sin_port = htons((uint16_t)f->place.port)};
    SP_ASSERT(inet_pton(AF_INET, f->place.address, &at.sin_addr) == 1);
    for (int tries = 0; tries < 10000; tries++) {
        int made = socket(AF_INET, SOCK_STREAM, 0);
        if (connect(made, (struct sockaddr *)&at, sizeof at) == 0) {
            return made;
        }
        close(made);
        (void)nanosleep(&(struct timespec){.tv_nsec = 2000000}, NULL);
    }
    return -1;
}
