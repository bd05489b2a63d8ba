// Lengths in binary files: NumPy arrays and Megatron-LM dataset indices.
#include <errno.h>
#include <string.h>

#include "sim/base/alloc.h"
#include "sim/workload/length_reader.h"

// NumPy arrays (.npy, format versions 1.0 to 3.0; NumPy Enhancement Proposal 1 and
// numpy/lib/format.py): a magic, a header that is a Python dictionary literal, the raw elements.

enum {
    MAGIC_BYTES = 8,            // "\x93NUMPY", major, minor
    HEADER_BYTES_MAX = 1 << 16, // what numpy.load accepts by default is smaller still
    TEXT = 64,                  // bytes of a place, or a number, in messages
};

// A piece of the header.
typedef struct npy_piece {
    const char *text;
    size_t bytes;
} npy_piece;

typedef struct npy_header {
    npy_piece dtype;
    npy_piece shape;
    bool structured; // dtype is no single type
    int dimensions;
    uint64_t count; // of elements
    bool is_matrix; // two dimensions are not 1
    bool has_dtype, has_shape;
} npy_header;

// An integer type: "<i8", ">u2", "|i1".
typedef struct npy_type {
    size_t bytes; // 0: none
    bool is_signed, is_big_endian;
} npy_type;

typedef struct npy_cursor {
    const char *next;
    const char *end;
} npy_cursor;

// Megatron-LM dataset indices (.idx; megatron/core/datasets/indexed_dataset.py, _IndexWriter), all
// little-endian:
//   "MMIDIDX\0\0", u64 version 1, u8 token type, u64 sequences, u64 document indices,
//   i32 tokens[sequences], i64 byte offset in the .bin file[sequences],
//   i64 document index[document indices], for multimodal sets i8 mode[sequences].
// Document i is the sequences from index i to index i + 1, so there is one document less than there
// are indices.

