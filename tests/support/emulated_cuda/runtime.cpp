#include "tests/support/emulated_cuda/runtime.h"

#include "tests/support/emulated_cuda/fiber.h"

#include <cstdio>
#include <cstdlib>
#include <memory>
#include <mutex>
#include <vector>

dim3 threadIdx(0, 0, 0), blockIdx, blockDim, gridDim;
long sp_emulated_launches = -1;
bool sp_emulated_skips;
void (*sp_emulated_put)(void *stream, void (*work)(void *context), void *context,
                        const stream_range *ranges, size_t count);

namespace
{

const unsigned WARP = 32;

// What the lanes of a warp compute together, given what each brought.
typedef void (*warp_operation)(void *const brought[WARP]);

const size_t MOST_SHARED_BYTES = 227 * 1024; // of compute capability 9.0

enum class at { start, running, barrier, collective, end };

struct cuda_thread {
    sp_emulated_fiber *fiber; // from the start to the end
    at where;
    warp_operation operation;
    void *brings;
};

std::vector<cuda_thread> block; // as many as the largest so far
// Only threads that wait for others need one each: who ends leaves it to the next that starts.
std::vector<std::unique_ptr<sp_emulated_fiber>> fibers;
std::vector<sp_emulated_fiber *> idle;
sp_emulated_fiber scheduler;
cuda_thread *current;

// A turn of a warp: each lane that may go on does so once, until it waits again or ends.
struct {
    unsigned first; // thread of the warp
    unsigned drawn; // the lane that begins
    unsigned seen;  // lanes so far
    bool met, released;
    bool moved;
} turn;

const std::function<void()> *body;
std::vector<unsigned char> shared_room;
unsigned char *shared;
size_t shared_size;
uint64_t draw = 1;

void fiber_main();

[[noreturn]] void fail(const char *what)
{
    fprintf(stderr, "emulated CUDA: block %u, thread %u: %s\n", blockIdx.x, threadIdx.x, what);
    abort();
}

sp_emulated_fiber *take_fiber()
{
    if (idle.empty()) {
        fibers.emplace_back(new sp_emulated_fiber());
        sp_emulated_fiber_make(*fibers.back(), fiber_main);
        return fibers.back().get();
    }
    sp_emulated_fiber *taken = idle.back();
    idle.pop_back();
    return taken;
}

// Where lanes have met, all of them go on.
cuda_thread *next_of_turn()
{
    while (turn.seen < WARP) {
        unsigned thread = turn.first + (turn.drawn + turn.seen++) % WARP;
        cuda_thread &next = block[thread];
        if (turn.met || next.where == at::start || (next.where == at::barrier && turn.released)) {
            threadIdx.x = thread;
            return &next;
        }
    }
    return nullptr;
}

// Goes on with the next thread of the turn, after the last with the scheduler.
void leave(sp_emulated_fiber &from)
{
    sp_emulated_fiber *to = &scheduler;
    current = next_of_turn();
    if (current != nullptr) {
        if (current->where == at::start) {
            current->fiber = take_fiber();
        }
        current->where = at::running;
        turn.moved = true;
        to = current->fiber;
    }
    if (to != &from) {
        sp_emulated_fiber_switch(from, *to);
    }
}

void pause_as(at where)
{
    current->where = where;
    leave(*current->fiber);
}

void fiber_main()
{
    for (;;) {
        (*body)();
        idle.push_back(current->fiber);
        pause_as(at::end);
    }
}

// xorshift64 (Marsaglia: "Xorshift RNGs", 2003).
unsigned below(unsigned n)
{
    draw ^= draw << 13;
    draw ^= draw >> 7;
    draw ^= draw << 17;
    return static_cast<unsigned>(draw >> 33) % n;
}

bool resolve_warp(unsigned first)
{
    void *brought[WARP];
    for (unsigned context = 0; context < WARP; context++) {
        const cuda_thread &mine = block[first + context];
        if (mine.where != at::collective) {
            return false;
        }
        if (mine.operation != block[first].operation) {
            fail("lanes of a warp at different instructions");
        }
        brought[context] = mine.brings;
    }
    block[first].operation(brought);
    return true;
}

// Runs the warp's lanes as far as they go without the other warps.
bool run_warp(unsigned first, bool released)
{
    bool moved = false;
    do {
        turn = {};
        turn.first = first;
        turn.met = resolve_warp(first);
        turn.released = released;
        turn.drawn = below(WARP);
        leave(scheduler);
        released = false;
        moved |= turn.moved;
    } while (turn.moved);
    return moved;
}

void run_block(unsigned threads)
{
    unsigned warps = threads / WARP;
    for (unsigned t = 0; t < threads; t++) {
        block[t].where = at::start;
    }
    bool released = false;
    for (;;) {
        bool moved = false;
        unsigned drawn = below(warps);
        for (unsigned w = 0; w < warps; w++) {
            moved |= run_warp((drawn + w) % warps * WARP, released);
        }
        unsigned ended = 0;
        unsigned waiting = 0;
        for (unsigned t = 0; t < threads; t++) {
            ended += block[t].where == at::end;
            waiting += block[t].where == at::barrier;
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

std::mutex device; // launches of several host threads take turns

struct launch {
    dim3 grid;
    unsigned threads;
    size_t shared_bytes;
    std::function<void()> thread;
};

void run_grid(const launch &l)
{
    if (block.size() < l.threads) {
        block.resize(l.threads);
    }
    shared_room.assign(l.shared_bytes + 128, 0xff);
    shared = shared_room.data() + 128 - reinterpret_cast<uintptr_t>(shared_room.data()) % 128;
    shared_size = l.shared_bytes;
    body = &l.thread;
    blockDim = dim3(l.threads);
    gridDim = l.grid;
    for (unsigned z = 0; z < l.grid.z; z++) {
        for (unsigned y = 0; y < l.grid.y; y++) {
            for (unsigned x = 0; x < l.grid.x; x++) {
                blockIdx = dim3(x, y, z);
                memset(shared, 0xff, shared_size);
                run_block(l.threads);
            }
        }
    }
}

void run_later(void *context)
{
    const std::unique_ptr<launch> l(static_cast<launch *>(context));
    const std::lock_guard<std::mutex> held(device);
    run_grid(*l);
}

// Whether a launch is the one that is to fail.
bool fails_now()
{
    const std::lock_guard<std::mutex> held(device);
    return sp_emulated_launches >= 0 && sp_emulated_launches-- == 0;
}

} // namespace

int sp_i_emulated_launch(dim3 grid, int block_threads, size_t shared_bytes, void *stream,
                         const std::function<void()> &thread,
                         const std::vector<stream_range> &ranges)
{
    if (fails_now()) {
        return 1;
    }
    unsigned threads = static_cast<unsigned>(block_threads);
    if (block_threads < 1 || threads > 1024 || threads % WARP != 0 ||
        shared_bytes > MOST_SHARED_BYTES || grid.x < 1 || grid.y < 1 || grid.z < 1 ||
        grid.x > 0x7fffffffU || grid.y > 65535 || grid.z > 65535) {
        return 1;
    }
    if (sp_emulated_skips) {
        return 0;
    }
    launch *made = new launch{grid, threads, shared_bytes, thread};
    if (sp_emulated_put != nullptr) {
        sp_emulated_put(stream, run_later, made, ranges.data(), ranges.size());
    } else {
        run_later(made);
    }
    return 0;
}

unsigned char *sp_i_shared()
{
    return shared;
}

namespace
{

// The calling lane waits until all lanes of its warp brought something to the same operation, which
// is then held once.
void warp_collective(warp_operation operation, void *brings)
{
    current->operation = operation;
    current->brings = brings;
    pause_as(at::collective);
}

template <class T> struct exchanged {
    T mine, other;
    int mask;
};

template <class T> void resolve_exchange(void *const brought[WARP])
{
    for (unsigned context = 0; context < WARP; context++) {
        exchanged<T> *e = static_cast<exchanged<T> *>(brought[context]);
        e->other =
            static_cast<exchanged<T> *>(brought[context ^ static_cast<unsigned>(e->mask)])->mine;
    }
}

template <class T> T exchange(T x, int mask)
{
    exchanged<T> e = {x, x, mask};
    warp_collective(resolve_exchange<T>, &e);
    return e.other;
}

} // namespace

float sp_i_exchange(float x, int mask)
{
    return exchange(x, mask);
}

double sp_i_exchange(double x, int mask)
{
    return exchange(x, mask);
}

void __syncthreads()
{
    pause_as(at::barrier);
}
