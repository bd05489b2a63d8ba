// The order of numbers, for qsort.
#ifndef SLIMPACK_SIM_BASE_ORDER_H
#define SLIMPACK_SIM_BASE_ORDER_H

#include <stdint.h>

// Below 0, 0 or above 0 as x is below y, y or above it.
#define SP_ORDER(x, y) (((x) > (y)) - ((x) < (y)))
// The order of two structs that are pointed to, by the first of the members that differs.
#define SP_ORDER_2(a, b, first, second)                          \
    ((a)->first != (b)->first ? SP_ORDER((a)->first, (b)->first) \
                              : SP_ORDER((a)->second, (b)->second))
#define SP_ORDER_3(a, b, first, second, third) \
    ((a)->first != (b)->first ? SP_ORDER((a)->first, (b)->first) : SP_ORDER_2(a, b, second, third))

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
