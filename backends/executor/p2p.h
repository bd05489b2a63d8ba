// Hidden states and their gradients on their way between pipeline stages: one box for each pack and
// virtual stage that reads it, at each rank that runs the pack. On the way nobody's memory holds
// them. Sending never waits: a plan may have any number under way.
#ifndef SLIMPACK_BACKENDS_EXECUTOR_P2P_H
#define SLIMPACK_BACKENDS_EXECUTOR_P2P_H

#include <pthread.h>

#include "backends/comm/comm.h"
#include "backends/executor/arena.h"

typedef struct sp_i_exec_box {
    void *content;
    sp_comm_flag full;
    // Of what comes over a channel (channels.h).
    uint64_t message;
    size_t sent; // the sender's action, as in sp_i_exec_letter
} sp_i_exec_box;

typedef struct sp_i_exec_mail {
    sp_i_exec_arena *arena;
    pthread_mutex_t lock;    // of the arena
    sp_i_exec_box *boxes[2]; // of hidden states, of gradients: [virtual stages][packs][seats]
    size_t vstages, packs[2], seats;
} sp_i_exec_mail;

// Which box: `gradient` says of which pass, `vstage` reads it.
typedef struct sp_i_exec_address {
    bool gradient;
    int vstage;
    int32_t pack;
    int seat;
} sp_i_exec_address;

sp_status sp_i_exec_mail_init(sp_i_exec_mail *mail, sp_machine *machine, size_t vstages,
                              size_t forward_packs, size_t backward_packs, size_t seats,
                              sp_error *err);
void sp_i_exec_mail_fini(sp_i_exec_mail *mail);

sp_i_exec_box *sp_i_exec_mail_box(const sp_i_exec_mail *mail, const sp_i_exec_address *at);
// Room for what goes into an empty box; NULL when memory ran out.
void *sp_i_exec_mail_open(sp_i_exec_mail *mail, const sp_i_exec_address *to, int64_t elements,
                          sp_i_exec_width width);
// As sp_i_exec_arena_failure.
sp_status sp_i_exec_mail_failure(sp_i_exec_mail *mail, char *text, size_t text_bytes);
// It is complete, and under way for `ns` (sp_comm_flag_raise_later): `reader`, who may wait for it,
// is woken.
void sp_i_exec_mail_post(sp_i_exec_mail *mail, const sp_i_exec_address *to, sp_comm *me, int reader,
                         int64_t ns);
// Waits until `writer` has filled a box.
sp_status sp_i_exec_mail_wait(sp_i_exec_mail *mail, const sp_i_exec_address *at, sp_comm *me,
                              int writer, const char *what, sp_error *err);
// What is in it, and its end.
const void *sp_i_exec_mail_read(const sp_i_exec_mail *mail, const sp_i_exec_address *at);
void sp_i_exec_mail_drop(sp_i_exec_mail *mail, const sp_i_exec_address *at);
// Gives back content that was taken out of its box.
void sp_i_exec_mail_give(sp_i_exec_mail *mail, void *content);
// Blocks that nobody read.
int64_t sp_i_exec_mail_left(const sp_i_exec_mail *mail);

#endif
