// A list of lengths that grows.
#include "sim/base/alloc.h"
#include "sim/workload/lengths.h"

enum { FIRST_CAPACITY = 1024 };

void sp_lengths_fini(sp_lengths *lengths)
{
    sp_free(lengths->tokens);
    *lengths = (sp_lengths){0};
}

static void resize(sp_lengths *lengths, size_t capacity)
{
    lengths->tokens = sp_realloc(lengths->tokens, capacity * sizeof *lengths->tokens);
    lengths->capacity = capacity;
}

sp_status sp_i_lengths_reserve(sp_lengths *lengths, size_t count, sp_error *err)
{
    (void)err;
    if (count > lengths->capacity) {
        resize(lengths, count);
    }
    return SP_OK;
}

void sp_i_lengths_trim(sp_lengths *lengths)
{
    if (lengths->count < lengths->capacity) {
        resize(lengths, lengths->count);
    }
}

sp_status sp_lengths_append(sp_lengths *lengths, int64_t tokens, sp_error *err)
{
    (void)err;
    if (lengths->count == lengths->capacity) {
        // By an eighth: a list of 100 million must not hold half of itself in reserve.
        size_t grown = lengths->capacity + lengths->capacity / 8;
        resize(lengths, grown < FIRST_CAPACITY ? FIRST_CAPACITY : grown);
    }
    lengths->tokens[lengths->count++] = tokens;
    return SP_OK;
}
