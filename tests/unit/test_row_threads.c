#include <stdatomic.h>
#include <stdbool.h>

#include "experiments/measurements/row_threads.h"
#include "tests/support/test_main.h"

enum { ROWS = 200 };

typedef struct rows {
    atomic_int done[ROWS];
    bool fails[ROWS];
} rows;

static sp_status note_row(void *context, size_t row, sp_error *err)
{
    rows *r = context;
    atomic_fetch_add(&r->done[row], 1);
    return r->fails[row] ? sp_error_set(err, SP_ERR_CONTENT, "row %zu", row) : SP_OK;
}

TEST(every_wanted_row_once)
{
    sp_prng prng = prng_seeded(1);
    for (int threads = 0; threads <= 5; threads++) {
        rows r = {0};
        uint8_t wanted[ROWS];
        for (int i = 0; i < ROWS; i++) {
            wanted[i] = sp_prng_below(&prng, 2) == 1;
        }
        assert_int_equal(sp_rows_work(ROWS, wanted, threads, note_row, &r, NULL), SP_OK);
        for (int i = 0; i < ROWS; i++) {
            assert_int_equal(r.done[i], wanted[i]);
        }
        rows all = {0};
        assert_int_equal(sp_rows_work(ROWS, NULL, threads, note_row, &all, NULL), SP_OK);
        for (int i = 0; i < ROWS; i++) {
            assert_int_equal(all.done[i], 1);
        }
    }
}

// Also with more threads than rows, and for rows that are not wanted.
TEST(first_failure_counts)
{
    sp_prng prng = prng_seeded(2);
    for (int trial = 0; trial < 300; trial++) {
        rows r = {0};
        uint8_t wanted[ROWS];
        size_t count = 1 + (size_t)sp_prng_below(&prng, ROWS);
        size_t first = count;
        for (size_t i = 0; i < count; i++) {
            wanted[i] = sp_prng_below(&prng, 4) > 0;
            r.fails[i] = sp_prng_below(&prng, 50) == 0;
            first = first == count && r.fails[i] && wanted[i] != 0 ? i : first;
        }
        sp_error err;
        char expected[32];
        sp_error_clear(&err);
        int threads = 1 + (int)sp_prng_below(&prng, 8);
        sp_status status = sp_rows_work(count, wanted, threads, note_row, &r, &err);
        assert_int_equal(status, first < count ? SP_ERR_CONTENT : SP_OK);
        if (first < count) {
            snprintf(expected, sizeof expected, "row %zu", first);
            assert_string_equal(err.message[0], expected);
        }
    }
}

TEST(no_rows)
{
    assert_int_equal(sp_rows_work(0, NULL, 4, note_row, NULL, NULL), SP_OK);
}
