// The first byte chooses the format, the rest is the file.
#include <stdint.h>
#include <stdio.h>

#include "sim/base/status.h"
#include "sim/workload/length_reader.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    if (size < 2) {
        return 0;
    }
    sp_i_length_format format = (sp_i_length_format)(data[0] % (SP_I_LENGTHS_FORMATS + 1));
    const char *column = data[0] >= 128 ? "tokens" : NULL;
    FILE *stream = fmemopen((void *)(uintptr_t)(data + 1), size - 1, "rb");
    if (stream == NULL) {
        return 0;
    }
    sp_error err;
    sp_error_clear(&err);
    sp_lengths lengths;
    sp_status status = sp_i_lengths_read_stream(stream, format, "fuzz", column, &lengths, &err);
    SP_ASSERT(status == err.status);
    SP_ASSERT((status == SP_OK) == (lengths.count > 0));
    SP_ASSERT((status == SP_OK) == (err.count == 0));
    for (size_t i = 0; i < lengths.count; i++) {
        SP_ASSERT(lengths.tokens[i] >= 1 && lengths.tokens[i] <= SP_MAX_LENGTH_TOKENS);
    }
    for (int i = 0; i < err.count; i++) {
        for (const char *c = err.message[i]; *c != '\0'; c++) {
            SP_ASSERT(*c != '\n');
        }
    }
    sp_lengths_fini(&lengths);
    fclose(stream);
    return 0;
}
