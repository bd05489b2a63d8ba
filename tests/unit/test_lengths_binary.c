// NumPy arrays and Megatron-LM indices. The files are built here byte by byte after the formats'
// own definitions (NumPy Enhancement Proposal 1; megatron/core/datasets/indexed_dataset.py).
#include <unistd.h>

#include "sim/workload/length_reader.h"
#include "tests/support/test_main.h"

enum { ROOM = 1 << 20 };

typedef struct file_bytes {
    char *bytes;
    size_t n;
} file_bytes;

static file_bytes *new_file(void)
{
    static char room[ROOM];
    static file_bytes file;
    file = (file_bytes){.bytes = room};
    return &file;
}

static void put(file_bytes *file, const void *bytes, size_t n)
{
    assert_true(file->n + n <= ROOM);
    memcpy(file->bytes + file->n, bytes, n);
    file->n += n;
}

static void put_integer(file_bytes *file, uint64_t value, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        put(file, &(char){(char)(value >> (8 * i) & 255)}, 1);
    }
}

static sp_status read_file(const file_bytes *file, sp_lengths *lengths)
{
    FILE *stream = fmemopen(file->bytes, file->n, "rb");
    assert_non_null(stream);
    sp_error_clear(ERR);
    sp_status status = sp_i_lengths_read_stream(stream, SP_I_LENGTHS_ANY, "f", NULL, lengths, ERR);
    fclose(stream);
    assert_int_equal(status, ERR->status);
    return status;
}

static void expect_list(const file_bytes *file, const int64_t *tokens, size_t count)
{
    AUTO(sp_lengths) lengths;
    must_hold(read_file(file, &lengths) == SP_OK, "%s", ERR->message[0]);
    assert_int_equal(lengths.count, count);
    assert_int_equal(lengths.capacity, count);
    assert_memory_equal(lengths.tokens, tokens, count * sizeof *tokens);
}

static void expect_error(const file_bytes *file, const char *message)
{
    sp_lengths lengths;
    assert_int_equal(read_file(file, &lengths), SP_ERR_CONTENT);
    assert_string_equal(ERR->message[0], message);
    assert_null(lengths.tokens);
}

// Every proper beginning of a good file is refused, under the format's own name too.
static void expect_truncations_refused(const file_bytes *file, sp_i_length_format format)
{
    for (size_t n = 1; n < file->n; n++) {
        FILE *stream = fmemopen(file->bytes, n, "rb");
        sp_lengths lengths;
        must_fail_with(sp_i_lengths_read_stream(stream, format, "f", NULL, &lengths, ERR),
                       SP_ERR_CONTENT, "");
        assert_int_equal(ERR->count, 1);
        fclose(stream);
    }
}

static void npy(file_bytes *file, int version, const char *header)
{
    file->n = 0;
    put(file, "\x93NUMPY", 6);
    put_integer(file, (uint64_t)version, 1);
    put_integer(file, 0, 1);
    put_integer(file, strlen(header), version == 1 ? 2 : 4);
    put(file, header, strlen(header));
}

TEST(npy_reads_all_versions)
{
    file_bytes *file = new_file();
    const int64_t tokens[] = {7, 2147483647, 1};
    for (int version = 1; version <= 3; version++) {
        npy(file, version, "{'descr': '<i8', 'fortran_order': False, 'shape': (3,), }     \n");
        for (int i = 0; i < 3; i++) {
            put_integer(file, (uint64_t)tokens[i], 8);
        }
        expect_list(file, tokens, 3);
        npy(file, version, "{\"shape\":(3L,),\"fortran_order\":True,\"descr\":\"<i4\"}");
        for (int i = 0; i < 3; i++) {
            put_integer(file, (uint64_t)tokens[i], 4);
        }
        expect_list(file, tokens, 3);
        expect_truncations_refused(file, SP_I_LENGTHS_NPY);
    }
}

