#include "experiments/stream/plan_stream.h"

#include <errno.h>
#include <poll.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "experiments/stream/batch_lines.h"
#include "sim/base/alloc.h"
#include "sim/base/json.h"

// A line on its way to its answer. Its slot is free again once the answer is taken.
typedef struct slot {
    bool done;
    char *line; // NULL: it could not be read
    size_t bytes;
    stream_answer answer;
    sp_error failure; // in place of an answer
} slot;

typedef struct stream {
    const stream_options *options;
    int fd;
    int wake[2]; // a pipe: closed at one end, it ends a wait for input
    sp_planner **planners;

    pthread_mutex_t mutex;      // of all below
    pthread_cond_t room;        // an answer was taken
    pthread_cond_t work;        // a line was read
    pthread_cond_t answered;    // a slot is done, or the input has ended
    bool ended;                 // no further line comes
    bool stopped;               // nothing further is wanted
    int64_t read, begun, taken; // lines; taken <= begun <= read <= taken + size
    slot *slots;                // ring: line n at n % size
    int64_t size;
} stream;

// A thread that plans.
typedef struct worker {
    stream *of;
    sp_planner *planner;
    pthread_t thread;
} worker;

static sp_status make_planners(stream *s, const sp_scenario *scenario, sp_error *err);
static sp_status run(stream *s, stream_sink sink, void *context, sp_error *err);

sp_status stream_plans(const sp_scenario *scenario, int fd, const stream_options *options,
                       stream_sink sink, void *context, sp_error *err)
{
    stream s = {.options = options, .fd = fd, .wake = {-1, -1}, .size = options->ahead};
    sp_status status = make_planners(&s, scenario, err);
    if (status == SP_OK) {
        s.slots = sp_i_calloc((size_t)s.size, sizeof *s.slots);
        status = s.slots != NULL ? SP_OK : sp_error_no_memory(err, "the batches ahead");
    }
    if (status == SP_OK && pipe(s.wake) != 0) {
        s.wake[0] = s.wake[1] = -1;
        status = sp_error_set(err, SP_ERR_LIMIT, "cannot make a pipe: %s", strerror(errno));
    }
    if (status == SP_OK) {
        status = run(&s, sink, context, err);
    }
    for (int i = 0; i < 2; i++) {
        if (s.wake[i] >= 0) {
            close(s.wake[i]);
        }
    }
    sp_i_free(s.slots);
    for (int t = 0; s.planners != NULL && t < options->threads; t++) {
        sp_planner_free(s.planners[t]);
    }
    sp_i_free((void *)s.planners);
    return status;
}

// Made before a line is read: what is wrong with the scenario shows at once.
static sp_status make_planners(stream *s, const sp_scenario *scenario, sp_error *err)
{
    s->planners = sp_i_calloc((size_t)s->options->threads, sizeof *s->planners);
    sp_status status = s->planners != NULL ? SP_OK : sp_error_no_memory(err, "planners");
    for (int t = 0; status == SP_OK && t < s->options->threads; t++) {
        status = sp_planner_new(scenario, &s->planners[t], err);
    }
    return status;
}

// ---- the thread that reads ----

// Waits for input or for the end of the stream, which reads like the end of the input.
static long read_input(void *context, char *bytes, size_t room)
{
    const stream *s = context;
    struct pollfd waits[] = {{.fd = s->fd, .events = POLLIN}, {.fd = s->wake[0]}};
    for (;;) {
        int ready = poll(waits, 2, -1);
        if (ready > 0 && waits[1].revents != 0) {
            return 0;
        }
        ssize_t got = ready > 0 ? read(s->fd, bytes, room) : -1;
        if (got >= 0) {
            return (long)got;
        }
        if (errno != EINTR && errno != EAGAIN) {
            return -1;
        }
    }
}

