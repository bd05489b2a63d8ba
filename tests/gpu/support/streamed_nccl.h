// Messages of the fake NCCL in the order of streams, over the fake of CUDA: sending and receiving
// return at once, and what was sent is copied, out of the sender's memory as it is then, when one
// of the two ends waits for its stream or an event on it and the other has put its call down. Only
// the first message of two ranks waits at the call, where NCCL connects them. All else of both
// fakes is done when it is called, so that a stream that waits for a message is a thread that does.
#ifndef SLIMPACK_TESTS_GPU_SUPPORT_STREAMED_NCCL_H
#define SLIMPACK_TESTS_GPU_SUPPORT_STREAMED_NCCL_H

#include "backends/cuda/device.h"
#include "backends/cuda/nccl_api.h"

// Changes tables that the two fakes have just set; adds the call cuStreamQuery. A stream carries
// the messages of one communicator in one direction.
void streamed_nccl_reset(sp_i_nccl_api *nccl_table, sp_cuda_api *cuda);

// Messages whose two ends gave different sizes, since the reset.
int streamed_nccl_unequal(void);

#endif
