// The arena of a GPU: gaps, the same addresses again. No address is read.
#include "backends/cuda/runtime.h"
#include "tests/support/test_main.h"

enum { LINE = SP_RUNTIME_ALIGNMENT };

static char *const base = (char *)(uintptr_t)0x700000000000;

TEST(blocks_stand_behind_each_other)
{
    sp_i_cuda_arena *a = sp_i_cuda_arena_new(base, 100 * LINE);
    assert_ptr_equal(sp_i_cuda_arena_take(a, 1000), base);
    assert_ptr_equal(sp_i_cuda_arena_take(a, 300), base + 4 * LINE);
    assert_ptr_equal(sp_i_cuda_arena_take(a, 0), base + 6 * LINE);
    assert_ptr_equal(sp_i_cuda_arena_take(a, 1), base + 7 * LINE);
    assert_int_equal(sp_i_cuda_arena_peak(a), 8 * LINE);
    sp_i_cuda_arena_give(a, base);
    assert_ptr_equal(sp_i_cuda_arena_take(a, 2 * LINE), base);
    assert_int_equal(sp_i_cuda_arena_peak(a), 8 * LINE); // 4 lines went, 2 came
    sp_i_cuda_arena_give(a, NULL);
    sp_i_cuda_arena_free(a);
}

enum { BLOCKS = 60, ROUNDS = 20000, CAPACITY = 1 << 20 };

// Takes and gives at random; every block lies inside, aligned and apart from all others; the same
// calls give the same addresses.
TEST(blocks_never_overlap_and_addresses_repeat)
{
    uint64_t sum[2] = {0, 0};
    for (int run = 0; run < 2; run++) {
        sp_prng prng = prng_seeded(7);
        sp_i_cuda_arena *a = sp_i_cuda_arena_new(base, CAPACITY);
        char *held[BLOCKS] = {0};
        int64_t bytes[BLOCKS] = {0};
        for (int i = 0; i < ROUNDS; i++) {
            size_t at = (size_t)(sp_prng_below(&prng, BLOCKS));
            bytes[at] = (int64_t)(sp_prng_below(&prng, UINT64_C(1) << (6 + i % 12)));
            if (held[at] != NULL) {
                sp_i_cuda_arena_give(a, held[at]);
                held[at] = NULL;
                continue;
            }
            held[at] = sp_i_cuda_arena_take(a, bytes[at]);
            if (held[at] == NULL) {
                continue;
            }
            char *begin = held[at];
            assert_int_equal((uintptr_t)begin % LINE, 0);
            assert_true(begin >= base && begin + bytes[at] <= base + CAPACITY);
            for (size_t j = 0; j < BLOCKS; j++) {
                if (held[j] != NULL && j != at) {
                    assert_true(held[j] != begin &&
                                (held[j] >= begin + bytes[at] || held[j] + bytes[j] <= begin));
                }
            }
            sum[run] = sum[run] * 31 + (uint64_t)(begin - base);
        }
        for (size_t j = 0; j < BLOCKS; j++) {
            sp_i_cuda_arena_give(a, held[j]);
        }
        assert_ptr_equal(sp_i_cuda_arena_take(a, CAPACITY), base);
        sp_i_cuda_arena_free(a);
    }
    assert_int_equal(sum[0], sum[1]);
}
