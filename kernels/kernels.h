// Reference kernels of a transformer's training step, in fp32 (names end in _f32) and fp64 (_f64).
//
// Tensors are row-major, one row a token; a `stride` is the number of elements from one row to the
// next and at least the row's length. Sizes are at least 0 and what is passed to the BLAS (rows,
// columns, strides) is below 2^31. Outputs do not overlap inputs unless the kernel says so. Nothing
// is allocated and nothing can fail: sizes, indices and workspaces are the caller's to get right.
// Input gradients are overwritten unless `accumulate` is there and true; weight gradients are
// always added to, so that micro-batches and slices sum up.
#ifndef SLIMPACK_KERNELS_KERNELS_H
#define SLIMPACK_KERNELS_KERNELS_H

#include <stdbool.h>

// ---- what a program does once before it calls kernels (start.c) ----

// Makes OpenBLAS work in the calling thread alone, so that every worker of a backend computes on
// its own core and equal calls give equal bits. Call it once, before the workers start: the setting
// is one of the whole process. Kernels may then be called from `threads` threads at once, and from
// as many as there are cores. False where there is no address space for their work memory.
bool sp_kernels_start_threads(int threads);

// Can OpenBLAS map what it needs for so many threads? Where it cannot, it tries again for ever.
// Asks the kernel alone, so that it may be called before the C library is ready.
bool sp_kernels_have_room(int threads);

// The instruction set OpenBLAS chose, such as "Haswell", for the record of a measurement.
const char *sp_kernels_blas_core(void);

#define SP_KERNEL_BITS 32
#include "kernels/typed.h"
#undef SP_KERNEL_BITS

#define SP_KERNEL_BITS 64
#include "kernels/typed.h"
#undef SP_KERNEL_BITS

#undef real
#undef SP_KERNEL
#undef SP_KERNEL_I

#endif
