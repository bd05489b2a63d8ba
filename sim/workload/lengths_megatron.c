// Megatron-LM dataset indices (.idx; megatron/core/datasets/indexed_dataset.py, _IndexWriter), all
// little-endian:
//   "MMIDIDX\0\0", u64 version 1, u8 token type, u64 sequences, u64 document indices,
//   i32 tokens[sequences], i64 byte offset in the .bin file[sequences],
//   i64 document index[document indices], for multimodal sets i8 mode[sequences].
// Document i is the sequences from index i to index i + 1, so there is one document less than there
// are indices.
#include <errno.h>
#include <string.h>

#include "sim/base/alloc.h"
#include "sim/workload/length_reader.h"

enum {
    HEADER_BYTES = 34,
    WINDOW_BYTES = 1 << 16,
    TEXT = 64,
};

typedef struct index_header {
    int64_t token_bytes;
    int64_t sequences;
    int64_t documents; // entries of the document index
} index_header;

// One array of the file, read piece by piece; the three arrays advance side by side.
typedef struct index_window {
    int64_t offset; // in the stream, of the bytes behind the buffer
    int64_t rest;   // bytes of the array behind the buffer
    size_t element_bytes;
    size_t begin, end;
    char buffer[WINDOW_BYTES];
} index_window;

typedef struct index_windows {
    index_window sizes;
    index_window pointers;
    index_window documents;
} index_windows;

static sp_status read_header(sp_i_reader *reader, index_header *header);
static sp_status read_documents(sp_i_reader *reader, const index_header *header,
                                index_windows *windows);

static void window_init(index_window *window, int64_t offset, int64_t count, size_t element_bytes)
{
    window->offset = offset;
    window->rest = count * (int64_t)element_bytes;
    window->element_bytes = element_bytes;
    window->begin = window->end = 0;
}

sp_status sp_i_lengths_read_megatron(sp_i_reader *reader)
{
    if (reader->bytes < 0) {
        return sp_error_set(reader->err, SP_ERR_IO,
                            "%s: a Megatron-LM index is read at three places at once, which a pipe "
                            "does not allow",
                            reader->source);
    }
    index_header header = {0};
    sp_status status = read_header(reader, &header);
    if (status != SP_OK) {
        return status;
    }
    index_windows *windows = sp_calloc(1, sizeof *windows);
    int64_t at = reader->start + HEADER_BYTES;
    window_init(&windows->sizes, at, header.sequences, 4);
    window_init(&windows->pointers, at + 4 * header.sequences, header.sequences, 8);
    window_init(&windows->documents, at + 12 * header.sequences, header.documents, 8);
    // The counts are known to fit into the file, so this room is never out of proportion to it.
    sp_i_lengths_reserve(reader->lengths, (size_t)(header.documents - 1), NULL);
    status = read_documents(reader, &header, windows);
    sp_free(windows);
    return status;
}

static sp_status invalid(sp_i_reader *reader, const char *what)
{
    return sp_error_in(reader->err, SP_ERR_CONTENT, reader->source, NULL, "%s", what);
}

// Codes of DType in indexed_dataset.py; 9 and 10 are fairseq's, from which the format comes.
static int64_t token_bytes(unsigned char code)
{
    static const int64_t bytes[] = {0, 1, 1, 2, 4, 8, 8, 4, 2, 4, 8};
    return code < sizeof bytes / sizeof bytes[0] ? bytes[code] : 0;
}

// Do the arrays fill the file? Modes may follow them.
static sp_status check_size(sp_i_reader *reader, uint64_t sequences, uint64_t documents)
{
    uint64_t held = (uint64_t)reader->bytes;
    if (sequences > held || documents > held) {
        return sp_error_in(reader->err, SP_ERR_CONTENT, reader->source, NULL,
                           "truncated: %llu sequences and %llu document indices do not fit into "
                           "%llu bytes",
                           (unsigned long long)sequences, (unsigned long long)documents,
                           (unsigned long long)held);
    }
    uint64_t needed = HEADER_BYTES + 12 * sequences + 8 * documents;
    if (held < needed) {
        return sp_error_in(reader->err, SP_ERR_CONTENT, reader->source, NULL,
                           "truncated: needs %llu bytes for %llu sequences and %llu document "
                           "indices, has %llu",
                           (unsigned long long)needed, (unsigned long long)sequences,
                           (unsigned long long)documents, (unsigned long long)held);
    }
    if (held != needed && held != needed + sequences) {
        return sp_error_in(reader->err, SP_ERR_CONTENT, reader->source, NULL,
                           "%llu bytes follow the document indices (expected none, or one mode for "
                           "each of %llu sequences)",
                           (unsigned long long)(held - needed), (unsigned long long)sequences);
    }
    return SP_OK;
}

static sp_status read_header(sp_i_reader *reader, index_header *header)
{
    const char *at = reader->buffer + reader->begin;
    size_t held = reader->end - reader->begin;
    if (held < 9 || memcmp(at, "MMIDIDX\0\0", 9) != 0) {
        return invalid(reader, "is no Megatron-LM index (expected it to begin with \"MMIDIDX\")");
    }
    if (held < HEADER_BYTES) {
        return sp_error_in(reader->err, SP_ERR_CONTENT, reader->source, NULL,
                           "truncated: needs %d bytes for its header, has %lld", (int)HEADER_BYTES,
                           (long long)reader->bytes);
    }
    uint64_t version = sp_i_little_endian(at + 9, 8);
    if (version != 1) {
        return sp_error_in(reader->err, SP_ERR_CONTENT, reader->source, "version",
                           "expected 1, got %llu", (unsigned long long)version);
    }
    header->token_bytes = token_bytes((unsigned char)at[17]);
    if (header->token_bytes == 0) {
        return sp_error_in(reader->err, SP_ERR_CONTENT, reader->source, "dtype",
                           "expected a code from 1 to 10, got %d", (int)(unsigned char)at[17]);
    }
    uint64_t sequences = sp_i_little_endian(at + 18, 8);
    uint64_t documents = sp_i_little_endian(at + 26, 8);
    sp_status status = check_size(reader, sequences, documents);
    if (status != SP_OK) {
        return status;
    }
    if (documents == 0) {
        return invalid(reader, "the document indices are empty (expected at least the first, 0)");
    }
    header->sequences = (int64_t)sequences;
    header->documents = (int64_t)documents;
    return SP_OK;
}