TEST(npy_refuses_other_arrays)
{
    file_bytes *file = new_file();
    const struct {
        const char *descr, *shape, *message;
    } bad[] = {
        {"'<f4'", "(3,)", "f: dtype: expected integers such as '<i4' or '<u8', got '<f4'"},
        {"'|O'", "(3,)", "f: dtype: expected integers such as '<i4' or '<u8', got '|O'"},
        {"[('a', '<i4'), ('b', '<i8')]", "(3,)",
         "f: dtype: expected integers such as '<i4' or '<u8', got [('a', '<i4'), ('b', '<i8')]"},
        {"'<i8'", "()", "f: shape: expected one dimension, got ()"},
        {"'|b1'", "(3,)", "f: dtype: expected integers such as '<i4' or '<u8', got '|b1'"},
        {"'<i8'", "(3, 2)", "f: shape: expected one dimension, got (3, 2)"},
        {"'<i8'", "(3, 1, 0)", "f: shape: expected one dimension, got (3, 1, 0)"},
        {"'<i8'", "(0,)", "f: holds no lengths"},
        {"'<i8'", "(5,)", "f: truncated: needs 105 bytes for 5 elements, has 65"},
        {"'<i8'", "(9223372036854775807,)",
         "f: shape: 9223372036854775807 elements fit into no file"},
        {"'<i8'", "(18446744073709551616,)",
         "f: the header is no dictionary of 'descr', 'fortran_order', 'shape'"},
        {"'<i8'", "(3;)", "f: the header is no dictionary of 'descr', 'fortran_order', 'shape'"},
        {"'<i8", "(3,)", "f: the header is no dictionary of 'descr', 'fortran_order', 'shape'"},
    };
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++) {
        char header[256];
        snprintf(header, sizeof header, "{'descr': %s, 'fortran_order': False, 'shape': %s}",
                 bad[i].descr, bad[i].shape);
        npy(file, 1, header);
        expect_error(file, bad[i].message);
    }
    npy(file, 4, "{}");
    expect_error(file, "f: expected NumPy format version 1, 2 or 3, got 4");
    npy(file, 1, "{'descr': '<i8', 'fortran_order': False, 'shape': (1,)}");
    put_integer(file, 5, 8);
    put_integer(file, 5, 4);
    expect_error(file, "f: 4 bytes follow the 1 elements (more than one array?)");
}

TEST(npy_names_the_element)
{
    file_bytes *file = new_file();
    npy(file, 1, "{'descr': '<i4', 'fortran_order': False, 'shape': (3,)}");
    put_integer(file, 5, 4);
    put_integer(file, 0, 4);
    put_integer(file, UINT64_MAX, 4);
    expect_error(file, "f: [1]: expected a length from 1 to 2147483647, got 0");
    assert_int_equal(ERR->count, 2);
    assert_string_equal(ERR->message[1], "f: [2]: expected a length from 1 to 2147483647, got -1");
    npy(file, 1, "{'descr': '<i8', 'fortran_order': False, 'shape': (1,)}");
    put_integer(file, UINT64_C(2147483648), 8);
    expect_error(file, "f: [0]: expected a length from 1 to 2147483647, got 2147483648");
}

// Every integer type of NumPy, in both byte orders; a column is a list.
TEST(npy_reads_all_integers)
{
    file_bytes *file = new_file();
    static const char kinds[] = {'i', 'u'};
    static const char orders[] = {'<', '>', '|', '='};
    static const char *const shapes[] = {"(2,)", "(2, 1)", "(1, 2)"};
    for (size_t bytes = 1; bytes <= 8; bytes *= 2) {
        for (size_t k = 0; k < 12; k++) {
            char header[128];
            char kind = kinds[k % 2];
            char order = orders[k % 4];
            // The largest length of the type, or of all.
            uint64_t most = (UINT64_C(1) << (8 * bytes - (kind == 'i' || bytes == 8))) - 1;
            int64_t tokens[] = {100, most > 2147483647 ? 2147483647 : (int64_t)most};
            snprintf(header, sizeof header,
                     "{'descr': '%c%c%zu', 'fortran_order': %s, 'shape': %s}", order, kind, bytes,
                     k % 3 == 0 ? "True" : "False", shapes[k % 3]);
            npy(file, 1, header);
            for (int i = 0; i < 2; i++) {
                uint64_t bits = 0;
                for (size_t b = 0; b < bytes; b++) {
                    uint64_t byte = (uint64_t)tokens[i] >> (8 * b) & 255;
                    bits |= byte << (8 * (order == '>' ? bytes - 1 - b : b));
                }
                put_integer(file, bits, bytes);
            }
            expect_list(file, tokens, 2);
        }
    }
    npy(file, 1, "{'descr': '>i2', 'fortran_order': False, 'shape': (2,)}");
    put_integer(file, 0x0100, 2);
    put_integer(file, 0xfeff, 2);
    expect_error(file, "f: [1]: expected a length from 1 to 2147483647, got -2");
    npy(file, 1, "{'descr': '<u8', 'fortran_order': False, 'shape': (1,)}");
    put_integer(file, UINT64_MAX, 8);
    expect_error(file, "f: [0]: expected a length from 1 to 2147483647, got 18446744073709551615");
}

