// One GPU as the device runtime of a run: the ranks' streams and what the ranks of one stream
// share, memory as parts of one block of the device, order between ranks, and times on the GPU's
// clock.
#include "backends/cuda/runtime.h"

#include <errno.h>
#include <math.h>
#include <pthread.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include "backends/api/device_runtime.h"
#include "kernels/cuda_kernels.h"
#include "sim/base/alloc.h"
#include "sim/base/units.h"

#if defined(__has_include)
#if __has_include(<nvtx3/nvToolsExt.h>)
#define WITH_NVTX
#include <nvtx3/nvToolsExt.h>
#endif
#endif

// ---- The arena ----

// Two-level segregated fit (Masmano et al., TLSF, ECRTS 2004): gaps stand in lists by the logarithm
// of their length, in FINE steps each; a bit for each list that is not empty finds one in O(1).
enum { FINE_BITS = 4, FINE = 1 << FINE_BITS, COARSE = 48, HASH_BITS = 10 };

// A block or a gap. Neighbours in memory are linked, and two gaps are never neighbours.
typedef struct segment {
    int64_t begin, length; // units of SP_RUNTIME_ALIGNMENT
    struct segment *before, *after;
    struct segment *previous, *next; // in its list of gaps, of blocks, or among unused records
    bool gap;
} segment;

struct sp_i_cuda_arena {
    char *base;
    uint64_t coarse;
    uint32_t fine[COARSE];
    segment *gaps[COARSE][FINE];
    segment *blocks[1 << HASH_BITS]; // by where they begin
    segment *first, *unused;
    int64_t held, peak; // units
};

static segment *new_record(sp_i_cuda_arena *arena)
{
    segment *s = arena->unused;
    if (s != NULL) {
        arena->unused = s->next;
        *s = (segment){0};
        return s;
    }
    return sp_calloc(1, sizeof *s);
}

static void drop_record(sp_i_cuda_arena *arena, segment *s)
{
    s->next = arena->unused;
    arena->unused = s;
}

// The list of gaps of this length, at least 1: rounded down.
static void list_of(int64_t length, int *coarse, int *fine)
{
    int bit = 0;
    while (length >> (bit + 1) != 0) {
        bit++;
    }
    if (bit < FINE_BITS) {
        *coarse = 0;
        *fine = (int)length;
    } else {
        *coarse = bit - FINE_BITS + 1;
        *fine = (int)(length >> (bit - FINE_BITS)) - FINE;
    }
}

static void add_gap(sp_i_cuda_arena *arena, segment *s)
{
    int c;
    int f;
    list_of(s->length, &c, &f);
    s->gap = true;
    s->previous = NULL;
    s->next = arena->gaps[c][f];
    if (s->next != NULL) {
        s->next->previous = s;
    }
    arena->gaps[c][f] = s;
    arena->coarse |= UINT64_C(1) << c;
    arena->fine[c] |= UINT32_C(1) << f;
}

static void remove_gap(sp_i_cuda_arena *arena, segment *s)
{
    int c;
    int f;
    list_of(s->length, &c, &f);
    s->gap = false;
    if (s->next != NULL) {
        s->next->previous = s->previous;
    }
    if (s->previous != NULL) {
        s->previous->next = s->next;
    } else {
        arena->gaps[c][f] = s->next;
        if (s->next == NULL) {
            arena->fine[c] &= ~(UINT32_C(1) << f);
            if (arena->fine[c] == 0) {
                arena->coarse &= ~(UINT64_C(1) << c);
            }
        }
    }
}

static int lowest_bit(uint64_t bits)
{
    int bit = 0;
    while ((bits >> bit & 1) == 0) {
        bit++;
    }
    return bit;
}

// A gap that is long enough: the first of the length's own list if it is, because sizes come again;
// every one in the lists above; and last what else is in the own list.
static segment *find_gap(const sp_i_cuda_arena *arena, int64_t length)
{
    int c;
    int f;
    list_of(length, &c, &f);
    if (arena->gaps[c][f] != NULL && arena->gaps[c][f]->length >= length) {
        return arena->gaps[c][f];
    }
    uint32_t fine = f + 1 < FINE ? arena->fine[c] & ~((UINT32_C(2) << f) - 1) : 0;
    uint64_t coarse = arena->coarse & ~((UINT64_C(2) << c) - 1);
    if (fine != 0) {
        return arena->gaps[c][lowest_bit(fine)];
    }
    if (coarse != 0) {
        int above = lowest_bit(coarse);
        return arena->gaps[above][lowest_bit(arena->fine[above])];
    }
    for (segment *s = arena->gaps[c][f]; s != NULL; s = s->next) {
        if (s->length >= length) {
            return s;
        }
    }
    return NULL;
}

static segment **list_of_block(sp_i_cuda_arena *arena, int64_t begin)
{
    uint64_t hash = (uint64_t)begin * UINT64_C(0x9e3779b97f4a7c15);
    return &arena->blocks[hash >> (64 - HASH_BITS)];
}

static void add_block(sp_i_cuda_arena *arena, segment *s)
{
    segment **list = list_of_block(arena, s->begin);
    s->next = *list;
    *list = s;
}

static segment *remove_block(sp_i_cuda_arena *arena, int64_t begin)
{
    segment **at = list_of_block(arena, begin);
    while (*at != NULL && (*at)->begin != begin) {
        at = &(*at)->next;
    }
    segment *s = *at;
    SP_ASSERT(s != NULL);
    *at = s->next;
    return s;
}

