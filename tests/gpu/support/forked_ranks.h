// Ranks as processes that meet in the working directory, and what came of each.
#ifndef SLIMPACK_TESTS_GPU_SUPPORT_FORKED_RANKS_H
#define SLIMPACK_TESTS_GPU_SUPPORT_FORKED_RANKS_H

#include "backends/cuda/distributed/rendezvous.h"

enum { FORKED_RANKS = 8 };

typedef struct rank_result {
    sp_status status;
    char text[SP_ERROR_TEXT]; // first message
} rank_result;

// What a rank does; it is in a process of its own and must not assert. A status that is no error
// but not what the body expected: sp_error_set.
typedef sp_status (*rank_body)(const sp_i_place *place, void *context, sp_error *err);

typedef struct forked_ranks {
    sp_i_place place; // of each, but for its rank
    int pid[FORKED_RANKS], pipe[FORKED_RANKS];
} forked_ranks;

// A place for `ranks` ranks in a folder that no other test has.
void forked_ranks_init(forked_ranks *f, int ranks);
void forked_rank_start(forked_ranks *f, int rank, rank_body body, void *context);
// Waits for its end. One that died without a word has SP_ERR_INTERNAL and "died".
rank_result forked_rank_end(forked_ranks *f, int rank);

// Starts all, waits for all.
void forked_ranks_run(forked_ranks *f, rank_body body, void *context, rank_result *results);

// The ranks have taken everything along that they wrote.
bool forked_ranks_left_nothing(const forked_ranks *f);

#endif
