#include "sim/base/writer.h"

#include <errno.h>
#include <stdarg.h>
#include <string.h>

enum { MAX_DIGITS = 20 }; // of a 64-bit integer

void sp_writer_init(sp_writer *out, FILE *file)
{
    out->file = file;
    out->used = 0;
    out->error_number = 0;
}

static void drain(sp_writer *out)
{
    if (out->used > 0 && out->error_number == 0) {
        errno = 0;
        if (fwrite(out->buffer, 1, out->used, out->file) != out->used) {
            out->error_number = errno != 0 ? errno : EIO;
        }
    }
    out->used = 0;
}

// Most pieces are a few bytes: a call for each would cost more than it copies.
static inline void put(sp_writer *out, char byte)
{
    if (out->used == SP_WRITER_BYTES) {
        drain(out);
    }
    out->buffer[out->used++] = byte;
}

void sp_write_bytes(sp_writer *out, const void *bytes, size_t count)
{
    const char *from = bytes;
    while (count > 0) {
        if (out->used == SP_WRITER_BYTES) {
            drain(out);
        }
        size_t room = SP_WRITER_BYTES - out->used;
        size_t some = count < room ? count : room;
        memcpy(out->buffer + out->used, from, some);
        out->used += some;
        from += some;
        count -= some;
    }
}

// value * 10^-decimals with exactly `decimals` places.
static void write_fixed(sp_writer *out, int64_t value, int decimals)
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
    while (at < sizeof(text)) {
        put(out, text[at++]);
    }
}

void sp_write(sp_writer *out, const char *format, ...)
{
    va_list args;
    va_start(args, format);
    for (const char *at = format; *at != '\0';) {
        if (*at != '%') {
            put(out, *at++);
            continue;
        }
        int decimals = at[1] == '.' ? at[2] - '0' : 0;
        at += decimals > 0 ? 3 : 1;
        if (*at == 's') {
            for (const char *text = va_arg(args, const char *); *text != '\0'; text++) {
                put(out, *text);
            }
        } else if (*at == 'c') {
            put(out, (char)va_arg(args, int));
        } else if (*at == 'd') {
            write_fixed(out, va_arg(args, int), 0);
        } else if (*at == 'z') {
            write_fixed(out, (int64_t)va_arg(args, size_t), 0);
        } else {
            SP_ASSERT(*at == 'l');
            write_fixed(out, va_arg(args, long long), decimals);
        }
        at += *at == 'l' ? 3 : *at == 'z' ? 2 : 1;
    }
    va_end(args);
}

sp_status sp_writer_finish(sp_writer *out, const char *what, sp_error *err)
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

void sp_append(char *text, size_t bytes, const char *format, ...)
{
    size_t used = strlen(text);
    va_list args;
    va_start(args, format);
    vsnprintf(text + used, bytes - used, format, args);
    va_end(args);
}
