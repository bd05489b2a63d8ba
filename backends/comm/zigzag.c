#include "backends/comm/zigzag.h"

#include <string.h>

// A product of tokens and chunk could pass 63 bits; this does not.
sp_token_run sp_zigzag_chunk(int64_t tokens, int ranks, int chunk)
{
    int64_t chunks = 2 * (int64_t)ranks;
    int64_t each = tokens / chunks;
    int64_t longer = tokens % chunks;
    return (sp_token_run){.begin = each * chunk + (chunk < longer ? chunk : longer),
                          .tokens = each + (chunk < longer ? 1 : 0)};
}

int sp_zigzag_rank(int ranks, int chunk)
{
    return chunk < ranks ? chunk : 2 * ranks - 1 - chunk;
}

void sp_zigzag_runs(int64_t tokens, int ranks, int rank, sp_token_run runs[SP_ZIGZAG_RUNS])
{
    runs[0] = sp_zigzag_chunk(tokens, ranks, rank);
    runs[1] = sp_zigzag_chunk(tokens, ranks, 2 * ranks - 1 - rank);
}

int64_t sp_zigzag_tokens(int64_t tokens, int ranks, int rank)
{
    sp_token_run runs[SP_ZIGZAG_RUNS];
    sp_zigzag_runs(tokens, ranks, rank, runs);
    return runs[0].tokens + runs[1].tokens;
}

void sp_zigzag_scatter(int64_t tokens, int ranks, int rank, size_t row_bytes, const void *row,
                       void *shard)
{
    sp_token_run runs[SP_ZIGZAG_RUNS];
    char *to = shard;
    sp_zigzag_runs(tokens, ranks, rank, runs);
    for (int i = 0; i < SP_ZIGZAG_RUNS; i++) {
        size_t bytes = (size_t)runs[i].tokens * row_bytes;
        memcpy(to, (const char *)row + (size_t)runs[i].begin * row_bytes, bytes);
        to += bytes;
    }
}

void sp_zigzag_gather(int64_t tokens, int ranks, int rank, size_t row_bytes, const void *shard,
                      void *row)
{
    sp_token_run runs[SP_ZIGZAG_RUNS];
    const char *from = shard;
    sp_zigzag_runs(tokens, ranks, rank, runs);
    for (int i = 0; i < SP_ZIGZAG_RUNS; i++) {
        size_t bytes = (size_t)runs[i].tokens * row_bytes;
        memcpy((char *)row + (size_t)runs[i].begin * row_bytes, from, bytes);
        from += bytes;
    }
}
