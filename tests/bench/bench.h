// What every benchmark uses.
#ifndef SLIMPACK_TESTS_BENCH_BENCH_H
#define SLIMPACK_TESTS_BENCH_BENCH_H

#include <stdio.h>
#include <stdlib.h>
#include <time.h>

#include "sim/base/order.h"
#include "sim/base/status.h"

// Ends the program with the first message unless the status is SP_OK.
static inline void require(sp_status status, const sp_error *err)
{
    if (status != SP_OK) {
        fprintf(stderr, "%s\n", err->count > 0 ? err->message[0] : sp_status_text(status));
        exit(1);
    }
}

// Seconds that this thread has run: of work on one core, however busy the machine is.
static inline double thread_clock_s(void)
{
    struct timespec now;
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
    return (double)now.tv_sec + 1e-9 * (double)now.tv_nsec;
}

#endif
