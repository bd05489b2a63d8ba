// The inputs of the parts that read a scenario: sections by their rows, errors of names and of
// other files, and a cache of the files that scenarios refer to.
#include <pthread.h>
#include <stdio.h>
#include <string.h>

#include "sim/base/alloc.h"
#include "sim/scenario/scenario_private.h"

// ---- sections ----

int sp_i_errors_so_far(const sp_i_scenario_reader *reader)
{
    return reader->err->count + reader->err->dropped;
}

bool sp_i_begin_section(sp_i_scenario_reader *reader, sp_setting_table table, void *owner,
                        sp_object *section)
{
    bool stated = sp_object_member(&reader->root, table.section, section);
    sp_settings_init(table, owner);
    sp_settings_read(section, table, owner, reader);
    return stated;
}

// ---- errors of names and of other files ----

enum { NAMES = 128, LIST_BYTES = 400, FOUND_BYTES = 80 };

// "a, b, c" as far as it fits.
static void list_names(const sp_i_names *names, char list[LIST_BYTES])
{
    size_t used = 0;
    list[0] = '\0';
    for (int i = 0; i < names->count; i++) {
        size_t more = strlen(names->at(i)) + 2;
        if (used + more + sizeof ", ..." > LIST_BYTES) {
            snprintf(list + used, LIST_BYTES - used, ", ...");
            return;
        }
        used += (size_t)snprintf(list + used, LIST_BYTES - used, "%s%s", i > 0 ? ", " : "",
                                 names->at(i));
    }
}

void sp_i_names_error(const sp_i_names *names, sp_object *object, const char *key, bool or_path)
{
    const char *all[NAMES];
    char list[LIST_BYTES];
    char found[FOUND_BYTES];
    char hint[FOUND_BYTES] = "";
    char path[SP_JSON_PATH + 2];
    int count = names->count < NAMES ? names->count : NAMES;
    for (int i = 0; i < count; i++) {
        all[i] = names->at(i);
    }
    const json_t *value = sp_object_get(object, key);
    const char *near = sp_nearest_name(json_string_value(value), all, count);
    if (near != NULL) {
        snprintf(hint, sizeof hint, " (did you mean \"%s\"?)", near);
    }
    list_names(names, list);
    sp_json_quote(value, found, sizeof found);
    snprintf(path, sizeof path, "%s%s%s", object->path, object->path[0] != '\0' ? "." : "", key);
    if (or_path) {
        sp_error_in(object->err, SP_ERR_CONTENT, object->source, path,
                    "%s is neither a built-in %s nor a file%s; built in: %s", found, names->what,
                    hint, list);
    } else {
        sp_error_in(object->err, SP_ERR_CONTENT, object->source, path,
                    "%s is no built-in %s%s; built in: %s", found, names->what, hint, list);
    }
}

void sp_i_adopt_errors(sp_object *object, const char *key, const sp_error *found)
{
    bool of_a_file = found->status == SP_ERR_IO || found->status == SP_ERR_SYNTAX ||
                     found->status == SP_ERR_CONTENT;
    for (int i = 0; i < found->count; i++) {
        if (of_a_file) {
            sp_error_in(object->err, SP_ERR_CONTENT, object->source, key, "%s", found->message[i]);
        } else if (found->status == SP_ERR_ACCESS || found->status == SP_ERR_SYSTEM) {
            sp_error_in(object->err, found->status, object->source, key, "%s", found->message[i]);
        } else {
            sp_error_set(object->err, found->status, "%s", found->message[i]);
        }
    }
}

// ---- what is read once for many scenarios ----

// A profile, or lengths of a column of a file. It stays as it is until the cache ends.
typedef struct cached_file {
    bool is_profile;
    char *name, *column; // owned; column NULL: none
    sp_profile profile;
    sp_lengths lengths;
    struct cached_file *next;
} cached_file;

struct sp_scenario_cache {
    pthread_mutex_t mutex;
    cached_file *files;
};

sp_scenario_cache *sp_scenario_cache_new(void)
{
    sp_scenario_cache *cache = sp_calloc(1, sizeof *cache);
    SP_ASSERT(pthread_mutex_init(&cache->mutex, NULL) == 0); // a plain one needs nothing
    return cache;
}

static void free_file(cached_file *file)
{
    sp_profile_fini(&file->profile);
    sp_lengths_fini(&file->lengths);
    sp_free(file->name);
    sp_free(file->column);
    sp_free(file);
}

void sp_scenario_cache_free(sp_scenario_cache *cache)
{
    if (cache == NULL) {
        return;
    }
    while (cache->files != NULL) {
        cached_file *file = cache->files;
        cache->files = file->next;
        free_file(file);
    }
    pthread_mutex_destroy(&cache->mutex);
    sp_free(cache);
}

static sp_status add_file(sp_scenario_cache *cache, bool is_profile, const char *name,
                          const char *column, cached_file **added, sp_error *err)
{
    cached_file *file = sp_calloc(1, sizeof *file);
    file->is_profile = is_profile;
    file->name = sp_strdup(name);
    file->column = column != NULL ? sp_strdup(column) : NULL;
    sp_status status = is_profile ? sp_profile_load(name, &file->profile, err)
                                  : sp_lengths_read(name, column, &file->lengths, err);
    if (status != SP_OK) {
        free_file(file);
        return status;
    }
    file->next = cache->files;
    *added = cache->files = file;
    return SP_OK;
}

static bool same_text(const char *a, const char *b)
{
    return a == NULL || b == NULL ? a == b : strcmp(a, b) == 0;
}

// Reads under the lock: who comes second needs the same file.
static sp_status find_file(sp_scenario_cache *cache, bool is_profile, const char *name,
                           const char *column, cached_file **found, sp_error *err)
{
    pthread_mutex_lock(&cache->mutex);
    cached_file *file = cache->files;
    while (file != NULL && (file->is_profile != is_profile || strcmp(file->name, name) != 0 ||
                            !same_text(file->column, column))) {
        file = file->next;
    }
    *found = file;
    sp_status status = file != NULL ? SP_OK : add_file(cache, is_profile, name, column, found, err);
    pthread_mutex_unlock(&cache->mutex);
    return status;
}

sp_status sp_i_scenario_cache_profile(sp_scenario_cache *cache, const char *name,
                                      sp_profile *profile, sp_error *err)
{
    if (cache == NULL) {
        return sp_profile_load(name, profile, err);
    }
    memset(profile, 0, sizeof *profile);
    cached_file *file = NULL;
    SP_TRY(find_file(cache, true, name, NULL, &file, err));
    sp_profile_copy(&file->profile, profile);
    return SP_OK;
}

sp_status sp_i_scenario_cache_lengths(sp_scenario_cache *cache, const char *path,
                                      const char *column, sp_lengths *lengths, sp_error *err)
{
    if (cache == NULL) {
        return sp_lengths_read(path, column, lengths, err);
    }
    cached_file *file = NULL;
    SP_TRY(find_file(cache, false, path, column, &file, err));
    if (file->lengths.count > 0) {
        sp_i_lengths_reserve(lengths, file->lengths.count);
        memcpy(lengths->tokens, file->lengths.tokens,
               file->lengths.count * sizeof *lengths->tokens);
        lengths->count = file->lengths.count;
    }
    return SP_OK;
}
