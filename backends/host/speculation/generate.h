// Text by a small model, greedily: token by token, or by trees that a draft proposes and one
// forward of the whole model verifies. The draft is the model's own first layers with its norm and
// head.
#ifndef SLIMPACK_BACKENDS_HOST_SPECULATION_GENERATE_H
#define SLIMPACK_BACKENDS_HOST_SPECULATION_GENERATE_H

#include "backends/host/speculation/small_model.h"
#include "sim/inference/speculation.h"

typedef struct sp_small_text {
    int64_t *tokens; // [count], as many as were asked for
    int count;
    sp_speculated *calls; // [call_count]: at most `count`
    int call_count;
} sp_small_text;

// Generates `count` tokens behind a prompt of at least one; how->method and its bins say how. The
// caller frees the text with sp_small_text_fini() in any case.
sp_status sp_small_generate(const sp_small_model *model, int draft_layers,
                            const sp_speculation *how, const int64_t *prompt, int prompt_count,
                            int count, sp_small_text *text, sp_error *err);
void sp_small_text_fini(sp_small_text *text);

#endif
