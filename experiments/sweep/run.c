#include "experiments/sweep/run.h"

#include <stdlib.h>
#include <string.h>

#include "experiments/sweep/results_file.h"
#include "sim/base/parallel.h"
#include "sim/base/progress.h"

typedef struct swept {
    int64_t combination;
    char *line;
    sweep_digest digest;
} swept;

typedef struct runner {
    const sweep_spec *spec;
    const sweep_run_options *options;
    sweep_summary *summary;
    sweep_file file;
    sweep_evaluator evaluator;
    sweep_cursor cursor;
    sp_progress progress;
} runner;

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

static sp_status read_back(runner *run, sp_error *err)
{
    sp_status status = sweep_file_read(&run->file, read_line, run, err);
    run->summary->resumed = run->summary->written;
    return status;
}

// ---- points ----

static sp_status next_point(void *context, void *item, bool *more, sp_error *err)
{
    runner *run = context;
    swept *next = item;
    sp_status status = sweep_cursor_next(&run->cursor, more, err);
    next->combination = run->cursor.combination;
    return status;
}

static sp_status evaluate_point(void *context, int worker, void *item, sp_error *err)
{
    const runner *run = context;
    swept *p = item;
    return sweep_evaluate_point(&run->evaluator, worker, p->combination, &p->line, &p->digest, err);
}

static sp_status write_point(void *context, void *item, sp_error *err)
{
    runner *run = context;
    const swept *p = item;
    sp_status status = sweep_file_append(&run->file, p->line, strlen(p->line), err);
    if (status == SP_OK) {
        add_to_summary(run->summary, p->combination, &p->digest);
        sp_progress_update(&run->progress, run->summary->written - run->summary->resumed);
    }
    return status;
}

static void drop_point(void *item)
{
    swept *p = item;
    free(p->line);
}

static bool stops(void *context)
{
    const runner *run = context;
    run->summary->stopped = run->options->stop != NULL && *run->options->stop != 0;
    return run->summary->stopped;
}

static sp_status run_points(runner *run, sp_error *err)
{
    const sp_i_ordered how = {.threads = run->options->threads,
                              .ahead = run->options->threads * SWEEP_WINDOW,
                              .item_bytes = sizeof(swept),
                              .context = run,
                              .make = next_point,
                              .work = evaluate_point,
                              .take = write_point,
                              .drop = drop_point,
                              .stops = stops};
    sp_progress_begin(&run->progress, "sweeping", run->summary->points - run->summary->resumed,
                      run->options->quiet);
    sp_status status = sp_i_ordered_run(&how, err);
    sp_progress_end(&run->progress);
    return status;
}

sp_status sweep_run(const sweep_spec *spec, const char *path, const sweep_run_options *options,
                    sweep_summary *summary, sp_error *err)
{
    runner run = {.spec = spec, .options = options, .summary = summary, .file = {.fd = -1}};
    *summary = (sweep_summary){0};
    sp_status status = sweep_spec_count(spec, &summary->points, err);
    if (status == SP_OK) {
        status = sweep_evaluator_init(&run.evaluator, spec, options->threads, err);
    }
    if (status == SP_OK) {
        status = sweep_file_open(&run.file, path, options->resume, err);
    }
    sweep_cursor_begin(&run.cursor, spec);
    if (status == SP_OK) {
        status = read_back(&run, err);
    }
    if (status == SP_OK && summary->written < summary->points) {
        status = run_points(&run, err);
    }
    sp_status closed = sweep_file_close(&run.file, err);
    sweep_evaluator_fini(&run.evaluator);
    return status != SP_OK ? status : closed;
}