sp_i_cuda_arena *sp_i_cuda_arena_new(void *base, int64_t bytes)
{
    sp_i_cuda_arena *arena = sp_calloc(1, sizeof *arena);
    segment *all = new_record(arena);
    arena->base = base;
    arena->first = all;
    all->length = bytes / SP_RUNTIME_ALIGNMENT;
    if (all->length > 0) {
        add_gap(arena, all);
    }
    return arena;
}

void sp_i_cuda_arena_free(sp_i_cuda_arena *arena)
{
    if (arena == NULL) {
        return;
    }
    for (segment *s = arena->first; s != NULL;) {
        segment *after = s->after;
        sp_free(s);
        s = after;
    }
    for (segment *s = arena->unused; s != NULL;) {
        segment *next = s->next;
        sp_free(s);
        s = next;
    }
    sp_free(arena);
}

int64_t sp_i_cuda_arena_peak(const sp_i_cuda_arena *arena)
{
    return arena->peak * SP_RUNTIME_ALIGNMENT;
}

// Leaves `length` in the segment and the rest behind it as a gap.
static void split(sp_i_cuda_arena *arena, segment *s, int64_t length)
{
    if (s->length == length) {
        return;
    }
    segment *rest = new_record(arena);
    rest->begin = s->begin + length;
    rest->length = s->length - length;
    rest->before = s;
    rest->after = s->after;
    if (rest->after != NULL) {
        rest->after->before = rest;
    }
    s->after = rest;
    s->length = length;
    add_gap(arena, rest);
}

void *sp_i_cuda_arena_take(sp_i_cuda_arena *arena, int64_t bytes)
{
    int64_t length = bytes > 0 ? (bytes + SP_RUNTIME_ALIGNMENT - 1) / SP_RUNTIME_ALIGNMENT : 1;
    segment *s = find_gap(arena, length);
    if (s == NULL) {
        errno = ENOSPC;
        return NULL;
    }
    remove_gap(arena, s);
    split(arena, s, length);
    add_block(arena, s);
    arena->held += length;
    arena->peak = arena->held > arena->peak ? arena->held : arena->peak;
    return arena->base + s->begin * SP_RUNTIME_ALIGNMENT;
}

// The second of two neighbouring gaps becomes part of the first.
static segment *join(sp_i_cuda_arena *arena, segment *first, segment *second)
{
    first->length += second->length;
    first->after = second->after;
    if (first->after != NULL) {
        first->after->before = first;
    }
    drop_record(arena, second);
    return first;
}

void sp_i_cuda_arena_give(sp_i_cuda_arena *arena, void *memory)
{
    if (memory == NULL) {
        return;
    }
    segment *s = remove_block(arena, ((char *)memory - arena->base) / SP_RUNTIME_ALIGNMENT);
    arena->held -= s->length;
    if (s->after != NULL && s->after->gap) {
        remove_gap(arena, s->after);
        s = join(arena, s, s->after);
    }
    if (s->before != NULL && s->before->gap) {
        remove_gap(arena, s->before);
        s = join(arena, s->before, s);
    }
    add_gap(arena, s);
}

// ---- State ----

enum {
    SP_I_CUDA_CHUNKS = 4,
    SP_I_CUDA_CHUNK_BYTES = 1 << 20,
    SP_I_CUDA_POINTS = 256 // fences whose own event is kept
};

struct sp_i_cuda_stream_context {
    sp_runtime *runtime; // memory comes from it
    CUstream stream;
    pthread_mutex_t lock;
    sp_i_cuda_gemm *gemm;
    void *gemm_workspace;
    sp_i_cuda_attention *attention; // or NULL
    void *scratch;
    int64_t scratch_bytes;
    // A chunk is free again when its event is over.
    char *pinned;
    sp_i_cuda_events chunks;
    uint64_t chunks_used;
    // Point p is event p mod SP_I_CUDA_POINTS; a later point of the same event is as good.
    sp_i_cuda_events points;
    uint64_t marks;
    // The clock: `clock_ns` is the time of event `clock_at`.
    sp_i_cuda_events clock;
    int clock_at;
    int64_t clock_ns;
};

// A moment of a rank that was noted; `known` when its time was asked for.
typedef struct time_stamp {
    CUevent event;
    bool known;
    int64_t ns;
} time_stamp;

// A rank's stamps. They start anew with the first that is noted after one was asked for.
typedef struct rank_stamps {
    time_stamp *of;
    size_t used, made, capacity; // `made` have an event
    bool asked;
} rank_stamps;

typedef struct cuda_runtime {
    sp_runtime base; // first
    sp_i_cuda_device device;
    CUcontext primary;   // of the device
    int ranks, contexts; // one stream context for all ranks, or as many
    bool stale;          // sp_i_cuda_runtime_options
    sp_i_cuda_rank *rank;
    sp_i_cuda_stream_context *context;
    CUstream stream;                    // of all ranks, or
    sp_i_cuda_partitions *partitions;   // of each
    pthread_mutex_t lock;               // of the arena and of the reference
    char no_cudnn[SP_I_CUDA_TEXT];      // why not
    int64_t total_bytes, free_bytes[3]; // at first, with all handles, with the block
    void *memory;
    int64_t memory_bytes; // of the block
    sp_i_cuda_arena *arena;
    rank_stamps *stamps; // of each rank
    CUevent reference;   // whose time is reference_ns
    int64_t reference_ns;
} cuda_runtime;

static cuda_runtime *runtime_of(sp_runtime *runtime)
{
    return (cuda_runtime *)(void *)runtime;
}

// ---- The rank of a thread ----

// Operations name no device runtime: they work for the calling thread's rank.
static _Thread_local sp_i_cuda_rank *current;

