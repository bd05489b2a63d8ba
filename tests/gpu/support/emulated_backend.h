// The CUDA backend without a GPU: its own table of operations, over a fake of CUDA whose kernels
// the CPU emulates and a cuBLASLt that computes. Slow: for models of a few dozen features.
#ifndef SLIMPACK_TESTS_GPU_SUPPORT_EMULATED_BACKEND_H
#define SLIMPACK_TESTS_GPU_SUPPORT_EMULATED_BACKEND_H

#include <cuda_runtime_api.h>

#include "backends/api/device.h"
#include "backends/api/device_runtime.h"
#include "tests/gpu/support/stream_queue.h"
#include "tests/support/test_main.h"

// Its device has memory far beyond what models of tests take, and a clock that goes on by a
// microsecond with every event that is recorded. Work of its streams is done as late as can be
// (stream_queue.h), until the backend's end.
sp_backend *emulated_backend_new(void);
// So many bytes instead, for many runs of small models: AddressSanitizer marks all of them in every
// run, which takes it longer than the run.
void emulated_backend_memory(size_t bytes);
// Fails the test case where anything of CUDA is still alive or, in a program of ThreadSanitizer
// (followed.h), two calls touched memory in no order.
void emulated_backend_free(sp_backend *backend);
OWNS_AS(emulated_backend, sp_backend)
void emulated_nothing_lives(void);
extern const sp_backend_ops emulated_backend_ops;
// What its runs record kernels by; NULL: this machine's.
extern const struct sp_i_cupti_api *emulated_cupti;

// A GPU as a machine on fresh fakes, whose first rank the calling thread enters. The end fails the
// test case as that of the backend does.
sp_runtime *emulated_runtime_new(int ranks, bool partitioned, int64_t memory_bytes);
void emulated_runtime_free(sp_runtime *runtime);
OWNS_AS(emulated_runtime, sp_runtime)

// Launches until one fails; below 0, as it is at first: none does (tests/support/emulated_cuda).
extern long sp_emulated_launches;
// Kernels are dropped without being run (likewise): emulated kernels are most of the time that a
// run takes.
extern bool sp_emulated_skips;
// Takes launches (likewise); NULL: they run at once.
extern void (*sp_emulated_put)(void *stream, void (*work)(void *context), void *context);

#endif
