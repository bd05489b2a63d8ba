// Blocks of points that rank 0 of a sweep hands out, and that the others evaluate and answer.
#include <stdlib.h>
#include <string.h>

#include "experiments/sweep/ranks_private.h"
#include "sim/base/alloc.h"

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
    sp_status status = sweep_send_to_all(r, SWEEP_SPEC, text, strlen(text), err);
    pthread_mutex_unlock(&r->mutex);
    free(text);
    return status;
}

int sweep_ranks_blocks(const sweep_ranks *r)
{
    return r != NULL ? r->slot_count : 0;
}

// A free slot of a rank that lives; NULL where none lives. Under the mutex.
static sweep_slot *take_slot(sweep_ranks *r)
{
    for (bool lives = true; lives; pthread_cond_wait(&r->changed, &r->mutex)) {
        lives = false;
        for (int s = 0; s < r->slot_count; s++) {
            sweep_slot *at = &r->slots[s];
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
static sp_status ask(sweep_ranks *r, sweep_slot *s, const int64_t *wanted, int count,
                     sweep_message *answer, sp_error *err)
{
    sp_status status = sweep_send_to(r, s->of, s->tag, wanted, (size_t)count * sizeof *wanted, err);
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
        sweep_slot *s = take_slot(r);
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
static sweep_slot *next_asked(sweep_ranks *r)
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
    for (sweep_slot *s = next_asked(r); s != NULL; s = status == SP_OK ? next_asked(r) : NULL) {
        sweep_message answer = {0};
        pthread_mutex_unlock(&r->mutex);
        status = answer_block(own, &s->message, &answer);
        pthread_mutex_lock(&r->mutex);
        free(s->message.data);
        s->message = (sweep_message){0};
        s->came = false;
        s->taken = false;
        status = status == SP_OK ? sweep_send_to(r, s->of, s->tag, answer.data, answer.bytes, NULL)
                                 : status;
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
        sweep_ranks_pump(r);
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
    while (r->spec == NULL && !sweep_ranks_are_over(r)) {
        sweep_ranks_pump_once(r);
    }
    sp_status status = r->spec != NULL ? serve_spec(r, err) : SP_OK;
    if (status == SP_OK && r->peers[0].gone) {
        status =
            sp_error_set(err, SP_ERR_IO, "rank %d: rank 0 is gone; --resume goes on with its file",
                         r->transport->rank);
    }
    return status;
}
