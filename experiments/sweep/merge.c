#include "experiments/sweep/merge.h"

#include <stdio.h>
#include <stdlib.h>

#include "experiments/sweep/line.h"
#include "experiments/sweep/merge_private.h"
#include "experiments/sweep/results_file.h"
#include "sim/base/alloc.h"
#include "sim/base/files.h"

// A shard's file, and the line of it that comes next.
typedef struct shard {
    const char *path;
    FILE *lines;
    long number; // of the line, from 1
    char *line;
    size_t room;
    ssize_t bytes; // without the newline; negative: none
    bool taken;    // it is known whose shard the file is
} shard;

// ---- the files ----

static void next_line(shard *s)
{
    s->bytes = getline(&s->line, &s->room, s->lines) - 1;
    s->number++;
    if (s->bytes >= 0 && s->line[s->bytes] != '\n') {
        s->bytes = -1; // cut short by a kill
    }
}

static sp_status open_shards(const char *const *files, int count, shard *shards, sp_error *err)
{
    for (int i = 0; i < count; i++) {
        shards[i].path = files[i];
        sp_status status = sp_input_open(files[i], &shards[i].lines, err);
        if (status != SP_OK) {
            return status;
        }
        next_line(&shards[i]);
    }
    return SP_OK;
}

static void close_shards(shard *shards, int count)
{
    for (int i = 0; i < count; i++) {
        if (shards[i].lines != NULL) {
            fclose(shards[i].lines);
        }
        free(shards[i].line);
    }
    sp_free(shards);
}

// ---- the points ----

static sp_status read_point(const sweep_spec *spec, const shard *s, int64_t combination,
                            sweep_digest *digest, sp_error *err)
{
    const sweep_line_at at = {.path = s->path, .number = s->number};
    return sweep_line_read(spec, combination, s->line, (size_t)s->bytes, &at, digest, err);
}

// The file whose first line is that of the point; a file without lines where none is.
static sp_status find_shard(const sweep_spec *spec, shard *shards, int count, int64_t combination,
                            shard **found, sp_error *err)
{
    shard *empty = NULL;
    sp_error reason = {0};
    *found = NULL;
    for (int i = 0; i < count && *found == NULL; i++) {
        sweep_digest digest;
        if (shards[i].taken || shards[i].bytes < 0) {
            empty = shards[i].taken ? empty : &shards[i];
        } else if (read_point(spec, &shards[i], combination, &digest, &reason) == SP_OK) {
            *found = &shards[i];
        }
    }
    *found = *found != NULL ? *found : empty;
    if (*found == NULL) {
        return sp_error_set(err, SP_ERR_CONTENT, "%s",
                            reason.count > 0 ? reason.message[0] : "a shard is there twice");
    }
    (*found)->taken = true;
    return SP_OK;
}

static sp_status merge_point(const sweep_spec *spec, shard *s, int64_t combination, FILE *out,
                             sweep_summary *summary, sp_error *err)
{
    sweep_digest digest;
    if (s->bytes < 0) {
        return sp_error_at(err, SP_ERR_CONTENT, s->path, s->number, 0,
                           "a point is missing: the shard is not finished (--resume goes on)");
    }
    sp_status status = read_point(spec, s, combination, &digest, err);
    if (status == SP_OK) {
        fwrite(s->line, 1, (size_t)s->bytes + 1, out);
        status = sweep_summary_add(summary, combination, &digest, err);
    }
    next_line(s);
    return status;
}

static sp_status merge_all(const sweep_spec *spec, sweep_choice *choice, shard *shards, int count,
                           FILE *out, sweep_summary *summary, sp_error *err)
{
    shard **of = (shard **)sp_calloc((size_t)count, sizeof *of); // by number
    bool found = true;
    sp_status status = of != NULL ? SP_OK : sp_error_no_memory(err, "shards");
    for (int64_t i = 0; status == SP_OK && found; i++) {
        int64_t combination = 0;
        status = sweep_choice_next(choice, &combination, &found, err);
        if (status == SP_OK && found && i < count) {
            status = find_shard(spec, shards, count, combination, &of[i], err);
        }
        if (status == SP_OK && found) {
            status = merge_point(spec, of[i % count], combination, out, summary, err);
        }
    }
    for (int i = 0; status == SP_OK && i < count; i++) {
        if (shards[i].bytes >= 0) {
            const sweep_line_at at = {.path = shards[i].path, .number = shards[i].number};
            status = sweep_line_of_other(spec, &at, "is past the last point", err);
        }
    }
    sp_free((void *)of);
    return status;
}

sp_status sweep_merge(const sweep_spec *spec, const sweep_choice_options *options,
                      const char *const *files, int count, const char *path, sweep_summary *summary,
                      sp_error *err)
{
    sweep_choice choice;
    sp_output out = {0};
    shard *shards = sp_calloc((size_t)count, sizeof *shards);
    sp_status status = sweep_choice_begin(&choice, spec, options, err);
    summary->points = choice.points;
    if (status == SP_OK) {
        status = shards != NULL ? open_shards(files, count, shards, err)
                                : sp_error_no_memory(err, "shards");
    }
    status = status == SP_OK ? sweep_file_refuse(path, "remove it first", err) : status;
    status = status == SP_OK ? sp_output_open(&out, path, err) : status;
    if (status == SP_OK) {
        status = merge_all(spec, &choice, shards, count, out.file, summary, err);
    }
    if (status == SP_ERR_CONTENT) {
        status = sweep_i_explain_shards(spec, options, files, count, err);
    }
    status = sp_output_close(&out, status, err);
    close_shards(shards, shards != NULL ? count : 0);
    sweep_choice_end(&choice);
    return status;
}
