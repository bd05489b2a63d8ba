// The arena of a rank: counts by category, gaps, the same addresses again. No address is read.
#include "backends/cuda/arena.h"
#include "sim/base/alloc.h"
#include "sim/base/prng.h"
#include "tests/support/test_main.h"

enum { LINE = SP_I_CUDA_ALIGNMENT };

static char *const base = (char *)(uintptr_t)0x700000000000;

static void counts_by_category_and_marks_the_peak(void **state)
{
    (void)state;
    sp_i_cuda_arena *a = sp_i_cuda_arena_new(base, 100 * LINE, 0);
    sp_i_cuda_block *x = sp_i_cuda_take(a, SP_MEM_PARAMETERS, 1000);
    sp_i_cuda_block *y = sp_i_cuda_take(a, SP_MEM_ACTIVATIONS, 300);
    assert_ptr_equal(x->data, base);
    assert_ptr_equal(y->data, base + 4 * LINE);
    assert_int_equal(sp_i_cuda_held(a)->of[SP_MEM_PARAMETERS], 1000);
    sp_i_cuda_give(a, x);
    sp_i_cuda_recount(a, y, SP_MEM_KV_CACHE, 400);
    assert_int_equal(sp_i_cuda_held(a)->of[SP_MEM_ACTIVATIONS], 0);
    assert_int_equal(sp_bytes_total(sp_i_cuda_held(a)), 400);
    assert_int_equal(sp_bytes_total(sp_i_cuda_high(a)), 1300);
    assert_int_equal(sp_i_cuda_high(a)->of[SP_MEM_ACTIVATIONS], 300);
    sp_i_cuda_mark(a);
    assert_int_equal(sp_bytes_total(sp_i_cuda_high(a)), 400);
    assert_false(sp_i_cuda_give_part(a, y, 150));
    assert_int_equal(sp_bytes_total(sp_i_cuda_held(a)), 250);
    assert_int_equal(sp_i_cuda_blocks(a), 1);
    assert_true(sp_i_cuda_give_part(a, y, 250));
    assert_int_equal(sp_i_cuda_blocks(a), 0);
    assert_int_equal(sp_bytes_total(sp_i_cuda_held(a)), 0);
    assert_int_equal(sp_i_cuda_extent(a), 6 * LINE);
    sp_i_cuda_arena_free(a);
}

static void neighbouring_gaps_become_one(void **state)
{
    (void)state;
    sp_i_cuda_arena *a = sp_i_cuda_arena_new(base, 40 * LINE, 0);
    sp_i_cuda_block *part[4];
    for (int i = 0; i < 4; i++) {
        part[i] = sp_i_cuda_take(a, SP_MEM_LOGITS, 10 * LINE);
    }
    const int order[] = {0, 2, 1};
    for (int i = 0; i < 3; i++) {
        sp_i_cuda_give(a, part[order[i]]);
    }
    sp_i_cuda_block *all = sp_i_cuda_take(a, SP_MEM_LOGITS, 30 * LINE);
    assert_non_null(all);
    assert_ptr_equal(all->data, base);
    sp_i_cuda_give(a, all);
    sp_i_cuda_give(a, part[3]);
    assert_non_null(sp_i_cuda_take(a, SP_MEM_LOGITS, 40 * LINE));
    sp_i_cuda_arena_free(a);
}

