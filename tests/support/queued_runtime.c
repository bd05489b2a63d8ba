#include "tests/support/queued_runtime.h"

#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#include "backends/host/cpu_runtime.h"
#include "tests/support/queued_work.h"

typedef struct queued_runtime {
    sp_runtime base;
    pthread_mutex_t lock; // of the work, also while it is done
    queued_work work;
} queued_runtime;

// Whom the thread works for.
static _Thread_local struct {
    const queued_runtime *runtime;
    int rank;
} entered;

static queued_runtime *of(sp_runtime *runtime)
{
    return (queued_runtime *)(void *)runtime;
}

static queued_work *lock(sp_runtime *runtime)
{
    pthread_mutex_lock(&of(runtime)->lock);
    return &of(runtime)->work;
}

static void unlock(sp_runtime *runtime)
{
    pthread_mutex_unlock(&of(runtime)->lock);
}

static int own_rank(sp_runtime *runtime)
{
    SP_ASSERT(entered.runtime == of(runtime));
    return entered.rank;
}

// The same of its thread's rank, with its work done.
static queued_rank *finish(sp_runtime *runtime, queued_work *work)
{
    int rank = own_rank(runtime);
    queued_work_finish(work, rank);
    return &work->each[rank];
}

static void put(sp_runtime *runtime, queued_piece *piece)
{
    queued_work *work = lock(runtime);
    queued_work_put(work, own_rank(runtime), piece);
    unlock(runtime);
}

// ---- The table ----

static void *allocate(sp_runtime *runtime, int64_t bytes)
{
    queued_work *work = lock(runtime);
    void *memory = queued_memory_allocate(&work->memory, bytes);
    unlock(runtime);
    return memory;
}

static void release(sp_runtime *runtime, void *memory)
{
    if (memory == NULL) {
        return;
    }
    queued_work *work = lock(runtime);
    queued_block block = queued_memory_block(&work->memory, memory);
    SP_ASSERT(!queued_work_needs(work, &block));
    queued_memory_release(&work->memory, memory);
    unlock(runtime);
}

static void enter(sp_runtime *runtime, int rank)
{
    SP_ASSERT(rank >= 0 && rank < of(runtime)->work.ranks);
    entered.runtime = of(runtime);
    entered.rank = rank;
}

static void copy_rows(sp_runtime *runtime, int64_t rows, int64_t bytes, void *to, int64_t to_stride,
                      const void *from, int64_t from_stride)
{
    queued_piece *piece = queued_piece_new(QUEUED_COPY, NULL, 0);
    piece->rows = rows;
    piece->bytes = bytes;
    piece->to = to;
    piece->to_stride = to_stride;
    piece->from = from;
    piece->from_stride = from_stride;
    put(runtime, piece);
}

static void copy(sp_runtime *runtime, void *to, const void *from, int64_t bytes)
{
    copy_rows(runtime, 1, bytes, to, 0, from, 0);
}

static void fill(sp_runtime *runtime, void *to, queued_piece *piece, int64_t bytes)
{
    piece->rows = 1;
    piece->bytes = bytes;
    piece->to = to;
    put(runtime, piece);
}

static void zero(sp_runtime *runtime, void *to, int64_t bytes)
{
    fill(runtime, to, queued_piece_new(QUEUED_ZERO, NULL, 0), bytes);
}

static void upload(sp_runtime *runtime, void *to, const void *from, int64_t bytes)
{
    fill(runtime, to, queued_piece_new(QUEUED_UPLOAD, from, bytes), bytes);
}

static void download(sp_runtime *runtime, void *to, const void *from, int64_t bytes)
{
    queued_work *work = lock(runtime);
    finish(runtime, work);
    if (bytes > 0) {
        memcpy(to, queued_work_behind(work, from, bytes), (size_t)bytes);
    }
    unlock(runtime);
}

static void reduce(sp_runtime *runtime, sp_element element, bool maximum, int64_t count,
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
    put(runtime, piece);
}

