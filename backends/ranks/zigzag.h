// Zig-zag shards of context parallelism: a row of tokens is cut into 2 * ranks chunks and rank r
// holds the chunks r and 2 * ranks - 1 - r, one behind the other, so that causal attention is
// nearly level (Dubey and others: "The Llama 3 Herd of Models", 2024, section 3.3.2). Chunks are
// equal; where 2 * ranks does not divide the row, the first ones have a token more. The row is what
// the caller cuts: a pack, or one slice of it.
#ifndef SLIMPACK_BACKENDS_RANKS_ZIGZAG_H
#define SLIMPACK_BACKENDS_RANKS_ZIGZAG_H

#include <stdint.h>

enum { SP_ZIGZAG_RUNS = 2 };

// Tokens [begin, begin + tokens) of a row.
typedef struct sp_token_run {
    int64_t begin, tokens;
} sp_token_run;

// A product of tokens and chunk could pass 63 bits; this does not.
static inline sp_token_run sp_zigzag_chunk(int64_t tokens, int ranks, int chunk)
{
    int64_t chunks = 2 * (int64_t)ranks;
    int64_t each = tokens / chunks;
    int64_t longer = tokens % chunks;
    return (sp_token_run){.begin = each * chunk + (chunk < longer ? chunk : longer),
                          .tokens = each + (chunk < longer ? 1 : 0)};
}

// The two chunks of a rank in the order of its shard; either may be empty.
static inline void sp_zigzag_runs(int64_t tokens, int ranks, int rank,
                                  sp_token_run runs[SP_ZIGZAG_RUNS])
{
    runs[0] = sp_zigzag_chunk(tokens, ranks, rank);
    runs[1] = sp_zigzag_chunk(tokens, ranks, 2 * ranks - 1 - rank);
}

static inline int64_t sp_zigzag_tokens(int64_t tokens, int ranks, int rank)
{
    sp_token_run runs[SP_ZIGZAG_RUNS];
    sp_zigzag_runs(tokens, ranks, rank, runs);
    return runs[0].tokens + runs[1].tokens;
}

#endif
