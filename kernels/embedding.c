#include <string.h>

#include "kernels/typed.h"
#include "kernels/vector.h"

void SP_KERNEL(embedding)(int64_t tokens, int64_t features, const int64_t *index, int64_t first,
                          int64_t rows, const real *table, bool accumulate, real *y,
                          int64_t y_stride)
{
    for (int64_t t = 0; t < tokens; t++) {
        int64_t row = index[t] - first;
        bool here = row >= 0 && row < rows;
        real *to = y + t * y_stride;
        if (accumulate && here) {
            row_add(features, table + row * features, to);
        } else if (here) {
            memcpy(to, table + row * features, (size_t)features * sizeof *to);
        } else if (!accumulate) {
            memset(to, 0, (size_t)features * sizeof *to);
        }
    }
}

void SP_KERNEL(embedding_backward_weight)(int64_t tokens, int64_t features, const int64_t *index,
                                          int64_t first, int64_t rows, const real *dy,
                                          int64_t dy_stride, real *dtable)
{
    for (int64_t t = 0; t < tokens; t++) {
        int64_t row = index[t] - first;
        if (row >= 0 && row < rows) {
            row_add(features, dy + t * dy_stride, dtable + row * features);
        }
    }
}
