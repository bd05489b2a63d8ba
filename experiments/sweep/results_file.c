#include "experiments/sweep/results_file.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "sim/base/alloc.h"
#include "sim/base/progress.h"

enum { CHUNK = 1 << 16 };

static const double sync_every_s = 1.0;

static sp_status failed(const sweep_file *file, sp_error *err)
{
    return sp_error_set(err, SP_ERR_IO, "%s: %s", file->path, strerror(errno));
}

// Two sweeps on one file would mix their lines. The lock goes with the process, however it ends; a
// file system without locks is no reason to refuse.
static sp_status lock(const sweep_file *file, sp_error *err)
{
    struct flock whole = {.l_type = F_WRLCK, .l_whence = SEEK_SET};
    if (fcntl(file->fd, F_SETLK, &whole) == 0 || (errno != EACCES && errno != EAGAIN)) {
        return SP_OK;
    }
    return sp_error_set(err, SP_ERR_IO, "%s: another sweep is writing to it", file->path);
}

sp_status sweep_file_open(sweep_file *file, const char *path, bool resume, sp_error *err)
{
    *file = (sweep_file){.path = path};
    file->fd = open(path, O_RDWR | O_CREAT, 0666);
    if (file->fd < 0 && errno == EACCES) {
        // What can only be written to, such as another's terminal.
        file->fd = open(path, O_WRONLY);
    }
    struct stat info;
    if (file->fd < 0 || fstat(file->fd, &info) != 0) {
        sp_status status = failed(file, err);
        sweep_file_close(file, NULL);
        return status;
    }
    file->regular = S_ISREG(info.st_mode);
    file->synced_s = sp_clock_s();
    sp_status status = file->regular ? lock(file, err) : SP_OK;
    if (status == SP_OK && file->regular && info.st_size > 0 && !resume) {
        status = sp_error_set(err, SP_ERR_IO,
                              "%s: exists and holds %lld bytes (go on with it by --resume, or "
                              "remove it)",
                              path, (long long)info.st_size);
    }
    if (status != SP_OK) {
        sweep_file_close(file, NULL);
    }
    return status;
}

// What was read and not yet handed on: the beginning of a line.
typedef struct line_buffer {
    char *text;
    size_t used, capacity;
    long lines;
} line_buffer;

static sp_status hand_on(line_buffer *buffer, sweep_line_reader reader, void *context,
                         sp_error *err)
{
    size_t begin = 0;
    sp_status status = SP_OK;
    while (status == SP_OK) {
        const char *text = buffer->text + begin;
        const char *newline = memchr(text, '\n', buffer->used - begin);
        if (newline == NULL) {
            break;
        }
        size_t bytes = (size_t)(newline - text);
        status = reader(context, text, bytes, ++buffer->lines, err);
        begin += bytes + 1;
    }
    memmove(buffer->text, buffer->text + begin, buffer->used - begin);
    buffer->used -= begin;
    return status;
}

static sp_status read_lines(sweep_file *file, line_buffer *buffer, sweep_line_reader reader,
                            void *context, off_t *size, sp_error *err)
{
    for (;;) {
        if (!sp_i_reserve((void **)&buffer->text, &buffer->capacity, buffer->used + CHUNK, 1)) {
            return sp_error_no_memory(err, "the results of a sweep");
        }
        ssize_t got = read(file->fd, buffer->text + buffer->used, CHUNK);
        if (got < 0 && errno == EINTR) {
            continue;
        }
        if (got < 0) {
            return failed(file, err);
        }
        if (got == 0) {
            return SP_OK;
        }
        *size += got;
        size_t before = buffer->used;
        buffer->used += (size_t)got;
        if (memchr(buffer->text + before, '\n', (size_t)got) != NULL) {
            sp_status status = hand_on(buffer, reader, context, err);
            if (status != SP_OK) {
                return status;
            }
        }
    }
}

sp_status sweep_file_read(sweep_file *file, sweep_line_reader reader, void *context, sp_error *err)
{
    line_buffer buffer = {0};
    off_t size = 0;
    if (!file->regular) {
        return SP_OK;
    }
    sp_status status = read_lines(file, &buffer, reader, context, &size, err);
    off_t whole = size - (off_t)buffer.used;
    if (status == SP_OK && buffer.used > 0 && ftruncate(file->fd, whole) != 0) {
        status = failed(file, err);
    }
    if (status == SP_OK && lseek(file->fd, whole, SEEK_SET) < 0) {
        status = failed(file, err);
    }
    sp_i_free(buffer.text);
    return status;
}

sp_status sweep_file_append(sweep_file *file, const char *text, size_t bytes, sp_error *err)
{
    while (bytes > 0) {
        ssize_t written = write(file->fd, text, bytes);
        if (written < 0 && errno == EINTR) {
            continue;
        }
        if (written < 0) {
            return failed(file, err);
        }
        file->dirty = true;
        text += written;
        bytes -= (size_t)written;
    }
    return sp_clock_s() - file->synced_s < sync_every_s ? SP_OK : sweep_file_sync(file, err);
}

sp_status sweep_file_sync(sweep_file *file, sp_error *err)
{
    if (file->dirty && file->regular && fsync(file->fd) != 0) {
        return failed(file, err);
    }
    file->dirty = false;
    file->synced_s = sp_clock_s();
    return SP_OK;
}

sp_status sweep_file_close(sweep_file *file, sp_error *err)
{
    sp_status status = SP_OK;
    if (file->fd >= 0) {
        status = sweep_file_sync(file, err);
        if (close(file->fd) != 0 && status == SP_OK) {
            status = failed(file, err);
        }
    }
    file->fd = -1;
    return status;
}
