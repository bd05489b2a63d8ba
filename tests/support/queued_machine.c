#include "tests/support/queued_machine.h"

#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#include "backends/host/cpu_runtime.h"
#include "tests/support/queued_work.h"

typedef struct queued_machine {
    sp_runtime base;
    pthread_mutex_t lock; // of the work, also while it is done
    queued_work work;
} queued_machine;

// Whom the thread works for.
static _Thread_local struct {
    const queued_machine *machine;
    int rank;
} entered;

static queued_machine *of(sp_runtime *machine)
{
    return (queued_machine *)(void *)machine;
}

static queued_work *lock(sp_runtime *machine)
{
    pthread_mutex_lock(&of(machine)->lock);
    return &of(machine)->work;
}

static void unlock(sp_runtime *machine)
{
    pthread_mutex_unlock(&of(machine)->lock);
}

static int own_rank(sp_runtime *machine)
{
    SP_ASSERT(entered.machine == of(machine));
    return entered.rank;
}

// The same of its thread's rank, with its work done.
static queued_rank *finish(sp_runtime *machine, queued_work *work)
{
    int rank = own_rank(machine);
    queued_work_finish(work, rank);
    return &work->each[rank];
}

static void put(sp_runtime *machine, queued_piece *piece)
{
    queued_work *work = lock(machine);
    queued_work_put(work, own_rank(machine), piece);
    unlock(machine);
}

// ---- The table ----

static void *allocate(sp_runtime *machine, int64_t bytes)
{
    queued_work *work = lock(machine);
    void *memory = queued_memory_allocate(&work->memory, bytes);
    unlock(machine);
    return memory;
}

static void release(sp_runtime *machine, void *memory)
{
    if (memory == NULL) {
        return;
    }
    queued_work *work = lock(machine);
    queued_block block = queued_memory_block(&work->memory, memory);
    SP_ASSERT(!queued_work_needs(work, &block));
    queued_memory_release(&work->memory, memory);
    unlock(machine);
}

static void enter(sp_runtime *machine, int rank)
{
    SP_ASSERT(rank >= 0 && rank < of(machine)->work.ranks);
    entered.machine = of(machine);
    entered.rank = rank;
}

static void copy_rows(sp_runtime *machine, int64_t rows, int64_t bytes, void *to, int64_t to_stride,
                      const void *from, int64_t from_stride)
{
    queued_piece *piece = queued_piece_new(QUEUED_COPY, NULL, 0);
    piece->rows = rows;
    piece->bytes = bytes;
    piece->to = to;
    piece->to_stride = to_stride;
    piece->from = from;
    piece->from_stride = from_stride;
    put(machine, piece);
}

static void copy(sp_runtime *machine, void *to, const void *from, int64_t bytes)
{
    copy_rows(machine, 1, bytes, to, 0, from, 0);
}

static void fill(sp_runtime *machine, void *to, queued_piece *piece, int64_t bytes)
{
    piece->rows = 1;
    piece->bytes = bytes;
    piece->to = to;
    put(machine, piece);
}

static void zero(sp_runtime *machine, void *to, int64_t bytes)
{
    fill(machine, to, queued_piece_new(QUEUED_ZERO, NULL, 0), bytes);
}

static void upload(sp_runtime *machine, void *to, const void *from, int64_t bytes)
{
    fill(machine, to, queued_piece_new(QUEUED_UPLOAD, from, bytes), bytes);
}

static void download(sp_runtime *machine, void *to, const void *from, int64_t bytes)
{
    queued_work *work = lock(machine);
    finish(machine, work);
    if (bytes > 0) {
        memcpy(to, queued_work_behind(work, from, bytes), (size_t)bytes);
    }
    unlock(machine);
}

static void reduce(sp_runtime *machine, sp_element element, bool maximum, int64_t count,
                   const void *const *in, int members, void *const *out, int outs)
{
    size_t in_bytes = (size_t)members * sizeof *in;
    size_t out_bytes = (size_t)outs * sizeof *out;
    queued_piece *piece = queued_piece_new(QUEUED_REDUCE, NULL, (int64_t)(in_bytes + out_bytes));
    memcpy(piece->own, in, in_bytes);
    memcpy(piece->own + in_bytes, out, out_bytes);
    piece->element = element;
    piece->maximum = maximum;
    piece->count = count;
    piece->members = members;
    piece->outs = outs;
    put(machine, piece);
}

static void sum_of_squares(sp_runtime *machine, sp_element element, int64_t n, const void *x,
                           double *sum)
{
    queued_work *work = lock(machine);
    sp_runtime *cpu = sp_runtime_cpu();
    finish(machine, work);
    cpu->ops->sum_of_squares(cpu, element, n,
                             queued_work_behind(work, x, n * sp_element_bytes(element)), sum);
    unlock(machine);
}

