// The order in which an embedding's gradient is summed: a permutation, by index, equal ones in the
// order of their tokens.
#include "kernels/cuda_kernels.h"
#include "tests/support/test_main.h"

enum { MOST = 300 };

static void check_order(int64_t tokens, uint64_t different)
{
    int64_t index[MOST], order[MOST], scratch[MOST];
    int seen[MOST] = {0};
    sp_prng prng = prng_seeded((uint64_t)tokens * 1000 + different);
    for (int64_t t = 0; t < tokens; t++) {
        index[t] = (int64_t)sp_prng_below(&prng, different) - 2;
    }
    sp_cuda_embedding_order(tokens, index, order, scratch);
    for (int64_t i = 0; i < tokens; i++) {
        assert_true(order[i] >= 0 && order[i] < tokens);
        assert_int_equal(seen[order[i]]++, 0);
        if (i > 0) {
            int64_t before = index[order[i - 1]];
            int64_t now = index[order[i]];
            assert_true(before < now || (before == now && order[i - 1] < order[i]));
        }
    }
}

TEST(sorts_and_keeps_the_order_of_equals)
{
    for (int64_t tokens = 0; tokens < 70; tokens++) {
        check_order(tokens, 1);
        check_order(tokens, 5);
        check_order(tokens, 1000);
    }
    check_order(MOST, 20);
}
