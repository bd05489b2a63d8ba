#include "tests/support/emulated_cuda/warp.h"

#include <cstdio>
#include <cstdlib>
#include <memory>
#include <vector>

#include <ucontext.h>

dim3 threadIdx, blockIdx, blockDim, gridDim;

namespace
{

const int WARP = SP_EMULATED_WARP;
const size_t STACK_BYTES = 64 * 1024;
const size_t MOST_SHARED_BYTES = 227 * 1024; // of compute capability 9.0
const size_t COPY_BYTES = 16;

enum class at { start, running, barrier, meeting, end };

struct copy {
    void *to;
    const void *from;
    bool valid;
};

struct fiber {
    ucontext_t context;
    std::unique_ptr<unsigned char[]> stack;
    at where;
    sp_emulated_meeting meets;
    void *brings;
    std::vector<copy> open;                // not yet in a group
    std::vector<std::vector<copy>> groups; // not yet arrived
};

std::vector<fiber> fibers; // as many as the largest block so far
ucontext_t scheduler;
fiber *current;
const std::function<void()> *body;
std::vector<unsigned char> shared_room;
unsigned char *shared;
size_t shared_size;
uint64_t draw = 1;

[[noreturn]] void fail(const char *what)
{
    fprintf(stderr, "emulated CUDA: block %u, thread %u: %s\n", blockIdx.x, threadIdx.x, what);
    abort();
}

void pause_as(at where)
{
    current->where = where;
    swapcontext(&current->context, &scheduler);
}

void fiber_main()
{
    (*body)();
    if (!current->open.empty()) {
        fail("copies that no group holds");
    }
    current->groups.clear();
    pause_as(at::end);
}

void start(fiber &f)
{
    if (!f.stack) {
        f.stack.reset(new unsigned char[STACK_BYTES]);
    }
    getcontext(&f.context);
    f.context.uc_stack.ss_sp = f.stack.get();
    f.context.uc_stack.ss_size = STACK_BYTES;
    f.context.uc_link = nullptr;
    makecontext(&f.context, fiber_main, 0);
    f.where = at::start;
}

void run(int thread)
{
    current = &fibers[static_cast<size_t>(thread)];
    threadIdx = dim3(static_cast<unsigned>(thread), 0, 0);
    current->where = at::running;
    swapcontext(&scheduler, &current->context);
}

// xorshift64 (Marsaglia: "Xorshift RNGs", 2003).
unsigned below(unsigned n)
{
    draw ^= draw << 13;
    draw ^= draw >> 7;
    draw ^= draw << 17;
    return static_cast<unsigned>(draw >> 33) % n;
}

bool resolve_warp(int first)
{
    void *brought[WARP];
    for (int lane = 0; lane < WARP; lane++) {
        fiber &f = fibers[static_cast<size_t>(first + lane)];
        if (f.where != at::meeting) {
            return false;
        }
        if (f.meets != fibers[static_cast<size_t>(first)].meets) {
            fail("lanes of a warp at different instructions");
        }
        brought[lane] = f.brings;
    }
    fibers[static_cast<size_t>(first)].meets(brought);
    return true;
}

// Runs the warp's lanes as far as they go without the other warps.
bool run_warp(int first, bool released)
{
    bool moved = false;
    for (bool go = true; go;) {
        go = false;
        bool met = resolve_warp(first);
        unsigned turn = below(WARP);
        for (int i = 0; i < WARP; i++) {
            int thread = first + static_cast<int>((static_cast<unsigned>(i) + turn) % WARP);
            at where = fibers[static_cast<size_t>(thread)].where;
            if (where == at::start || (where == at::meeting && met) ||
                (where == at::barrier && released)) {
                run(thread);
                go = true;
            }
        }
        released = false;
        moved |= go;
    }
    return moved;
}

void run_block(int threads)
{
    int warps = threads / WARP;
    for (int t = 0; t < threads; t++) {
        start(fibers[static_cast<size_t>(t)]);
    }
    bool released = false;
    for (;;) {
        bool moved = false;
        unsigned turn = below(static_cast<unsigned>(warps));
        for (int w = 0; w < warps; w++) {
            int warp =
                static_cast<int>((static_cast<unsigned>(w) + turn) % static_cast<unsigned>(warps));
            moved |= run_warp(warp * WARP, released);
        }
        int ended = 0;
        int waiting = 0;
        for (int t = 0; t < threads; t++) {
            ended += fibers[static_cast<size_t>(t)].where == at::end;
            waiting += fibers[static_cast<size_t>(t)].where == at::barrier;
        }
        if (ended == threads) {
            return;
        }
        released = waiting == threads;
        if (!released && !moved) {
            fail("threads of a block that wait for each other");
        }
    }
}

} // namespace

int sp_i_emulated_launch(dim3 grid, int threads, size_t shared_bytes,
                         const std::function<void()> &thread)
{
    if (threads < 1 || threads > 1024 || threads % WARP != 0 || shared_bytes > MOST_SHARED_BYTES ||
        grid.x < 1 || grid.y < 1 || grid.z < 1 || grid.x > 0x7fffffffU || grid.y > 65535 ||
        grid.z > 65535) {
        return 1;
    }
    if (fibers.size() < static_cast<size_t>(threads)) {
        fibers = std::vector<fiber>(static_cast<size_t>(threads));
    }
    shared_room.assign(shared_bytes + 128, 0xff);
    shared = shared_room.data() + 128 - reinterpret_cast<uintptr_t>(shared_room.data()) % 128;
    shared_size = shared_bytes;
    body = &thread;
    blockDim = dim3(static_cast<unsigned>(threads));
    gridDim = grid;
    for (unsigned z = 0; z < grid.z; z++) {
        for (unsigned y = 0; y < grid.y; y++) {
            for (unsigned x = 0; x < grid.x; x++) {
                blockIdx = dim3(x, y, z);
                memset(shared, 0xff, shared_size);
                run_block(threads);
            }
        }
    }
    return 0;
}

unsigned char *sp_i_shared()
{
    return shared;
}

void sp_emulated_meet(sp_emulated_meeting meets, void *brings)
{
    current->meets = meets;
    current->brings = brings;
    pause_as(at::meeting);
}

void sp_emulated_check_shared(const void *pointer, size_t bytes)
{
    const unsigned char *from = static_cast<const unsigned char *>(pointer);
    if (from < shared || from + bytes > shared + shared_size) {
        fail("an address outside of the block's shared memory");
    }
    if (reinterpret_cast<uintptr_t>(pointer) % bytes != 0) {
        fail("a shared address that is not aligned");
    }
}

void __syncthreads()
{
    pause_as(at::barrier);
}

// ---- Asynchronous copies ----

void sp_i_copy_async(void *to, const void *from, bool valid)
{
    sp_emulated_check_shared(to, COPY_BYTES);
    if (reinterpret_cast<uintptr_t>(from) % COPY_BYTES != 0) {
        fail("a copy from an address that is not aligned");
    }
    memset(to, 0xff, COPY_BYTES);
    current->open.push_back({to, from, valid});
}

void sp_i_copy_commit()
{
    current->groups.push_back(current->open);
    current->open.clear();
}

void sp_i_emulated_copy_wait(int pending)
{
    while (current->groups.size() > static_cast<size_t>(pending)) {
        for (const copy &c : current->groups.front()) {
            if (c.valid) {
                memcpy(c.to, c.from, COPY_BYTES);
            } else {
                memset(c.to, 0, COPY_BYTES);
            }
        }
        current->groups.erase(current->groups.begin());
    }
}
