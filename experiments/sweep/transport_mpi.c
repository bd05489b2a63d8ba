// Messages by MPI. No collective is called between its begin and its end: a rank that dies would
// hold all others in it.
#include <mpi.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "experiments/sweep/transport.h"
#include "sim/base/alloc.h"

enum { BEGIN_S = 120 };

// A copy of a message that MPI may still read.
typedef struct sent {
    MPI_Request request;
    struct sent *next;
    char data[];
} sent;

typedef struct mpi {
    sweep_transport base; // first
    sent *sent;
    MPI_Request coming; // of `message`
    sweep_message message;
} mpi;

static void free_sent(mpi *m)
{
    for (sent **at = &m->sent; *at != NULL;) {
        sent *s = *at;
        int over = 0;
        (void)MPI_Test(&s->request, &over, MPI_STATUS_IGNORE);
        if (over) {
            *at = s->next;
            sp_free(s);
        } else {
            at = &s->next;
        }
    }
}

static sp_status send_message(sweep_transport *transport, const sweep_message *message,
                              sp_error *err)
{
    mpi *m = (mpi *)(void *)transport;
    sent *s = sp_malloc(sizeof *s + message->bytes);
    if (s == NULL) {
        return sp_error_no_memory(err, "a message");
    }
    if (message->bytes > 0) {
        memcpy(s->data, message->data, message->bytes);
    }
    (void)MPI_Isend(s->data, (int)message->bytes, MPI_BYTE, message->rank, message->tag,
                    MPI_COMM_WORLD, &s->request);
    s->next = m->sent;
    m->sent = s;
    return SP_OK;
}

static bool begin_to_receive(mpi *m)
{
    MPI_Status envelope;
    int there = 0;
    int bytes = 0;
    (void)MPI_Iprobe(MPI_ANY_SOURCE, MPI_ANY_TAG, MPI_COMM_WORLD, &there, &envelope);
    if (!there) {
        return false;
    }
    (void)MPI_Get_count(&envelope, MPI_BYTE, &bytes);
    char *data = malloc((size_t)bytes + 1);
    if (data != NULL) {
        m->message = (sweep_message){envelope.MPI_SOURCE, envelope.MPI_TAG, data, (size_t)bytes};
        (void)MPI_Irecv(data, bytes, MPI_BYTE, envelope.MPI_SOURCE, envelope.MPI_TAG,
                        MPI_COMM_WORLD, &m->coming);
    }
    return data != NULL;
}

static bool receive_message(sweep_transport *transport, sweep_message *message)
{
    mpi *m = (mpi *)(void *)transport;
    int over = 0;
    free_sent(m);
    if (m->coming != MPI_REQUEST_NULL || begin_to_receive(m)) {
        (void)MPI_Test(&m->coming, &over, MPI_STATUS_IGNORE);
    }
    if (over) {
        *message = m->message;
        m->message.data = NULL;
    }
    return over != 0;
}

// MPI may write yet into a message whose sender died in the middle: its memory stays.
static void forget_rank(sweep_transport *transport, int rank)
{
    mpi *m = (mpi *)(void *)transport;
    if (m->coming != MPI_REQUEST_NULL && m->message.rank == rank) {
        (void)MPI_Request_free(&m->coming);
        m->coming = MPI_REQUEST_NULL;
    }
}

// MPI_Finalize() waits for all ranks, of Open MPI 4.1.4 now and then also for dead ones. Ranks that
// end without it are no failure where mpirun lets ranks die (--enable-recovery).
static void end_mpi(sweep_transport *transport, sweep_ending ending, int exit_status)
{
    if (ending == SWEEP_END_ALL) {
        (void)fflush(stdout);
        (void)MPI_Abort(MPI_COMM_WORLD, exit_status);
    } else if (ending == SWEEP_END_TOGETHER) {
        (void)MPI_Finalize();
    }
    sp_free(transport);
}

// Open MPI, and what starts MPICH and its kin.
static bool is_started_by_launcher(void)
{
    return getenv("OMPI_COMM_WORLD_SIZE") != NULL || getenv("PMIX_RANK") != NULL ||
           getenv("PMI_RANK") != NULL;
}

// Open MPI's, and MPICH's.
static int ranks_here(void)
{
    const char *text = getenv("OMPI_COMM_WORLD_LOCAL_SIZE");
    text = text != NULL ? text : getenv("MPI_LOCALNRANKS");
    int ranks = text != NULL ? atoi(text) : 1;
    return ranks > 0 ? ranks : 1;
}

// Few messages need no fast cards, and of Open MPI 4.1.4 the libraries of those measure the clock
// for 0.2 s as they are loaded. What the user or --mca says stands.
static void choose_plain_messages(void)
{
    (void)setenv("OMPI_MCA_pml", "ob1", 0);
}

sp_status sweep_transport_mpi(sweep_transport **transport, sp_error *err)
{
    int level = 0;
    *transport = NULL;
    if (!is_started_by_launcher()) {
        return SP_OK;
    }
    mpi *m = sp_calloc(1, sizeof *m);
    if (m == NULL) {
        return sp_error_no_memory(err, "the ranks of a sweep");
    }
    choose_plain_messages();
    // Where a rank dies in the middle of this, Open MPI 4.1.4 holds the others for ever.
    (void)alarm(BEGIN_S);
    int begun = MPI_Init_thread(NULL, NULL, MPI_THREAD_SERIALIZED, &level);
    (void)alarm(0);
    if (begun != MPI_SUCCESS || level < MPI_THREAD_SERIALIZED) {
        sp_free(m);
        return sp_error_set(err, SP_ERR_LIMIT, "MPI does not start with threads");
    }
    m->base = (sweep_transport){.here = ranks_here(),
                                .silent_s = 15.0,
                                .send = send_message,
                                .receive = receive_message,
                                .forget = forget_rank,
                                .end = end_mpi};
    m->coming = MPI_REQUEST_NULL;
    (void)MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_RETURN);
    (void)MPI_Comm_rank(MPI_COMM_WORLD, &m->base.rank);
    (void)MPI_Comm_size(MPI_COMM_WORLD, &m->base.ranks);
    *transport = &m->base;
    return SP_OK;
}