enum {
    HEADER_BYTES = 34,
    WINDOW_BYTES = 1 << 16,
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

// Takes version and header length off the buffer; *bytes is that of the dictionary.
static sp_status read_preamble(sp_i_reader *reader, size_t *bytes)
{
    const char *head = reader->buffer + reader->begin;
    size_t held = reader->end - reader->begin;
    if (held < 6 || memcmp(head, "\x93NUMPY", 6) != 0) {
        return sp_i_wrong(reader, NULL,
                          "is no NumPy array (expected it to begin with \"\\x93NUMPY\")");
    }
    if (held < MAGIC_BYTES + 4) {
        return sp_i_wrong(reader, NULL, "truncated: the header is not complete");
    }
    unsigned char major = (unsigned char)head[6];
    if (major < 1 || major > 3) {
        return sp_i_wrong(reader, NULL, "expected NumPy format version 1, 2 or 3, got %d",
                          (int)major);
    }
    size_t size = major == 1 ? 2 : 4;
    uint64_t length = sp_i_little_endian(head + MAGIC_BYTES, size);
    if (length > HEADER_BYTES_MAX) {
        return sp_i_wrong(reader, NULL, "expected a header of at most %d bytes, got %llu",
                          (int)HEADER_BYTES_MAX, (unsigned long long)length);
    }
    if (held - MAGIC_BYTES - size < length) {
        return sp_i_wrong(reader, NULL, "truncated: the header is not complete");
    }
    reader->begin += MAGIC_BYTES + size;
    *bytes = (size_t)length;
    return SP_OK;
}

static bool is_text(const npy_piece *piece, const char *text)
{
    return piece->bytes == strlen(text) && memcmp(piece->text, text, piece->bytes) == 0;
}

static npy_type type_of(const npy_piece *dtype)
{
    const char *name = dtype->text;
    bool is_integer = dtype->bytes == 3 && memchr("<>|=", name[0], 4) != NULL &&
                      (name[1] == 'i' || name[1] == 'u') && memchr("1248", name[2], 4) != NULL;
    return is_integer ? (npy_type){.bytes = (size_t)(name[2] - '0'),
                                   .is_signed = name[1] == 'i',
                                   .is_big_endian = name[0] == '>'}
                      : (npy_type){0};
}

static sp_status check_array(sp_i_reader *reader, const npy_header *header, npy_type *type)
{
    char found[SP_I_QUOTE];
    *type = header->structured ? (npy_type){0} : type_of(&header->dtype);
    if (type->bytes == 0) {
        sp_quote(header->dtype.text, header->dtype.bytes, found);
        return sp_i_wrong(reader, "dtype", "expected integers such as '<i4' or '<u8', got %s%s%s",
                          header->structured ? "" : "'", found, header->structured ? "" : "'");
    }
    if (header->dimensions < 1 || header->is_matrix) {
        sp_quote(header->shape.text, header->shape.bytes, found);
        return sp_i_wrong(reader, "shape", "expected one dimension, got %s", found);
    }
    return SP_OK;
}

static sp_status check_array_size(sp_i_reader *reader, size_t header_bytes, uint64_t count,
                                  size_t element_bytes)
{
    int64_t held = reader->bytes - (int64_t)header_bytes;
    if (count > (uint64_t)(INT64_MAX - (1 << 20)) / element_bytes) {
        return sp_i_wrong(reader, "shape", "%llu elements fit into no file",
                          (unsigned long long)count);
    }
    int64_t needed = (int64_t)count * (int64_t)element_bytes;
    if (held < needed) {
        return sp_i_wrong(reader, NULL, "truncated: needs %lld bytes for %llu elements, has %lld",
                          (long long)(needed + (int64_t)header_bytes), (unsigned long long)count,
                          (long long)reader->bytes);
    }
    if (held > needed) {
        return sp_i_wrong(reader, NULL,
                          "%lld bytes follow the %llu elements (more than one array?)",
                          (long long)(held - needed), (unsigned long long)count);
    }
    sp_i_lengths_reserve(reader->lengths, (size_t)count);
    return SP_OK;
}

// The bits of an element, with the sign carried to all 64.
static uint64_t element_bits(const char *bytes, npy_type type)
{
    uint64_t bits = sp_i_little_endian(bytes, type.bytes);
    if (type.is_big_endian) {
        bits = 0;
        for (size_t i = 0; i < type.bytes; i++) {
            bits = bits << 8 | (unsigned char)bytes[i];
        }
    }
    uint64_t sign = UINT64_C(1) << (8 * type.bytes - 1);
    return type.is_signed ? (bits ^ sign) - sign : bits;
}

static sp_status read_array(sp_i_reader *reader, uint64_t count, npy_type type)
{
    for (uint64_t i = 0; i < count; i++) {
        if (reader->end - reader->begin < type.bytes) {
            SP_TRY(sp_i_reader_fill(reader));
            if (reader->end < type.bytes) {
                return sp_i_wrong(reader, NULL, "truncated: ends after %llu of %llu elements",
                                  (unsigned long long)i, (unsigned long long)count);
            }
        }
        uint64_t bits = element_bits(reader->buffer + reader->begin, type);
        reader->begin += type.bytes;
        sp_status status = SP_OK;
        if (bits >= 1 && bits <= SP_MAX_LENGTH_TOKENS) {
            sp_lengths_append(reader->lengths, (int64_t)bits);
        } else {
            char where[TEXT];
            char found[TEXT];
            snprintf(where, sizeof where, "[%llu]", (unsigned long long)i);
            snprintf(found, sizeof found, type.is_signed ? "%lld" : "%llu", (long long)bits);
            status = sp_i_refuse(reader, where, found);
        }
        if (status != SP_OK) {
            return status;
        }
    }
    return SP_OK;
}

static void skip_blanks(npy_cursor *cursor)
{
    while (cursor->next < cursor->end && (*cursor->next == ' ' || *cursor->next == '\n')) {
        cursor->next++;
    }
}

// Does c stand next (blanks aside)? Takes it then.
static bool take(npy_cursor *cursor, char c)
{
    skip_blanks(cursor);
    if (cursor->next == cursor->end || *cursor->next != c) {
        return false;
    }
    cursor->next++;
    return true;
}

// A Python string without escapes.
static bool take_string(npy_cursor *cursor, npy_piece *string)
{
    char quote = take(cursor, '\'') ? '\'' : '"';
    if (quote == '"' && !take(cursor, '"')) {
        return false;
    }
    const char *close = memchr(cursor->next, quote, (size_t)(cursor->end - cursor->next));
    if (close == NULL) {
        return false;
    }
    *string = (npy_piece){cursor->next, (size_t)(close - cursor->next)};
    cursor->next = close + 1;
    return true;
}

// One type, or the list of fields of a structured type, of which only the extent is found.
static bool take_dtype(npy_cursor *cursor, npy_header *header)
{
    header->has_dtype = true;
    if (take_string(cursor, &header->dtype)) {
        return true;
    }
    header->structured = true;
    const char *begin = cursor->next;
    int depth = 0;
    do {
        if (cursor->next == cursor->end) {
            return false;
        }
        depth += *cursor->next == '[' || *cursor->next == '(';
        depth -= *cursor->next == ']' || *cursor->next == ')';
        cursor->next++;
    } while (depth > 0);
    header->dtype = (npy_piece){begin, (size_t)(cursor->next - begin)};
    return true;
}

static bool take_bool(npy_cursor *cursor)
{
    const char *word = take(cursor, 'T') ? "rue" : take(cursor, 'F') ? "alse" : NULL;
    if (word == NULL || (size_t)(cursor->end - cursor->next) < strlen(word) ||
        memcmp(cursor->next, word, strlen(word)) != 0) {
        return false;
    }
    cursor->next += strlen(word);
    return true;
}

static bool take_count(npy_cursor *cursor, uint64_t *count)
{
    const char *begin = cursor->next;
    *count = 0;
    for (; cursor->next < cursor->end && *cursor->next >= '0' && *cursor->next <= '9';
         cursor->next++) {
        if (*count > (UINT64_MAX - 9) / 10) {
            return false;
        }
        *count = *count * 10 + (uint64_t)(*cursor->next - '0');
    }
    // Python 2 wrote long integers as 5L.
    bool digits = cursor->next > begin;
    cursor->next += digits && cursor->next < cursor->end && *cursor->next == 'L';
    return digits;
}

static bool take_shape(npy_cursor *cursor, npy_header *header)
{
    header->has_shape = true;
    if (!take(cursor, '(')) {
        return false;
    }
    const char *begin = cursor->next - 1;
    while (!take(cursor, ')')) {
        uint64_t count = 0;
        if (!take_count(cursor, &count)) {
            return false;
        }
        bool is_first = header->dimensions++ == 0;
        header->is_matrix = header->is_matrix || (!is_first && count != 1 && header->count != 1);
        header->count = is_first || header->count == 1 ? count : header->count;
        if (!take(cursor, ',') && (cursor->next == cursor->end || *cursor->next != ')')) {
            return false;
        }
    }
    header->shape = (npy_piece){begin, (size_t)(cursor->next - begin)};
    return true;
}

static bool parse_array_header(const char *text, size_t n, npy_header *header)
{
    npy_cursor cursor = {text, text + n};
    if (!take(&cursor, '{')) {
        return false;
    }
    while (!take(&cursor, '}')) {
        npy_piece key;
        if (!take_string(&cursor, &key) || !take(&cursor, ':')) {
            return false;
        }
        skip_blanks(&cursor);
        // The order of the elements is the same either way where all but one dimension are 1.
        bool valid = is_text(&key, "descr")           ? take_dtype(&cursor, header)
                     : is_text(&key, "fortran_order") ? take_bool(&cursor)
                     : is_text(&key, "shape")         ? take_shape(&cursor, header)
                                                      : false;
        if (!valid) {
            return false;
        }
        take(&cursor, ',');
    }
    return header->has_dtype && header->has_shape;
}

sp_status sp_i_lengths_read_npy(sp_i_reader *reader)
{
    size_t before = reader->begin;
    size_t bytes = 0;
    SP_TRY(read_preamble(reader, &bytes));
    npy_header header = {0};
    npy_type type = {0};
    if (!parse_array_header(reader->buffer + reader->begin, bytes, &header)) {
        return sp_i_wrong(reader, NULL,
                          "the header is no dictionary of 'descr', 'fortran_order', 'shape'");
    }
    SP_TRY(check_array(reader, &header, &type));
    reader->begin += bytes;
    // The size of a pipe is not known: the list grows then, and what is missing shows at its end.
    if (reader->bytes >= 0) {
        SP_TRY(check_array_size(reader, reader->begin - before, header.count, type.bytes));
    }
    return read_array(reader, header.count, type);
}

static void window_init(index_window *window, int64_t offset, int64_t count, size_t element_bytes)
{
    window->offset = offset;
    window->rest = count * (int64_t)element_bytes;
    window->element_bytes = element_bytes;
    window->begin = window->end = 0;
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
        return sp_i_wrong(
            reader, NULL,
            "truncated: %llu sequences and %llu document indices do not fit into %llu bytes",
            (unsigned long long)sequences, (unsigned long long)documents, (unsigned long long)held);
    }
    uint64_t needed = HEADER_BYTES + 12 * sequences + 8 * documents;
    if (held < needed) {
        return sp_i_wrong(
            reader, NULL,
            "truncated: needs %llu bytes for %llu sequences and %llu document indices, has %llu",
            (unsigned long long)needed, (unsigned long long)sequences,
            (unsigned long long)documents, (unsigned long long)held);
    }
    if (held != needed && held != needed + sequences) {
        return sp_i_wrong(reader, NULL,
                          "%llu bytes follow the document indices (expected none, or one mode for "
                          "each of %llu sequences)",
                          (unsigned long long)(held - needed), (unsigned long long)sequences);
    }
    return SP_OK;
}

