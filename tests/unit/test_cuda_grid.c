// Sizes of launches: every element is visited once, blocks and threads are what a device takes.
#include "kernels/cuda_math.h"
#include "tests/support/test_main.h"

// All threads walk as the kernel does; counts the visits of each item and checks its row.
static void check_walk(int64_t rows, int64_t per_row, int64_t threads)
{
    sp_i_cuda_walk walk = sp_i_cuda_walk_of(rows, per_row, threads);
    assert_int_equal(walk.step_rows * walk.per_row + walk.step_items, threads);
    int *visits = calloc((size_t)(rows * per_row), sizeof *visits);
    assert_non_null(visits);
    for (int64_t thread = 0; thread < threads; thread++) {
        int64_t row = thread / per_row;
        int64_t at = thread % per_row;
        for (int64_t item = thread; item < walk.items; item += threads) {
            assert_int_equal(row * per_row + at, item);
            assert_true(at < per_row);
            visits[item]++;
            row += walk.step_rows;
            at += walk.step_items;
            if (at >= per_row) {
                at -= per_row;
                row++;
            }
        }
    }
    for (int64_t i = 0; i < rows * per_row; i++) {
        assert_int_equal(visits[i], 1);
    }
    free(visits);
}

TEST(walks_visit_every_item_once)
{
    static const int64_t per_row[] = {1, 2, 7, 255, 256, 257, 1000};
    for (int i = 0; i < 7; i++) {
        check_walk(1, per_row[i], 256);
        check_walk(9, per_row[i], 256);
        check_walk(13, per_row[i], 768);
    }
}

TEST(blocks_are_enough_or_fill_the_device)
{
    assert_int_equal(sp_i_cuda_blocks(1, 2, 132), 1);
    assert_int_equal(sp_i_cuda_blocks(512, 2, 132), 1);
    assert_int_equal(sp_i_cuda_blocks(513, 2, 132), 2);
    // 132 multiprocessors of 2048 threads hold 1056 blocks of 256.
    assert_int_equal(sp_i_cuda_blocks((int64_t)1 << 40, 2, 132), 1056);
    // A device that cannot be asked.
    assert_int_equal(sp_i_cuda_blocks(1000, 1, 0), 1);
}

TEST(rows_get_whole_warps)
{
    for (int64_t vectors = 1; vectors < 10000; vectors++) {
        for (int held = 1; held <= 4; held *= 2) {
            int threads = sp_i_cuda_row_threads(vectors, held);
            assert_true(threads >= 32 && threads <= SP_I_CUDA_ROW_THREADS && threads % 32 == 0);
            assert_true((int64_t)threads * held >= vectors || threads == SP_I_CUDA_ROW_THREADS);
            assert_true(threads == 32 || (int64_t)(threads - 32) * held < vectors);
        }
    }
}

TEST(slabs_hold_every_row)
{
    static const int64_t columns[] = {1, 256, 4096, 16384, 1000000};
    for (int64_t rows = 1; rows < 100000; rows = rows * 3 + 1) {
        for (int i = 0; i < 5; i++) {
            int64_t slabs = sp_i_cuda_slabs(rows, columns[i]);
            assert_true(slabs >= 1 && slabs <= SP_I_CUDA_SLABS);
            // Few rows are not cut into slabs of less than one step of a block's warps.
            assert_true(slabs == 1 || rows / slabs >= 16);
        }
    }
}

TEST(alignment_counts_strides)
{
    char *base = (char *)(uintptr_t)4096;
    assert_true(sp_i_cuda_aligned(base, 8, 2));
    assert_true(sp_i_cuda_aligned(base, 4, 4));
    assert_true(sp_i_cuda_aligned(base, 0, 2));
    assert_false(sp_i_cuda_aligned(base, 4, 2));
    assert_false(sp_i_cuda_aligned(base + 2, 8, 2));
}
