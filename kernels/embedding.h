// Embedding tables, of tokens or of learned positions. table [rows, features] contiguous; `first`
// is the index of its first row, so that a vocabulary-parallel rank holds rows [first, first +
// rows); other indices give a row of zeros and no gradient (Shoeybi and others: "Megatron-LM",
// 2019, section 3). Linear in tokens x features.
#include <stdbool.h>
#include <stdint.h>

#include "kernels/real.h"

// y = table[index - first], or y += with `accumulate` (positions on top of tokens). y [tokens,
// features].
void SP_KERNEL(embedding)(int64_t tokens, int64_t features, const int64_t *index, int64_t first,
                          int64_t rows, const real *table, bool accumulate, real *y,
                          int64_t y_stride);

// dtable[index - first] += dy, in the order of the tokens.
void SP_KERNEL(embedding_backward_weight)(int64_t tokens, int64_t features, const int64_t *index,
                                          int64_t first, int64_t rows, const real *dy,
                                          int64_t dy_stride, real *dtable);
