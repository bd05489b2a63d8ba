#include <errno.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "experiments/sweep/ranks_private.h"
#include "sim/base/alloc.h"
#include "sim/base/progress.h"

enum { BLOCKS_OF_THREAD = 2, HOST = 256, BEATS = 15 };

// Between two questions to MPI, each of which takes a core from a thread that evaluates.
static const struct timespec idle = {.tv_nsec = 2000000};

// What ranks say of themselves first.
typedef struct hello {
    int threads;
    long process;
    char host[HOST];
} hello;

// ---- messages, under the mutex ----

sp_status sweep_send_to(sweep_ranks *r, const sweep_peer *to, int tag, const void *data,
                        size_t bytes, sp_error *err)
{
    const sweep_message message = {to->rank, tag, (char *)data, bytes};
    return to->gone ? SP_OK : r->transport->send(r->transport, &message, err);
}

sp_status sweep_send_to_all(sweep_ranks *r, int tag, const void *data, size_t bytes, sp_error *err)
{
    sp_status status = SP_OK;
    for (int p = 0; status == SP_OK && p < r->peer_count; p++) {
        status = sweep_send_to(r, &r->peers[p], tag, data, bytes, err);
    }
    return status;
}

static sweep_peer *peer_of(sweep_ranks *r, int rank)
{
    return r->transport->rank == 0 ? &r->peers[rank - 1] : &r->peers[0];
}

static sp_status say_hello(sweep_ranks *r, sp_error *err)
{
    hello own = {.threads = r->threads, .process = (long)getpid()};
    (void)gethostname(own.host, sizeof own.host - 1);
    return sweep_send_to_all(r, SWEEP_HELLO, &own, sizeof own, err);
}

// A process that can be seen is watched: its death need not be waited for.
static void take_hello(sweep_peer *from, const sweep_message *message)
{
    hello theirs;
    char host[HOST] = "";
    if (message->bytes == sizeof theirs) {
        memcpy(&theirs, message->data, sizeof theirs);
        (void)gethostname(host, sizeof host - 1);
        bool seen = strcmp(host, theirs.host) == 0 && kill((pid_t)theirs.process, 0) == 0;
        from->process = seen ? theirs.process : 0;
        from->threads = theirs.threads;
    }
}

static void take_message(sweep_ranks *r, sweep_message *message)
{
    sweep_peer *from = peer_of(r, message->rank);
    int block = message->tag - SWEEP_BLOCK;
    sweep_slot *s = block >= 0 && block < from->blocks ? &r->slots[from->first + block] : NULL;
    from->heard_s = sp_clock_s();
    if (message->tag == SWEEP_HELLO) {
        take_hello(from, message);
    } else if (message->tag == SWEEP_END) {
        r->over = true;
        r->died = message->data[0] != 0;
    } else if (message->tag == SWEEP_SPEC) {
        free(r->spec);
        r->spec = message->data;
        r->spec[message->bytes] = '\0';
        message->data = NULL;
    } else if (s != NULL && !s->came) {
        s->message = *message;
        s->came = true;
        message->data = NULL;
        pthread_cond_signal(&s->changed);
    }
    pthread_cond_signal(&r->changed);
    free(message->data);
}

// ---- life and death ----

static bool is_dead(const sweep_peer *p)
{
    return p->process > 0 && kill((pid_t)p->process, 0) != 0 && errno == ESRCH;
}

static void bury(sweep_ranks *r, sweep_peer *dead)
{
    dead->gone = true;
    r->died = true;
    r->transport->forget(r->transport, dead->rank);
    for (int b = 0; b < dead->blocks; b++) {
        pthread_cond_signal(&r->slots[dead->first + b].changed);
    }
    pthread_cond_broadcast(&r->changed);
}

static void look_after(sweep_ranks *r)
{
    const double silent_s = r->transport->silent_s;
    double now_s = sp_clock_s();
    bool beats = now_s - r->beat_s > silent_s / BEATS;
    r->beat_s = beats ? now_s : r->beat_s;
    for (int p = 0; p < r->peer_count; p++) {
        sweep_peer *of = &r->peers[p];
        bool dead = !of->gone && is_dead(of);
        bool silent = !of->gone && !dead && now_s - of->heard_s > silent_s;
        if (dead || silent) {
            r->hangs = r->hangs || silent;
            bury(r, of);
        } else if (beats) {
            (void)sweep_send_to(r, of, SWEEP_BEAT, NULL, 0, NULL);
        }
    }
}

void sweep_ranks_pump_once(sweep_ranks *r)
{
    sweep_message message;
    pthread_mutex_lock(&r->mutex);
    bool came = r->transport->receive(r->transport, &message);
    if (came) {
        take_message(r, &message);
    } else {
        look_after(r);
    }
    pthread_mutex_unlock(&r->mutex);
    if (!came) {
        nanosleep(&idle, NULL);
    }
}

