#include "experiments/sweep/results_file.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

#include "sim/base/progress.h"

static const double sync_every_s = 1.0;

static sp_status failed(const sweep_file *file, sp_error *err)
{
    return sp_error_system(err, file->path, errno);
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

sp_status sweep_file_refuse(const char *path, const char *advice, sp_error *err)
{
    struct stat info;
    if (stat(path, &info) != 0 || !S_ISREG(info.st_mode) || info.st_size == 0) {
        return SP_OK;
    }
    return sp_error_set(err, SP_ERR_IO, "%s: exists and holds %lld bytes (%s)", path,
                        (long long)info.st_size, advice);
}

sp_status sweep_file_open(sweep_file *file, const char *path, const char *advice, sp_error *err)
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
    if (status == SP_OK && advice != NULL) {
        status = sweep_file_refuse(path, advice, err);
    }
    if (status != SP_OK) {
        sweep_file_close(file, NULL);
    }
    return status;
}

// Hands on every whole line; *whole is the bytes of these.
static sp_status read_lines(sweep_file *file, sweep_line_reader reader, void *context, off_t *whole,
                            sp_error *err)
{
    char *line = NULL;
    size_t room = 0;
    long number = 0;
    sp_status status = SP_OK;
    while (status == SP_OK) {
        errno = 0;
        ssize_t bytes = getline(&line, &room, file->in);
        if (bytes < 0 && ferror(file->in) != 0) {
            status = failed(file, err);
        } else if (bytes < 0 && errno == ENOMEM) {
            status = sp_error_no_memory(err, "the results of a sweep");
        }
        if (bytes < 0 || line[bytes - 1] != '\n') {
            break;
        }
        status = reader(context, line, (size_t)bytes - 1, ++number, err);
        *whole += bytes;
    }
    free(line);
    return status;
}

sp_status sweep_file_read(sweep_file *file, sweep_line_reader reader, void *context, sp_error *err)
{
    off_t whole = 0;
    struct stat info;
    if (!file->regular) {
        return SP_OK;
    }
    file->in = fdopen(file->fd, "r");
    sp_status status =
        file->in != NULL ? read_lines(file, reader, context, &whole, err) : failed(file, err);
    bool cut = status == SP_OK && fstat(file->fd, &info) == 0 && info.st_size > whole;
    if ((cut && ftruncate(file->fd, whole) != 0) ||
        (status == SP_OK && lseek(file->fd, whole, SEEK_SET) < 0)) {
        status = failed(file, err);
    }
    return status;
}

// Puts what was written onto the disk.
static sp_status sync_file(sweep_file *file, sp_error *err)
{
    if (file->dirty && file->regular && fsync(file->fd) != 0) {
        return failed(file, err);
    }
    file->dirty = false;
    file->synced_s = sp_clock_s();
    return SP_OK;
}

// A full disk takes a part of a line: it is cut off again.
static sp_status write_failed(sweep_file *file, size_t written, sp_error *err)
{
    sp_status status = failed(file, err);
    off_t end = file->regular ? lseek(file->fd, 0, SEEK_CUR) : -1;
    if (end >= 0 && ftruncate(file->fd, end - (off_t)written) != 0) {
        status = failed(file, err);
    }
    return status;
}

sp_status sweep_file_append(sweep_file *file, const char *text, size_t bytes, sp_error *err)
{
    for (size_t done = 0; done < bytes;) {
        ssize_t written = write(file->fd, text + done, bytes - done);
        if (written < 0 && errno != EINTR) {
            return write_failed(file, done, err);
        }
        done += written > 0 ? (size_t)written : 0;
        file->dirty = true;
    }
    return sp_clock_s() - file->synced_s < sync_every_s ? SP_OK : sync_file(file, err);
}

sp_status sweep_file_close(sweep_file *file, sp_error *err)
{
    sp_status status = SP_OK;
    if (file->fd >= 0) {
        status = sync_file(file, err);
        // Closing any other descriptor of the file would give up its lock.
        int closed = file->in != NULL ? fclose(file->in) : close(file->fd);
        if (closed != 0 && status == SP_OK) {
            status = failed(file, err);
        }
    }
    file->fd = -1;
    file->in = NULL;
    return status;
}
