// Times of NCCL's collectives between the GPUs of a world, in groups of its first ranks.
#ifndef SLIMPACK_BACKENDS_CUDA_COLLECTIVE_NCCL_H
#define SLIMPACK_BACKENDS_CUDA_COLLECTIVE_NCCL_H

#include "backends/cuda/calibrate/collective_bench.h"
#include "backends/cuda/nccl.h"

// As sp_i_cuda_time_collectives, with what puts a collective and waits for it filled in. Makes the
// groups, which stay until the world is freed. A rank that is in few of them returns long before
// the others. A failure is the world's.
sp_status sp_i_nccl_time_collectives(sp_i_nccl *n, const sp_i_cuda_collective_bench *bench,
                                     json_t **tables, sp_error *err);

#endif