static sp_status refill(sp_i_reader *reader, index_window *window)
{
    size_t wanted = window->rest < WINDOW_BYTES ? (size_t)window->rest : WINDOW_BYTES;
    errno = 0;
    if (fseeko(reader->stream, window->offset, SEEK_SET) != 0 ||
        fread(window->buffer, 1, wanted, reader->stream) != wanted) {
        return sp_error_set(reader->err, SP_ERR_IO, "%s: %s", reader->source,
                            errno != 0 ? strerror(errno) : "became shorter while it was read");
    }
    window->offset += (int64_t)wanted;
    window->rest -= (int64_t)wanted;
    window->begin = 0;
    window->end = wanted;
    return SP_OK;
}

// The next element; the caller knows that there is one.
static sp_status next(sp_i_reader *reader, index_window *window, int64_t *value)
{
    if (window->begin == window->end) {
        sp_status status = refill(reader, window);
        if (status != SP_OK) {
            return status;
        }
    }
    uint64_t bits = sp_i_little_endian(window->buffer + window->begin, window->element_bytes);
    window->begin += window->element_bytes;
    *value = window->element_bytes == 4 ? (int32_t)(uint32_t)bits : (int64_t)bits;
    return SP_OK;
}

// Adds up the sequences [begin, end); *offset is where the next one must begin in the .bin file.
static sp_status sum_sequences(sp_i_reader *reader, const index_header *header,
                               index_windows *windows, int64_t begin, int64_t end, uint64_t *offset,
                               int64_t *tokens)
{
    *tokens = 0;
    for (int64_t i = begin; i < end; i++) {
        int64_t size = 0;
        int64_t pointer = 0;
        sp_status status = next(reader, &windows->sizes, &size);
        if (status == SP_OK) {
            status = next(reader, &windows->pointers, &pointer);
        }
        if (status != SP_OK) {
            return status;
        }
        char where[TEXT];
        if (size < 0) {
            snprintf(where, sizeof where, "sequence %lld", (long long)i);
            return sp_error_in(reader->err, SP_ERR_CONTENT, reader->source, where,
                               "expected a size from 0 to %d tokens, got %lld",
                               (int)SP_MAX_LENGTH_TOKENS, (long long)size);
        }
        if ((uint64_t)pointer != *offset) {
            snprintf(where, sizeof where, "sequence %lld", (long long)i);
            return sp_error_in(reader->err, SP_ERR_CONTENT, reader->source, where,
                               "expected byte offset %llu by the sizes before it, got %lld",
                               (unsigned long long)*offset, (long long)pointer);
        }
        *tokens = size > INT64_MAX - *tokens ? INT64_MAX : *tokens + size;
        *offset += (uint64_t)(size * header->token_bytes);
    }
    return SP_OK;
}

static sp_status index_error(sp_i_reader *reader, int64_t entry, int64_t least, int64_t most,
                             int64_t got)
{
    char where[TEXT];
    snprintf(where, sizeof where, "document index %lld", (long long)entry);
    return sp_error_in(reader->err, SP_ERR_CONTENT, reader->source, where,
                       "expected a sequence from %lld to %lld, got %lld", (long long)least,
                       (long long)most, (long long)got);
}

static sp_status read_documents(sp_i_reader *reader, const index_header *header,
                                index_windows *windows)
{
    int64_t begin = 0;
    sp_status status = next(reader, &windows->documents, &begin);
    int64_t first = header->documents == 1 ? header->sequences : 0;
    if (status == SP_OK && (begin != 0 || first != 0)) {
        status = index_error(reader, 0, first, first, begin);
    }
    uint64_t offset = 0;
    for (int64_t i = 1; i < header->documents && status == SP_OK; i++) {
        int64_t end = 0;
        status = next(reader, &windows->documents, &end);
        if (status != SP_OK) {
            return status;
        }
        int64_t least = i + 1 == header->documents ? header->sequences : begin;
        if (end < least || end > header->sequences) {
            return index_error(reader, i, least, header->sequences, end);
        }
        // An index that stands twice is a document that was ended before anything was added to it:
        // Megatron-LM writes such and trains on nothing there. A document of sequences without
        // tokens is a damaged file, and is refused below.
        if (end == begin) {
            continue;
        }
        int64_t tokens = 0;
        status = sum_sequences(reader, header, windows, begin, end, &offset, &tokens);
        begin = end;
        if (status != SP_OK) {
            return status;
        }
        if (tokens >= 1 && tokens <= SP_MAX_LENGTH_TOKENS) {
            sp_lengths_append(reader->lengths, tokens, NULL);
        } else {
            char where[TEXT];
            char found[TEXT];
            snprintf(where, sizeof where, "document %lld", (long long)(i - 1));
            snprintf(found, sizeof found, "%lld", (long long)tokens);
            status = sp_i_refuse(reader, where, found);
        }
    }
    return status;
}
