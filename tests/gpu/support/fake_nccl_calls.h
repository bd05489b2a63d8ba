// A communicator of the fake NCCL, and its calls when their group ends.
#ifndef SLIMPACK_TESTS_GPU_SUPPORT_FAKE_NCCL_CALLS_H
#define SLIMPACK_TESTS_GPU_SUPPORT_FAKE_NCCL_CALLS_H

#include <nccl.h>

#include "tests/gpu/support/fake_nccl_mail.h"

struct ncclComm {
    char key[160];
    clique *members;
    int rank, size, splits;
    int looks;          // until the state is `after`, which errors do not leave
    ncclResult_t after; // ncclInProgress: for ever
    ncclComm_t child;   // appears at *child_to a while after the state is success
    int child_looks;
    ncclComm_t *child_to;
};

typedef struct fake_call {
    enum { ALL_REDUCE, REDUCE, BROADCAST, ALL_GATHER, REDUCE_SCATTER, SEND, RECV } kind;
    const void *in;
    void *out;
    size_t count;
    ncclDataType_t type;
    ncclRedOp_t operation;
    int peer; // or root
    ncclComm_t of;
} fake_call;

// Messages are sent in the first pass and received in the last one, so that no order of calls in a
// group lets its members wait for each other. False for calls that do not fit together.
enum { FAKE_PASSES = 3 };
bool fake_call_done(const fake_call *c, int pass);

#endif
