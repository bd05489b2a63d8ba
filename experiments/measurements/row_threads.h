// The same work for many rows, on several threads.
#ifndef SLIMPACK_EXPERIMENTS_MEASUREMENTS_ROW_THREADS_H
#define SLIMPACK_EXPERIMENTS_MEASUREMENTS_ROW_THREADS_H

#include <stddef.h>
#include <stdint.h>

#include "sim/base/status.h"

typedef sp_status (*sp_row_work)(void *context, size_t row, sp_error *err);

// Calls work for every row below count with wanted[row] != 0 (NULL: all), on up to `threads`
// threads, the calling one among them; fewer where they cannot be started. After an error no more
// rows are begun; of several errors that of the first row is returned, whatever the threads.
sp_status sp_rows_work(size_t count, const uint8_t *wanted, int threads, sp_row_work work,
                       void *context, sp_error *err);

#endif
