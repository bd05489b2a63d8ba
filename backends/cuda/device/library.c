#include "backends/cuda/device/library.h"

#include <dlfcn.h>
#include <stdio.h>
#include <string.h>

bool sp_i_library_open(const char *const *names, const sp_i_library_symbol *symbols, size_t count,
                       void *table, char *reason, size_t reason_bytes)
{
    void *library = NULL;
    const char *name = names[0];
    for (int i = 0; library == NULL && names[i] != NULL; i++) {
        name = names[i];
        library = dlopen(name, RTLD_NOW | RTLD_LOCAL);
    }
    if (library == NULL) {
        const char *why = dlerror();
        snprintf(reason, reason_bytes, "%s", why != NULL ? why : name);
        return false;
    }
    for (size_t i = 0; i < count; i++) {
        if (dlsym(library, symbols[i].name) == NULL) {
            snprintf(reason, reason_bytes, "%s has no %s", name, symbols[i].name);
            dlclose(library);
            return false;
        }
    }
    for (size_t i = 0; i < count; i++) {
        // POSIX lets a function's address pass through void *; C has no such conversion.
        void *found = dlsym(library, symbols[i].name);
        memcpy((char *)table + symbols[i].offset, &found, sizeof found);
    }
    return true;
}
