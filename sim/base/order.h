// Ascending order of numbers, for qsort.
#ifndef SLIMPACK_SIM_BASE_ORDER_H
#define SLIMPACK_SIM_BASE_ORDER_H

#include <stdint.h>

static inline int sp_ascending_doubles(const void *a, const void *b)
{
    double x = *(const double *)a;
    double y = *(const double *)b;
    return (x > y) - (x < y);
}

static inline int sp_ascending_int64s(const void *a, const void *b)
{
    int64_t x = *(const int64_t *)a;
    int64_t y = *(const int64_t *)b;
    return (x > y) - (x < y);
}

#endif
