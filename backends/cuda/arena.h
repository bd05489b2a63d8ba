// One block of the device, given out in parts whose addresses depend on nothing but the order of
// calls. What is held is counted by who takes (backends/executor/arena.h), not here.
#ifndef SLIMPACK_BACKENDS_CUDA_ARENA_H
#define SLIMPACK_BACKENDS_CUDA_ARENA_H

#include <stdint.h>

#include "backends/api/device_runtime.h"

typedef struct sp_i_cuda_arena sp_i_cuda_arena;

// Over `bytes` at `base`, which the caller owns and frees after the arena; it is never read. NULL
// when host memory ran out.
sp_i_cuda_arena *sp_i_cuda_arena_new(void *base, int64_t bytes);
void sp_i_cuda_arena_free(sp_i_cuda_arena *arena);

// Aligned to SP_RUNTIME_ALIGNMENT; NULL where no gap is long enough (errno ENOSPC), or when host
// memory ran out (ENOMEM).
// O(1).
void *sp_i_cuda_arena_take(sp_i_cuda_arena *arena, int64_t bytes);
// Neighbouring gaps become one. NULL is nothing. O(1) but for blocks in the same of 1024 lists.
void sp_i_cuda_arena_give(sp_i_cuda_arena *arena, void *memory);

#endif