sp_i_cuda_rank *sp_i_cuda_rank_now(void)
{
    SP_ASSERT(current != NULL);
    return current;
}

void sp_i_cuda_rank_enter(sp_i_cuda_rank *rank)
{
    current = rank;
}

void sp_i_cuda_fail(sp_i_cuda_rank *rank, sp_status status, const sp_error *err)
{
    if (status == SP_OK || rank->status != SP_OK) {
        return;
    }
    rank->status = status;
    if (err != &rank->error) {
        rank->error = *err;
    }
}

void sp_i_cuda_note(sp_i_cuda_rank *rank, int code, const char *call, const char *file, int line)
{
    sp_status status =
        sp_i_cuda_check(&rank->device, (CUresult)code, call, file, line, &rank->error);
    sp_i_cuda_fail(rank, status, &rank->error);
}

void sp_i_cuda_rank_wait(sp_i_cuda_rank *rank, CUevent event, const char *file, int line)
{
    const sp_cuda_api *api = rank->device.api;
    if (rank->status == SP_OK && rank->limit_ms > 0) {
        sp_i_cuda_fail(
            rank,
            sp_i_cuda_wait_within(&rank->device, rank->stream, event, rank->limit_ms, &rank->error),
            &rank->error);
    } else if (rank->status == SP_OK) {
        CUresult code =
            event != NULL ? api->EventSynchronize(event) : api->StreamSynchronize(rank->stream);
        sp_i_cuda_note(rank, (int)code,
                       event != NULL ? "cuEventSynchronize" : "cuStreamSynchronize", file, line);
    }
}

// ---- Stream contexts ----

static sp_status context_init(sp_i_cuda_stream_context *context, const sp_i_cuda_device *device,
                              const sp_i_cublas_api *cublas, sp_runtime *runtime, CUstream stream,
                              int sms, sp_error *err)
{
    void *pinned = NULL;
    *context = (sp_i_cuda_stream_context){
        .runtime = runtime, .stream = stream, .attention = context->attention};
    if (pthread_mutex_init(&context->lock, NULL) != 0) {
        sp_out_of_memory(sizeof context->lock);
    }
    context->gemm_workspace = runtime->ops->allocate(runtime, SP_I_CUDA_GEMM_WORKSPACE);
    if (context->gemm_workspace == NULL) {
        return sp_error_set(err, SP_ERR_NO_MEMORY, "GPU %d: no %d MiB for cuBLASLt's workspace",
                            device->index, SP_I_CUDA_GEMM_WORKSPACE >> 20);
    }
    const sp_i_cuda_gemm_place place = {context->gemm_workspace, SP_I_CUDA_GEMM_WORKSPACE, sms};
    SP_TRY(sp_i_cuda_gemm_new(device, cublas, &place, &context->gemm, err));
    SP_TRY(SP_I_CUDA(device, err, MemHostAlloc, &pinned,
                     (size_t)SP_I_CUDA_CHUNKS * SP_I_CUDA_CHUNK_BYTES, 0));
    context->pinned = pinned;
    SP_TRY(sp_i_cuda_events_init(device, SP_I_CUDA_CHUNKS, false, &context->chunks, err));
    SP_TRY(sp_i_cuda_events_init(device, SP_I_CUDA_POINTS, false, &context->points, err));
    SP_TRY(sp_i_cuda_events_init(device, 2, true, &context->clock, err));
    return sp_i_cuda_record(&context->clock, 0, stream, err);
}

static void context_fini(sp_i_cuda_stream_context *context, const sp_i_cuda_device *device)
{
    if (context->runtime == NULL) {
        return; // it was never begun
    }
    (void)device->api->StreamSynchronize(context->stream);
    sp_i_cuda_events_fini(&context->clock);
    sp_i_cuda_events_fini(&context->points);
    sp_i_cuda_events_fini(&context->chunks);
    if (context->pinned != NULL) {
        (void)device->api->MemFreeHost(context->pinned);
    }
    sp_i_cuda_gemm_free(context->gemm);
    context->runtime->ops->release(context->runtime, context->scratch);
    context->runtime->ops->release(context->runtime, context->gemm_workspace);
    (void)pthread_mutex_destroy(&context->lock);
    *context = (sp_i_cuda_stream_context){0};
}

void sp_i_cuda_hold(sp_i_cuda_rank *rank)
{
    (void)pthread_mutex_lock(&rank->context->lock);
}

void sp_i_cuda_release(sp_i_cuda_rank *rank)
{
    (void)pthread_mutex_unlock(&rank->context->lock);
}

void *sp_i_cuda_scratch(sp_i_cuda_rank *rank, int64_t bytes)
{
    enum { LEAST = 1 << 20 };
    sp_i_cuda_stream_context *context = rank->context;
    if (rank->status != SP_OK || bytes <= context->scratch_bytes) {
        return rank->status == SP_OK ? context->scratch : NULL;
    }
    // Work that uses the old one may still run, and another rank may be given its memory.
    SP_I_CUDA_WAIT(rank, NULL);
    sp_runtime *runtime = context->runtime;
    runtime->ops->release(runtime, context->scratch);
    int64_t twice = 2 * context->scratch_bytes > LEAST ? 2 * context->scratch_bytes : LEAST;
    context->scratch_bytes = bytes > twice ? bytes : twice;
    context->scratch = runtime->ops->allocate(runtime, context->scratch_bytes);
    if (context->scratch == NULL) {
        context->scratch_bytes = bytes;
        context->scratch = runtime->ops->allocate(runtime, bytes);
    }
    if (context->scratch == NULL) {
        context->scratch_bytes = 0;
        sp_status status =
            sp_error_set(&rank->error, SP_ERR_INFEASIBLE, "GPU %d: no %lld bytes of scratch memory",
                         rank->device.index, (long long)bytes);
        sp_i_cuda_fail(rank, status, &rank->error);
    }
    return rank->status == SP_OK ? context->scratch : NULL;
}

