// Backends by name: those built in, then plug-ins.
#ifndef SLIMPACK_BACKENDS_API_REGISTRY_H
#define SLIMPACK_BACKENDS_API_REGISTRY_H

#include "backends/api/device.h"

// Not for use by several threads at once.
typedef struct sp_registry sp_registry;

sp_status sp_registry_new(sp_registry **registry, sp_error *err);
// Closes the plug-ins; all runs of their backends must be freed before.
void sp_registry_free(sp_registry *registry);

// The backend of this name; loads the plug-in libslimpack-backend-NAME.so once. Folders, in this
// order: those of $SLIMPACK_BACKEND_PATH (separated by ':'), backends/ of the program's build tree,
// slimpack/ of the installed library folder. The first file that is there is taken, or the error
// says what is wrong with it: no shared library, no table of operations, another version of the
// interface, other headers, another name. A name with '/' is the path of a plug-in. An unknown name
// is a content error with the nearest known name and all of them. O(files in the folders).
sp_status sp_registry_find(sp_registry *registry, const char *name, const sp_backend **backend,
                           sp_error *err);

// Names of all that can be found, in alphabetical order, without loading any.
enum { SP_BACKEND_NAME = 64 };
typedef struct sp_backend_names {
    char (*name)[SP_BACKEND_NAME]; // owned
    size_t count, capacity;
} sp_backend_names;

sp_status sp_registry_names(sp_backend_names *names, sp_error *err);
void sp_backend_names_fini(sp_backend_names *names);

#endif
