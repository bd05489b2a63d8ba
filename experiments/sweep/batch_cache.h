// Batches by workload, shared by the threads of a sweep: most points differ in layout alone and
// train on the same samples.
#ifndef SLIMPACK_EXPERIMENTS_SWEEP_BATCH_CACHE_H
#define SLIMPACK_EXPERIMENTS_SWEEP_BATCH_CACHE_H

#include "sim/scenario/scenario.h"

typedef struct sweep_batch_cache sweep_batch_cache;
typedef struct sweep_batch_entry sweep_batch_entry;

sp_status sweep_batch_cache_new(sweep_batch_cache **cache, sp_error *err);
void sweep_batch_cache_free(sweep_batch_cache *cache);

// The batches of the scenario's workload, formed where no scenario before had an equal one. They
// stay until they are given back. Thread-safe; two threads may form the same ones at once.
sp_status sweep_batch_cache_take(sweep_batch_cache *cache, const sp_scenario *scenario,
                                 sweep_batch_entry **entry, sp_error *err);
void sweep_batch_cache_give(sweep_batch_cache *cache, sweep_batch_entry *entry);

const sp_batches *sweep_batch_entry_batches(const sweep_batch_entry *entry);

#endif