static sp_status read_piped(const file_bytes *file, sp_lengths *lengths)
{
    int ends[2];
    assert_int_equal(pipe(ends), 0);
    assert_int_equal(write(ends[1], file->bytes, file->n), file->n);
    close(ends[1]);
    FILE *stream = fdopen(ends[0], "rb");
    sp_error_clear(ERR);
    sp_status status = sp_i_lengths_read_stream(stream, SP_I_LENGTHS_ANY, "f", NULL, lengths, ERR);
    fclose(stream);
    return status;
}

TEST(npy_comes_through_a_pipe)
{
    file_bytes *file = new_file();
    sp_lengths lengths;
    npy(file, 1, "{'descr': '<i8', 'fortran_order': False, 'shape': (2,)}");
    put_integer(file, 5, 8);
    put_integer(file, 6, 8);
    assert_int_equal(read_piped(file, &lengths), SP_OK);
    assert_int_equal(lengths.tokens[1], 6);
    sp_lengths_fini(&lengths);
    npy(file, 1, "{'descr': '<i8', 'fortran_order': False, 'shape': (200000000000,)}");
    put_integer(file, 5, 8);
    assert_int_equal(read_piped(file, &lengths), SP_ERR_CONTENT);
    assert_string_equal(ERR->message[0], "f: truncated: ends after 1 of 200000000000 elements");
}

// A Megatron-LM index whose parts can be set wrong one by one.
typedef struct index_parts {
    uint64_t version, dtype;
    const int64_t *sizes;
    size_t sequences;
    const int64_t *documents;
    size_t indices;
    int64_t token_bytes;
    bool modes;
} index_parts;

static void megatron(file_bytes *file, const index_parts *parts)
{
    file->n = 0;
    put(file, "MMIDIDX\0\0", 9);
    put_integer(file, parts->version, 8);
    put_integer(file, parts->dtype, 1);
    put_integer(file, parts->sequences, 8);
    put_integer(file, parts->indices, 8);
    for (size_t i = 0; i < parts->sequences; i++) {
        put_integer(file, (uint64_t)parts->sizes[i], 4);
    }
    int64_t offset = 0;
    for (size_t i = 0; i < parts->sequences; i++) {
        put_integer(file, (uint64_t)offset, 8);
        offset += parts->sizes[i] * parts->token_bytes;
    }
    for (size_t i = 0; i < parts->indices; i++) {
        put_integer(file, (uint64_t)parts->documents[i], 8);
    }
    for (size_t i = 0; i < parts->sequences && parts->modes; i++) {
        put_integer(file, 0, 1);
    }
}

static const int64_t some_sizes[] = {5, 0, 7, 11};
static const int64_t some_documents[] = {0, 1, 3, 3, 4};
static const index_parts some_parts = {
    .version = 1,
    .dtype = 8, // uint16
    .sizes = some_sizes,
    .sequences = 4,
    .documents = some_documents,
    .indices = 5,
    .token_bytes = 2,
};

TEST(megatron_sums_the_sequences_of_a_document)
{
    file_bytes *file = new_file();
    const int64_t tokens[] = {5, 7, 11}; // the third document is empty
    megatron(file, &some_parts);
    expect_list(file, tokens, 3);
    expect_truncations_refused(file, SP_I_LENGTHS_MEGATRON);
    const struct {
        uint64_t code;
        int64_t bytes;
    } types[] = {{1, 1}, {2, 1}, {3, 2}, {4, 4}, {5, 8}, {6, 8}, {7, 4}, {8, 2}};
    for (size_t i = 0; i < sizeof types / sizeof types[0]; i++) {
        index_parts parts = some_parts;
        parts.dtype = types[i].code;
        parts.token_bytes = types[i].bytes;
        parts.modes = i % 2 == 0;
        megatron(file, &parts);
        expect_list(file, tokens, 3);
    }
}

TEST(megatron_refuses_a_damaged_header)
{
    file_bytes *file = new_file();
    index_parts parts = some_parts;
    parts.version = 2;
    megatron(file, &parts);
    expect_error(file, "f: version: expected 1, got 2");
    parts = some_parts;
    parts.dtype = 11;
    megatron(file, &parts);
    expect_error(file, "f: dtype: expected a code from 1 to 10, got 11");
    megatron(file, &some_parts);
    file->bytes[8] = 1;
    expect_error(file, "f: is no Megatron-LM index (expected it to begin with \"MMIDIDX\")");
    megatron(file, &some_parts);
    file->n -= 40;
    // 34 + 12 * 4 + 8 * 5 = 122 bytes are a whole file.
    expect_error(file, "f: truncated: needs 122 bytes for 4 sequences and 5 document indices, "
                       "has 82");
    megatron(file, &some_parts);
    put_integer(file, 0, 3);
    expect_error(file, "f: 3 bytes follow the document indices (expected none, or one mode for "
                       "each of 4 sequences)");
    megatron(file, &some_parts);
    memset(file->bytes + 18, 0xff, 8);
    expect_error(file, "f: truncated: 18446744073709551615 sequences and 5 document indices do "
                       "not fit into 122 bytes");
    parts = some_parts;
    parts.sequences = parts.indices = 0;
    megatron(file, &parts);
    expect_error(file, "f: the document indices are empty (expected at least the first, 0)");
    parts.indices = 1;
    megatron(file, &parts);
    expect_error(file, "f: holds no lengths");
}

