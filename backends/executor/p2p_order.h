// In which order hidden states, or their gradients, go from one pipeline rank to another, and when
// they are read: what both ends of a channel between processes know from the plan alone.
#ifndef SLIMPACK_BACKENDS_EXECUTOR_P2P_ORDER_H
#define SLIMPACK_BACKENDS_EXECUTOR_P2P_ORDER_H

#include "sim/plan/depends.h"

// Places are those among the actions of a rank.
typedef struct sp_i_exec_letter {
    int vstage; // that reads it
    int32_t pack;
    size_t sent;  // the sender's action at whose end it goes off; of a pair the second
    size_t read;  // the receiver's action that reads it
    size_t asked; // before which the receiver must ask for it: it does so in the sender's order
} sp_i_exec_letter;

typedef struct sp_i_exec_letters {
    sp_i_exec_letter *items; // in the order in which they go off
    size_t count;
} sp_i_exec_letters;

// From one pipeline rank of a data-parallel rank to another, in the forward or the backward; packs
// without rows of their own among them. The plan must have passed sp_plan_check. O(actions).
sp_status sp_i_exec_letters_make(const sp_depends *depends, int dp, int from, int to, bool gradient,
                                 sp_i_exec_letters *letters, sp_error *err);
void sp_i_exec_letters_fini(sp_i_exec_letters *letters);

#endif
