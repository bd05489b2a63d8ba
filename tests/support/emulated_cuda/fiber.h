// Flows of control that take turns on one thread of the CPU, each on a stack of its own. A switch
// saves no signal mask and so makes no system call, which is what swapcontext spends its time on.
#ifndef SLIMPACK_TESTS_SUPPORT_EMULATED_CUDA_FIBER_H
#define SLIMPACK_TESTS_SUPPORT_EMULATED_CUDA_FIBER_H

#include <cstddef>
#include <memory>

#if defined(__x86_64__) && defined(__linux__)
#define SP_EMULATED_FAST_SWITCH
#else
#include <ucontext.h>
#endif

// One that is left and entered but never made is the flow that was there before.
struct sp_emulated_fiber {
#ifdef SP_EMULATED_FAST_SWITCH
    void *stopped; // the stack pointer
#else
    ucontext_t stopped;
#endif
    void (*main)();
    std::unique_ptr<unsigned char[]> stack;
    const void *bounds; // of the stack, for AddressSanitizer
    size_t bounds_bytes;
};

// The first switch to it calls `main`, which never returns.
void sp_emulated_fiber_make(sp_emulated_fiber &made, void (*main)());

// Leaves `from`, the flow that runs, until a switch to it; goes on with `to`.
void sp_emulated_fiber_switch(sp_emulated_fiber &from, sp_emulated_fiber &to);

#endif