TEST(megatron_checks_the_arrays_against_each_other)
{
    file_bytes *file = new_file();
    const struct {
        int64_t documents[5];
        const char *message;
    } bad[] = {
        {{1, 1, 3, 3, 4}, "f: document index 0: expected a sequence from 0 to 0, got 1"},
        {{0, 3, 2, 3, 4}, "f: document index 2: expected a sequence from 3 to 4, got 2"},
        {{0, 1, 3, 3, 3}, "f: document index 4: expected a sequence from 4 to 4, got 3"},
        {{0, 1, 9, 3, 4}, "f: document index 2: expected a sequence from 1 to 4, got 9"},
        {{0, 1, -1, 3, 4}, "f: document index 2: expected a sequence from 1 to 4, got -1"},
        {{0, 1, 2, 3, 4}, "f: document 1: expected a length from 1 to 2147483647, got 0"},
    };
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++) {
        index_parts parts = some_parts;
        parts.documents = bad[i].documents;
        megatron(file, &parts);
        expect_error(file, bad[i].message);
    }
    index_parts parts = some_parts;
    parts.token_bytes = 4; // than the type code says
    megatron(file, &parts);
    expect_error(file, "f: sequence 1: expected byte offset 10 by the sizes before it, got 20");
    parts = some_parts;
    const int64_t negative[] = {5, 0, -7, 11};
    parts.sizes = negative;
    megatron(file, &parts);
    expect_error(file, "f: sequence 2: expected a size from 0 to 2147483647 tokens, got -7");
    const int64_t huge[] = {2147483647, 1, 7, 11};
    const int64_t joined[] = {0, 2, 3, 3, 4};
    parts.sizes = huge;
    parts.documents = joined;
    megatron(file, &parts);
    expect_error(file, "f: document 0: expected a length from 1 to 2147483647, got 2147483648");
    parts = some_parts;
    parts.indices = 1;
    megatron(file, &parts);
    expect_error(file, "f: document index 0: expected a sequence from 4 to 4, got 0");
}

TEST(megatron_needs_a_file)
{
    file_bytes *file = new_file();
    sp_lengths lengths;
    megatron(file, &some_parts);
    assert_int_equal(read_piped(file, &lengths), SP_ERR_IO);
}

// 40,000 sequences: each of the three arrays is read in several pieces.
TEST(large_index_comes_back)
{
    file_bytes *file = new_file();
    enum { SEQUENCES = 40000 };
    static int64_t sizes[SEQUENCES];
    static int64_t documents[SEQUENCES + 1];
    static int64_t expected[SEQUENCES];
    index_parts parts = some_parts;
    sp_prng prng = prng_seeded(5);
    size_t count = 0;
    int64_t sum = 0;
    parts.indices = 1;
    for (size_t i = 0; i < SEQUENCES; i++) {
        sizes[i] = 1 + (int64_t)sp_prng_below(&prng, 100000);
        sum += sizes[i];
        if (i + 1 == SEQUENCES || sp_prng_below(&prng, 3) > 0) {
            documents[parts.indices++] = (int64_t)i + 1;
            expected[count++] = sum;
            sum = 0;
        }
    }
    parts.sizes = sizes;
    parts.sequences = SEQUENCES;
    parts.documents = documents;
    megatron(file, &parts);
    expect_list(file, expected, count);
}

TEST(large_array_comes_back)
{
    file_bytes *file = new_file();
    enum { COUNT = 100000 };
    static int64_t tokens[COUNT];
    sp_prng prng = prng_seeded(6);
    npy(file, 2, "{'descr': '<i8', 'fortran_order': False, 'shape': (100000,)}");
    for (int i = 0; i < COUNT; i++) {
        tokens[i] = 1 + (int64_t)sp_prng_below(&prng, SP_MAX_LENGTH_TOKENS);
        put_integer(file, (uint64_t)tokens[i], 8);
    }
    expect_list(file, tokens, COUNT);
}
