// What computes, for each precision. Hidden states have the rows of the rank's own part of the pack
// (slices.h). False: an exchange with other ranks failed (links), or memory ran out
// (sp_i_exec_arena_failure); what was held stays in the arena.
#ifndef SLIMPACK_BACKENDS_EXECUTOR_MATH_H
#define SLIMPACK_BACKENDS_EXECUTOR_MATH_H

#include "backends/executor/stage.h"

typedef struct sp_i_exec_update {
    int64_t step; // from 1 on
    double learning_rate, weight_decay;
    double gradient_scale;
} sp_i_exec_update;

typedef enum sp_i_exec_end_work {
    SP_I_EXEC_END_EMBED,
    SP_I_EXEC_END_EMBED_BACKWARD,
    SP_I_EXEC_END_HEAD,
    SP_I_EXEC_END_HEAD_BACKWARD
} sp_i_exec_end_work;

typedef struct sp_i_exec_math {
    // Of values and hidden states; of statistics, gradients, optimizer states and masters.
    int64_t real_bytes, exact_bytes;
    // Runs a forward pack. `input` [own rows, hidden] comes from the stage before, NULL where the
    // stage embeds; `output` goes to the stage behind, NULL where it has the head, which adds to
    // the pack's loss. Where not `keep` it will run again: only its input stays, and the keys and
    // values that later slices read.
    bool (*forward)(sp_i_exec_stage *stage, int32_t pack, const void *input, void *output,
                    bool keep);
    // Runs it again and keeps what a forward keeps.
    bool (*again)(sp_i_exec_stage *stage, int32_t pack);
    // Runs a backward pack. `gradient` is that of the stage's output, NULL for the head; writes
    // `input_gradient`, NULL where the stage embeds. With `split` the products of the weight
    // gradients are left to `weights`.
    bool (*backward)(sp_i_exec_stage *stage, int32_t pack, const void *gradient,
                     void *input_gradient, bool split);
    bool (*weights)(sp_i_exec_stage *stage, int32_t pack);
    // A share of the vocabulary's work at a pipeline rank other than the one that runs the action,
    // while that one does. `flag`: what the forward keeps stays; of a backward: split.
    bool (*share)(sp_i_exec_stage *stage, sp_i_exec_end_work what, int32_t pack, bool flag);
    // cosine and sine, exact [positions, head_dim / 2] of the positions 0, 1, ...
    void (*rope_table)(int64_t positions, int64_t head_dim, void *cosine, void *sine);
    void (*add_exact)(int64_t n, const void *x, void *y); // y += x, of gradients
    // All exact but `value`, which becomes master rounded. The same array as master where the two
    // widths are one.
    void (*update)(const sp_i_exec_update *update, int64_t n, const void *gradient, void *master,
                   void *first, void *second, void *value);
} sp_i_exec_math;

extern const sp_i_exec_math sp_i_exec_math_f32, sp_i_exec_math_f64;
// Of values in bf16 and all else in fp32; a GPU's, in the CUDA backend.
extern const sp_i_exec_math sp_i_exec_math_bf16;

#endif
