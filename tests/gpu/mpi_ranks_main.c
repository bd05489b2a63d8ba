// mpi_ranks: started by mpirun as three processes or more. They meet by MPI, give each other rank
// 0's bytes, fail together where one gives up, and end where one of them does not fit. Each says
// what it found wrong. Exit status: 0 all as expected, 1 not.
#include <stdio.h>
#include <string.h>

#include "backends/cuda/distributed/rendezvous.h"

enum { TIMEOUT_MS = 20000, BYTES = 300000 };

static int complain(const sp_i_place *place, const char *what, const sp_error *err)
{
    fprintf(stderr, "rank %d: %s: %s\n", place->rank, what,
            err->count > 0 ? err->message[0] : "no error");
    return 1;
}

static int meet(const sp_i_place *place)
{
    static unsigned char data[BYTES];
    sp_i_rendezvous *r = NULL;
    sp_error err = {0};
    sp_status status = sp_i_rendezvous_join(place, "plan 1", TIMEOUT_MS, &r, &err);
    for (int round = 0; status == SP_OK && round < 3; round++) {
        memset(data, place->rank == 0 ? 7 + round : 0, sizeof data);
        status = sp_i_rendezvous_broadcast(r, data, sizeof data, &err);
        if (data[0] != 7 + round || data[BYTES - 1] != 7 + round) {
            status = SP_ERR_INTERNAL;
        }
    }
    sp_i_rendezvous_free(r);
    return status == SP_OK ? 0 : complain(place, "meeting", &err);
}

// A rank that is slow to join may hear of it before it has.
static int give_up(const sp_i_place *place)
{
    sp_i_rendezvous *r = NULL;
    sp_error err = {0};
    char byte = 0;
    sp_status status = sp_i_rendezvous_join(place, "plan 1", TIMEOUT_MS, &r, &err);
    if (status == SP_OK) {
        if (place->rank == 1) {
            (void)sp_i_rendezvous_abort(r, SP_ERR_NO_MEMORY, "F3.1: out of memory");
        }
        while (sp_i_rendezvous_check(r, &err) == SP_OK) {
        }
        status = sp_i_rendezvous_broadcast(r, &byte, 1, NULL);
    }
    sp_i_rendezvous_free(r);
    return status == SP_ERR_NO_MEMORY && strcmp(err.message[0], "rank 1: F3.1: out of memory") == 0
               ? 0
               : complain(place, "a rank that gives up", &err);
}

static int differ(const sp_i_place *place)
{
    sp_i_rendezvous *r = NULL;
    sp_error err = {0};
    sp_status status =
        sp_i_rendezvous_join(place, place->rank == 2 ? "plan 2" : "plan 1", TIMEOUT_MS, &r, &err);
    return status == SP_ERR_USAGE && r == NULL &&
                   strcmp(err.message[0], "rank 2 has plan 2, rank 0 has plan 1") == 0
               ? 0
               : complain(place, "a rank that does not fit", &err);
}

int main(void)
{
    sp_i_place place;
    sp_error err = {0};
    if (sp_i_place_of_process(&place, &err) != SP_OK) {
        return complain(&place, "the place", &err);
    }
    if (!place.by_mpi || place.ranks < 3 || place.local_rank != place.rank) {
        fprintf(stderr, "rank %d of %d (%d here): not by MPI\n", place.rank, place.ranks,
                place.local_rank);
        return 1;
    }
    int failed = meet(&place);
    failed += give_up(&place);
    failed += differ(&place);
    failed += meet(&place);
    return failed > 0;
}
