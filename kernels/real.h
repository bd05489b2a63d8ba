// The element type of a typed file: `real`, SP_KERNEL(name) for public and SP_KERNEL_I(name) for
// private names follow SP_KERNEL_BITS (32 or 64). Without a guard, because kernels.h reads the
// typed headers once for each type.
#ifndef SP_KERNEL_BITS
#error "SP_KERNEL_BITS must be 32 or 64; callers include kernels/kernels.h"
#endif

#undef real
#undef SP_KERNEL
#undef SP_KERNEL_I
#if SP_KERNEL_BITS == 64
#define real double
#define SP_KERNEL(name) sp_kernel_##name##_f64
#define SP_KERNEL_I(name) sp_i_kernel_##name##_f64
#elif SP_KERNEL_BITS == 32
#define real float
#define SP_KERNEL(name) sp_kernel_##name##_f32
#define SP_KERNEL_I(name) sp_i_kernel_##name##_f32
#else
#error "SP_KERNEL_BITS must be 32 or 64"
#endif
