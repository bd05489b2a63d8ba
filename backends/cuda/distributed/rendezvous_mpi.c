// Ranks that MPI started meet by it: no folder is needed, and MPI's launcher ends all where one
// dies.
#include <mpi.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "backends/cuda/distributed/rendezvous_mpi.h"
#include "sim/base/alloc.h"

enum { FAILED = 7 }; // tag of a failure

// A status, and what happened.
typedef struct failure {
    int status;
    char text[SP_ERROR_TEXT];
} failure;

typedef struct mpi_rendezvous {
    sp_i_rendezvous base; // first
    MPI_Comm comm;
    failure told;          // stays where it is until the messages with it are gone
    MPI_Request *requests; // [ranks]; owned, NULL: nobody was told
} mpi_rendezvous;

// ---- this process ----

static void end_mpi(void)
{
    int over = 0;
    (void)MPI_Finalized(&over);
    if (!over) {
        (void)MPI_Finalize();
    }
}

bool sp_i_mpi_place(sp_i_place *place)
{
    int begun = 0;
    int level = 0;
    int ranks = 0;
    MPI_Comm here;
    (void)MPI_Initialized(&begun);
    if (!begun) {
        if (MPI_Init_thread(NULL, NULL, MPI_THREAD_SERIALIZED, &level) != MPI_SUCCESS) {
            return false;
        }
        (void)atexit(end_mpi);
    }
    (void)MPI_Comm_size(MPI_COMM_WORLD, &ranks);
    if (ranks != place->ranks) {
        return false;
    }
    (void)MPI_Comm_rank(MPI_COMM_WORLD, &place->rank);
    (void)MPI_Comm_split_type(MPI_COMM_WORLD, MPI_COMM_TYPE_SHARED, place->rank, MPI_INFO_NULL,
                              &here);
    (void)MPI_Comm_rank(here, &place->local_rank);
    (void)MPI_Comm_free(&here);
    place->by_mpi = true;
    return true;
}

// ---- failure ----

static void look(sp_i_rendezvous *r)
{
    mpi_rendezvous *m = (mpi_rendezvous *)(void *)r;
    failure theirs;
    int there = 0;
    (void)MPI_Iprobe(MPI_ANY_SOURCE, FAILED, m->comm, &there, MPI_STATUS_IGNORE);
    if (there) {
        (void)MPI_Recv(&theirs, sizeof theirs, MPI_BYTE, MPI_ANY_SOURCE, FAILED, m->comm,
                       MPI_STATUS_IGNORE);
        theirs.text[sizeof theirs.text - 1] = '\0';
        sp_i_rendezvous_note(r, (sp_status)theirs.status, "%s", theirs.text);
    }
}

static void tell(sp_i_rendezvous *r, sp_status status, const char *text)
{
    mpi_rendezvous *m = (mpi_rendezvous *)(void *)r;
    m->requests = sp_calloc((size_t)r->ranks, sizeof(MPI_Request));
    if (m->requests == NULL) {
        (void)MPI_Abort(m->comm, sp_status_exit(status)); // the others end, if without a word
        return;
    }
    m->told.status = (int)status;
    snprintf(m->told.text, sizeof m->told.text, "%s", text);
    for (int i = 0; i < r->ranks; i++) {
        m->requests[i] = MPI_REQUEST_NULL;
        if (i != r->rank) {
            (void)MPI_Isend(&m->told, sizeof m->told, MPI_BYTE, i, FAILED, m->comm,
                            &m->requests[i]);
        }
    }
}

// ---- collectives that failures end ----

// True when the request is over, false where a failure or the time ended the wait.
static bool wait_for(mpi_rendezvous *m, MPI_Request *request, const char *what, int64_t until_ms)
{
    int over = 0;
    for (int polls = 0;; sp_pause(&polls)) {
        (void)MPI_Test(request, &over, MPI_STATUS_IGNORE);
        if (over || sp_i_rendezvous_check(&m->base, NULL) != SP_OK) {
            return over != 0;
        }
        if (sp_i_now_ms() >= until_ms) {
            (void)sp_i_rendezvous_abort(&m->base, SP_ERR_LIMIT, "%s was not over in %d ms", what,
                                        m->base.timeout_ms);
            return false;
        }
    }
}

static void broadcast(sp_i_rendezvous *r, void *data, size_t bytes, int64_t until_ms)
{
    mpi_rendezvous *m = (mpi_rendezvous *)(void *)r;
    MPI_Request request;
    (void)MPI_Ibcast(data, (int)bytes, MPI_BYTE, 0, m->comm, &request);
    (void)wait_for(m, &request, "a broadcast", until_ms);
}

// All cards at rank 0, and what it says of them at all.
static void compare_cards(mpi_rendezvous *m, const char *card, int64_t until_ms)
{
    char own[SP_I_RENDEZVOUS_CARD] = "";
    failure verdict = {0};
    MPI_Request request;
    const size_t ranks = (size_t)m->base.ranks;
    char *all = m->base.rank == 0 ? sp_calloc(ranks, sizeof own) : NULL;
    snprintf(own, sizeof own, "%s", card);
    (void)MPI_Igather(own, sizeof own, MPI_BYTE, all, sizeof own, MPI_BYTE, 0, m->comm, &request);
    if (!wait_for(m, &request, "the rendezvous of all ranks", until_ms)) {
        return; // MPI may still write: the cards stay
    }
    for (int i = 1; all != NULL && verdict.status == SP_OK && i < m->base.ranks; i++) {
        const char *theirs = all + (size_t)i * sizeof own;
        if (strcmp(theirs, own) != 0) {
            verdict.status = SP_ERR_USAGE;
            sp_i_rendezvous_card_text(i, theirs, own, verdict.text, sizeof verdict.text);
        }
    }
    sp_free(all);
    broadcast(&m->base, &verdict, sizeof verdict, until_ms);
    if (m->base.failure.status == SP_OK && verdict.status != SP_OK) {
        sp_i_rendezvous_note(&m->base, (sp_status)verdict.status, "%s", verdict.text);
    }
}

// ---- begin and end ----

// After a failure other ranks may still be waiting, and nobody frees the communicator.
static void free_rendezvous(sp_i_rendezvous *r)
{
    mpi_rendezvous *m = (mpi_rendezvous *)(void *)r;
    if (m->requests != NULL) {
        (void)MPI_Waitall(r->ranks, m->requests, MPI_STATUSES_IGNORE);
    } else if (r->failure.status == SP_OK) {
        (void)MPI_Comm_free(&m->comm);
    }
    sp_free(m->requests);
    sp_free(m);
}

static const sp_i_rendezvous_ops mpi_ops = {look, broadcast, tell, free_rendezvous};

sp_status sp_i_mpi_join(const sp_i_place *place, const char *card, int timeout_ms,
                        sp_i_rendezvous **made, sp_error *err)
{
    mpi_rendezvous *m = sp_calloc(1, sizeof *m);
    *made = NULL;
    if (m == NULL) {
        return sp_error_no_memory(err, "the ranks' rendezvous");
    }
    m->base = (sp_i_rendezvous){
        .ops = &mpi_ops, .rank = place->rank, .ranks = place->ranks, .timeout_ms = timeout_ms};
    (void)MPI_Comm_dup(MPI_COMM_WORLD, &m->comm);
    compare_cards(m, card, sp_i_now_ms() + timeout_ms);
    sp_status status = m->base.failure.status;
    if (status != SP_OK) {
        (void)sp_error_set(err, status, "%s", m->base.failure.message[0]);
        free_rendezvous(&m->base);
        return status;
    }
    *made = &m->base;
    return SP_OK;
}
