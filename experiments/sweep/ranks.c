#include "experiments/sweep/ranks.h"

#include <errno.h>
#include <pthread.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "sim/base/alloc.h"
#include "sim/base/progress.h"

// Tags. A block that comes back has the tag of the one that was asked for.
enum { HELLO, SPEC, BEAT, END, BLOCK };

enum { BLOCKS_OF_THREAD = 2, HOST = 256, BEATS = 15 };

// Between two questions to MPI, each of which takes a core from a thread that evaluates.
static const struct timespec idle = {.tv_nsec = 2000000};

// What ranks say of themselves first.
typedef struct hello {
    int threads;
    long process;
    char host[HOST];
} hello;

typedef struct peer {
    int rank;
    int threads;  // 0: it said nothing yet
    int blocks;   // slots of it ...
    int first;    // ... from this one on
    long process; // 0: cannot be looked for
    double heard_s;
    bool gone;
} peer;

// Place for a block of points on its way: of rank 0 one that it asks for, else one that it was
// asked.
typedef struct slot {
    peer *of;
    int tag;
    bool taken;
    bool came;             // `message` is there
    sweep_message message; // data owned
    pthread_cond_t changed;
} slot;

struct sweep_ranks {
    sweep_transport *transport;
    int threads;
    peer *peers; // [peer_count]; rank 0 alone, or all others; owned
    int peer_count;
    slot *slots; // [slot_count]; owned
    int slot_count;
    char *spec; // of the sweep, as it came; owned
    double beat_s;
    bool over;  // rank 0 lets this one end, or ends
    bool died;  // a rank did ...
    bool hangs; // ... or fell silent, which one that hangs does, too
    pthread_t pump;
    bool pumps;
    pthread_mutex_t mutex;  // of all above, and of the transport
    pthread_cond_t changed; // a slot became free, a block came, a rank died, or it is over
};

// ---- messages, under the mutex ----

static sp_status send_to(sweep_ranks *r, const peer *to, int tag, const void *data, size_t bytes,
                         sp_error *err)
{
    const sweep_message message = {to->rank, tag, (char *)data, bytes};
    return to->gone ? SP_OK : r->transport->send(r->transport, &message, err);
}

static sp_status send_to_all(sweep_ranks *r, int tag, const void *data, size_t bytes, sp_error *err)
{
    sp_status status = SP_OK;
    for (int p = 0; status == SP_OK && p < r->peer_count; p++) {
        status = send_to(r, &r->peers[p], tag, data, bytes, err);
    }
    return status;
}

static peer *peer_of(sweep_ranks *r, int rank)
{
    return r->transport->rank == 0 ? &r->peers[rank - 1] : &r->peers[0];
}

static sp_status say_hello(sweep_ranks *r, sp_error *err)
{
    hello own = {.threads = r->threads, .process = (long)getpid()};
    (void)gethostname(own.host, sizeof own.host - 1);
    return send_to_all(r, HELLO, &own, sizeof own, err);
}

// A process that can be seen is watched: its death need not be waited for.
static void take_hello(peer *from, const sweep_message *message)
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
    peer *from = peer_of(r, message->rank);
    int block = message->tag - BLOCK;
    slot *s = block >= 0 && block < from->blocks ? &r->slots[from->first + block] : NULL;
    from->heard_s = sp_clock_s();
    if (message->tag == HELLO) {
        take_hello(from, message);
    } else if (message->tag == END) {
        r->over = true;
        r->died = message->data[0] != 0;
    } else if (message->tag == SPEC) {
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

static bool is_dead(const peer *p)
{
    return p->process > 0 && kill((pid_t)p->process, 0) != 0 && errno == ESRCH;
}

static void bury(sweep_ranks *r, peer *dead)
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
        peer *of = &r->peers[p];
        bool dead = !of->gone && is_dead(of);
        bool silent = !of->gone && !dead && now_s - of->heard_s > silent_s;
        if (dead || silent) {
            r->hangs = r->hangs || silent;
            bury(r, of);
        } else if (beats) {
            (void)send_to(r, of, BEAT, NULL, 0, NULL);
        }
    }
}

// Takes the messages that are there, or pauses where there is none.
static void pump_once(sweep_ranks *r)
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

static bool is_over(sweep_ranks *r)
{
    pthread_mutex_lock(&r->mutex);
    bool over = r->over || (r->transport->rank > 0 && r->peers[0].gone);
    pthread_mutex_unlock(&r->mutex);
    return over;
}

static void *pump(void *argument)
{
    sweep_ranks *r = argument;
    while (!is_over(r)) {
        pump_once(r);
    }
    return NULL;
}

// ---- begin and end ----