static int next_chunk(sp_i_cuda_rank *rank)
{
    sp_i_cuda_stream_context *context = rank->context;
    int chunk = (int)(context->chunks_used++ % SP_I_CUDA_CHUNKS);
    if (context->chunks_used > SP_I_CUDA_CHUNKS) {
        SP_I_CUDA_WAIT(rank, context->chunks.event[chunk]);
    }
    return chunk;
}

void sp_i_cuda_stage(sp_i_cuda_rank *rank, void *to, const void *from, int64_t bytes)
{
    sp_i_cuda_stream_context *context = rank->context;
    for (int64_t done = 0; rank->status == SP_OK && done < bytes; done += SP_I_CUDA_CHUNK_BYTES) {
        size_t part = (size_t)sp_smaller(bytes - done, SP_I_CUDA_CHUNK_BYTES);
        int chunk = next_chunk(rank);
        char *room = context->pinned + (int64_t)chunk * SP_I_CUDA_CHUNK_BYTES;
        if (rank->status == SP_OK) {
            memcpy(room, (const char *)from + done, part);
        }
        SP_I_CUDA_CALL(rank, MemcpyHtoDAsync, sp_i_cuda_at((char *)to + done), room, part,
                       rank->stream);
        SP_I_CUDA_CALL(rank, EventRecord, context->chunks.event[chunk], rank->stream);
    }
}

void sp_i_cuda_stage_order(sp_i_cuda_rank *rank, void *to, const int64_t *numbers, int64_t count)
{
    const int64_t bytes = count * (int64_t)sizeof *numbers;
    int64_t *order = sp_malloc((size_t)(2 * bytes));
    sp_cuda_embedding_order(count, numbers, order, order + count);
    sp_i_cuda_stage(rank, to, order, bytes);
    sp_free(order);
}

static void stage_back(sp_i_cuda_rank *rank, void *to, const void *from, int64_t bytes)
{
    sp_i_cuda_stream_context *context = rank->context;
    for (int64_t done = 0; rank->status == SP_OK && done < bytes; done += SP_I_CUDA_CHUNK_BYTES) {
        size_t part = (size_t)sp_smaller(bytes - done, SP_I_CUDA_CHUNK_BYTES);
        char *room = context->pinned + (int64_t)next_chunk(rank) * SP_I_CUDA_CHUNK_BYTES;
        SP_I_CUDA_CALL(rank, MemcpyDtoHAsync, room, sp_i_cuda_at((const char *)from + done), part,
                       rank->stream);
        SP_I_CUDA_WAIT(rank, NULL);
        if (rank->status == SP_OK) {
            memcpy((char *)to + done, room, part);
        }
    }
}

bool sp_i_cuda_multiply(sp_i_cuda_rank *rank, const sp_i_cuda_product *product,
                        const sp_i_cuda_operands *operands, const void *bias)
{
    sp_i_cuda_gemm *gemm = rank->context->gemm;
    bool added = false;
    if (rank->status == SP_OK) {
        sp_status status =
            bias != NULL ? sp_i_cuda_gemm_run_biased(gemm, product, operands, bias, &added,
                                                     rank->stream, &rank->error)
                         : sp_i_cuda_gemm_run(gemm, product, operands, rank->stream, &rank->error);
        sp_i_cuda_fail(rank, status, &rank->error);
    }
    return added;
}

// ---- Memory, and work on it that no operation is ----

// Memory of a GPU as that of a device runtime, and the work on it that no operation is (runtime.c).

static void *allocate(sp_runtime *runtime, int64_t bytes)
{
    cuda_runtime *m = runtime_of(runtime);
    (void)pthread_mutex_lock(&m->lock);
    void *memory = sp_i_cuda_arena_take(m->arena, bytes);
    (void)pthread_mutex_unlock(&m->lock);
    return memory;
}

static void release(sp_runtime *runtime, void *memory)
{
    cuda_runtime *m = runtime_of(runtime);
    (void)pthread_mutex_lock(&m->lock);
    sp_i_cuda_arena_give(m->arena, memory);
    (void)pthread_mutex_unlock(&m->lock);
}

static void *allocate_host(sp_runtime *runtime, int64_t bytes)
{
    const cuda_runtime *m = runtime_of(runtime);
    void *memory = NULL;
    bool got = SP_I_CUDA(&m->device, NULL, CtxSetCurrent, m->primary) == SP_OK &&
               SP_I_CUDA(&m->device, NULL, MemHostAlloc, &memory, (size_t)(bytes > 0 ? bytes : 1),
                         CU_MEMHOSTALLOC_PORTABLE) == SP_OK;
    return got ? memory : NULL;
}

static void release_host(sp_runtime *runtime, void *memory)
{
    if (memory != NULL) {
        (void)runtime_of(runtime)->device.api->MemFreeHost(memory);
    }
}

// Pinned memory has one address for host and device, so that CUDA finds the direction.
static void copy(sp_runtime *runtime SP_UNUSED, void *to, const void *from, int64_t bytes)
{
    sp_i_cuda_rank *rank = sp_i_cuda_rank_now();
    if (bytes > 0) {
        SP_I_CUDA_CALL(rank, MemcpyAsync, sp_i_cuda_at(to), sp_i_cuda_at(from), (size_t)bytes,
                       rank->stream);
    }
}