static sp_fence mark(sp_runtime *machine)
{
    queued_work *work = lock(machine);
    int rank = own_rank(machine);
    sp_fence fence = {.rank = rank, .point = work->each[rank].given};
    unlock(machine);
    return fence;
}

static sp_fence mark_later(sp_runtime *machine, int64_t ns)
{
    queued_work *work = lock(machine);
    int rank = own_rank(machine);
    uint64_t stamp = queued_work_stamp(work, rank, ns);
    SP_ASSERT(ns > 0 && work->each[rank].given <= UINT32_MAX);
    sp_fence fence = {.rank = rank, .point = (stamp + 1) << 32 | work->each[rank].given};
    unlock(machine);
    return fence;
}

static void wait(sp_runtime *machine, sp_fence fence)
{
    queued_work *work = lock(machine);
    SP_ASSERT(fence.rank >= 0 && fence.rank < work->ranks);
    SP_ASSERT(queued_work_point(fence) <= work->each[fence.rank].given);
    queued_piece *piece = queued_piece_new(QUEUED_WAIT, NULL, 0);
    piece->fence = fence;
    queued_work_put(work, own_rank(machine), piece);
    unlock(machine);
}

static int64_t now_ns(sp_runtime *machine)
{
    int64_t worked_ns = finish(machine, lock(machine))->worked_ns;
    unlock(machine);
    return worked_ns;
}

static uint64_t stamp(sp_runtime *machine)
{
    uint64_t number = queued_work_stamp(lock(machine), own_rank(machine), 0);
    unlock(machine);
    return number;
}

static int64_t stamp_ns(sp_runtime *machine, uint64_t stamp)
{
    queued_work *work = lock(machine);
    SP_ASSERT(stamp < work->stamp_count && work->stamps[stamp] >= 0);
    int64_t noted_ns = work->stamps[stamp];
    unlock(machine);
    return noted_ns;
}

static sp_status settle(sp_runtime *machine, sp_error *err)
{
    queued_rank *rank = finish(machine, lock(machine));
    bool failed = rank->failed;
    rank->failed = false;
    unlock(machine);
    return failed ? sp_error_set(err, SP_ERR_INTERNAL, "queued work went wrong") : SP_OK;
}

// ---- Beside the table ----

sp_runtime *queued_machine_new(const queued_machine_options *options)
{
    static const sp_runtime_ops ops = {.allocate = allocate,
                                       .release = release,
                                       .enter = enter,
                                       .copy = copy,
                                       .copy_rows = copy_rows,
                                       .zero = zero,
                                       .upload = upload,
                                       .download = download,
                                       .reduce = reduce,
                                       .sum_of_squares = sum_of_squares,
                                       .mark = mark,
                                       .mark_later = mark_later,
                                       .wait = wait,
                                       .now_ns = now_ns,
                                       .stamp = stamp,
                                       .stamp_ns = stamp_ns,
                                       .synchronize = settle};
    queued_machine *made = calloc(1, sizeof *made);
    SP_ASSERT(made != NULL && pthread_mutex_init(&made->lock, NULL) == 0);
    made->base.ops = &ops;
    queued_work_init(&made->work, &made->base, options);
    return &made->base;
}

void queued_machine_free(sp_runtime *machine)
{
    queued_machine *m = of(machine);
    SP_ASSERT(m->work.memory.count == 0);
    queued_work_fini(&m->work);
    pthread_mutex_destroy(&m->lock);
    free(m);
}

void queued_machine_finish(sp_runtime *machine)
{
    finish(machine, lock(machine));
    unlock(machine);
}

void queued_machine_put(sp_runtime *machine, queued_call *call, const void *arguments, size_t bytes)
{
    queued_piece *piece = queued_piece_new(QUEUED_CALL, arguments, (int64_t)bytes);
    piece->call = call;
    put(machine, piece);
}

void *queued_machine_reach(sp_runtime *machine, const void *memory, int64_t bytes)
{
    return queued_work_behind(&of(machine)->work, memory, bytes);
}

void queued_machine_fail(sp_runtime *machine, int rank, int pieces)
{
    lock(machine)->each[rank].fails_in = pieces;
    unlock(machine);
}

int64_t queued_machine_left(sp_runtime *machine, int rank)
{
    const queued_rank *r = &lock(machine)->each[rank];
    int64_t left = (int64_t)(r->given - r->done);
    unlock(machine);
    return left;
}
