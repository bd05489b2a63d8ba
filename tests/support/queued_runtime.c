#include "tests/support/queued_runtime.h"

#include <fcntl.h>
#include <pthread.h>
#include <stdalign.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "backends/host/cpu_runtime.h"
#include "sim/base/alloc.h"
#include "sim/base/prng.h"

// ---- blocks of memory ----

typedef struct queued_block {
    char *address; // where it seems to lie
    char *memory;  // where it lies: there, or, where addresses are guarded, elsewhere
    int64_t bytes;
} queued_block;

typedef struct queued_memory {
    bool guarded;
    queued_block *blocks;
    size_t count, capacity;
} queued_memory;

// All bits set: NaN in every type.
enum { NOT_WRITTEN = 0xff };

static size_t rounded(int64_t bytes)
{
    size_t unit = SP_RUNTIME_ALIGNMENT;
    return ((size_t)bytes + unit) / unit * unit;
}

// Addresses that nothing can be read from or written to.
static char *closed_addresses(size_t bytes)
{
    int zeros = open("/dev/zero", O_RDWR);
    if (zeros < 0) {
        return NULL;
    }
    void *address = mmap(NULL, bytes, PROT_NONE, MAP_PRIVATE, zeros, 0);
    close(zeros);
    return address != MAP_FAILED ? address : NULL;
}

static void *queued_memory_allocate(queued_memory *all, int64_t bytes)
{
    SP_RESERVE(all->blocks, all->capacity, all->count + 1);
    queued_block made = {.memory = aligned_alloc(SP_RUNTIME_ALIGNMENT, rounded(bytes)),
                         .bytes = bytes};
    if (made.memory == NULL) {
        return NULL;
    }
    made.address = all->guarded ? closed_addresses(rounded(bytes)) : made.memory;
    if (made.address == NULL) {
        free(made.memory);
        return NULL;
    }
    memset(made.memory, NOT_WRITTEN, rounded(bytes));
    all->blocks[all->count++] = made;
    return made.address;
}

static size_t index_of(const queued_memory *all, const void *address)
{
    size_t i = 0;
    while (i < all->count && all->blocks[i].address != address) {
        i++;
    }
    SP_ASSERT(i < all->count);
    return i;
}

static queued_block queued_memory_block(const queued_memory *all, const void *address)
{
    return all->blocks[index_of(all, address)];
}

static void queued_memory_release(queued_memory *all, const void *address)
{
    size_t i = index_of(all, address);
    queued_block gone = all->blocks[i];
    all->blocks[i] = all->blocks[--all->count];
    if (all->guarded) {
        munmap(gone.address, rounded(gone.bytes));
    }
    free(gone.memory);
    if (all->count == 0) {
        sp_free(all->blocks);
        *all = (queued_memory){.guarded = all->guarded};
    }
}

static void *queued_memory_behind(const queued_memory *all, const void *address, int64_t bytes)
{
    uintptr_t at = (uintptr_t)address;
    for (size_t i = 0; i < all->count; i++) {
        const queued_block *block = &all->blocks[i];
        uintptr_t begin = (uintptr_t)block->address;
        if (at >= begin && bytes >= 0 && at + (uintptr_t)bytes <= begin + (uintptr_t)block->bytes) {
            return block->memory + (at - begin);
        }
    }
    SP_UNREACHABLE("an address that is not the machine's");
}

// ---- work ----

// Of a rank: how it is put down, and done.
typedef enum queued_kind {
    QUEUED_COPY,
    QUEUED_ZERO,
    QUEUED_UPLOAD,
    QUEUED_REDUCE,
    QUEUED_WAIT,
    QUEUED_STAMP
} queued_kind;

typedef struct queued_piece {
    struct queued_piece *next;
    queued_kind kind;
    int64_t rows, bytes; // written to
    char *to;
    const char *from;
    int64_t to_stride, from_stride;
    sp_element element; // of a reduction
    bool maximum;
    int64_t count;
    int members, outs;
    sp_fence fence;
    uint64_t stamp;
    alignas(max_align_t) char own[]; // what is uploaded, inputs and outputs of a reduction
} queued_piece;

