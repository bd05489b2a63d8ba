// Zig-zag shards: every token on one rank, level counts, level causal pairs.

#include "backends/comm/zigzag.h"
#include "tests/support/test_main.h"

enum { MOST_TOKENS = 100 };

TEST(every_token_once)
{
    for (int ranks = 1; ranks <= 8; ranks++) {
        for (int64_t tokens = 0; tokens < MOST_TOKENS; tokens++) {
            int64_t next = 0;
            for (int chunk = 0; chunk < 2 * ranks; chunk++) {
                sp_token_run run = sp_zigzag_chunk(tokens, ranks, chunk);
                assert_int_equal(run.begin, next);
                assert_true(run.tokens == tokens / (2 * ranks) ||
                            run.tokens == tokens / (2 * ranks) + 1);
                next += run.tokens;
            }
            assert_int_equal(next, tokens);
        }
    }
}

TEST(two_chunks_a_rank)
{
    for (int ranks = 1; ranks <= 8; ranks++) {
        int held[8] = {0};
        for (int chunk = 0; chunk < 2 * ranks; chunk++) {
            int rank = chunk < ranks ? chunk : 2 * ranks - 1 - chunk;
            sp_token_run runs[SP_ZIGZAG_RUNS];
            sp_zigzag_runs(61, ranks, rank, runs);
            assert_int_equal(runs[held[rank]++].begin, sp_zigzag_chunk(61, ranks, chunk).begin);
        }
        for (int rank = 0; rank < ranks; rank++) {
            assert_int_equal(held[rank], 2);
        }
    }
}

// Pairs of a query and a key at or before it. With 2 * ranks dividing the row, all ranks have
// equally many: T / ranks * (T + 1) / 2.
TEST(level_pairs)
{
    for (int ranks = 1; ranks <= 6; ranks++) {
        int64_t tokens = 2 * ranks * 7;
        for (int rank = 0; rank < ranks; rank++) {
            sp_token_run runs[SP_ZIGZAG_RUNS];
            int64_t pairs = 0;
            sp_zigzag_runs(tokens, ranks, rank, runs);
            for (int i = 0; i < SP_ZIGZAG_RUNS; i++) {
                for (int64_t t = 0; t < runs[i].tokens; t++) {
                    pairs += runs[i].begin + t + 1;
                }
            }
            assert_int_equal(pairs * ranks, tokens * (tokens + 1) / 2);
        }
    }
}