// Pieces of whole bf16 elements are copied by a kernel, which is as fast as memory and stays on the
// rank's own SMs.
static void copy_rows(sp_runtime *runtime, int64_t rows, int64_t bytes, void *to, int64_t to_stride,
                      const void *from, int64_t from_stride)
{
    sp_i_cuda_rank *rank = sp_i_cuda_rank_now();
    uintptr_t odd = (uintptr_t)to | (uintptr_t)from | (uintptr_t)(bytes | to_stride | from_stride);
    if (bytes == to_stride && bytes == from_stride) {
        copy(runtime, to, from, rows * bytes);
    } else if (odd % sizeof(sp_bf16) == 0) {
        SP_I_CUDA_PUT(rank, copy_rows, rows, bytes / 2, from, from_stride / 2, to, to_stride / 2);
    } else {
        for (int64_t r = 0; r < rows; r++) {
            copy(runtime, (char *)to + r * to_stride, (const char *)from + r * from_stride, bytes);
        }
    }
}

static void zero(sp_runtime *runtime SP_UNUSED, void *to, int64_t bytes)
{
    sp_i_cuda_rank *rank = sp_i_cuda_rank_now();
    if (bytes > 0) {
        SP_I_CUDA_CALL(rank, MemsetD8Async, sp_i_cuda_at(to), 0, (size_t)bytes, rank->stream);
    }
}

static void spoil(sp_runtime *runtime, void *memory, int64_t bytes)
{
    enum { NO_NUMBER = 0xff };
    if (runtime_of(runtime)->stale && current != NULL) {
        SP_I_CUDA_CALL(current, MemsetD8Async, sp_i_cuda_at(memory), NO_NUMBER, (size_t)bytes,
                       current->stream);
    }
}

static void upload(sp_runtime *runtime SP_UNUSED, void *to, const void *from, int64_t bytes)
{
    sp_i_cuda_rank *rank = sp_i_cuda_rank_now();
    sp_i_cuda_hold(rank);
    sp_i_cuda_stage(rank, to, from, bytes);
    sp_i_cuda_release(rank);
}

static void download(sp_runtime *runtime SP_UNUSED, void *to, const void *from, int64_t bytes)
{
    sp_i_cuda_rank *rank = sp_i_cuda_rank_now();
    sp_i_cuda_hold(rank);
    stage_back(rank, to, from, bytes);
    sp_i_cuda_release(rank);
}

static void reduce(sp_runtime *runtime SP_UNUSED, sp_element element, bool maximum, int64_t count,
                   const void *const *in, int members, void *const *out, int outs)
{
    sp_i_cuda_rank *rank = sp_i_cuda_rank_now();
    switch (element) {
    case SP_ELEMENT_BF16:
        SP_I_CUDA_PUT(rank, reduce_bf16, maximum, count, in, members, out, outs);
        break;
    case SP_ELEMENT_F32:
        SP_I_CUDA_PUT(rank, reduce_fp32, maximum, count, in, members, out, outs);
        break;
    case SP_ELEMENT_F64:
        SP_I_CUDA_PUT(rank, reduce_fp64, maximum, count, in, members, out, outs);
        break;
    default:
        SP_UNREACHABLE("a reduction of bytes");
    }
}

static void sum_of_squares(sp_runtime *runtime SP_UNUSED, sp_element element, int64_t n,
                           const void *x, double *sum)
{
    sp_i_cuda_rank *rank = sp_i_cuda_rank_now();
    SP_ASSERT(element == SP_ELEMENT_F32);
    *sum = 0.0;
    sp_i_cuda_hold(rank);
    double *room =
        sp_i_cuda_scratch(rank, (SP_CUDA_SUM_OF_SQUARES_WORKSPACE + 1) * (int64_t)sizeof(double));
    if (room != NULL) {
        double *result = room + SP_CUDA_SUM_OF_SQUARES_WORKSPACE;
        SP_I_CUDA_PUT(rank, sum_of_squares, n, x, false, result, room);
        stage_back(rank, sum, result, sizeof *sum);
    }
    sp_i_cuda_release(rank);
}

// ---- Order and time ----

// Order between the ranks of a GPU, and times on its clock. CUDA gives the time between two events
// as an fp32 number of milliseconds, so that times are counted from an event not far away.

enum { FAR_NS = 100000000 }; // 0.1 s, which fp32 holds to 8 ns

static sp_fence mark(sp_runtime *runtime)
{
    sp_i_cuda_rank *rank = sp_i_cuda_rank_now();
    sp_i_cuda_stream_context *context = rank->context;
    if (runtime_of(runtime)->contexts == 1) {
        return (sp_fence){0};
    }
    sp_i_cuda_hold(rank);
    sp_fence fence = {rank->number, ++context->marks};
    SP_I_CUDA_CALL(rank, EventRecord, context->points.event[fence.point % SP_I_CUDA_POINTS],
                   rank->stream);
    sp_i_cuda_release(rank);
    return fence;
}

// Where the event has been recorded again since, the wait is for a later point. That is no circle:
// a stream only waits for what was put down before.
static void wait_fence(sp_runtime *runtime, sp_fence fence)
{
    sp_i_cuda_rank *rank = sp_i_cuda_rank_now();
    if (fence.point == 0 || fence.rank == rank->number) {
        return;
    }
    const cuda_runtime *m = runtime_of(runtime);
    const sp_i_cuda_stream_context *context = m->rank[fence.rank].context;
    SP_I_CUDA_CALL(rank, StreamWaitEvent, rank->stream,
                   context->points.event[fence.point % SP_I_CUDA_POINTS], 0);
}

