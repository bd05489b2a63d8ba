#include "sim/scenario/scenario_private.h"

#include <pthread.h>
#include <string.h>

#include "sim/base/alloc.h"

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

sp_status sp_scenario_cache_new(sp_scenario_cache **cache, sp_error *err)
{
    *cache = sp_calloc(1, sizeof **cache);
    if (pthread_mutex_init(&(*cache)->mutex, NULL) != 0) {
        sp_free(*cache);
        *cache = NULL;
        return sp_error_no_memory(err, "a cache of scenarios");
    }
    return SP_OK;
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

// ---- profiles ----

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

// ---- lists of lengths ----

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

static sp_status copy_lengths(const sp_lengths *from, sp_lengths *to, sp_error *err)
{
    sp_status status = sp_i_lengths_reserve(to, from->count, err);
    if (status == SP_OK && from->count > 0) {
        memcpy(to->tokens, from->tokens, from->count * sizeof *to->tokens);
        to->count = from->count;
    }
    return status;
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
    return status == SP_OK ? copy_lengths(&entry->lengths, lengths, err) : status;
}
