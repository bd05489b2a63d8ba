#include "experiments/sweep/run.h"

#include <math.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "experiments/sweep/results_file.h"
#include "sim/base/alloc.h"
#include "sim/base/json.h"
#include "sim/base/progress.h"

// How often the writer looks at options->stop while no line comes.
static const long look_every_ns = 100000000;

// A point that was handed out. Its slot is free again once its line is written.
typedef struct slot {
    bool done;
    int64_t combination;
    char *line; // NULL: the point failed
    sweep_digest digest;
} slot;

typedef struct runner {
    const sweep_spec *spec;
    const sweep_run_options *options;
    sweep_summary *summary;
    sweep_file file;
    sp_scenario_cache *files;
    sweep_batch_cache *cache;
    sp_error *err; // of the writer

    pthread_mutex_t mutex; // of all below
    pthread_cond_t room;   // a slot came free, or nothing is left to do
    pthread_cond_t line;   // a line is done, or a thread has ended
    sweep_cursor cursor;
    bool exhausted; // no further point is handed out
    int64_t handed, taken;
    slot *slots; // ring: point n of this run at n % size
    int64_t size;
    int threads_left;
    sp_error failure; // the first of the threads
} runner;

static sp_status read_back(runner *run);
static sp_status start(runner *run, pthread_t *threads, int *started);
static sp_status write_lines(runner *run);
static void finish(runner *run, pthread_t *threads, int started);

sp_status sweep_run(const sweep_spec *spec, const char *path, const sweep_run_options *options,
                    sweep_summary *summary, sp_error *err)
{
    sp_error own;
    sp_error_clear(&own);
    runner run = {.spec = spec,
                  .options = options,
                  .summary = summary,
                  .file = {.fd = -1},
                  .err = err != NULL ? err : &own};
    pthread_t *threads = sp_i_calloc((size_t)options->threads, sizeof *threads);
    int started = 0;
    *summary = (sweep_summary){0};
    sp_status status = threads != NULL ? SP_OK : sp_error_no_memory(run.err, "threads");
    if (status == SP_OK) {
        status = sweep_spec_count(spec, &summary->points, run.err);
    }
    if (status == SP_OK) {
        status = sp_scenario_cache_new(&run.files, run.err);
    }
    if (status == SP_OK) {
        status = sweep_batch_cache_new(&run.cache, run.err);
    }
    if (status == SP_OK) {
        status = sweep_file_open(&run.file, path, options->resume, run.err);
    }
    sweep_cursor_begin(&run.cursor, spec);
    if (status == SP_OK) {
        status = read_back(&run);
    }
    if (status == SP_OK && summary->written < summary->points) {
        status = start(&run, threads, &started);
        if (status == SP_OK) {
            status = write_lines(&run);
        }
        finish(&run, threads, started);
    }
    sp_status closed = sweep_file_close(&run.file, run.err);
    sweep_batch_cache_free(run.cache);
    sp_scenario_cache_free(run.files);
    sp_i_free(threads);
    return status != SP_OK ? status : closed;
}

// ---- summary ----

static void add_to_summary(sweep_summary *summary, int64_t combination, const sweep_digest *digest)
{
    sweep_status s = digest->status;
    if (summary->of_status[s]++ == 0) {
        memcpy(summary->reason[s], digest->reason, sizeof digest->reason);
    }
    summary->written++;
    if (s != SWEEP_OK) {
        return;
    }
    int rank = summary->best_count;
    while (rank > 0 && sweep_is_better(digest, &summary->best[rank - 1].digest)) {
        rank--;
    }
    if (rank == SWEEP_BEST) {
        return;
    }
    int last = summary->best_count < SWEEP_BEST ? summary->best_count++ : SWEEP_BEST - 1;
    memmove(&summary->best[rank + 1], &summary->best[rank],
            (size_t)(last - rank) * sizeof summary->best[0]);
    summary->best[rank] = (sweep_best){.combination = combination, .digest = *digest};
}

// ---- lines of an earlier run ----

static sp_status other_sweep(const runner *run, long number, sp_error *err, const char *text)
{
    return sp_error_at(err, SP_ERR_CONTENT, run->file.path, number, 0,
                       "%s: these are not the results of %s", text, run->spec->source);
}

