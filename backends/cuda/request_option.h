// Options of a request that the backend reads itself, beside the executor's.
#ifndef SLIMPACK_BACKENDS_CUDA_REQUEST_OPTION_H
#define SLIMPACK_BACKENDS_CUDA_REQUEST_OPTION_H

#include <string.h>

#include "backends/api/backend.h"

// The value of the first option of this name; NULL where there is none.
static inline const char *sp_i_cuda_option(const sp_run_request *request, const char *key)
{
    for (size_t o = 0; o < request->option_count; o++) {
        if (strcmp(request->options[o].key, key) == 0) {
            return request->options[o].value;
        }
    }
    return NULL;
}

#endif