typedef struct queued_rank {
    queued_piece *first, *last;
    uint64_t given, done; // pieces
    int64_t worked_ns;
    int fails_in; // pieces; negative: never
    bool failed;
} queued_rank;

typedef struct queued_work {
    int ranks;
    queued_rank *each;
    queued_memory memory;
    sp_prng prng;
    int64_t now_ns;
    int64_t *stamps; // negative until they are noted
    uint64_t stamp_count;
} queued_work;

enum { PIECE_NS = 1000 };

static void queued_work_init(queued_work *work, const queued_runtime_options *options)
{
    *work = (queued_work){.ranks = options->ranks,
                          .each = sp_calloc((size_t)options->ranks, sizeof *work->each),
                          .memory = {.guarded = options->guarded}};
    for (int r = 0; r < work->ranks; r++) {
        work->each[r].fails_in = -1;
    }
    sp_prng_seed(&work->prng, options->seed);
}

static void queued_work_fini(queued_work *work)
{
    for (int r = 0; r < work->ranks; r++) {
        while (work->each[r].first != NULL) {
            queued_piece *next = work->each[r].first->next;
            sp_free(work->each[r].first);
            work->each[r].first = next;
        }
    }
    sp_free(work->stamps);
    sp_free(work->each);
}

static queued_piece *queued_piece_new(queued_kind kind, const void *own, int64_t bytes)
{
    queued_piece *made = sp_calloc(1, sizeof *made + (size_t)bytes);
    made->kind = kind;
    if (own != NULL) {
        memcpy(made->own, own, (size_t)bytes);
    }
    return made;
}

static void queued_work_put(queued_work *work, int rank, queued_piece *piece)
{
    queued_rank *r = &work->each[rank];
    *(r->last != NULL ? &r->last->next : &r->first) = piece;
    r->last = piece;
    r->given++;
}

static uint64_t queued_work_stamp(queued_work *work, int rank)
{
    queued_piece *piece = queued_piece_new(QUEUED_STAMP, NULL, 0);
    work->stamps = sp_realloc(work->stamps, (work->stamp_count + 1) * sizeof *work->stamps);
    work->stamps[work->stamp_count] = -1;
    piece->stamp = work->stamp_count;
    piece->fence.rank = rank;
    queued_work_put(work, rank, piece);
    return work->stamp_count++;
}

static void *queued_work_behind(const queued_work *work, const void *address, int64_t bytes)
{
    return bytes > 0 ? queued_memory_behind(&work->memory, address, bytes) : NULL;
}

static int64_t span(int64_t rows, int64_t bytes, int64_t stride)
{
    return rows > 0 && bytes > 0 ? (rows - 1) * stride + bytes : 0;
}

// Of the inputs, and behind them the outputs.
static char *operand(const queued_piece *p, int number)
{
    char *address;
    memcpy(&address, p->own + (size_t)number * sizeof address, sizeof address);
    return address;
}

static void reduce_members(const queued_work *work, const queued_piece *p)
{
    int operands = p->members + p->outs;
    void **all = sp_calloc((size_t)operands, sizeof *all);
    const void **in = sp_calloc((size_t)p->members, sizeof *in);
    for (int j = 0; j < operands; j++) {
        all[j] = queued_work_behind(work, operand(p, j), p->count * sp_element_bytes(p->element));
    }
    for (int j = 0; j < p->members; j++) {
        in[j] = all[j];
    }
    sp_runtime *cpu = sp_runtime_cpu();
    cpu->ops->reduce(cpu, p->element, p->maximum, p->count, in, p->members, all + p->members,
                     p->outs);
    sp_free((void *)in);
    sp_free((void *)all);
}

