#define _POSIX_C_SOURCE 200809L
#include "sim/base/writer.h"

#include <errno.h>
#include <stdarg.h>
#include <string.h>

#include "sim/base/alloc.h"

enum { MAX_DIGITS = 20 }; // of a 64-bit integer

void sp_writer_init(sp_writer *out, FILE *file)
{
    out->file = file;
    out->sink = NULL;
    out->used = 0;
    out->error_number = 0;
}

static void drain(sp_writer *out)
{
    if (out->used > 0 && out->error_number == 0 && out->sink != NULL) {
        out->error_number = out->sink(out->context, out->buffer, out->used);
    } else if (out->used > 0 && out->error_number == 0) {
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
    if (out->error_number == 0 && out->sink != NULL) {
        out->error_number = out->sink(out->context, NULL, 0);
    }
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

// ---- text for people ----

// A character of UTF-8, as long as it is; `shown` where a terminal only shows it: it is no control
// character (C0, DEL, C1) and changes neither lines nor the direction of writing. Of what is no
// UTF-8 a byte counts as one that is not shown.
typedef struct character {
    uint32_t code;
    size_t bytes;
    bool shown;
} character;

static character read_character(const unsigned char *text, size_t bytes)
{
    static const uint32_t least[] = {0, 0, 0x80, 0x800, 0x10000};
    unsigned char first = text[0];
    const character byte = {.code = first, .bytes = 1, .shown = first >= 0x20 && first < 0x7f};
    size_t length = first >= 0xf0 && first < 0xf8   ? 4
                    : first >= 0xe0 && first < 0xf0 ? 3
                    : first >= 0xc0 && first < 0xe0 ? 2
                                                    : 0;
    if (length == 0 || length > bytes) {
        return byte;
    }
    uint32_t code = first & (0x7fu >> length);
    for (size_t i = 1; i < length; i++) {
        if ((text[i] & 0xc0) != 0x80) {
            return byte;
        }
        code = code << 6 | (text[i] & 0x3f);
    }
    bool control =
        code < 0xa0 || (code >= 0x2028 && code <= 0x202e) || (code >= 0x2066 && code <= 0x2069);
    bool valid = code >= least[length] && code <= 0x10ffff && (code < 0xd800 || code > 0xdfff);
    return valid ? (character){.code = code, .bytes = length, .shown = !control} : byte;
}

// Writes what stands for text[0..bytes) to `out` where that is not NULL; returns its bytes.
static size_t escape(FILE *out, const char *text, size_t bytes)
{
    size_t used = 0;
    for (size_t i = 0; i < bytes;) {
        char code[8];
        const unsigned char *at = (const unsigned char *)text + i;
        character c = read_character(at, bytes - i);
        size_t shown = c.shown ? c.bytes : 0;
        const char *piece = shown > 0 ? text + i : code;
        size_t length = shown;
        if (shown == 0) {
            char letter = *at == '\n' ? 'n' : *at == '\t' ? 't' : *at == '\r' ? 'r' : '\0';
            length =
                (size_t)(letter != '\0' ? snprintf(code, sizeof code, "\\%c", letter)
                                        : snprintf(code, sizeof code, "\\x%02x", (unsigned)*at));
        }
        if (out != NULL) {
            fwrite(piece, 1, length, out);
        }
        used += length;
        i += shown > 0 ? shown : 1;
    }
    return used;
}

static int print_text(FILE *out, const char *text, bool left, int width, int precision)
{
    size_t bytes = 0;
    text = text != NULL ? text : "(null)";
    while ((precision < 0 || bytes < (size_t)precision) && text[bytes] != '\0') {
        bytes++;
    }
    int used = (int)escape(NULL, text, bytes);
    int blanks = width > used ? width - used : 0;
    fprintf(out, "%*s", left ? 0 : blanks, "");
    escape(out, text, bytes);
    fprintf(out, "%*s", left ? blanks : 0, "");
    return used + blanks;
}

void sp_print_json_text(FILE *out, const char *text, size_t bytes)
{
    size_t written = 0;
    for (size_t i = 0; i < bytes;) {
        character c = read_character((const unsigned char *)text + i, bytes - i);
        if (!c.shown && c.code >= 0x20) {
            fwrite(text + written, 1, i - written, out);
            fprintf(out, "\\u%04x", (unsigned)c.code);
            written = i + c.bytes;
        }
        i += c.bytes;
    }
    fwrite(text + written, 1, bytes - written, out);
}

// One conversion of a format.
typedef struct conversion {
    char flags[8];
    int width, precision; // -1: no precision
    char size[3];         // "l", "ll", "z" or ""
    char kind;
} conversion;

static int number_at(const char **at)
{
    int number = 0;
    while (**at >= '0' && **at <= '9') {
        number = 10 * number + (*(*at)++ - '0');
    }
    return number;
}

// Behind the '%'.
static conversion read_conversion(const char **at, va_list *args)
{
    conversion c = {.precision = -1};
    size_t flags = strspn(*at, "-+ #0");
    SP_ASSERT(flags < sizeof c.flags - 4);
    memcpy(c.flags, *at, flags);
    *at += flags;
    bool given = **at == '*';
    c.width = given ? va_arg(*args, int) : number_at(at);
    *at += given;
    if (c.width < 0) {
        c.width = -c.width;
        c.flags[flags] = '-';
    }
    if (**at == '.') {
        ++*at;
        given = **at == '*';
        c.precision = given ? va_arg(*args, int) : number_at(at);
        *at += given;
    }
    size_t size = strspn(*at, "lz");
    SP_ASSERT(size < sizeof c.size);
    memcpy(c.size, *at, size);
    *at += size;
    c.kind = *(*at)++;
    return c;
}

static int print_number(FILE *out, const conversion *c, va_list *args)
{
    char format[24];
    snprintf(format, sizeof format, c->precision < 0 ? "%%%s*%s%s%c" : "%%%s*.*%s%s%c", c->flags,
             "", c->size, c->kind);
    // The format is one conversion of the caller's, whose type is the argument's.
#if defined(__GNUC__)
#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wformat-nonliteral"
#endif
#define PRINT(type)                                                         \
    (c->precision < 0 ? fprintf(out, format, c->width, va_arg(*args, type)) \
                      : fprintf(out, format, c->width, c->precision, va_arg(*args, type)))
    if (strchr("aefgAEFG", c->kind) != NULL) {
        return PRINT(double);
    }
    SP_ASSERT(strchr("dicouxX", c->kind) != NULL);
    return c->size[0] == 'z'   ? PRINT(size_t)
           : c->size[1] == 'l' ? PRINT(long long)
           : c->size[0] == 'l' ? PRINT(long)
                               : PRINT(int);
#undef PRINT
#if defined(__GNUC__)
#pragma GCC diagnostic pop
#endif
}

int sp_vprint(FILE *out, const char *format, va_list given)
{
    int used = 0;
    va_list args;
    va_copy(args, given);
    while (*format != '\0') {
        size_t plain = strcspn(format, "%");
        fwrite(format, 1, plain, out);
        used += (int)plain;
        format += plain;
        if (*format == '\0') {
            break;
        }
        format++;
        if (*format == '%') {
            fputc(*format++, out);
            used++;
            continue;
        }
        conversion c = read_conversion(&format, &args);
        used += c.kind == 's' ? print_text(out, va_arg(args, const char *),
                                           strchr(c.flags, '-') != NULL, c.width, c.precision)
                              : print_number(out, &c, &args);
    }
    va_end(args);
    return used;
}

int sp_print(FILE *out, const char *format, ...)
{
    va_list args;
    va_start(args, format);
    int used = sp_vprint(out, format, args);
    va_end(args);
    return used;
}

void sp_append(char *text, size_t bytes, const char *format, ...)
{
    size_t used = strlen(text);
    va_list args;
    va_start(args, format);
    vsnprintf(text + used, bytes - used, format, args);
    va_end(args);
}

FILE *sp_text_begin(sp_text *text)
{
    *text = (sp_text){0};
    text->file = open_memstream(&text->text, &text->bytes);
    if (text->file == NULL) {
        sp_out_of_memory(sizeof *text->file);
    }
    return text->file;
}

char *sp_text_end(sp_text *text)
{
    if (fclose(text->file) != 0) {
        sp_out_of_memory(text->bytes);
    }
    return text->text;
}

void sp_print_word(FILE *out, const char *word)
{
    static const char plain[] =
        "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_-./=,:+@%";
    const bool quoted = word[0] == '\0' || word[strspn(word, plain)] != '\0';
    fputs(quoted ? "'" : "", out);
    for (; *word != '\0'; word++) {
        fputs(*word == '\'' ? "'\\''" : (const char[]){*word, '\0'}, out);
    }
    fputs(quoted ? "'" : "", out);
}

size_t sp_fitting(const char *text, size_t bytes)
{
    size_t length = strlen(text);
    if (length >= bytes) {
        length = bytes - 1;
        while (length > 0 && ((unsigned char)text[length] & 0xC0u) == 0x80u) {
            length--;
        }
    }
    return length;
}
