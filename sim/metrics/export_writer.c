#include <errno.h>
#include <string.h>

#include "sim/metrics/export_internal.h"

enum {
    MAX_DIGITS = 20, // of a 64-bit integer
    GIB_SHIFT = 30,
};

void sp_i_writer_init(sp_i_writer *out, FILE *file)
{
    out->file = file;
    out->used = 0;
    out->error_number = 0;
}

static void drain(sp_i_writer *out)
{
    if (out->used > 0 && out->error_number == 0) {
        errno = 0;
        if (fwrite(out->buffer, 1, out->used, out->file) != out->used) {
            out->error_number = errno != 0 ? errno : EIO;
        }
    }
    out->used = 0;
}

void sp_i_write_bytes(sp_i_writer *out, const void *bytes, size_t count)
{
    const char *from = bytes;
    while (count > 0) {
        if (out->used == SP_I_WRITER_BYTES) {
            drain(out);
        }
        size_t room = SP_I_WRITER_BYTES - out->used;
        size_t part = count < room ? count : room;
        memcpy(out->buffer + out->used, from, part);
        out->used += part;
        from += part;
        count -= part;
    }
}

void sp_i_write_text(sp_i_writer *out, const char *text)
{
    sp_i_write_bytes(out, text, strlen(text));
}

void sp_i_write_char(sp_i_writer *out, char c)
{
    sp_i_write_bytes(out, &c, 1);
}

void sp_i_write_int(sp_i_writer *out, int64_t value)
{
    sp_i_write_fixed(out, value, 0);
}

void sp_i_write_fixed(sp_i_writer *out, int64_t value, int decimals)
{
    char text[MAX_DIGITS + 3];
    size_t at = sizeof(text);
    // The magnitude of INT64_MIN exists only as an unsigned number.
    uint64_t rest = value < 0 ? 0 - (uint64_t)value : (uint64_t)value;
    int places = 0;
    do {
        if (places == decimals && decimals > 0) {
            text[--at] = '.';
        }
        text[--at] = (char)('0' + rest % 10);
        rest /= 10;
        places++;
    } while (rest > 0 || places <= decimals);
    if (value < 0) {
        text[--at] = '-';
    }
    sp_i_write_bytes(out, text + at, sizeof(text) - at);
}

void sp_i_write_gib(sp_i_writer *out, int64_t bytes)
{
    const int64_t million = 1000000;
    int64_t size = bytes < 0 ? -bytes : bytes;
    int64_t whole = size >> GIB_SHIFT;
    int64_t part = size & (((int64_t)1 << GIB_SHIFT) - 1);
    int64_t millionths =
        whole * million + ((part * million + ((int64_t)1 << (GIB_SHIFT - 1))) >> GIB_SHIFT);
    sp_i_write_fixed(out, bytes < 0 ? -millionths : millionths, 6);
}

sp_status sp_i_writer_finish(sp_i_writer *out, const char *what, sp_error *err)
{
    drain(out);
    if (out->error_number == 0) {
        errno = 0;
        if (fflush(out->file) != 0) {
            out->error_number = errno != 0 ? errno : EIO;
        }
    }
    if (out->error_number != 0) {
        return sp_error_set(err, SP_ERR_IO, "cannot write the %s: %s", what,
                            strerror(out->error_number));
    }
    return SP_OK;
}