static sp_status make_slots(sweep_ranks *r, sp_error *err)
{
    for (int p = 0; p < r->peer_count; p++) {
        peer *of = &r->peers[p];
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
            slot *s = &r->slots[r->peers[p].first + b];
            *s = (slot){.of = &r->peers[p], .tag = BLOCK + b};
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
    peer *of = sp_calloc((size_t)peers, sizeof *of);
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
        of[p] = (peer){.rank = transport->rank == 0 ? p + 1 : 0, .heard_s = r->beat_s};
    }
    // The others have slots before rank 0, which waits for their word, asks anything.
    sp_status status = transport->rank > 0 ? make_slots(r, err) : SP_OK;
    if (status == SP_OK) {
        status = say_hello(r, err);
    }
    while (status == SP_OK && !all_were_heard(r) && !is_over(r)) {
        pump_once(r);
    }
    if (status == SP_OK && transport->rank == 0) {
        status = make_slots(r, err);
        r->pumps = status == SP_OK && pthread_create(&r->pump, NULL, pump, r) == 0;
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
        (void)send_to_all(r, END, &died, 1, NULL);
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

// ---- answers: a status; with it a text, or each row's digest and line ----

static sp_status write_answer(sweep_message *answer, const sweep_row *rows, int count,
                              sp_status status, const sp_error *err)
{
    size_t bytes = sizeof status + (status != SP_OK ? sizeof err->message[0] : 0);
    for (int i = 0; status == SP_OK && i < count; i++) {
        bytes += sizeof rows[i].digest + strlen(rows[i].line) + 1;
    }
    char *at = malloc(bytes);
    *answer = (sweep_message){.data = at, .bytes = at != NULL ? bytes : 0};
    if (at == NULL) {
        return SP_ERR_NO_MEMORY;
    }
    memcpy(at, &status, sizeof status);
    at += sizeof status;
    if (status != SP_OK) {
        memcpy(at, err->message[0], sizeof err->message[0]);
    }
    for (int i = 0; status == SP_OK && i < count; i++) {
        memcpy(at, &rows[i].digest, sizeof rows[i].digest);
        at += sizeof rows[i].digest;
        memcpy(at, rows[i].line, strlen(rows[i].line) + 1);
        at += strlen(rows[i].line) + 1;
    }
    return SP_OK;
}

static sp_status read_answer(const sweep_message *answer, sweep_row *rows, int count, sp_error *err)
{
    sp_status status = SP_OK;
    const char *at = answer->data + sizeof status;
    memcpy(&status, answer->data, sizeof status);
    if (status != SP_OK) {
        return sp_error_set(err, status, "%s", at);
    }
    for (int i = 0; i < count; i++) {
        memcpy(&rows[i].digest, at, sizeof rows[i].digest);
        at += sizeof rows[i].digest;
        rows[i].line = strdup(at);
        if (rows[i].line == NULL) {
            return sp_error_no_memory(err, "a line of results");
        }
        at += strlen(at) + 1;
    }
    return SP_OK;
}

// ---- rank 0 ----

sp_status sweep_ranks_open(sweep_ranks *r, const sweep_spec *spec, sp_error *err)
{
    char *text = json_dumps(spec->document, JSON_COMPACT);
    if (text == NULL) {
        return sp_error_no_memory(err, "a sweep");
    }
    pthread_mutex_lock(&r->mutex);
    sp_status status = send_to_all(r, SPEC, text, strlen(text), err);
    pthread_mutex_unlock(&r->mutex);
    free(text);
    return status;
}

int sweep_ranks_blocks(const sweep_ranks *r)
{
    return r != NULL ? r->slot_count : 0;
}

// A free slot of a rank that lives; NULL where none lives. Under the mutex.
static slot *take_slot(sweep_ranks *r)
{
    for (bool lives = true; lives; pthread_cond_wait(&r->changed, &r->mutex)) {
        lives = false;
        for (int s = 0; s < r->slot_count; s++) {
            slot *at = &r->slots[s];
            if (!at->taken && !at->of->gone) {
                at->taken = true;
                return at;
            }
            lives = lives || !at->of->gone;
        }
        if (!lives) {
            break;
        }
    }
    return NULL;
}

// Sends the combinations and waits for the rows; without a message where the rank dies first. Under
// the mutex.
static sp_status ask(sweep_ranks *r, slot *s, const int64_t *wanted, int count,
                     sweep_message *answer, sp_error *err)
{
    sp_status status = send_to(r, s->of, s->tag, wanted, (size_t)count * sizeof *wanted, err);
    while (status == SP_OK && !s->came && !s->of->gone) {
        pthread_cond_wait(&s->changed, &r->mutex);
    }
    *answer = s->message;
    s->message = (sweep_message){0};
    s->came = false;
    s->taken = false;
    pthread_cond_signal(&r->changed);
    return status;
}

static sp_status evaluate(sweep_ranks *r, const int64_t *wanted, int count, sweep_message *answer,
                          bool *done, sp_error *err)
{
    sp_status status = SP_OK;
    pthread_mutex_lock(&r->mutex);
    for (*done = false; status == SP_OK && !*done;) {
        slot *s = take_slot(r);
        if (s == NULL) {
            break;
        }
        status = ask(r, s, wanted, count, answer, err);
        *done = answer->data != NULL;
    }
    pthread_mutex_unlock(&r->mutex);
    return status;
}

sp_status sweep_ranks_evaluate(sweep_ranks *r, sweep_row *rows, int count, bool *done,
                               sp_error *err)
{
    sweep_message answer = {0};
    int64_t *wanted = sp_calloc((size_t)count, sizeof *wanted);
    *done = false;
    if (wanted == NULL) {
        return sp_error_no_memory(err, "the points of a sweep");
    }
    for (int i = 0; i < count; i++) {
        wanted[i] = rows[i].combination;
    }
    sp_status status = evaluate(r, wanted, count, &answer, done, err);
    if (status == SP_OK && *done) {
        status = read_answer(&answer, rows, count, err);
    }
    sp_free(wanted);
    free(answer.data);
    return status;
}

// ---- the others ----

typedef struct service {
    sweep_ranks *ranks;
    const sweep_evaluator *evaluator;
    int thread;
    pthread_t id;
} service;

// The next block that rank 0 asks for; NULL: none comes. Under the mutex.
static slot *next_asked(sweep_ranks *r)
{
    while (!r->over && !r->peers[0].gone) {
        for (int s = 0; s < r->slot_count; s++) {
            if (r->slots[s].came && !r->slots[s].taken) {
                r->slots[s].taken = true;
                return &r->slots[s];
            }
        }
        pthread_cond_wait(&r->changed, &r->mutex);
    }
    return NULL;
}

static sp_status answer_block(const service *own, const sweep_message *asked, sweep_message *answer)
{
    size_t count = asked->bytes / sizeof(int64_t);
    sp_error err = {0};
    sweep_row *rows = sp_calloc(count, sizeof *rows);
    sp_status status = rows != NULL ? SP_OK : sp_error_no_memory(&err, "the points of a sweep");
    for (size_t i = 0; status == SP_OK && i < count; i++) {
        memcpy(&rows[i].combination, asked->data + i * sizeof(int64_t), sizeof(int64_t));
        status = sweep_row_evaluate(own->evaluator, own->thread, &rows[i], &err);
    }
    status = write_answer(answer, rows, (int)count, status, &err);
    for (size_t i = 0; rows != NULL && i < count; i++) {
        free(rows[i].line);
    }
    sp_free(rows);
    return status;
}

static void *serve(void *argument)
{
    const service *own = argument;
    sweep_ranks *r = own->ranks;
    sp_status status = SP_OK;
    pthread_mutex_lock(&r->mutex);
    for (slot *s = next_asked(r); s != NULL; s = status == SP_OK ? next_asked(r) : NULL) {
        sweep_message answer = {0};
        pthread_mutex_unlock(&r->mutex);
        status = answer_block(own, &s->message, &answer);
        pthread_mutex_lock(&r->mutex);
        free(s->message.data);
        s->message = (sweep_message){0};
        s->came = false;
        s->taken = false;
        status =
            status == SP_OK ? send_to(r, s->of, s->tag, answer.data, answer.bytes, NULL) : status;
        free(answer.data);
    }
    // Rank 0 takes one that ends before its time for dead.
    r->over = r->over || status != SP_OK;
    pthread_cond_broadcast(&r->changed);
    pthread_mutex_unlock(&r->mutex);
    return NULL;
}

static sp_status serve_all(sweep_ranks *r, const sweep_evaluator *evaluator, sp_error *err)
{
    int started = 0;
    service *services = sp_calloc((size_t)r->threads, sizeof *services);
    if (services == NULL) {
        return sp_error_no_memory(err, "threads");
    }
    for (bool starts = true; starts && started < r->threads; started += starts) {
        services[started] = (service){.ranks = r, .evaluator = evaluator, .thread = started};
        starts = pthread_create(&services[started].id, NULL, serve, &services[started]) == 0;
    }
    if (started > 0) {
        pump(r);
    }
    pthread_mutex_lock(&r->mutex);
    pthread_cond_broadcast(&r->changed);
    pthread_mutex_unlock(&r->mutex);
    for (int t = 0; t < started; t++) {
        pthread_join(services[t].id, NULL);
    }
    sp_free(services);
    return started > 0 ? SP_OK : sp_error_set(err, SP_ERR_LIMIT, "cannot start a thread");
}

static sp_status serve_spec(sweep_ranks *r, sp_error *err)
{
    sweep_spec spec = {0};
    sweep_evaluator evaluator = {0};
    json_t *document = json_loads(r->spec, 0, NULL);
    sp_status status = document != NULL ? sweep_spec_from_json(document, "sweep", &spec, err)
                                        : sp_error_no_memory(err, "a sweep");
    if (status == SP_OK) {
        status = sweep_evaluator_init(&evaluator, &spec, r->threads, err);
    }
    if (status == SP_OK) {
        status = serve_all(r, &evaluator, err);
    }
    sweep_evaluator_fini(&evaluator);
    sweep_spec_fini(&spec);
    return status;
}

sp_status sweep_ranks_serve(sweep_ranks *r, sp_error *err)
{
    while (r->spec == NULL && !is_over(r)) {
        pump_once(r);
    }
    sp_status status = r->spec != NULL ? serve_spec(r, err) : SP_OK;
    if (status == SP_OK && r->peers[0].gone) {
        status =
            sp_error_set(err, SP_ERR_IO, "rank %d: rank 0 is gone; --resume goes on with its file",
                         r->transport->rank);
    }
    return status;
}