static void refusals_say_why(void **state)
{
    (void)state;
    char text[200];
    sp_i_cuda_arena *a = sp_i_cuda_arena_new(base, 10 * LINE, 5 * LINE);
    sp_i_cuda_block *x = sp_i_cuda_take(a, SP_MEM_WORKSPACE, 3 * LINE);
    assert_null(sp_i_cuda_take(a, SP_MEM_WORKSPACE, 2 * LINE + 1));
    assert_int_equal(sp_i_cuda_arena_failure(a, text, sizeof text), SP_ERR_INFEASIBLE);
    assert_string_equal(text, "it needs 1281 bytes, over the limit of 1280");
    sp_i_cuda_give(a, x);
    sp_i_cuda_arena_free(a);

    a = sp_i_cuda_arena_new(base, 10 * LINE, 0);
    x = sp_i_cuda_take(a, SP_MEM_WORKSPACE, 8 * LINE);
    assert_null(sp_i_cuda_take(a, SP_MEM_WORKSPACE, 3 * LINE));
    assert_int_equal(sp_i_cuda_arena_failure(a, text, sizeof text), SP_ERR_INFEASIBLE);
    assert_string_equal(text, "no gap of 768 bytes in an arena of 2560 that holds 2048");
    sp_i_alloc_fail_after(0);
    assert_null(sp_i_cuda_take(a, SP_MEM_WORKSPACE, LINE));
    assert_null(sp_i_cuda_arena_new(base, LINE, 0));
    sp_i_alloc_fail_after(-1);
    assert_int_equal(sp_i_cuda_arena_failure(a, text, sizeof text), SP_ERR_NO_MEMORY);
    assert_non_null(sp_i_cuda_take(a, SP_MEM_WORKSPACE, 2 * LINE));
    sp_i_cuda_give(a, x);
    sp_i_cuda_arena_free(a);
}

static void offloaded_bytes_are_not_on_the_device(void **state)
{
    (void)state;
    sp_i_cuda_arena *a = sp_i_cuda_arena_new(base, 10 * LINE, 0);
    sp_i_cuda_block *x = sp_i_cuda_take(a, SP_MEM_ACTIVATIONS, LINE);
    sp_i_cuda_recount(a, x, SP_MEM_OFFLOADED, LINE);
    assert_int_equal(sp_bytes_total(sp_i_cuda_held(a)), 0);
    sp_i_cuda_arena_free(a);
}

enum { BLOCKS = 60, ROUNDS = 20000, CAPACITY = 1 << 20 };

// Takes and gives at random; every block lies inside, aligned and apart from all others; the same
// calls give the same addresses.
static void blocks_never_overlap_and_addresses_repeat(void **state)
{
    (void)state;
    uint64_t sum[2] = {0, 0};
    for (int run = 0; run < 2; run++) {
        sp_prng prng;
        sp_prng_seed(&prng, 7);
        sp_i_cuda_arena *a = sp_i_cuda_arena_new(base, CAPACITY, 0);
        sp_i_cuda_block *held[BLOCKS] = {0};
        int64_t total = 0;
        for (int i = 0; i < ROUNDS; i++) {
            size_t at = (size_t)(sp_prng_below(&prng, BLOCKS));
            int64_t bytes = (int64_t)(sp_prng_below(&prng, UINT64_C(1) << (6 + i % 12)));
            if (held[at] != NULL) {
                total -= held[at]->bytes;
                sp_i_cuda_give(a, held[at]);
                held[at] = NULL;
                continue;
            }
            held[at] = sp_i_cuda_take(a, SP_MEM_ACTIVATIONS, bytes);
            if (held[at] == NULL) {
                continue;
            }
            total += bytes;
            char *begin = held[at]->data;
            assert_int_equal((uintptr_t)begin % LINE, 0);
            assert_true(begin >= base && begin + bytes <= base + CAPACITY);
            for (size_t j = 0; j < BLOCKS; j++) {
                if (held[j] != NULL && j != at) {
                    const char *other = held[j]->data;
                    assert_true(other != begin &&
                                (other >= begin + bytes || other + held[j]->bytes <= begin));
                }
            }
            sum[run] = sum[run] * 31 + (uint64_t)(begin - base);
            assert_int_equal(sp_bytes_total(sp_i_cuda_held(a)), total);
        }
        for (size_t j = 0; j < BLOCKS; j++) {
            sp_i_cuda_give(a, held[j]);
        }
        sp_i_cuda_block *all = sp_i_cuda_take(a, SP_MEM_ACTIVATIONS, CAPACITY);
        assert_non_null(all);
        sp_i_cuda_arena_free(a);
    }
    assert_int_equal(sum[0], sum[1]);
}

static const struct CMUnitTest tests[] = {
    cmocka_unit_test(counts_by_category_and_marks_the_peak),
    cmocka_unit_test(neighbouring_gaps_become_one),
    cmocka_unit_test(refusals_say_why),
    cmocka_unit_test(offloaded_bytes_are_not_on_the_device),
    cmocka_unit_test(blocks_never_overlap_and_addresses_repeat),
};

SP_TEST_MAIN(tests)