static int64_t now_ns(sp_runtime *runtime SP_UNUSED)
{
    sp_i_cuda_rank *rank = sp_i_cuda_rank_now();
    sp_i_cuda_stream_context *context = rank->context;
    sp_i_cuda_hold(rank);
    int next = 1 - context->clock_at;
    float ms = 0.0f;
    SP_I_CUDA_CALL(rank, EventRecord, context->clock.event[next], rank->stream);
    SP_I_CUDA_CALL(rank, EventSynchronize, context->clock.event[next]);
    SP_I_CUDA_CALL(rank, EventElapsedTime, &ms, context->clock.event[context->clock_at],
                   context->clock.event[next]);
    if (rank->status == SP_OK) {
        context->clock_at = next;
        context->clock_ns += llround((double)ms * 1e6);
    }
    int64_t ns = context->clock_ns;
    sp_i_cuda_release(rank);
    return ns;
}

static sp_status start_clock(cuda_runtime *m, sp_error *err)
{
    m->stamps = sp_calloc((size_t)m->ranks, sizeof *m->stamps);
    sp_status status = SP_I_CUDA(&m->device, err, EventCreate, &m->reference, CU_EVENT_DEFAULT);
    return status == SP_OK
               ? SP_I_CUDA(&m->device, err, EventRecord, m->reference, m->context[0].stream)
               : status;
}

static void free_stamps(const cuda_runtime *m, rank_stamps *stamps)
{
    for (int r = 0; stamps != NULL && r < m->ranks; r++) {
        for (size_t i = 0; i < stamps[r].made; i++) {
            (void)m->device.api->EventDestroy(stamps[r].of[i].event);
        }
        sp_free(stamps[r].of);
    }
    sp_free(stamps);
}

static void stop_clock(cuda_runtime *m)
{
    const sp_cuda_api *api = m->device.api;
    free_stamps(m, m->stamps);
    if (m->reference != NULL) {
        (void)api->EventDestroy(m->reference);
    }
}

// The rank's next stamp, with an event; NULL when there is none to be had.
static time_stamp *next_stamp(sp_i_cuda_rank *rank, rank_stamps *stamps)
{
    if (stamps->asked) {
        stamps->used = 0;
        stamps->asked = false;
    }
    SP_RESERVE(stamps->of, stamps->capacity, stamps->used + 1);
    time_stamp *stamp = &stamps->of[stamps->used];
    if (stamps->used == stamps->made) {
        SP_I_CUDA_CALL(rank, EventCreate, &stamp->event, CU_EVENT_DEFAULT);
        stamps->made += rank->status == SP_OK;
    }
    stamp->known = false;
    stamp->ns = 0;
    return rank->status == SP_OK ? stamp : NULL;
}

// The rank's number and the stamp's, from 1; 0 where the rank's work has failed.
static uint64_t put_stamp(sp_runtime *runtime)
{
    sp_i_cuda_rank *rank = sp_i_cuda_rank_now();
    rank_stamps *stamps = &runtime_of(runtime)->stamps[rank->number];
    time_stamp *stamp = rank->status == SP_OK ? next_stamp(rank, stamps) : NULL;
    if (stamp == NULL) {
        return 0;
    }
    SP_I_CUDA_CALL(rank, EventRecord, stamp->event, rank->stream);
    return (uint64_t)rank->number << 32 | ++stamps->used;
}

static void find_time(cuda_runtime *m, sp_i_cuda_rank *rank, time_stamp *stamp)
{
    float ms = 0.0f;
    SP_I_CUDA_CALL(rank, EventElapsedTime, &ms, m->reference, stamp->event);
    int64_t since = llround((double)ms * 1e6);
    stamp->ns = m->reference_ns + since;
    stamp->known = true;
    if (rank->status == SP_OK && (since > FAR_NS || since < -FAR_NS)) {
        CUevent before = m->reference;
        m->reference = stamp->event;
        m->reference_ns = stamp->ns;
        stamp->event = before;
    }
}

static int64_t stamp_ns(sp_runtime *runtime, uint64_t number)
{
    cuda_runtime *m = runtime_of(runtime);
    if (number == 0) {
        return 0;
    }
    size_t r = (size_t)(number >> 32);
    rank_stamps *stamps = &m->stamps[r];
    time_stamp *stamp = &stamps->of[(number & UINT32_MAX) - 1];
    (void)pthread_mutex_lock(&m->lock);
    stamps->asked = true;
    if (!stamp->known) {
        find_time(m, &m->rank[r], stamp);
    }
    (void)pthread_mutex_unlock(&m->lock);
    return stamp->ns;
}

// ---- The runtime ----

static const sp_runtime_ops machine_ops;
static sp_status take_memory(cuda_runtime *m, int64_t bytes, int64_t spare_bytes, sp_error *err);
static sp_status make_streams(cuda_runtime *m, bool cudnn, sp_error *err);
static sp_status make_contexts(cuda_runtime *m, const sp_i_cublas_api *cublas, sp_error *err);

