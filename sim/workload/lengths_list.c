// A list of lengths that grows.
#include "sim/base/alloc.h"
#include "sim/workload/lengths.h"

enum { FIRST_CAPACITY = 1024 };

void sp_lengths_fini(sp_lengths *lengths)
{
    sp_free(lengths->tokens);
    *lengths = (sp_lengths){0};
}

static sp_status resize(sp_lengths *lengths, size_t capacity, sp_error *err)
{
    if (capacity > SIZE_MAX / sizeof *lengths->tokens) {
        return sp_error_no_memory(err, "lengths");
    }
    int64_t *resized = sp_realloc(lengths->tokens, capacity * sizeof *resized);
    if (resized == NULL) {
        return sp_error_no_memory(err, "lengths");
    }
    lengths->tokens = resized;
    lengths->capacity = capacity;
    return SP_OK;
}

sp_status sp_i_lengths_reserve(sp_lengths *lengths, size_t count, sp_error *err)
{
    return count > lengths->capacity ? resize(lengths, count, err) : SP_OK;
}

sp_status sp_i_lengths_trim(sp_lengths *lengths, sp_error *err)
{
    return lengths->count < lengths->capacity ? resize(lengths, lengths->count, err) : SP_OK;
}

sp_status sp_lengths_append(sp_lengths *lengths, int64_t tokens, sp_error *err)
{
    if (lengths->count == lengths->capacity) {
        // By an eighth: a list of 100 million must not hold half of itself in reserve.
        size_t grown = lengths->capacity + lengths->capacity / 8;
        sp_status status = resize(lengths, grown < FIRST_CAPACITY ? FIRST_CAPACITY : grown, err);
        if (status != SP_OK) {
            return status;
        }
    }
    lengths->tokens[lengths->count++] = tokens;
    return SP_OK;
}
