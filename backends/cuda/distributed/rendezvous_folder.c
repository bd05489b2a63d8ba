#include "backends/cuda/distributed/rendezvous_folder.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

// A card is its number, its session ("-": none yet) and its text.
enum { CARD = 2 * SP_I_NUMBER + SP_I_RENDEZVOUS_CARD + 2 };

// ---- files ----

void sp_i_folder_path(const sp_i_folder *f, char path[SP_I_FOLDER_PATH], const char *format, ...)
{
    va_list arguments;
    int used = snprintf(path, SP_I_FOLDER_PATH, "%s/", f->path);
    va_start(arguments, format);
    vsnprintf(path + used, (size_t)(SP_I_FOLDER_PATH - used), format, arguments);
    va_end(arguments);
}

void sp_i_folder_look_again(const sp_i_folder *f)
{
    int folder = open(f->path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (folder >= 0) {
        close(folder);
    }
}

// A new file of the folder that others do not see yet, or -1. `path` is its name.
static int new_file(const sp_i_folder *f, char path[SP_I_FOLDER_PATH])
{
    sp_i_folder_path(f, path, "new-%s-%d", f->own, f->rank);
    return open(path, O_RDWR | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
}

static bool write_all(int file, const void *data, size_t bytes)
{
    const char *at = data;
    while (bytes > 0) {
        ssize_t written = write(file, at, bytes);
        if (written < 0 && errno != EINTR) {
            return false;
        }
        at += written > 0 ? written : 0;
        bytes -= written > 0 ? (size_t)written : 0;
    }
    return true;
}

bool sp_i_folder_put(const sp_i_folder *f, const char *path, const void *data, size_t bytes,
                     bool first)
{
    char hidden[SP_I_FOLDER_PATH];
    int file = new_file(f, hidden);
    bool good = file >= 0 && write_all(file, data, bytes) && fsync(file) == 0;
    if (file >= 0) {
        good = close(file) == 0 && good;
    }
    if (good) {
        good = first ? link(hidden, path) == 0 : rename(hidden, path) == 0;
    }
    if (file >= 0 && (first || !good)) {
        unlink(hidden);
    }
    return good;
}

ssize_t sp_i_folder_read(const char *path, off_t from, void *data, size_t bytes)
{
    size_t done = 0;
    int file = open(path, O_RDONLY | O_CLOEXEC);
    if (file < 0) {
        return -1;
    }
    while (done < bytes) {
        ssize_t got = pread(file, (char *)data + done, bytes - done, from + (off_t)done);
        if (got == 0 || (got < 0 && errno != EINTR)) {
            break;
        }
        done += got > 0 ? (size_t)got : 0;
    }
    close(file);
    return (ssize_t)done;
}

void sp_i_number_draw(sp_i_number drawn)
{
    unsigned char bytes[SP_I_NUMBER / 2];
    int file = open("/dev/urandom", O_RDONLY | O_CLOEXEC);
    SP_ASSERT(file >= 0 && read(file, bytes, sizeof bytes) == (ssize_t)sizeof bytes);
    close(file);
    for (size_t i = 0; i < sizeof bytes; i++) {
        snprintf(drawn + 2 * i, 3, "%02x", bytes[i]);
    }
}

// ---- cards ----

bool sp_i_card_read(const sp_i_folder *f, int rank, sp_i_card *read)
{
    char path[SP_I_FOLDER_PATH];
    char line[CARD] = "";
    char format[40];
    sp_i_folder_path(f, path, "rank-%d", rank);
    ssize_t bytes = sp_i_folder_read(path, 0, line, sizeof line - 1);
    snprintf(format, sizeof format, "%%16s %%16s %%%d[^\n]", SP_I_RENDEZVOUS_CARD - 1);
    *read = (sp_i_card){0};
    return bytes > 0 && sscanf(line, format, read->own, read->session, read->text) == 3;
}

bool sp_i_card_is_held(const char *path, bool unknown)
{
    int file = open(path, O_RDWR | O_CLOEXEC);
    if (file < 0) {
        return false;
    }
    bool held = flock(file, LOCK_SH | LOCK_NB) != 0 ? errno == EWOULDBLOCK || unknown : false;
    close(file);
    return held;
}

bool sp_i_card_put(sp_i_folder *f)
{
    char path[SP_I_FOLDER_PATH];
    char hidden[SP_I_FOLDER_PATH];
    char line[CARD];
    sp_i_card there;
    sp_i_folder_path(f, path, "rank-%d", f->rank);
    bool mine = sp_i_card_read(f, f->rank, &there) && strcmp(there.own, f->own) == 0;
    if (!mine && sp_i_card_is_held(path, false)) {
        return false;
    }
    int file = new_file(f, hidden);
    int length = snprintf(line, sizeof line, "%s %s %s\n", f->own,
                          f->session[0] != '\0' ? f->session : "-", f->card);
    if (file < 0) {
        return false;
    }
    (void)flock(file, LOCK_EX | LOCK_NB);
    if (!write_all(file, line, (size_t)length) || fsync(file) != 0 || rename(hidden, path) != 0) {
        close(file);
        unlink(hidden);
        return false;
    }
    if (f->card_file >= 0) {
        close(f->card_file);
    }
    f->card_file = file;
    return true;
}

bool sp_i_card_is_own(const sp_i_folder *f)
{
    sp_i_card there;
    return sp_i_card_read(f, f->rank, &there) && strcmp(there.own, f->own) == 0;
}

bool sp_i_card_keep(sp_i_folder *f)
{
    if (!sp_i_card_is_own(f)) {
        (void)mkdir(f->path, 0700);
        return sp_i_card_put(f);
    }
    return true;
}

// ---- what is left of earlier runs ----

void sp_i_folder_clear(const sp_i_folder *f, bool leaves)
{
    char held[SP_I_FOLDER_PATH];
    for (int i = 0; leaves && i < f->ranks; i++) {
        sp_i_folder_path(f, held, "rank-%d", i);
        if (sp_i_card_is_held(held, false)) {
            return;
        }
    }
    DIR *folder = opendir(f->path);
    if (folder == NULL) {
        return;
    }
    char own[32];
    snprintf(own, sizeof own, "rank-%d", f->rank);
    for (const struct dirent *entry = readdir(folder); entry != NULL; entry = readdir(folder)) {
        char path[SP_I_FOLDER_PATH + sizeof entry->d_name];
        const bool is_card = strncmp(entry->d_name, "rank-", 5) == 0;
        const bool is_new = strncmp(entry->d_name, "new-", 4) == 0;
        snprintf(path, sizeof path, "%s/%s", f->path, entry->d_name);
        if (entry->d_name[0] != '.' && strcmp(entry->d_name, own) != 0 &&
            !(is_card && sp_i_card_is_held(path, false)) && !(is_new && leaves)) {
            unlink(path);
        }
    }
    closedir(folder);
}
