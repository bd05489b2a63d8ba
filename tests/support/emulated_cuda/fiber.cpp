#include "tests/support/emulated_cuda/fiber.h"

#include <cstdint>

// Defined where the kernels are built with AddressSanitizer.
#ifdef SP_EMULATED_ASAN
#include <sanitizer/common_interface_defs.h>
#endif

namespace
{

const size_t STACK_BYTES = 64 * 1024;

// Of the switch under way.
sp_emulated_fiber *left;
sp_emulated_fiber *entered;

// AddressSanitizer follows which stack is in use; `kept` is its own of the flow that arrives.
void arrive(void *kept)
{
#ifdef SP_EMULATED_ASAN
    __sanitizer_finish_switch_fiber(kept, &left->bounds, &left->bounds_bytes);
#else
    (void)kept;
#endif
}

void enter()
{
    arrive(nullptr);
    entered->main();
}

} // namespace

#ifdef SP_EMULATED_FAST_SWITCH

// System V ABI, AMD64 supplement, figure 3.4: the registers that a call preserves. The control
// words of the floating-point units are the same in all flows.
extern "C" void sp_emulated_swap_stacks(void **stopped, void *to);
asm(".pushsection .text\n"
    ".type sp_emulated_swap_stacks, @function\n"
    "sp_emulated_swap_stacks:\n"
    "    pushq %rbp\n"
    "    pushq %rbx\n"
    "    pushq %r12\n"
    "    pushq %r13\n"
    "    pushq %r14\n"
    "    pushq %r15\n"
    "    movq %rsp, (%rdi)\n"
    "    movq %rsi, %rsp\n"
    "    popq %r15\n"
    "    popq %r14\n"
    "    popq %r13\n"
    "    popq %r12\n"
    "    popq %rbx\n"
    "    popq %rbp\n"
    "    ret\n"
    ".size sp_emulated_swap_stacks, . - sp_emulated_swap_stacks\n"
    ".popsection\n");

static void prepare(sp_emulated_fiber &made)
{
    const int REGISTERS = 6;
    uintptr_t *top = reinterpret_cast<uintptr_t *>(made.stack.get() + STACK_BYTES);
    *--top = 0; // a return address, which also aligns the stack as a call does
    *--top = reinterpret_cast<uintptr_t>(enter);
    for (int i = 0; i < REGISTERS; i++) {
        *--top = 0;
    }
    made.stopped = top;
}

static void swap(sp_emulated_fiber &from, sp_emulated_fiber &to)
{
    sp_emulated_swap_stacks(&from.stopped, to.stopped);
}

#else

static void prepare(sp_emulated_fiber &made)
{
    getcontext(&made.stopped);
    made.stopped.uc_stack.ss_sp = made.stack.get();
    made.stopped.uc_stack.ss_size = STACK_BYTES;
    made.stopped.uc_link = nullptr;
    makecontext(&made.stopped, enter, 0);
}

static void swap(sp_emulated_fiber &from, sp_emulated_fiber &to)
{
    swapcontext(&from.stopped, &to.stopped);
}

#endif

void sp_emulated_fiber_make(sp_emulated_fiber &made, void (*main)())
{
    made.main = main;
    made.stack.reset(new unsigned char[STACK_BYTES]);
    made.bounds = made.stack.get();
    made.bounds_bytes = STACK_BYTES;
    prepare(made);
}

void sp_emulated_fiber_switch(sp_emulated_fiber &from, sp_emulated_fiber &to)
{
    void *kept = nullptr;
#ifdef SP_EMULATED_ASAN
    __sanitizer_start_switch_fiber(&kept, to.bounds, to.bounds_bytes);
#endif
    left = &from;
    entered = &to;
    swap(from, to);
    arrive(kept);
}
