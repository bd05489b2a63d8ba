// What goes over the wire between ranks before and beside NCCL: the first message of a rank, of
// fixed size, and frames of a head and a body. Numbers are big-endian.
#ifndef SLIMPACK_BACKENDS_CUDA_BOOTSTRAP_FRAME_H
#define SLIMPACK_BACKENDS_CUDA_BOOTSTRAP_FRAME_H

#include <stdbool.h>

#include "backends/cuda/bootstrap.h"

enum {
    SP_I_BOOTSTRAP_VERSION = 1,
    SP_I_BOOTSTRAP_HELLO = 8 + 4 + SP_I_BOOTSTRAP_RUN + 4 + 4 + 4, // bytes
    SP_I_BOOTSTRAP_HEAD = 4 + 4 + 8 + 8,
};

// Magic, version and run stand where they do in all versions.
typedef struct sp_i_bootstrap_hello {
    uint32_t version;
    char run[SP_I_BOOTSTRAP_RUN]; // ends with a zero
    uint32_t ranks, rank, plan_hash;
} sp_i_bootstrap_hello;

void sp_i_bootstrap_hello_write(const sp_i_bootstrap_hello *hello,
                                unsigned char bytes[SP_I_BOOTSTRAP_HELLO]);
// False for what no rank of any version has sent.
bool sp_i_bootstrap_hello_read(const unsigned char bytes[SP_I_BOOTSTRAP_HELLO],
                               sp_i_bootstrap_hello *hello);

typedef enum sp_i_bootstrap_kind {
    SP_I_BOOTSTRAP_WELCOME = 1,
    SP_I_BOOTSTRAP_BROADCAST,
    SP_I_BOOTSTRAP_GATHER,
    SP_I_BOOTSTRAP_ARRIVE, // at a barrier, to rank 0
    SP_I_BOOTSTRAP_LEAVE,  // from a barrier
    SP_I_BOOTSTRAP_ABORT,  // body: status, 4 bytes; text
    SP_I_BOOTSTRAP_BYE,
    SP_I_BOOTSTRAP_KINDS
} sp_i_bootstrap_kind;
const char *sp_i_bootstrap_kind_name(sp_i_bootstrap_kind kind);

typedef struct sp_i_bootstrap_head {
    sp_i_bootstrap_kind kind;
    uint64_t call;  // which of the sender's calls, from 0
    uint64_t bytes; // of the body
} sp_i_bootstrap_head;

void sp_i_bootstrap_head_write(const sp_i_bootstrap_head *head,
                               unsigned char bytes[SP_I_BOOTSTRAP_HEAD]);
// False for what is no frame, and for bodies longer than their kind may have.
bool sp_i_bootstrap_head_read(const unsigned char bytes[SP_I_BOOTSTRAP_HEAD],
                              sp_i_bootstrap_head *head);

uint32_t sp_i_bootstrap_u32(const unsigned char *bytes);
void sp_i_bootstrap_put_u32(unsigned char *bytes, uint32_t value);

#endif