// Waits until a slot is free; NULL when nothing further is wanted.
static slot *wait_for_room(stream *s)
{
    pthread_mutex_lock(&s->mutex);
    while (!s->stopped && s->read - s->taken == s->size) {
        pthread_cond_wait(&s->room, &s->mutex);
    }
    slot *next = s->stopped ? NULL : &s->slots[s->read % s->size];
    pthread_mutex_unlock(&s->mutex);
    return next;
}

static void *read_lines(void *context)
{
    stream *s = context;
    stream_lines lines;
    stream_source source = {.read = read_input, .context = s, .name = s->options->name};
    stream_lines_init(&lines, source, 0);
    bool more = true;
    while (more) {
        slot *next = wait_for_room(s);
        if (next == NULL) {
            break;
        }
        *next = (slot){0};
        sp_status status = stream_lines_next(&lines, &next->line, &next->bytes, &next->failure);
        more = status == SP_OK && next->line != NULL;
        next->answer.line = lines.line;
        pthread_mutex_lock(&s->mutex);
        s->read += more || status != SP_OK;
        pthread_cond_signal(&s->work);
        pthread_mutex_unlock(&s->mutex);
    }
    stream_lines_fini(&lines);
    pthread_mutex_lock(&s->mutex);
    s->ended = true;
    pthread_cond_broadcast(&s->work);
    pthread_cond_signal(&s->answered);
    pthread_mutex_unlock(&s->mutex);
    return NULL;
}

// ---- the threads that plan ----

static sp_status answer_infeasible(stream_answer *answer, sp_error *failure)
{
    answer->infeasible = true;
    memcpy(answer->reason, failure->message[0], sizeof answer->reason);
    sp_error_clear(failure);
    json_t *root = json_pack("{s:s, s:[], s:o*}", "schema", "slimpack/plan/1", "batches", "reason",
                             json_string(answer->reason));
    answer->text = json_dumps(root, JSON_COMPACT);
    json_decref(root);
    if (answer->text == NULL) {
        return sp_error_no_memory(failure, "an answer");
    }
    answer->bytes = strlen(answer->text);
    return SP_OK;
}

static sp_status answer_plan(sp_planner *planner, const sp_lengths *lengths, stream_answer *answer,
                             sp_error *failure)
{
    sp_batch_plan *plan = NULL;
    sp_status status = sp_plan_batch(planner, lengths->tokens, lengths->count, &plan, failure);
    if (status == SP_OK) {
        answer->oom = plan->oom;
        answer->peak_bytes = plan->peak_bytes;
        answer->memory_limit_bytes = plan->memory_limit_bytes;
        answer->dropped = plan->dropped;
        answer->truncated = plan->truncated;
        answer->warnings = plan->warnings;
        status = sp_batch_plan_text(planner, plan, &answer->text, &answer->bytes, failure);
    }
    sp_batch_plan_free(plan);
    return status;
}

// What the planner says of a batch, with the line that brought it.
static void name_line(const stream *s, slot *p)
{
    sp_error plain = p->failure;
    sp_error_clear(&p->failure);
    sp_error_at(&p->failure, plain.status, s->options->name, (long)p->answer.line, 0, "%s",
                plain.message[0]);
}

static void fill_slot(const stream *s, sp_planner *planner, slot *p)
{
    if (p->failure.status != SP_OK) {
        return;
    }
    sp_lengths lengths;
    sp_status status = stream_read_lengths(p->line, p->bytes, s->options->name, p->answer.line,
                                           &lengths, &p->failure);
    sp_i_free(p->line);
    p->line = NULL;
    if (status != SP_OK) {
        return;
    }
    status = answer_plan(planner, &lengths, &p->answer, &p->failure);
    sp_lengths_fini(&lengths);
    if (status == SP_ERR_INFEASIBLE) {
        status = answer_infeasible(&p->answer, &p->failure);
    }
    if (status != SP_OK) {
        name_line(s, p);
    }
}