static sp_status same_point(const runner *run, const json_t *row, long number, sp_error *err)
{
    const char *tag = json_string_value(json_object_get(row, "base"));
    if (tag != NULL && strcmp(tag, run->spec->base_tag) != 0) {
        return other_sweep(run, number, err, "has another base");
    }
    json_t *point = sweep_spec_point(run->spec, run->cursor.digit);
    char *expected = point != NULL ? sweep_point_text(point) : NULL;
    char *found = sweep_point_text(json_object_get(row, "point"));
    sp_status status = SP_OK;
    if (expected == NULL || found == NULL) {
        status = sp_error_no_memory(err, "the results of a sweep");
    } else if (strcmp(expected, found) != 0) {
        char text[SP_ERROR_TEXT / 2];
        snprintf(text, sizeof text, "expected point %.120s, got %.120s", expected, found);
        status = other_sweep(run, number, err, text);
    }
    json_decref(point);
    free(expected);
    free(found);
    return status;
}

static sp_status read_line(void *context, const char *line, size_t bytes, long number,
                           sp_error *err)
{
    runner *run = context;
    bool found = false;
    const char *expected = "";
    sweep_digest digest;
    sp_status status = sweep_cursor_next(&run->cursor, &found, err);
    if (status != SP_OK) {
        return status;
    }
    if (!found) {
        return other_sweep(run, number, err, "is past the last point");
    }
    json_error_t wrong;
    json_t *row = json_loadb(line, bytes, JSON_REJECT_DUPLICATES, &wrong);
    if (row == NULL) {
        return sp_error_at(err, SP_ERR_SYNTAX, run->file.path, number, wrong.column, "%s",
                           wrong.text);
    }
    if (!sweep_digest_read(row, &digest, &expected)) {
        status =
            sp_error_at(err, SP_ERR_CONTENT, run->file.path, number, 0, "expected %s", expected);
    }
    if (status == SP_OK) {
        status = same_point(run, row, number, err);
    }
    json_decref(row);
    if (status == SP_OK) {
        add_to_summary(run->summary, run->cursor.combination, &digest);
    }
    return status;
}

static sp_status read_back(runner *run)
{
    sp_status status = sweep_file_read(&run->file, read_line, run, run->err);
    run->summary->resumed = run->summary->written;
    return status;
}

// ---- threads ----

// Waits for room and takes the next point; false when there is nothing more to do.
static bool take_point(runner *run, int64_t digit[SWEEP_AXES], slot **mine)
{
    bool found = false;
    pthread_mutex_lock(&run->mutex);
    while (!run->exhausted && run->handed - run->taken == run->size) {
        pthread_cond_wait(&run->room, &run->mutex);
    }
    if (!run->exhausted) {
        sp_status status = sweep_cursor_next(&run->cursor, &found, &run->failure);
        run->exhausted = status != SP_OK || !found;
        found = !run->exhausted;
    }
    if (found) {
        *mine = &run->slots[run->handed++ % run->size];
        **mine = (slot){.combination = run->cursor.combination};
        memcpy(digit, run->cursor.digit, sizeof run->cursor.digit);
    } else {
        pthread_cond_broadcast(&run->room);
    }
    pthread_mutex_unlock(&run->mutex);
    return found;
}

static void put_line(runner *run, slot *mine, char *line, const sweep_digest *digest,
                     const sp_error *failure)
{
    pthread_mutex_lock(&run->mutex);
    mine->line = line;
    mine->digest = *digest;
    mine->done = true;
    if (line == NULL) {
        run->exhausted = true;
        if (run->failure.status == SP_OK) {
            run->failure = *failure;
        }
        pthread_cond_broadcast(&run->room);
    }
    pthread_cond_signal(&run->line);
    pthread_mutex_unlock(&run->mutex);
}

static void evaluate_points(runner *run)
{
    sweep_worker worker;
    sp_error failure;
    sweep_digest digest;
    int64_t digit[SWEEP_AXES];
    slot *mine = NULL;
    sp_error_clear(&failure);
    sp_status status = sweep_worker_init(&worker, run->spec, run->files, run->cache, &failure);
    // Without a copy of its own the thread still takes a point, to fail with it.
    while (take_point(run, digit, &mine)) {
        char *line = NULL;
        digest = (sweep_digest){0};
        if (status == SP_OK) {
            status = sweep_evaluate_point(&worker, digit, &line, &digest, &failure);
        }
        put_line(run, mine, line, &digest, &failure);
    }
    sweep_worker_fini(&worker);
}

