// A stream of batches from arbitrary bytes, which come in pieces of a size that the first byte
// gives: the lines put together again are the input, and a line that is read as a batch is a JSON
// array of these lengths for a parser of JSON too.
#include <jansson.h>
#include <stdint.h>
#include <string.h>

#include "experiments/stream/plan_stream.h"
#include "sim/base/alloc.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

enum { LIMIT = 4096 };

typedef struct pieces {
    const char *bytes;
    size_t size, at, piece;
} pieces;

static long read_piece(void *context, char *bytes, size_t room)
{
    pieces *from = context;
    size_t n = from->piece < room ? from->piece : room;
    n = n < from->size - from->at ? n : from->size - from->at;
    memcpy(bytes, from->bytes + from->at, n);
    from->at += n;
    return (long)n;
}

static void try_batch(const char *text, size_t bytes)
{
    sp_lengths lengths;
    sp_error err;
    sp_error_clear(&err);
    sp_status status = stream_read_lengths(text, bytes, "fuzz", 1, &lengths, &err);
    SP_ASSERT((status == SP_OK) == (err.count == 0));
    SP_ASSERT((status == SP_OK) == (lengths.count > 0));
    if (status != SP_OK) {
        return;
    }
    // Numbers that only look like JSON ("07") are read all the same.
    json_t *root = json_loadb(text, bytes, 0, NULL);
    SP_ASSERT(root == NULL || json_array_size(root) == lengths.count);
    for (size_t i = 0; i < lengths.count; i++) {
        SP_ASSERT(lengths.tokens[i] >= 1 && lengths.tokens[i] <= SP_MAX_LENGTH_TOKENS);
        SP_ASSERT(root == NULL ||
                  json_number_value(json_array_get(root, i)) == (double)lengths.tokens[i]);
    }
    json_decref(root);
    sp_lengths_fini(&lengths);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    pieces from = {.bytes = (const char *)data, .size = size};
    from.piece = size > 0 ? 1 + (size_t)data[0] : 1;
    stream_source source = {.read = read_piece, .context = &from, .name = "fuzz"};
    stream_lines lines;
    stream_lines_init(&lines, source, LIMIT);
    size_t at = 0;
    for (;;) {
        char *text;
        size_t bytes;
        sp_error err;
        sp_error_clear(&err);
        sp_status status = stream_lines_next(&lines, &text, &bytes, &err);
        if (status != SP_OK || text == NULL) {
            SP_ASSERT(status != SP_OK ? err.count == 1 && size - at > LIMIT : at == size);
            break;
        }
        SP_ASSERT(bytes <= LIMIT && at + bytes <= size && memcmp(text, data + at, bytes) == 0);
        at += bytes;
        SP_ASSERT(at == size || data[at] == '\n');
        at += at < size;
        try_batch(text, bytes);
        sp_free(text);
    }
    stream_lines_fini(&lines);
    return 0;
}