static void *plan_lines(void *context)
{
    const worker *self = context;
    stream *s = self->of;
    pthread_mutex_lock(&s->mutex);
    for (;;) {
        while (!s->stopped && !s->ended && s->begun == s->read) {
            pthread_cond_wait(&s->work, &s->mutex);
        }
        if (s->stopped || s->begun == s->read) {
            break;
        }
        slot *mine = &s->slots[s->begun++ % s->size];
        pthread_mutex_unlock(&s->mutex);
        fill_slot(s, self->planner, mine);
        pthread_mutex_lock(&s->mutex);
        mine->done = true;
        pthread_cond_signal(&s->answered);
    }
    pthread_mutex_unlock(&s->mutex);
    return NULL;
}

// ---- the caller's thread ----

// Waits for the answer to the next line; NULL at the end.
static slot *next_answer(stream *s)
{
    pthread_mutex_lock(&s->mutex);
    slot *next = &s->slots[s->taken % s->size];
    while (s->taken < s->read ? !next->done : !s->ended) {
        pthread_cond_wait(&s->answered, &s->mutex);
    }
    bool found = s->taken < s->read;
    pthread_mutex_unlock(&s->mutex);
    return found ? next : NULL;
}

static void free_slot(stream *s, slot *p)
{
    free(p->answer.text);
    p->answer.text = NULL;
    pthread_mutex_lock(&s->mutex);
    s->taken++;
    pthread_cond_signal(&s->room);
    pthread_mutex_unlock(&s->mutex);
}

static sp_status hand_out(stream *s, stream_sink sink, void *context, sp_error *err)
{
    sp_status status = SP_OK;
    while (status == SP_OK) {
        slot *next = next_answer(s);
        if (next == NULL) {
            break;
        }
        status = next->failure.status != SP_OK
                     ? sp_error_set(err, next->failure.status, "%s", next->failure.message[0])
                     : sink(context, &next->answer, err);
        free_slot(s, next);
    }
    return status;
}

static void stop(stream *s)
{
    pthread_mutex_lock(&s->mutex);
    s->stopped = true;
    pthread_cond_broadcast(&s->room);
    pthread_cond_broadcast(&s->work);
    pthread_mutex_unlock(&s->mutex);
    close(s->wake[1]);
    s->wake[1] = -1;
}

static sp_status run(stream *s, stream_sink sink, void *context, sp_error *err)
{
    int threads = s->options->threads;
    int started = 0;
    pthread_t reader;
    pthread_mutex_init(&s->mutex, NULL);
    pthread_cond_init(&s->room, NULL);
    pthread_cond_init(&s->work, NULL);
    pthread_cond_init(&s->answered, NULL);
    worker *workers = sp_i_calloc((size_t)threads, sizeof *workers);
    sp_status status = workers != NULL ? SP_OK : sp_error_no_memory(err, "threads");
    int failed = 0;
    while (status == SP_OK && started < threads && failed == 0) {
        workers[started] = (worker){.of = s, .planner = s->planners[started]};
        failed = pthread_create(&workers[started].thread, NULL, plan_lines, &workers[started]);
        started += failed == 0;
    }
    // Fewer threads do the same work; none at all cannot.
    if (status == SP_OK && started > 0) {
        failed = pthread_create(&reader, NULL, read_lines, s);
    }
    bool reading = status == SP_OK && started > 0 && failed == 0;
    if (status == SP_OK) {
        status = reading ? hand_out(s, sink, context, err)
                         : sp_error_set(err, SP_ERR_LIMIT, "cannot start a thread: %s",
                                        strerror(failed));
    }
    stop(s);
    if (reading) {
        pthread_join(reader, NULL);
    }
    for (int t = 0; t < started; t++) {
        pthread_join(workers[t].thread, NULL);
    }
    for (int64_t i = 0; i < s->size; i++) {
        sp_i_free(s->slots[i].line);
        free(s->slots[i].answer.text);
    }
    sp_i_free(workers);
    pthread_cond_destroy(&s->answered);
    pthread_cond_destroy(&s->work);
    pthread_cond_destroy(&s->room);
    pthread_mutex_destroy(&s->mutex);
    return status;
}
