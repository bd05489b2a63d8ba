// Libraries of CUDA that are looked for when they are first needed (cuBLASLt, cuDNN, NVML), so that
// a machine without them starts everything else.
#ifndef SLIMPACK_BACKENDS_CUDA_DEVICE_LIBRARY_H
#define SLIMPACK_BACKENDS_CUDA_DEVICE_LIBRARY_H

#include <stdbool.h>
#include <stddef.h>

// A function of a library and where its address goes in a table.
typedef struct sp_i_library_symbol {
    const char *name;
    size_t offset;
} sp_i_library_symbol;

// Loads the first of `names` (NULL at the end) that there is and writes the addresses of all
// symbols into `table`. False, with what was missing in `reason`, where that fails; the table is
// then not touched. What is loaded stays for the life of the process.
bool sp_i_library_open(const char *const *names, const sp_i_library_symbol *symbols, size_t count,
                       void *table, char *reason, size_t reason_bytes);

#endif