sp_status sp_i_cuda_runtime_new(const sp_i_cuda_device *device, const sp_i_cublas_api *cublas,
                                const sp_i_cuda_runtime_options *options, sp_runtime **made,
                                sp_error *err)
{
    *made = NULL;
    SP_ASSERT(options->ranks > 0);
    cuda_runtime *m = sp_calloc(1, sizeof *m);
    m->base.ops = &machine_ops;
    m->device = *device;
    m->ranks = options->ranks;
    m->stale = options->stale;
    m->contexts = options->partitioned ? options->ranks : 1;
    m->rank = sp_calloc((size_t)m->ranks, sizeof *m->rank);
    m->context = sp_calloc((size_t)m->contexts, sizeof *m->context);
    if (pthread_mutex_init(&m->lock, NULL) != 0) {
        sp_out_of_memory(sizeof m->lock);
    }
#ifdef WITH_NVTX
    nvtxInitialize(NULL); // writes what the calls of ranks' threads read without a lock
#endif
    sp_status status = sp_i_cuda_use(device, err);
    if (status == SP_OK) {
        status = SP_I_CUDA(device, err, CtxGetCurrent, &m->primary);
    }
    if (status == SP_OK) {
        status = sp_i_cuda_memory(device, &m->free_bytes[0], &m->total_bytes, err);
    }
    // What libraries load comes before the block, which takes all that is left.
    if (status == SP_OK) {
        status = make_streams(m, options->cudnn, err);
    }
    if (status == SP_OK) {
        status = take_memory(m, options->memory_bytes, options->spare_bytes, err);
    }
    if (status == SP_OK) {
        status = make_contexts(m, cublas, err);
    }
    if (status == SP_OK) {
        status = start_clock(m, err);
    }
    if (status != SP_OK) {
        sp_i_cuda_runtime_free(&m->base);
        return status;
    }
    *made = &m->base;
    return SP_OK;
}

void sp_i_cuda_runtime_free(sp_runtime *runtime)
{
    if (runtime == NULL) {
        return;
    }
    cuda_runtime *m = runtime_of(runtime);
    const sp_cuda_api *api = m->device.api;
    sp_i_cuda_rank_enter(NULL); // ranks go with their runtime
    if (m->primary != NULL) {
        (void)api->CtxSetCurrent(m->primary); // the thread may be any
    }
    for (int i = 0; i < m->contexts; i++) {
        sp_i_cuda_attention *attention = m->context[i].attention;
        context_fini(&m->context[i], &m->device);
        sp_i_cuda_attention_free(attention);
    }
    stop_clock(m);
    if (m->stream != NULL) {
        (void)api->StreamDestroy(m->stream);
    }
    sp_i_cuda_partitions_free(m->partitions);
    sp_i_cuda_arena_free(m->arena);
    if (m->memory != NULL) {
        sp_i_cuda_give(&m->device, m->memory);
    }
    (void)pthread_mutex_destroy(&m->lock);
    sp_free(m->context);
    sp_free(m->rank);
    sp_free(m);
}

static sp_status take_memory(cuda_runtime *m, int64_t bytes, int64_t spare_bytes, sp_error *err)
{
    int64_t total = 0;
    sp_status status = sp_i_cuda_memory(&m->device, &m->free_bytes[1], &total, err);
    if (bytes == 0) {
        bytes = m->free_bytes[1] - SP_I_CUDA_RESERVE - spare_bytes;
    }
    if (status == SP_OK && bytes <= 0) {
        status = sp_error_set(err, SP_ERR_NO_MEMORY, "GPU %d: no free memory", m->device.index);
    }
    if (status == SP_OK) {
        status = sp_i_cuda_take(&m->device, (size_t)bytes, &m->memory, err);
    }
    if (status == SP_OK) {
        m->memory_bytes = bytes;
        m->arena = sp_i_cuda_arena_new(m->memory, bytes);
        status = sp_i_cuda_memory(&m->device, &m->free_bytes[2], &total, err);
    }
    return status;
}

// Without cuDNN attention is the reference kernels' work.
static void find_cudnn(cuda_runtime *m, sp_i_cuda_stream_context *context)
{
    sp_error why;
    sp_error_clear(&why);
    const sp_i_cuda_attention_place place = {
        .context = m->partitions != NULL
                       ? sp_i_cuda_partition_context(m->partitions, (int)(context - m->context))
                       : NULL,
        .shares = m->context->attention};
    if (sp_i_cuda_attention_new(&m->device, &place, &context->attention, &why) != SP_OK) {
        context->attention = NULL;
        snprintf(m->no_cudnn, sizeof m->no_cudnn, "%.*s", SP_I_CUDA_TEXT - 1, why.message[0]);
    }
}

static sp_status make_streams(cuda_runtime *m, bool cudnn, sp_error *err)
{
    SP_TRY(m->contexts > 1
               ? sp_i_cuda_partitions_new(&m->device, m->contexts, 1, &m->partitions, err)
               : SP_I_CUDA(&m->device, err, StreamCreateWithPriority, &m->stream,
                           CU_STREAM_NON_BLOCKING, 0));
    for (int i = 0; cudnn && i < m->contexts; i++) {
        find_cudnn(m, &m->context[i]);
    }
    return SP_OK;
}

static sp_status make_contexts(cuda_runtime *m, const sp_i_cublas_api *cublas, sp_error *err)
{
    const bool disjoint = m->contexts > 1 && sp_i_cuda_are_partitioned(m->partitions, NULL);
    for (int i = 0; i < m->contexts; i++) {
        CUstream stream =
            m->contexts > 1 ? sp_i_cuda_partition_stream(m->partitions, i, 0) : m->stream;
        int sms = disjoint ? sp_i_cuda_partition_sms(m->partitions, i) : 0;
        SP_TRY(context_init(&m->context[i], &m->device, cublas, &m->base, stream, sms, err));
    }
    for (int r = 0; r < m->ranks; r++) {
        sp_i_cuda_stream_context *context = &m->context[m->contexts > 1 ? r : 0];
        sp_i_cuda_rank *rank = &m->rank[r];
        rank->device = m->device;
        rank->number = r;
        rank->stream = context->stream;
        rank->context = context;
        rank->attention = context->attention;
    }
    return SP_OK;
}

