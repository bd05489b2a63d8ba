// What the samples of a batch say: drawn at random, or read from a text.
#ifndef SLIMPACK_BACKENDS_EXECUTOR_TEXT_H
#define SLIMPACK_BACKENDS_EXECUTOR_TEXT_H

#include <stddef.h>
#include <stdint.h>

#include "sim/base/status.h"

typedef struct sp_i_exec_text {
    unsigned char *bytes; // owned; NULL: at random
    size_t count;
} sp_i_exec_text;

// Reads a file whose bytes are the tokens. SP_ERR_CONTENT where it is empty or has a byte that a
// vocabulary of `vocab` does not have.
sp_status sp_i_exec_text_read(const char *path, int64_t vocab, sp_i_exec_text *text, sp_error *err);
void sp_i_exec_text_fini(sp_i_exec_text *text);

// Token `position` of sample `id` in step `step`, in [0, vocab). The sample's target at a position
// is the token at the next one, so a sample of n tokens has n + 1. A text is read from a place that
// the seed, the step and the sample choose, and from its start again after its end.
int64_t sp_i_exec_token(const sp_i_exec_text *text, uint64_t seed, int step, int64_t id,
                        int64_t position, int64_t vocab);

#endif
