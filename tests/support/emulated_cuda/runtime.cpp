#include "tests/support/emulated_cuda/runtime.h"

#include "tests/support/emulated_cuda/fiber.h"

#include <cstdio>
#include <cstdlib>
#include <map>
#include <memory>
#include <mutex>
#include <vector>

dim3 threadIdx(0, 0, 0), blockIdx, blockDim, gridDim;
long sp_emulated_launches = -1;
bool sp_emulated_skips;
void (*sp_emulated_put)(void *stream, void (*work)(void *context), void *context);

int sp_cuda_kernels_load(const struct sp_cuda_api *)
{
    return 0;
}

namespace
{

const unsigned WARP = 32;

// What the lanes of a warp compute together, given what each brought.
typedef void (*warp_operation)(void *const brought[WARP]);

const size_t MOST_SHARED_BYTES = 227 * 1024; // of compute capability 9.0
const size_t MOST_ARRAY_BYTES = 48 * 1024;   // of shared arrays of a kernel, on any GPU
const unsigned MOST_THREADS = 1024;          // of a block

enum class at { start, running, barrier, collective, end };

struct cuda_thread {
    sp_emulated_fiber *fiber; // from the start to the end
    at where;
    warp_operation operation;
    void *brings;
};

cuda_thread block[MOST_THREADS];

struct shared_array {
    const void *key;
    size_t begin;
};

// What a running kernel has beside the device's memory.
struct room {
    // Only threads that wait for others need one each: who ends leaves it to the next that starts.
    std::vector<std::unique_ptr<sp_emulated_fiber>> fibers;
    std::vector<sp_emulated_fiber *> idle;
    std::vector<unsigned char> dynamic; // shared memory
    std::vector<unsigned char> array_room;
    std::vector<shared_array> arrays;
    size_t arrays_end;
};
room *here;

// Where accesses are followed, kernels of two streams must not meet in memory that they only seem
// to share: one of each stream is in use, else one for all.
room &room_of(void *stream)
{
    static std::map<void *, room> rooms;
#ifndef SP_FOLLOWED
    stream = nullptr;
#endif
    return rooms[stream];
}

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
    if (here->idle.empty()) {
        here->fibers.emplace_back(new sp_emulated_fiber());
        sp_emulated_fiber_make(*here->fibers.back(), fiber_main);
        return here->fibers.back().get();
    }
    sp_emulated_fiber *taken = here->idle.back();
    here->idle.pop_back();
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
        here->idle.push_back(current->fiber);
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
    void *stream;
    std::function<void()> thread;
};

void run_grid(const launch &l)
{
    here = &room_of(l.stream);
    here->dynamic.assign(l.shared_bytes + 128, 0xff);
    here->array_room.resize(MOST_ARRAY_BYTES);
    here->arrays.clear();
    here->arrays_end = 0;
    shared = here->dynamic.data() + 128 - reinterpret_cast<uintptr_t>(here->dynamic.data()) % 128;
    shared_size = l.shared_bytes;
    body = &l.thread;
    blockDim = dim3(l.threads);
    gridDim = l.grid;
    for (unsigned z = 0; z < l.grid.z; z++) {
        for (unsigned y = 0; y < l.grid.y; y++) {
            for (unsigned x = 0; x < l.grid.x; x++) {
                blockIdx = dim3(x, y, z);
                memset(shared, 0xff, shared_size);
                memset(here->array_room.data(), 0xff, here->arrays_end);
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
                         const std::function<void()> &thread)
{
    if (fails_now()) {
        return 1;
    }
    unsigned threads = static_cast<unsigned>(block_threads);
    if (block_threads < 1 || threads > MOST_THREADS || threads % WARP != 0 ||
        shared_bytes > MOST_SHARED_BYTES || grid.x < 1 || grid.y < 1 || grid.z < 1 ||
        grid.x > 0x7fffffffU || grid.y > 65535 || grid.z > 65535) {
        return 1;
    }
    if (sp_emulated_skips) {
        return 0;
    }
    launch *made = new launch{grid, threads, shared_bytes, stream, thread};
    if (sp_emulated_put != nullptr) {
        sp_emulated_put(stream, run_later, made);
    } else {
        run_later(made);
    }
    return 0;
}

unsigned char *sp_i_shared()
{
    return shared;
}

unsigned char *sp_i_shared_array(const void *key, size_t bytes)
{
    for (const shared_array &made : here->arrays) {
        if (made.key == key) {
            return here->array_room.data() + made.begin;
        }
    }
    const size_t begin = here->arrays_end;
    here->arrays_end += (bytes + 15) / 16 * 16;
    if (here->arrays_end > MOST_ARRAY_BYTES) {
        fail("more shared arrays than a block can have");
    }
    here->arrays.push_back({key, begin});
    memset(here->array_room.data() + begin, 0xff, bytes);
    return here->array_room.data() + begin;
}

namespace
{
int64_t timer_ns = 1000000;
}

int64_t sp_i_timer_ns()
{
    return timer_ns += 32;
}

void sp_pause(unsigned ns)
{
    timer_ns += ns;
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
