#include "tests/support/queued_work.h"

#include <stdlib.h>
#include <string.h>

#include "backends/host/cpu_runtime.h"

enum { PIECE_NS = 1000 };

void queued_work_init(queued_work *work, sp_runtime *runtime, const queued_runtime_options *options)
{
    *work = (queued_work){.runtime = runtime,
                          .ranks = options->ranks,
                          .each = calloc((size_t)options->ranks, sizeof *work->each),
                          .memory = {.guarded = options->guarded}};
    SP_ASSERT(work->each != NULL);
    for (int r = 0; r < work->ranks; r++) {
        work->each[r].fails_in = -1;
    }
    sp_prng_seed(&work->prng, options->seed);
}

void queued_work_fini(queued_work *work)
{
    for (int r = 0; r < work->ranks; r++) {
        while (work->each[r].first != NULL) {
            queued_piece *next = work->each[r].first->next;
            free(work->each[r].first);
            work->each[r].first = next;
        }
    }
    free(work->stamps);
    free(work->each);
}

queued_piece *queued_piece_new(queued_kind kind, const void *own, int64_t bytes)
{
    queued_piece *made = calloc(1, sizeof *made + (size_t)bytes);
    SP_ASSERT(made != NULL);
    made->kind = kind;
    if (own != NULL) {
        memcpy(made->own, own, (size_t)bytes);
    }
    return made;
}

void queued_work_put(queued_work *work, int rank, queued_piece *piece)
{
    queued_rank *r = &work->each[rank];
    *(r->last != NULL ? &r->last->next : &r->first) = piece;
    r->last = piece;
    r->given++;
}

uint64_t queued_work_stamp(queued_work *work, int rank)
{
    queued_piece *piece = queued_piece_new(QUEUED_STAMP, NULL, 0);
    int64_t *stamps = realloc(work->stamps, (work->stamp_count + 1) * sizeof *stamps);
    SP_ASSERT(stamps != NULL);
    work->stamps = stamps;
    work->stamps[work->stamp_count] = -1;
    piece->stamp = work->stamp_count;
    piece->fence.rank = rank;
    queued_work_put(work, rank, piece);
    return work->stamp_count++;
}

void *queued_work_behind(const queued_work *work, const void *address, int64_t bytes)
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

static void reduce(const queued_work *work, const queued_piece *p)
{
    int operands = p->members + p->outs;
    void **all = calloc((size_t)operands, sizeof *all);
    const void **in = calloc((size_t)p->members, sizeof *in);
    SP_ASSERT(all != NULL && in != NULL);
    for (int j = 0; j < operands; j++) {
        all[j] = queued_work_behind(work, operand(p, j), p->count * sp_element_bytes(p->element));
    }
    for (int j = 0; j < p->members; j++) {
        in[j] = all[j];
    }
    sp_runtime *cpu = sp_runtime_cpu();
    cpu->ops->reduce(cpu, p->element, p->maximum, p->count, in, p->members, all + p->members,
                     p->outs);
    free((void *)in);
    free((void *)all);
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
        reduce(work, p);
        break;
    case QUEUED_CALL:
        p->call(work->runtime, p->own);
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
    free(p);
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

void queued_work_finish(queued_work *work, int rank)
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

bool queued_work_needs(const queued_work *work, const queued_block *block)
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
