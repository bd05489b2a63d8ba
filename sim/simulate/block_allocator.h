// The block rules of PyTorch's CUDA caching allocator, without any memory behind them: what
// max_memory_allocated and max_memory_reserved count for a sequence of allocations and releases on
// one stream (c10/cuda/CUDACachingAllocator.cpp of PyTorch 2; nothing is ever returned to the
// device, since no request fails here).
//   - Requests are rounded up to 512 B. Up to 1 MiB they come from the small pool, whose segments
//     are 2 MiB, others from the large pool: segments of 20 MiB below 10 MiB, else of their own
//     size rounded up to 2 MiB.
//   - The smallest free block of the pool that suffices is taken, the lowest address among equals.
//   - It is split where at least 512 B (small pool) or more than 1 MiB (large pool) would be left.
//   - Free neighbours of one segment merge.
//   - With a split limit (max_split_size): a request of at least the limit takes no block that is
//     20 MiB or more larger, and is never split from one; a smaller request takes no block of at
//     least the limit.
// A block counts with its whole size. Segments get increasing virtual addresses, so that equal
// sequences give equal blocks.
#ifndef SLIMPACK_SIM_SIMULATE_BLOCK_ALLOCATOR_H
#define SLIMPACK_SIM_SIMULATE_BLOCK_ALLOCATOR_H

#include <stdint.h>

#include "sim/base/status.h"

enum { SP_NO_BLOCK = -1 };

typedef struct sp_block_allocator sp_block_allocator;

// An empty allocator; split_limit_bytes 0: none.
sp_block_allocator *sp_block_allocator_new(int64_t split_limit_bytes);

// A copy of an allocator with its state, on its own from then on; block handles hold in both.
// O(blocks).
sp_block_allocator *sp_block_allocator_copy(const sp_block_allocator *from);

// NULL is allowed.
void sp_block_allocator_free(sp_block_allocator *allocator);

// A block of at least `bytes`; a request of 0 bytes gets SP_NO_BLOCK, as tensors without elements
// have no storage. Nothing changes on an error: SP_ERR_LIMIT past 2^62 B or 2^30 blocks. O(log f)
// amortized with f free blocks of a size; O(s) where it leaves a rest of a new size, with s sizes
// in the pool.
sp_status sp_block_allocate(sp_block_allocator *allocator, int64_t bytes, int32_t *block,
                            sp_error *err);

// Gives a block back; SP_NO_BLOCK is allowed. The handle may come back for a later request.
void sp_block_release(sp_block_allocator *allocator, int32_t block);

// Bytes that an allocated block counts; 0 for SP_NO_BLOCK.
int64_t sp_block_bytes(const sp_block_allocator *allocator, int32_t block);

// Bytes in allocated blocks, in segments, and the most in allocated blocks since the start
// (torch.cuda.memory_allocated, memory_reserved, max_memory_allocated).
int64_t sp_block_allocator_allocated(const sp_block_allocator *allocator);
int64_t sp_block_allocator_reserved(const sp_block_allocator *allocator);
// Bytes of all segments but those without a block in use, the most that these were when a segment
// was taken. A device that has less fails there: PyTorch then gives back segments that are not in
// use, and gaps in the others stay.
int64_t sp_block_allocator_least(const sp_block_allocator *allocator);
int64_t sp_block_allocator_peak(const sp_block_allocator *allocator);

#endif