static void take_effect(queued_work *work, const queued_piece *p)
{
    sp_runtime *cpu = sp_runtime_cpu();
    char *to = queued_work_behind(work, p->to, span(p->rows, p->bytes, p->to_stride));
    switch (p->kind) {
    case QUEUED_COPY:
        cpu->ops->copy_rows(
            cpu, p->rows, p->bytes, to, p->to_stride,
            queued_work_behind(work, p->from, span(p->rows, p->bytes, p->from_stride)),
            p->from_stride);
        break;
    case QUEUED_ZERO:
        cpu->ops->zero(cpu, to, p->bytes);
        break;
    case QUEUED_UPLOAD:
        cpu->ops->copy(cpu, to, p->own, p->bytes);
        break;
    case QUEUED_REDUCE:
        reduce_members(work, p);
        break;
    case QUEUED_STAMP:
        work->stamps[p->stamp] = ++work->now_ns;
        break;
    case QUEUED_WAIT:
        break;
    }
}

static bool is_kept_back(const queued_work *work, const queued_piece *p)
{
    return p->kind == QUEUED_WAIT && work->each[p->fence.rank].done < p->fence.point;
}

// What has gone wrong takes no effect, but order and time remain.
static void do_first(queued_work *work, queued_rank *r)
{
    queued_piece *p = r->first;
    bool works = p->kind != QUEUED_WAIT && p->kind != QUEUED_STAMP;
    r->first = p->next;
    r->last = r->first != NULL ? r->last : NULL;
    if (works && r->fails_in >= 0 && r->fails_in-- == 0) {
        r->failed = true;
    }
    if (!works || !r->failed) {
        take_effect(work, p);
    }
    if (works) {
        int64_t reduced = p->outs * p->count * sp_element_bytes(p->element);
        int64_t cost_ns = PIECE_NS + p->rows * p->bytes + reduced;
        r->worked_ns += cost_ns;
        work->now_ns += cost_ns;
    }
    r->done++;
    sp_free(p);
}

// One piece, of the rank or of one that it waits for: fences were marked before they were waited
// for, so they never form a circle.
static void do_for(queued_work *work, int rank)
{
    while (is_kept_back(work, work->each[rank].first)) {
        rank = work->each[rank].first->fence.rank;
    }
    do_first(work, &work->each[rank]);
}

static void queued_work_finish(queued_work *work, int rank)
{
    bool only_needed = sp_prng_below(&work->prng, 3) > 0;
    while (work->each[rank].first != NULL) {
        int other = (int)sp_prng_below(&work->prng, (uint64_t)work->ranks);
        bool needed = only_needed || work->each[other].first == NULL;
        do_for(work, needed ? rank : other);
    }
}

static bool meets(const queued_block *block, const char *begin, int64_t bytes)
{
    uintptr_t at = (uintptr_t)begin;
    uintptr_t first = (uintptr_t)block->address;
    return bytes > 0 && at < first + (uintptr_t)block->bytes && at + (uintptr_t)bytes > first;
}

static bool needs(const queued_piece *p, const queued_block *block)
{
    bool reads =
        p->kind == QUEUED_COPY && meets(block, p->from, span(p->rows, p->bytes, p->from_stride));
    for (int j = 0; j < p->members + p->outs; j++) {
        reads = reads || meets(block, operand(p, j), p->count * sp_element_bytes(p->element));
    }
    return reads || meets(block, p->to, span(p->rows, p->bytes, p->to_stride));
}

static bool queued_work_needs(const queued_work *work, const queued_block *block)
{
    for (int r = 0; r < work->ranks; r++) {
        for (const queued_piece *p = work->each[r].first; p != NULL; p = p->next) {
            if (needs(p, block)) {
                return true;
            }
        }
    }
    return false;
}

// ---- the machine ----

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
    queued_runtime *made = sp_calloc(1, sizeof *made);
    SP_ASSERT(pthread_mutex_init(&made->lock, NULL) == 0);
    made->base.ops = &ops;
    queued_work_init(&made->work, options);
    return &made->base;
}

void queued_runtime_free(sp_runtime *runtime)
{
    queued_runtime *m = of(runtime);
    SP_ASSERT(m->work.memory.count == 0);
    queued_work_fini(&m->work);
    pthread_mutex_destroy(&m->lock);
    sp_free(m);
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
