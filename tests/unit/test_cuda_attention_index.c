// Index arithmetic of CUDA attention against the definitions it stands for.

#include "kernels/cuda_attention_index.h"
#include "tests/support/test_main.h"

// Every chunk has a place of its own, and chunk 2 k + i of a row differs from chunk i in the bits
// of 32 k alone, which the kernels rely on.
TEST(chunks_of_a_tile)
{
    enum { ROWS = 128 };
    for (int chunks = 8; chunks <= 16; chunks += 8) {
        bool taken[ROWS * 16] = {false};
        for (int row = 0; row < ROWS; row++) {
            for (int chunk = 0; chunk < chunks; chunk++) {
                int offset = sp_i_attention_offset(row, chunk, chunks);
                assert_int_equal(offset % 16, 0);
                assert_true(offset >= row * chunks * 16 && offset < (row + 1) * chunks * 16);
                assert_false(taken[offset / 16]);
                taken[offset / 16] = true;
                int first = sp_i_attention_offset(row, chunk % 2, chunks);
                assert_int_equal(offset, first ^ (32 * (chunk / 2)));
            }
        }
    }
}

// Eight rows of a matrix are read at a time; 16 bytes of each come from 4 of the 32 banks.
TEST(rows_of_a_matrix_share_no_bank)
{
    for (int chunks = 8; chunks <= 16; chunks += 8) {
        for (int row = 0; row < 64; row += 8) {
            for (int chunk = 0; chunk < chunks; chunk++) {
                unsigned banks = 0;
                for (int i = 0; i < 8; i++) {
                    banks |= 1U << (sp_i_attention_offset(row + i, chunk, chunks) / 16 % 8);
                }
                assert_int_equal(banks, 0xff);
            }
        }
    }
}

TEST(visible_pairs)
{
    for (int64_t query_begin = 0; query_begin < 7; query_begin++) {
        for (int64_t queries = 0; queries < 7; queries++) {
            for (int64_t key_begin = 0; key_begin < 12; key_begin++) {
                for (int64_t keys = 0; keys < 7; keys++) {
                    int64_t pairs = 0, last_sees = 0;
                    int64_t first = queries;
                    for (int64_t q = queries - 1; q >= 0; q--) {
                        for (int64_t k = 0; k < keys; k++) {
                            bool sees = key_begin + k <= query_begin + q;
                            pairs += sees;
                            last_sees += sees && q == queries - 1;
                        }
                        first = key_begin <= query_begin + q ? q : first;
                    }
                    assert_int_equal(sp_i_attention_pairs(query_begin, queries, key_begin, keys),
                                     pairs);
                    assert_int_equal(sp_i_attention_first_query(key_begin, query_begin, queries),
                                     first);
                    if (queries > 0) {
                        assert_int_equal(
                            sp_i_attention_visible_keys(query_begin + queries, key_begin, keys),
                            last_sees);
                    }
                }
            }
        }
    }
}