bool sp_i_cuda_runtime_partitioned(const sp_runtime *runtime, const char **reason)
{
    const cuda_runtime *m = (const cuda_runtime *)(const void *)runtime;
    if (m->partitions == NULL) {
        if (reason != NULL) {
            *reason = "all ranks work on one stream";
        }
        return false;
    }
    return sp_i_cuda_are_partitioned(m->partitions, reason);
}

bool sp_i_cuda_runtime_has_cudnn(const sp_runtime *runtime, const char **reason)
{
    const cuda_runtime *m = (const cuda_runtime *)(const void *)runtime;
    *reason = m->no_cudnn;
    return m->context[m->contexts - 1].attention != NULL;
}

// ---- How it worked ----

static json_t *report_memory(cuda_runtime *m)
{
    int64_t free_now = 0;
    int64_t total = 0;
    (void)pthread_mutex_lock(&m->lock);
    const int64_t peak = sp_i_cuda_arena_peak(m->arena);
    (void)pthread_mutex_unlock(&m->lock);
    if (sp_i_cuda_memory(&m->device, &free_now, &total, NULL) != SP_OK) {
        free_now = m->free_bytes[2];
    }
    return json_pack("{s:I, s:I, s:I, s:I, s:I, s:I, s:I, s:I}", "total",
                     (json_int_t)m->total_bytes, "context",
                     (json_int_t)(m->total_bytes - m->free_bytes[0]), "libraries",
                     (json_int_t)(m->free_bytes[0] - m->free_bytes[1]), "block",
                     (json_int_t)m->memory_bytes, "block_peak", (json_int_t)peak, "workspaces",
                     (json_int_t)m->contexts * SP_I_CUDA_GEMM_WORKSPACE, "beside",
                     (json_int_t)(m->free_bytes[2] - free_now), "device",
                     (json_int_t)(m->total_bytes - free_now - m->memory_bytes + peak));
}

json_t *sp_i_cuda_runtime_report(sp_runtime *runtime)
{
    cuda_runtime *m = runtime_of(runtime);
    const char *reason = "";
    const char *no_cudnn = "";
    int sms = 0;
    json_int_t attended[2] = {0, 0};
    for (int r = 0; r < m->ranks; r++) {
        attended[0] += atomic_load(&m->rank[r].attended[0]);
        attended[1] += atomic_load(&m->rank[r].attended[1]);
    }
    const bool partitioned = sp_i_cuda_runtime_partitioned(runtime, &reason);
    (void)sp_i_cuda_runtime_has_cudnn(runtime, &no_cudnn);
    if (m->partitions != NULL) {
        sms = sp_i_cuda_partition_sms(m->partitions, 0);
    } else if (m->device.api->DeviceGetAttribute(&sms, CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT,
                                                 m->device.index) != CUDA_SUCCESS) {
        sms = 0;
    }
    return json_pack("{s:i, s:i, s:i, s:b, s:s, s:{s:I, s:I, s:s}, s:o}", "ranks", m->ranks,
                     "streams", m->contexts, "sms", sms, "partitioned", partitioned, "reason",
                     partitioned ? "" : reason, "attention", "cudnn", attended[1], "reference",
                     attended[0], "reason", no_cudnn, "memory", report_memory(m));
}

static void enter(sp_runtime *runtime, int rank)
{
    cuda_runtime *m = runtime_of(runtime);
    SP_ASSERT(rank >= 0 && rank < m->ranks);
    sp_i_cuda_rank *entered = &m->rank[rank];
    sp_i_cuda_rank_enter(entered);
    SP_I_CUDA_CALL(entered, CtxSetCurrent, m->primary);
}

static sp_status synchronize(sp_runtime *runtime SP_UNUSED, sp_error *err)
{
    sp_i_cuda_rank *rank = sp_i_cuda_rank_now();
    // Work that was put down before something went wrong runs to its end all the same.
    CUresult code = rank->device.api->StreamSynchronize(rank->stream);
    if (rank->status == SP_OK) {
        sp_i_cuda_note(rank, (int)code, "cuStreamSynchronize", __FILE__, __LINE__);
    }
    return rank->status == SP_OK ? SP_OK
                                 : sp_error_set(err, rank->status, "%s", rank->error.message[0]);
}

// Ranges on the host's timeline for profilers (NVTX, Nsight Systems) around the launches of an
// action, as "F3.1 rank 2". Without a profiler they cost next to nothing.

static void begin(sp_runtime *runtime SP_UNUSED, const char *action SP_UNUSED)
{
#ifdef WITH_NVTX
    enum { NAME = 48 };
    char name[NAME];
    snprintf(name, sizeof name, "%s rank %d", action, sp_i_cuda_rank_now()->number);
    (void)nvtxRangePushA(name);
#else
#endif
}

static void end(sp_runtime *runtime SP_UNUSED)
{
#ifdef WITH_NVTX
    (void)nvtxRangePop();
#endif
}

static const sp_runtime_ops machine_ops = {.allocate = allocate,
                                           .release = release,
                                           .allocate_host = allocate_host,
                                           .release_host = release_host,
                                           .enter = enter,
                                           .copy = copy,
                                           .copy_rows = copy_rows,
                                           .zero = zero,
                                           .upload = upload,
                                           .download = download,
                                           .reduce = reduce,
                                           .sum_of_squares = sum_of_squares,
                                           .mark = mark,
                                           .wait = wait_fence,
                                           .now_ns = now_ns,
                                           .stamp = put_stamp,
                                           .stamp_ns = stamp_ns,
                                           .synchronize = synchronize,
                                           .begin = begin,
                                           .end = end,
                                           .spoil = spoil,
                                           .plain_memory = false};
