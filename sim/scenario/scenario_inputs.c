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

typedef struct cached_profile {
    char *name; // owned
    sp_profile profile;
    struct cached_profile *next;
} cached_profile;

typedef struct cached_lengths {
    char *path, *column; // owned; column NULL: none
    sp_lengths lengths;
    struct cached_lengths *next;
} cached_lengths;

// Read under the lock: who comes second needs the same file.
struct sp_scenario_cache {
    pthread_mutex_t mutex;
    cached_profile *profiles;
    cached_lengths *lengths;
};

sp_scenario_cache *sp_scenario_cache_new(void)
{
    sp_scenario_cache *cache = sp_calloc(1, sizeof *cache);
    SP_ASSERT(pthread_mutex_init(&cache->mutex, NULL) == 0); // a plain one needs nothing
    return cache;
}

static void profile_free(cached_profile *entry)
{
    sp_profile_fini(&entry->profile);
    sp_free(entry->name);
    sp_free(entry);
}

static void lengths_free(cached_lengths *entry)
{
    sp_lengths_fini(&entry->lengths);
    sp_free(entry->path);
    sp_free(entry->column);
    sp_free(entry);
}

void sp_scenario_cache_free(sp_scenario_cache *cache)
{
    if (cache == NULL) {
        return;
    }
    while (cache->profiles != NULL) {
        cached_profile *entry = cache->profiles;
        cache->profiles = entry->next;
        profile_free(entry);
    }
    while (cache->lengths != NULL) {
        cached_lengths *entry = cache->lengths;
        cache->lengths = entry->next;
        lengths_free(entry);
    }
    pthread_mutex_destroy(&cache->mutex);
    sp_free(cache);
}

static sp_status add_profile(sp_scenario_cache *cache, const char *name, cached_profile **added,
                             sp_error *err)
{
    cached_profile *entry = sp_calloc(1, sizeof *entry);
    entry->name = sp_strdup(name);
    sp_status status = sp_profile_load(name, &entry->profile, err);
    if (status != SP_OK) {
        profile_free(entry);
        return status;
    }
    entry->next = cache->profiles;
    cache->profiles = entry;
    *added = entry;
    return SP_OK;
}

sp_status sp_i_scenario_cache_profile(sp_scenario_cache *cache, const char *name,
                                      sp_profile *profile, sp_error *err)
{
    if (cache == NULL) {
        return sp_profile_load(name, profile, err);
    }
    memset(profile, 0, sizeof *profile);
    pthread_mutex_lock(&cache->mutex);
    cached_profile *entry = cache->profiles;
    while (entry != NULL && strcmp(entry->name, name) != 0) {
        entry = entry->next;
    }
    sp_status status = entry != NULL ? SP_OK : add_profile(cache, name, &entry, err);
    pthread_mutex_unlock(&cache->mutex);
    // An entry stays as it is until the cache ends.
    if (status == SP_OK) {
        sp_profile_copy(&entry->profile, profile);
    }
    return status;
}

static bool same_text(const char *a, const char *b)
{
    return a == NULL || b == NULL ? a == b : strcmp(a, b) == 0;
}

static sp_status add_lengths(sp_scenario_cache *cache, const char *path, const char *column,
                             cached_lengths **added, sp_error *err)
{
    cached_lengths *entry = sp_calloc(1, sizeof *entry);
    entry->path = sp_strdup(path);
    entry->column = column != NULL ? sp_strdup(column) : NULL;
    sp_status status = sp_lengths_read(path, column, &entry->lengths, err);
    if (status != SP_OK) {
        lengths_free(entry);
        return status;
    }
    entry->next = cache->lengths;
    cache->lengths = entry;
    *added = entry;
    return SP_OK;
}

static void copy_lengths(const sp_lengths *from, sp_lengths *to)
{
    sp_i_lengths_reserve(to, from->count);
    if (from->count > 0) {
        memcpy(to->tokens, from->tokens, from->count * sizeof *to->tokens);
        to->count = from->count;
    }
}

sp_status sp_i_scenario_cache_lengths(sp_scenario_cache *cache, const char *path,
                                      const char *column, sp_lengths *lengths, sp_error *err)
{
    if (cache == NULL) {
        return sp_lengths_read(path, column, lengths, err);
    }
    pthread_mutex_lock(&cache->mutex);
    cached_lengths *entry = cache->lengths;
    while (entry != NULL && (strcmp(entry->path, path) != 0 || !same_text(entry->column, column))) {
        entry = entry->next;
    }
    sp_status status = entry != NULL ? SP_OK : add_lengths(cache, path, column, &entry, err);
    pthread_mutex_unlock(&cache->mutex);
    if (status == SP_OK) {
        copy_lengths(&entry->lengths, lengths);
    }
    return status;
}