static sp_status read_index_header(sp_i_reader *reader, index_header *header)
{
    const char *head = reader->buffer + reader->begin;
    size_t held = reader->end - reader->begin;
    if (held < 9 || memcmp(head, "MMIDIDX\0\0", 9) != 0) {
        return sp_i_wrong(reader, NULL,
                          "is no Megatron-LM index (expected it to begin with \"MMIDIDX\")");
    }
    if (held < HEADER_BYTES) {
        return sp_i_wrong(reader, NULL, "truncated: needs %d bytes for its header, has %lld",
                          (int)HEADER_BYTES, (long long)reader->bytes);
    }
    uint64_t version = sp_i_little_endian(head + 9, 8);
    if (version != 1) {
        return sp_i_wrong(reader, "version", "expected 1, got %llu", (unsigned long long)version);
    }
    header->token_bytes = token_bytes((unsigned char)head[17]);
    if (header->token_bytes == 0) {
        return sp_i_wrong(reader, "dtype", "expected a code from 1 to 10, got %d",
                          (int)(unsigned char)head[17]);
    }
    uint64_t sequences = sp_i_little_endian(head + 18, 8);
    uint64_t documents = sp_i_little_endian(head + 26, 8);
    SP_TRY(check_size(reader, sequences, documents));
    if (documents == 0) {
        return sp_i_wrong(reader, NULL,
                          "the document indices are empty (expected at least the first, 0)");
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
        SP_TRY(refill(reader, window));
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
        SP_TRY(next(reader, &windows->sizes, &size));
        SP_TRY(next(reader, &windows->pointers, &pointer));
        char where[TEXT];
        if (size < 0) {
            snprintf(where, sizeof where, "sequence %lld", (long long)i);
            return sp_i_wrong(reader, where, "expected a size from 0 to %d tokens, got %lld",
                              (int)SP_MAX_LENGTH_TOKENS, (long long)size);
        }
        if ((uint64_t)pointer != *offset) {
            snprintf(where, sizeof where, "sequence %lld", (long long)i);
            return sp_i_wrong(reader, where,
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
    return sp_i_wrong(reader, where, "expected a sequence from %lld to %lld, got %lld",
                      (long long)least, (long long)most, (long long)got);
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
            sp_lengths_append(reader->lengths, tokens);
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

sp_status sp_i_lengths_read_megatron(sp_i_reader *reader)
{
    if (reader->bytes < 0) {
        return sp_error_set(reader->err, SP_ERR_IO,
                            "%s: a Megatron-LM index is read at three places at once, which a pipe "
                            "does not allow",
                            reader->source);
    }
    index_header header = {0};
    SP_TRY(read_index_header(reader, &header));
    index_windows *windows = sp_calloc(1, sizeof *windows);
    int64_t offset = reader->start + HEADER_BYTES;
    window_init(&windows->sizes, offset, header.sequences, 4);
    window_init(&windows->pointers, offset + 4 * header.sequences, header.sequences, 8);
    window_init(&windows->documents, offset + 12 * header.sequences, header.documents, 8);
    // The counts are known to fit into the file, so this room is never out of proportion to it.
    sp_i_lengths_reserve(reader->lengths, (size_t)(header.documents - 1));
    sp_status status = read_documents(reader, &header, windows);
    sp_free(windows);
    return status;
}