static void *thread_main(void *context)
{
    runner *run = context;
    evaluate_points(run);
    pthread_mutex_lock(&run->mutex);
    run->threads_left--;
    pthread_cond_signal(&run->line);
    pthread_mutex_unlock(&run->mutex);
    return NULL;
}

static sp_status start(runner *run, pthread_t *threads, int *started)
{
    pthread_mutex_init(&run->mutex, NULL);
    pthread_cond_init(&run->room, NULL);
    pthread_cond_init(&run->line, NULL);
    run->size = (int64_t)run->options->threads * SWEEP_WINDOW;
    run->slots = sp_i_calloc((size_t)run->size, sizeof *run->slots);
    if (run->slots == NULL) {
        return sp_error_no_memory(run->err, "the lines of a sweep");
    }
    run->threads_left = run->options->threads;
    int failed = 0;
    while (*started < run->options->threads && failed == 0) {
        failed = pthread_create(&threads[*started], NULL, thread_main, run);
        *started += failed == 0;
    }
    if (failed != 0) {
        // Fewer threads do the same work; none at all cannot.
        pthread_mutex_lock(&run->mutex);
        run->threads_left -= run->options->threads - *started;
        pthread_mutex_unlock(&run->mutex);
    }
    return *started > 0 ? SP_OK
                        : sp_error_set(run->err, SP_ERR_LIMIT, "cannot start a thread: %s",
                                       strerror(failed));
}

static void finish(runner *run, pthread_t *threads, int started)
{
    pthread_mutex_lock(&run->mutex);
    run->exhausted = true;
    pthread_cond_broadcast(&run->room);
    pthread_mutex_unlock(&run->mutex);
    for (int t = 0; t < started; t++) {
        pthread_join(threads[t], NULL);
    }
    for (int64_t i = 0; run->slots != NULL && i < run->size; i++) {
        free(run->slots[i].line);
    }
    sp_i_free(run->slots);
    pthread_cond_destroy(&run->line);
    pthread_cond_destroy(&run->room);
    pthread_mutex_destroy(&run->mutex);
}

// ---- the writer ----

static void wait_a_while(runner *run)
{
    struct timespec until;
    clock_gettime(CLOCK_REALTIME, &until);
    until.tv_nsec += look_every_ns;
    if (until.tv_nsec >= 1000000000) {
        until.tv_nsec -= 1000000000;
        until.tv_sec++;
    }
    pthread_cond_timedwait(&run->line, &run->mutex, &until);
}

static void look_for_stop(runner *run)
{
    if (run->options->stop != NULL && *run->options->stop != 0 && !run->exhausted) {
        run->exhausted = true;
        run->summary->stopped = true;
        pthread_cond_broadcast(&run->room);
    }
}

// Waits for the line of the next point; false when none will come. The slot is not free yet.
static bool next_line(runner *run, slot *next)
{
    bool found = false;
    pthread_mutex_lock(&run->mutex);
    for (;;) {
        look_for_stop(run);
        slot *first = &run->slots[run->taken % run->size];
        found = run->taken < run->handed && first->done && first->line != NULL;
        bool ends =
            run->taken < run->handed ? first->done : run->exhausted || run->threads_left == 0;
        if (found || ends) {
            *next = *first;
            first->line = NULL;
            break;
        }
        wait_a_while(run);
    }
    pthread_mutex_unlock(&run->mutex);
    return found;
}

static void free_slot(runner *run)
{
    pthread_mutex_lock(&run->mutex);
    run->taken++;
    pthread_cond_signal(&run->room);
    pthread_mutex_unlock(&run->mutex);
}

static sp_status write_lines(runner *run)
{
    sweep_summary *summary = run->summary;
    sp_progress progress;
    slot next = {0};
    sp_status status = SP_OK;
    sp_progress_begin(&progress, "sweeping", summary->points - summary->resumed,
                      run->options->quiet);
    while (status == SP_OK && next_line(run, &next)) {
        status = sweep_file_append(&run->file, next.line, strlen(next.line), run->err);
        free(next.line);
        free_slot(run);
        if (status == SP_OK) {
            add_to_summary(summary, next.combination, &next.digest);
            sp_progress_update(&progress, summary->written - summary->resumed);
        }
    }
    sp_progress_end(&progress);
    pthread_mutex_lock(&run->mutex);
    if (status == SP_OK && run->failure.status != SP_OK) {
        status = sp_error_set(run->err, run->failure.status, "%s", run->failure.message[0]);
    }
    pthread_mutex_unlock(&run->mutex);
    return status;
}
