#include "experiments/sweep/batch_cache.h"

#include <pthread.h>

#include "sim/base/alloc.h"
#include "solver/evaluate/evaluate.h"

// What is kept that nobody uses; 16 bytes per sample.
enum { MOST_ENTRIES = 64, MOST_SAMPLES = 4 << 20 };

struct sweep_batch_entry {
    json_t *workload; // as resolved; owned
    sp_batches batches;
    int64_t samples;
    int users;
    uint64_t used; // turn of the last use
    sweep_batch_entry *next;
};

struct sweep_batch_cache {
    pthread_mutex_t mutex;
    sweep_batch_entry *first;
    uint64_t turn;
    int count;
    int64_t samples;
};

sp_status sweep_batch_cache_new(sweep_batch_cache **cache, sp_error *err)
{
    *cache = sp_i_calloc(1, sizeof **cache);
    if (*cache != NULL && pthread_mutex_init(&(*cache)->mutex, NULL) != 0) {
        sp_i_free(*cache);
        *cache = NULL;
    }
    return *cache != NULL ? SP_OK : sp_error_no_memory(err, "a sweep");
}

static void entry_free(sweep_batch_entry *entry)
{
    json_decref(entry->workload);
    sp_batches_fini(&entry->batches);
    sp_i_free(entry);
}

void sweep_batch_cache_free(sweep_batch_cache *cache)
{
    while (cache != NULL && cache->first != NULL) {
        sweep_batch_entry *entry = cache->first;
        cache->first = entry->next;
        entry_free(entry);
    }
    if (cache != NULL) {
        pthread_mutex_destroy(&cache->mutex);
        sp_i_free(cache);
    }
}

const sp_batches *sweep_batch_entry_batches(const sweep_batch_entry *entry)
{
    return &entry->batches;
}

static sweep_batch_entry *find(sweep_batch_cache *cache, const json_t *workload)
{
    for (sweep_batch_entry *entry = cache->first; entry != NULL; entry = entry->next) {
        if (json_equal(entry->workload, workload)) {
            return entry;
        }
    }
    return NULL;
}

static sp_status make(const sp_scenario *scenario, const json_t *workload,
                      sweep_batch_entry **entry, sp_error *err)
{
    sweep_batch_entry *made = sp_i_calloc(1, sizeof *made);
    if (made == NULL) {
        return sp_error_no_memory(err, "batches");
    }
    sp_status status = sp_evaluate_batches(scenario, &made->batches, err);
    // Uniform costs have no workload; null stands for it.
    made->workload = workload != NULL ? json_deep_copy(workload) : json_null();
    if (status == SP_OK && made->workload == NULL) {
        status = sp_error_no_memory(err, "batches");
    }
    for (int b = 0; status == SP_OK && b < made->batches.count; b++) {
        made->samples += (int64_t)made->batches.batch[b].count;
    }
    if (status != SP_OK) {
        entry_free(made);
        return status;
    }
    *entry = made;
    return SP_OK;
}

// Drops what was not used for longest until the bounds are kept.
static void trim(sweep_batch_cache *cache)
{
    while (cache->count > MOST_ENTRIES || cache->samples > MOST_SAMPLES) {
        sweep_batch_entry **oldest = NULL;
        for (sweep_batch_entry **at = &cache->first; *at != NULL; at = &(*at)->next) {
            if ((*at)->users == 0 && (oldest == NULL || (*at)->used < (*oldest)->used)) {
                oldest = at;
            }
        }
        if (oldest == NULL) {
            return;
        }
        sweep_batch_entry *entry = *oldest;
        *oldest = entry->next;
        cache->count--;
        cache->samples -= entry->samples;
        entry_free(entry);
    }
}

sp_status sweep_batch_cache_take(sweep_batch_cache *cache, const sp_scenario *scenario,
                                 sweep_batch_entry **entry, sp_error *err)
{
    const json_t *workload = json_object_get(scenario->resolved, "workload");
    sweep_batch_entry *made = NULL;
    pthread_mutex_lock(&cache->mutex);
    sweep_batch_entry *found = find(cache, workload != NULL ? workload : json_null());
    if (found == NULL) {
        pthread_mutex_unlock(&cache->mutex);
        sp_status status = make(scenario, workload, &made, err);
        if (status != SP_OK) {
            return status;
        }
        pthread_mutex_lock(&cache->mutex);
        made->next = cache->first;
        cache->first = made;
        cache->count++;
        cache->samples += made->samples;
        found = made;
    }
    found->users++;
    found->used = ++cache->turn;
    pthread_mutex_unlock(&cache->mutex);
    *entry = found;
    return SP_OK;
}

void sweep_batch_cache_give(sweep_batch_cache *cache, sweep_batch_entry *entry)
{
    pthread_mutex_lock(&cache->mutex);
    entry->users--;
    trim(cache);
    pthread_mutex_unlock(&cache->mutex);
}
