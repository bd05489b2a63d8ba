// Messages between two ranks, by NCCL, on streams of their own; for nccl_transport.c. What fails
// here fails the world of NCCL.
#ifndef SLIMPACK_BACKENDS_CUDA_NCCL_MESSAGES_H
#define SLIMPACK_BACKENDS_CUDA_NCCL_MESSAGES_H

#include "backends/cuda/distributed/nccl.h"

typedef struct sp_i_nccl_channel {
    int group;
    int peer;            // its member that is the other end
    bool sends;          // this rank, else it receives
    cudaStream_t stream; // NULL: this rank is neither end
} sp_i_nccl_channel;

// A message that no work of the rank waits for yet.
typedef struct sp_i_nccl_message {
    uint64_t number;
    cudaEvent_t over;
} sp_i_nccl_message;

typedef struct sp_i_nccl_messages {
    sp_i_cuda_device device;
    sp_i_nccl *n;
    int rank;
    cudaStream_t work; // the rank's own stream
    void *token;       // of the GPU, SP_I_NCCL_TOKEN bytes: what a channel's first message carries
    sp_i_nccl_channel *channels;
    size_t channel_count, channel_capacity;
    sp_i_nccl_message *open;
    size_t open_count, open_capacity;
    cudaEvent_t *spare; // events of messages that are waited for
    size_t spare_count, spare_capacity;
    uint64_t put; // messages so far
} sp_i_nccl_messages;

enum { SP_I_NCCL_TOKEN = 256 };

// As in backends/comm/transport.h.
sp_status sp_i_nccl_messages_channel(sp_i_nccl_messages *m, int from, int to, sp_error *err);
sp_status sp_i_nccl_messages_put(sp_i_nccl_messages *m, int channel, bool sends, void *data,
                                 int64_t bytes, uint64_t *message, sp_error *err);
sp_status sp_i_nccl_messages_wait(sp_i_nccl_messages *m, uint64_t message, sp_error *err);
sp_status sp_i_nccl_messages_synchronize(sp_i_nccl_messages *m, sp_error *err);

// Waits until what has been aborted is over: no message touches memory any more.
void sp_i_nccl_messages_end(sp_i_nccl_messages *m);

// Nothing of it is on the GPU any more.
void sp_i_nccl_messages_fini(sp_i_nccl_messages *m);

// Lets the world fail with an error of something else: its status, with the failure in `err`.
sp_status sp_i_nccl_give_up(sp_i_nccl *n, sp_status status, const sp_error *found, sp_error *err);

#endif
