// What scenarios read from files, read once for many of them.
#ifndef SLIMPACK_SIM_SCENARIO_SCENARIO_CACHE_H
#define SLIMPACK_SIM_SCENARIO_SCENARIO_CACHE_H

#include "sim/scenario/scenario.h"

// Profiles by name and lists of lengths by path and column, for as long as the cache lives; files
// that change meanwhile are not read again. Thread-safe.
typedef struct sp_scenario_cache sp_scenario_cache;

sp_status sp_scenario_cache_new(sp_scenario_cache **cache, sp_error *err);
void sp_scenario_cache_free(sp_scenario_cache *cache);

// As sp_scenario_from_json, through the cache. The scenario holds copies and may outlive it.
sp_status sp_scenario_from_json_cached(json_t *root, const char *source, sp_scenario_cache *cache,
                                       sp_scenario *scenario, sp_error *err);

// As sp_profile_load and sp_lengths_read; without a cache (NULL) they read the file.
sp_status sp_i_scenario_cache_profile(sp_scenario_cache *cache, const char *name,
                                      sp_profile *profile, sp_error *err);
sp_status sp_i_scenario_cache_lengths(sp_scenario_cache *cache, const char *path,
                                      const char *column, sp_lengths *lengths, sp_error *err);

#endif
