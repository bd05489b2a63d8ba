// How the instructions of a warp meet in the emulated machine.
#ifndef SLIMPACK_TESTS_SUPPORT_EMULATED_CUDA_WARP_H
#define SLIMPACK_TESTS_SUPPORT_EMULATED_CUDA_WARP_H

#include "tests/support/emulated_cuda/runtime.h"

enum { SP_EMULATED_WARP = 32 };

// What the lanes of a warp compute together, given what each brought.
typedef void (*sp_emulated_warp_operation)(void *const brought[SP_EMULATED_WARP]);

// The calling lane waits until all lanes of its warp brought something to the same operation, which
// is then held once.
void sp_emulated_warp_collective(sp_emulated_warp_operation operation, void *brings);

// Ends the program unless `bytes` bytes, aligned to as many, lie in the block's shared memory.
void sp_emulated_check_shared(const void *pointer, size_t bytes);

#endif