bool sweep_ranks_are_over(sweep_ranks *r)
{
    pthread_mutex_lock(&r->mutex);
    bool over = r->over || (r->transport->rank > 0 && r->peers[0].gone);
    pthread_mutex_unlock(&r->mutex);
    return over;
}

void *sweep_ranks_pump(void *argument)
{
    sweep_ranks *r = argument;
    while (!sweep_ranks_are_over(r)) {
        sweep_ranks_pump_once(r);
    }
    return NULL;
}

// ---- begin and end ----

static sp_status make_slots(sweep_ranks *r, sp_error *err)
{
    for (int p = 0; p < r->peer_count; p++) {
        sweep_peer *of = &r->peers[p];
        of->first = r->slot_count;
        of->blocks = BLOCKS_OF_THREAD * (r->transport->rank == 0 ? of->threads : r->threads);
        r->slot_count += of->blocks;
    }
    r->slots = sp_calloc((size_t)r->slot_count, sizeof *r->slots);
    if (r->slots == NULL) {
        r->slot_count = 0;
        return sp_error_no_memory(err, "the ranks of a sweep");
    }
    for (int p = 0; p < r->peer_count; p++) {
        for (int b = 0; b < r->peers[p].blocks; b++) {
            sweep_slot *s = &r->slots[r->peers[p].first + b];
            *s = (sweep_slot){.of = &r->peers[p], .tag = SWEEP_BLOCK + b};
            pthread_cond_init(&s->changed, NULL);
        }
    }
    return SP_OK;
}

static bool all_were_heard(const sweep_ranks *r)
{
    bool heard = true;
    for (int p = 0; p < r->peer_count; p++) {
        heard = heard && (r->peers[p].threads > 0 || r->peers[p].gone);
    }
    return heard;
}

sp_status sweep_ranks_begin(sweep_transport *transport, int threads, sweep_ranks **ranks,
                            sp_error *err)
{
    sweep_ranks *r = sp_calloc(1, sizeof *r);
    int peers = transport->rank == 0 ? transport->ranks - 1 : 1;
    sweep_peer *of = sp_calloc((size_t)peers, sizeof *of);
    *ranks = NULL;
    if (r == NULL || of == NULL) {
        sp_free(of);
        sp_free(r);
        transport->end(transport, SWEEP_END_ALONE, 0);
        return sp_error_no_memory(err, "the ranks of a sweep");
    }
    *r =
        (sweep_ranks){.transport = transport, .threads = threads, .peers = of, .peer_count = peers};
    *ranks = r;
    r->beat_s = sp_clock_s();
    pthread_mutex_init(&r->mutex, NULL);
    pthread_cond_init(&r->changed, NULL);
    for (int p = 0; p < peers; p++) {
        of[p] = (sweep_peer){.rank = transport->rank == 0 ? p + 1 : 0, .heard_s = r->beat_s};
    }
    // The others have slots before rank 0, which waits for their word, asks anything.
    sp_status status = transport->rank > 0 ? make_slots(r, err) : SP_OK;
    if (status == SP_OK) {
        status = say_hello(r, err);
    }
    while (status == SP_OK && !all_were_heard(r) && !sweep_ranks_are_over(r)) {
        sweep_ranks_pump_once(r);
    }
    if (status == SP_OK && transport->rank == 0) {
        status = make_slots(r, err);
        r->pumps = status == SP_OK && pthread_create(&r->pump, NULL, sweep_ranks_pump, r) == 0;
        if (status == SP_OK && !r->pumps) {
            status = sp_error_set(err, SP_ERR_LIMIT, "cannot start a thread");
        }
    }
    return status;
}

static sweep_ending ending(const sweep_ranks *r, int exit_status)
{
    bool first = r->transport->rank == 0;
    return first && r->hangs                         ? SWEEP_END_ALL
           : r->died || (!first && exit_status != 0) ? SWEEP_END_ALONE
                                                     : SWEEP_END_TOGETHER;
}

void sweep_ranks_end(sweep_ranks *r, int exit_status)
{
    if (r == NULL) {
        return;
    }
    pthread_mutex_lock(&r->mutex);
    r->over = true;
    if (r->transport->rank == 0) {
        const char died = r->died;
        (void)sweep_send_to_all(r, SWEEP_END, &died, 1, NULL);
    }
    pthread_mutex_unlock(&r->mutex);
    if (r->pumps) {
        pthread_join(r->pump, NULL);
    }
    r->transport->end(r->transport, ending(r, exit_status), exit_status);
    for (int s = 0; s < r->slot_count; s++) {
        free(r->slots[s].message.data);
        pthread_cond_destroy(&r->slots[s].changed);
    }
    pthread_cond_destroy(&r->changed);
    pthread_mutex_destroy(&r->mutex);
    sp_free(r->slots);
    sp_free(r->peers);
    free(r->spec);
    sp_free(r);
}
