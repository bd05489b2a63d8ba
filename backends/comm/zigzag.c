#include "backends/comm/zigzag.h"

// A product of tokens and chunk could pass 63 bits; this does not.
sp_token_run sp_zigzag_chunk(int64_t tokens, int ranks, int chunk)
{
    int64_t chunks = 2 * (int64_t)ranks;
    int64_t each = tokens / chunks;
    int64_t longer = tokens % chunks;
    return (sp_token_run){.begin = each * chunk + (chunk < longer ? chunk : longer),
                          .tokens = each + (chunk < longer ? 1 : 0)};
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
