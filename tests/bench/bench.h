// What every benchmark uses.
#ifndef SLIMPACK_TESTS_BENCH_BENCH_H
#define SLIMPACK_TESTS_BENCH_BENCH_H

#include <stdio.h>
#include <stdlib.h>

#include "sim/base/status.h"

// Ends the program with the first message unless the status is SP_OK.
static inline void require(sp_status status, const sp_error *err)
{
    if (status != SP_OK) {
        fprintf(stderr, "%s\n", err->count > 0 ? err->message[0] : sp_status_text(status));
        exit(1);
    }
}

// Orders doubles for qsort.
static inline int compare_doubles(const void *a, const void *b)
{
    double x = *(const double *)a;
    double y = *(const double *)b;
    return x < y ? -1 : x > y;
}

#endif
