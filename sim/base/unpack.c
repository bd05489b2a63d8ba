#define _GNU_SOURCE // fopencookie()

#include "sim/base/unpack.h"

#include <errno.h>
#include <limits.h>
#include <unistd.h>
#include <zlib.h>

#include "sim/base/files.h"

enum { PACKED_AT_ONCE = 1 << 18, UNPACKED_AT_ONCE = 1 << 16 };

static ssize_t read_some(void *cookie, char *bytes, size_t room)
{
    int code;
    int count = gzread(cookie, bytes, room < INT_MAX ? (unsigned)room : (unsigned)INT_MAX);
    int error = errno;
    (void)gzerror(cookie, &code);
    if (count > 0 || code == Z_OK || code == Z_STREAM_END) {
        return count;
    }
    errno = code == Z_BUF_ERROR ? ENODATA : code == Z_ERRNO ? error : EBADMSG;
    return -1;
}

static int seek_begin(void *cookie, off64_t *offset, int whence)
{
    if (whence != SEEK_SET || *offset != 0 || gzrewind(cookie) != 0) {
        errno = ESPIPE;
        return -1;
    }
    return 0;
}

static int close_packed(void *cookie)
{
    return gzclose_r(cookie) == Z_ERRNO ? EOF : 0;
}

sp_status sp_unpacked_open(const char *path, FILE **file, sp_error *err)
{
    FILE *packed;
    *file = NULL;
    SP_TRY(sp_input_open(path, &packed, err));
    sp_status status = SP_OK;
    int descriptor = dup(fileno(packed));
    gzFile from = descriptor >= 0 ? gzdopen(descriptor, "rb") : NULL;
    const cookie_io_functions_t calls = {
        .read = read_some, .write = NULL, .seek = seek_begin, .close = close_packed};
    if (from != NULL) {
        (void)gzbuffer(from, PACKED_AT_ONCE);
        *file = fopencookie(from, "rb", calls);
    }
    if (*file == NULL) {
        status = sp_error_system(err, path, errno);
        (void)(from != NULL ? gzclose_r(from) : descriptor >= 0 ? close(descriptor) : 0);
    } else {
        (void)setvbuf(*file, NULL, _IOFBF, UNPACKED_AT_ONCE);
    }
    (void)fclose(packed);
    return status;
}
