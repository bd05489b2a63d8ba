#include <string.h>

#include "kernels/cuda_kernels.h"

// Merges the sorted runs [begin, middle) and [middle, end).
static void merge(const int64_t *index, int64_t begin, int64_t middle, int64_t end,
                  const int64_t *from, int64_t *to)
{
    int64_t left = begin;
    int64_t right = middle;
    for (int64_t i = begin; i < end; i++) {
        if (right >= end || (left < middle && index[from[left]] <= index[from[right]])) {
            to[i] = from[left++];
        } else {
            to[i] = from[right++];
        }
    }
}

// A merge sort from below, which is stable.
void sp_cuda_embedding_order(int64_t tokens, const int64_t *index, int64_t *order, int64_t *scratch)
{
    for (int64_t t = 0; t < tokens; t++) {
        order[t] = t;
    }
    for (int64_t run = 1; run < tokens; run *= 2) {
        for (int64_t begin = 0; begin < tokens; begin += 2 * run) {
            merge(index, begin, sp_i_least(begin + run, tokens),
                  sp_i_least(begin + 2 * run, tokens), order, scratch);
        }
        memcpy(order, scratch, (size_t)tokens * sizeof *order);
    }
}