static void sum_of_squares(sp_runtime *runtime, sp_element element, int64_t n, const void *x,
                           double *sum)
{
    queued_work *work = lock(runtime);
    sp_runtime *cpu = sp_runtime_cpu();
    finish(runtime, work);
    cpu->ops->sum_of_squares(cpu, element, n,
                             queued_work_behind(work, x, n * sp_element_bytes(element)), sum);
    unlock(runtime);
}

static sp_fence mark(sp_runtime *runtime)
{
    queued_work *work = lock(runtime);
    int rank = own_rank(runtime);
    sp_fence fence = {.rank = rank, .point = work->each[rank].given};
    unlock(runtime);
    return fence;
}

static void wait(sp_runtime *runtime, sp_fence fence)
{
    queued_work *work = lock(runtime);
    SP_ASSERT(fence.rank >= 0 && fence.rank < work->ranks);
    SP_ASSERT(fence.point <= work->each[fence.rank].given);
    queued_piece *piece = queued_piece_new(QUEUED_WAIT, NULL, 0);
    piece->fence = fence;
    queued_work_put(work, own_rank(runtime), piece);
    unlock(runtime);
}

static int64_t now_ns(sp_runtime *runtime)
{
    int64_t worked_ns = finish(runtime, lock(runtime))->worked_ns;
    unlock(runtime);
    return worked_ns;
}

static uint64_t stamp(sp_runtime *runtime)
{
    uint64_t number = queued_work_stamp(lock(runtime), own_rank(runtime));
    unlock(runtime);
    return number;
}

static int64_t stamp_ns(sp_runtime *runtime, uint64_t stamp)
{
    queued_work *work = lock(runtime);
    SP_ASSERT(stamp < work->stamp_count && work->stamps[stamp] >= 0);
    int64_t noted_ns = work->stamps[stamp];
    unlock(runtime);
    return noted_ns;
}

static sp_status synchronize(sp_runtime *runtime, sp_error *err)
{
    queued_rank *rank = finish(runtime, lock(runtime));
    bool failed = rank->failed;
    rank->failed = false;
    unlock(runtime);
    return failed ? sp_error_set(err, SP_ERR_INTERNAL, "queued work went wrong") : SP_OK;
}

// ---- Beside the table ----

sp_runtime *queued_runtime_new(const queued_runtime_options *options)
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
                                       .wait = wait,
                                       .now_ns = now_ns,
                                       .stamp = stamp,
                                       .stamp_ns = stamp_ns,
                                       .synchronize = synchronize};
    queued_runtime *made = calloc(1, sizeof *made);
    SP_ASSERT(made != NULL && pthread_mutex_init(&made->lock, NULL) == 0);
    made->base.ops = &ops;
    queued_work_init(&made->work, &made->base, options);
    return &made->base;
}

void queued_runtime_free(sp_runtime *runtime)
{
    queued_runtime *m = of(runtime);
    SP_ASSERT(m->work.memory.count == 0);
    queued_work_fini(&m->work);
    pthread_mutex_destroy(&m->lock);
    free(m);
}

void queued_runtime_finish(sp_runtime *runtime)
{
    finish(runtime, lock(runtime));
    unlock(runtime);
}

void queued_runtime_put(sp_runtime *runtime, queued_call *call, const void *arguments, size_t bytes)
{
    queued_piece *piece = queued_piece_new(QUEUED_CALL, arguments, (int64_t)bytes);
    piece->call = call;
    put(runtime, piece);
}

void *queued_runtime_reach(sp_runtime *runtime, const void *memory, int64_t bytes)
{
    return queued_work_behind(&of(runtime)->work, memory, bytes);
}

void queued_runtime_fail(sp_runtime *runtime, int rank, int pieces)
{
    lock(runtime)->each[rank].fails_in = pieces;
    unlock(runtime);
}

int64_t queued_runtime_left(sp_runtime *runtime, int rank)
{
    const queued_rank *r = &lock(runtime)->each[rank];
    int64_t left = (int64_t)(r->given - r->done);
    unlock(runtime);
    return left;
}
