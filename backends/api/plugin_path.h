// Where plug-ins are looked for.
#ifndef SLIMPACK_BACKENDS_API_PLUGIN_PATH_H
#define SLIMPACK_BACKENDS_API_PLUGIN_PATH_H

#include <stdbool.h>

#include "backends/api/registry.h"

enum { SP_I_PLUGIN_PATH = 4096 };
#define SP_I_PLUGIN_PREFIX "libslimpack-backend-"
#define SP_I_PLUGIN_SUFFIX ".so"

// The first file for this name; false where there is none.
bool sp_i_plugin_find(const char *name, char path[SP_I_PLUGIN_PATH]);

// Adds the names of all plug-ins in the folders, each once, unordered. False when memory runs out.
bool sp_i_plugin_names(sp_backend_names *names);
bool sp_i_backend_names_add(sp_backend_names *names, const char *name, size_t length);

#endif
