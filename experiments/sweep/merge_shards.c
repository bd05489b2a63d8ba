#include "experiments/sweep/merge_private.h"

#include <stdio.h>
#include <stdlib.h>
#include <sys/types.h>

#include "experiments/sweep/line.h"
#include "sim/base/alloc.h"
#include "sim/base/files.h"

enum {
    TOLD_LINES = 2,
    MOST_TOLD = 8192, // points that a line is compared with, which takes a second or so
};

// Which shard a file is: of every `shards`th point, from number `shard` on.
typedef struct told_shard {
    const char *path;
    char *line[TOLD_LINES];     // owned
    ssize_t bytes[TOLD_LINES];  // 0: there is no such line
    int64_t number[TOLD_LINES]; // of the line's point among all, from 0; negative: not found
    int64_t shard, shards;      // 0: not known
} told_shard;

static void read_lines(told_shard *told)
{
    FILE *file = NULL;
    sp_input_open(told->path, &file, NULL); // what is wrong with it was told
    for (int i = 0; i < TOLD_LINES; i++) {
        size_t room = 0;
        told->number[i] = -1;
        told->bytes[i] = file != NULL ? getline(&told->line[i], &room, file) - 1 : 0;
    }
    if (file != NULL) {
        fclose(file);
    }
}

static void find_number(const sweep_spec *spec, told_shard *told, int64_t combination,
                        int64_t number)
{
    for (int i = 0; i < TOLD_LINES; i++) {
        const sweep_line_at at = {.path = told->path, .number = i + 1};
        sweep_digest digest;
        sp_error ignored = {0};
        if (told->number[i] < 0 && told->bytes[i] > 0 &&
            sweep_line_read(spec, combination, told->line[i], (size_t)told->bytes[i], &at, &digest,
                            &ignored) == SP_OK) {
            told->number[i] = number;
            break;
        }
    }
}

// Two points of a shard are as far apart as there are shards.
static sp_status find_shards(const sweep_spec *spec, const sweep_choice_options *options,
                             told_shard *told, int count, sp_error *err)
{
    sweep_choice choice;
    bool found = true;
    sp_status status = sweep_choice_begin(&choice, spec, options, err);
    for (int64_t n = 0; status == SP_OK && found && n < MOST_TOLD; n++) {
        int64_t combination = 0;
        status = sweep_choice_next(&choice, &combination, &found, err);
        for (int i = 0; status == SP_OK && found && i < count; i++) {
            find_number(spec, &told[i], combination, n);
        }
    }
    sweep_choice_end(&choice);
    for (int i = 0; i < count; i++) {
        int64_t apart = told[i].number[1] - told[i].number[0];
        if (told[i].number[0] >= 0 && told[i].number[0] < apart) {
            told[i].shards = apart;
            told[i].shard = told[i].number[0] + 1;
        }
    }
    return status;
}

// What is wrong with them; false: nothing that shows.
static bool explain(const told_shard *told, int count, char text[SP_ERROR_TEXT])
{
    for (int i = 1; i < count; i++) {
        for (int k = 0; k < i; k++) {
            if (told[i].shards != told[k].shards) {
                snprintf(text, SP_ERROR_TEXT,
                         "%.160s is shard %lld of %lld, but %.160s is shard %lld of %lld",
                         told[k].path, (long long)told[k].shard, (long long)told[k].shards,
                         told[i].path, (long long)told[i].shard, (long long)told[i].shards);
                return true;
            }
            if (told[i].shard == told[k].shard) {
                snprintf(text, SP_ERROR_TEXT,
                         "shard %lld of %lld is there twice: %.160s and %.160s",
                         (long long)told[i].shard, (long long)told[i].shards, told[k].path,
                         told[i].path);
                return true;
            }
        }
    }
    for (int64_t shard = 1; shard <= told[0].shards; shard++) {
        bool there = false;
        for (int i = 0; i < count; i++) {
            there = there || told[i].shard == shard;
        }
        if (!there) {
            snprintf(text, SP_ERROR_TEXT, "shard %lld of %lld is missing", (long long)shard,
                     (long long)told[0].shards);
            return true;
        }
    }
    return false;
}

sp_status sweep_i_explain_shards(const sweep_spec *spec, const sweep_choice_options *options,
                                 const char *const *files, int count, sp_error *err)
{
    char text[SP_ERROR_TEXT];
    sp_error ignored = {0};
    sp_status status = err->status;
    told_shard *told = sp_calloc((size_t)count, sizeof *told);
    bool known = told != NULL && count > 0;
    for (int i = 0; known && i < count; i++) {
        told[i].path = files[i];
        read_lines(&told[i]);
    }
    known = known && find_shards(spec, options, told, count, &ignored) == SP_OK;
    for (int i = 0; known && i < count; i++) {
        known = told[i].shards > 0;
    }
    if (known && explain(told, count, text)) {
        sp_error_clear(err);
        sp_error_set(err, status, "%s", text);
    }
    for (int i = 0; told != NULL && i < count; i++) {
        for (int k = 0; k < TOLD_LINES; k++) {
            free(told[i].line[k]);
        }
    }
    sp_free(told);
    return status;
}
