// Work of a queued machine's ranks (queued_runtime.h): how it is put down, and done.
#ifndef SLIMPACK_TESTS_SUPPORT_QUEUED_WORK_H
#define SLIMPACK_TESTS_SUPPORT_QUEUED_WORK_H

#include <stdalign.h>

#include "sim/base/prng.h"
#include "tests/support/queued_memory.h"
#include "tests/support/queued_runtime.h"

typedef enum queued_kind {
    QUEUED_COPY,
    QUEUED_ZERO,
    QUEUED_UPLOAD,
    QUEUED_REDUCE,
    QUEUED_CALL,
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
    queued_call *call;
    sp_fence fence;
    uint64_t stamp;
    alignas(
        max_align_t) char own[]; // what is uploaded, inputs and outputs of a reduction, arguments
} queued_piece;

typedef struct queued_rank {
    queued_piece *first, *last;
    uint64_t given, done; // pieces
    int64_t worked_ns;
    int fails_in; // pieces; negative: never
    bool failed;
} queued_rank;

typedef struct queued_work {
    sp_runtime *runtime; // handed to calls
    int ranks;
    queued_rank *each;
    queued_memory memory;
    sp_prng prng;
    int64_t now_ns;
    int64_t *stamps; // negative until they are noted
    uint64_t stamp_count;
} queued_work;

void queued_work_init(queued_work *work, sp_runtime *runtime,
                      const queued_runtime_options *options);
// What is not done is dropped.
void queued_work_fini(queued_work *work);

// A piece with `bytes` of its own, to be filled in, unless they are given, and put.
queued_piece *queued_piece_new(queued_kind kind, const void *own, int64_t bytes);
void queued_work_put(queued_work *work, int rank, queued_piece *piece);
// A stamp that will be noted.
uint64_t queued_work_stamp(queued_work *work, int rank);

// Does all work of a rank.
void queued_work_finish(queued_work *work, int rank);
// Does work that is not done read or write the block? Calls are not looked into.
bool queued_work_needs(const queued_work *work, const queued_block *block);

// The memory behind an address; NULL for no bytes.
void *queued_work_behind(const queued_work *work, const void *address, int64_t bytes);

#endif
