#define _GNU_SOURCE // realpath(), getdents64()

#include "sim/base/files.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "sim/base/alloc.h"

enum {
    MOST_LINKS = 40,   // that lead from one to the next, as in Linux
    INPUTS_KEPT = 256, // the latest inputs that no output may replace
    PIPES_KEPT = 64,
    MOST_PARTS = 64,    // unfinished outputs that a signal takes away
    PART_NAME = 64,     // bytes
    PART_NAMES = 10000, // tried, where ended processes of one number have left theirs
};

static const int64_t PIPE_LIMIT_BYTES = (int64_t)16 << 30; // an endless one must not fill the disk

static sp_status failed(const char *path, int error, sp_error *err)
{
    return error != 0 ? sp_error_system(err, path, error)
                      : sp_error_set(err, SP_ERR_IO, "%s: cannot write", path);
}

int sp_descriptor_of(const char *path)
{
    static const char *const names[] = {SP_STANDARD_INPUT, SP_STANDARD_OUTPUT, "/dev/stderr"};
    static const char *const folders[] = {"/dev/fd/", "/proc/self/fd/"};
    for (int fd = 0; fd < 3; fd++) {
        if (strcmp(path, names[fd]) == 0) {
            return fd;
        }
    }
    for (size_t f = 0; f < sizeof folders / sizeof folders[0]; f++) {
        size_t length = strlen(folders[f]);
        const char *digits = path + length;
        if (strncmp(path, folders[f], length) == 0 && digits[0] != '\0' && strlen(digits) < 7 &&
            digits[strspn(digits, "0123456789")] == '\0') {
            return atoi(digits);
        }
    }
    return -1;
}

bool sp_is_file(const char *path)
{
    struct stat info;
    return stat(path, &info) == 0 && !S_ISDIR(info.st_mode);
}

bool sp_is_stream(const char *path)
{
    struct stat info;
    return stat(path, &info) == 0 && !S_ISREG(info.st_mode) && !S_ISDIR(info.st_mode);
}

char *sp_link_target(const char *path)
{
    char *place = sp_strdup(path);
    char target[PATH_MAX];
    ssize_t length;
    for (int i = 0; i < MOST_LINKS && (length = readlink(place, target, sizeof target)) > 0 &&
                    (size_t)length < sizeof target;
         i++) {
        const char *slash = target[0] != '/' ? strrchr(place, '/') : NULL;
        size_t folder = slash != NULL ? (size_t)(slash - place) + 1 : 0;
        char *next = sp_calloc(folder + (size_t)length + 1, 1);
        memcpy(next, place, folder);
        memcpy(next + folder, target, (size_t)length);
        sp_free(place);
        place = next;
    }
    return place;
}

// A stream of its own over the descriptor, whose position it shares. Opened by its name, a file
// would be written from its beginning, and a socket not at all.
static FILE *open_descriptor(int descriptor, const char *mode)
{
    int copy = dup(descriptor);
    FILE *file = copy >= 0 ? fdopen(copy, mode) : NULL;
    if (file == NULL && copy >= 0) {
        int error = errno;
        close(copy);
        errno = error;
    }
    return file;
}

// ---- inputs ----

typedef struct identity {
    dev_t device;
    ino_t inode;
} identity;

// Threads read at the same time.
static struct {
    pthread_mutex_t mutex;
    identity items[INPUTS_KEPT];
    size_t count; // in all; the latest INPUTS_KEPT are held
} inputs = {.mutex = PTHREAD_MUTEX_INITIALIZER};

static identity *find_input(const struct stat *file)
{
    for (size_t i = 0; i < inputs.count && i < INPUTS_KEPT; i++) {
        if (inputs.items[i].device == file->st_dev && inputs.items[i].inode == file->st_ino) {
            return &inputs.items[i];
        }
    }
    return NULL;
}

static bool was_read(const struct stat *file)
{
    pthread_mutex_lock(&inputs.mutex);
    bool found = find_input(file) != NULL;
    pthread_mutex_unlock(&inputs.mutex);
    return found;
}

static void note_input(const struct stat *file)
{
    pthread_mutex_lock(&inputs.mutex);
    if (find_input(file) == NULL) {
        inputs.items[inputs.count++ % INPUTS_KEPT] =
            (identity){.device = file->st_dev, .inode = file->st_ino};
    }
    pthread_mutex_unlock(&inputs.mutex);
}

// A new file may have the inode of an input that was removed.
static void forget_input(const struct stat *file)
{
    pthread_mutex_lock(&inputs.mutex);
    identity *removed = find_input(file);
    if (removed != NULL) {
        *removed = (identity){0};
    }
    pthread_mutex_unlock(&inputs.mutex);
}

// Pipes that were read: each is kept in a temporary file without a name, because many commands read
// an input for each thing they try, and some look at it twice.
static struct {
    pthread_mutex_t mutex;
    struct kept_pipe {
        identity pipe;
        int descriptor; // of the temporary file
    } items[PIPES_KEPT];
    int count;
} pipes = {.mutex = PTHREAD_MUTEX_INITIALIZER};

// The file of a descriptor with a position of its own, or NULL.
static FILE *open_again(int descriptor, off_t position)
{
    char path[32];
    snprintf(path, sizeof path, "/proc/self/fd/%d", descriptor);
    FILE *file = fopen(path, "rb");
    if (file != NULL && fseeko(file, position, SEEK_SET) != 0) {
        fclose(file);
        file = NULL;
    }
    return file;
}

static sp_status copy_pipe(const char *path, FILE *from, FILE *to, sp_error *err)
{
    char bytes[16384];
    int64_t total = 0;
    size_t count;
    errno = 0;
    while ((count = fread(bytes, 1, sizeof bytes, from)) > 0) {
        total += (int64_t)count;
        if (total > PIPE_LIMIT_BYTES) {
            return sp_error_set(err, SP_ERR_LIMIT,
                                "%s: a pipe with more than %lld GiB: write them to a file", path,
                                (long long)(PIPE_LIMIT_BYTES >> 30));
        }
        if (fwrite(bytes, 1, count, to) != count) {
            break;
        }
    }
    return ferror(from) != 0 || ferror(to) != 0 || fflush(to) != 0
               ? sp_error_set(err, SP_ERR_IO, "%s: cannot be kept in a temporary file: %s", path,
                              strerror(errno))
               : SP_OK;
}

// Reads all of the pipe; *descriptor is that of the file that holds it.
static sp_status keep_pipe(const char *path, int *descriptor, sp_error *err)
{
    int given = sp_descriptor_of(path);
    FILE *from = given >= 0 ? open_descriptor(given, "rb") : fopen(path, "rb");
    FILE *to = from != NULL ? tmpfile() : NULL;
    sp_status status = to != NULL ? copy_pipe(path, from, to, err) : failed(path, errno, err);
    *descriptor = status == SP_OK ? dup(fileno(to)) : -1;
    if (status == SP_OK && *descriptor < 0) {
        status = failed(path, errno, err);
    }
    if (from != NULL) {
        fclose(from);
    }
    if (to != NULL) {
        fclose(to);
    }
    return status;
}

static sp_status open_pipe(const char *path, const struct stat *info, FILE **file, sp_error *err)
{
    int descriptor = -1;
    sp_status status = SP_OK;
    pthread_mutex_lock(&pipes.mutex);
    for (int i = 0; i < pipes.count && descriptor < 0; i++) {
        const struct kept_pipe *kept = &pipes.items[i];
        bool same = kept->pipe.device == info->st_dev && kept->pipe.inode == info->st_ino;
        descriptor = same ? kept->descriptor : -1;
    }
    if (descriptor < 0 && pipes.count == PIPES_KEPT) {
        status = sp_error_set(err, SP_ERR_LIMIT, "%s: more than %d pipes are read", path,
                              (int)PIPES_KEPT);
    } else if (descriptor < 0) {
        status = keep_pipe(path, &descriptor, err);
        if (status == SP_OK) {
            pipes.items[pipes.count++] = (struct kept_pipe){
                .pipe = {.device = info->st_dev, .inode = info->st_ino}, .descriptor = descriptor};
        }
    }
    pthread_mutex_unlock(&pipes.mutex);
    if (status == SP_OK) {
        *file = open_again(descriptor, 0);
        status = *file != NULL ? SP_OK : failed(path, errno, err);
    }
    return status;
}

sp_status sp_input_open(const char *path, FILE **file, sp_error *err)
{
    struct stat info;
    path = strcmp(path, "-") == 0 ? SP_STANDARD_INPUT : path;
    int descriptor = sp_descriptor_of(path);
    *file = NULL;
    if ((descriptor >= 0 ? fstat(descriptor, &info) : stat(path, &info)) != 0) {
        return failed(path, errno, err);
    }
    if (S_ISDIR(info.st_mode)) {
        return sp_error_set(err, SP_ERR_IO, "%s: is a directory", path);
    }
    if (S_ISFIFO(info.st_mode) || S_ISSOCK(info.st_mode) ||
        (descriptor >= 0 && isatty(descriptor) == 1)) {
        return open_pipe(path, &info, file, err);
    }
    // By its name a file that was handed over would be read from its beginning.
    off_t position = descriptor >= 0 ? lseek(descriptor, 0, SEEK_CUR) : -1;
    *file = position >= 0     ? open_again(descriptor, position)
            : descriptor >= 0 ? NULL
                              : fopen(path, "rb");
    if (*file == NULL && descriptor >= 0) {
        *file = open_descriptor(descriptor, "rb");
    }
    if (*file == NULL) {
        return failed(path, errno, err);
    }
    if (S_ISREG(info.st_mode)) {
        note_input(&info);
    }
    return SP_OK;
}

// ---- outputs ----

static int standard_output = STDOUT_FILENO;

void sp_output_use_standard(int descriptor)
{
    standard_output = descriptor;
}

// Names of unfinished files and of folders, for a signal handler.
static _Atomic(char *) parts[MOST_PARTS];

// False: all places are taken, and a signal will leave it.
static bool note_part(char *part)
{
    for (int i = 0; i < MOST_PARTS; i++) {
        char *none = NULL;
        if (atomic_compare_exchange_strong(&parts[i], &none, part)) {
            return true;
        }
    }
    return false;
}

static void note_folder(const char *folder)
{
    char *kept = sp_strdup(folder);
    if (!note_part(kept)) {
        sp_free(kept);
    }
}

static void forget_part(char *part)
{
    for (int i = 0; part != NULL && i < MOST_PARTS; i++) {
        char *same = part;
        if (atomic_compare_exchange_strong(&parts[i], &same, NULL)) {
            return;
        }
    }
}

// The files of a folder and the folder, by calls that are safe in a signal handler, as readdir() is
// not.
static void remove_folder(const char *folder)
{
    _Alignas(struct dirent64) char entries[4096];
    ssize_t bytes;
    int descriptor = open(folder, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    while (descriptor >= 0 && (bytes = getdents64(descriptor, entries, sizeof entries)) > 0) {
        for (ssize_t e = 0; e < bytes;) {
            const struct dirent64 *entry = (const void *)&entries[e];
            unlinkat(descriptor, entry->d_name, 0); // leaves folders as they are
            e += entry->d_reclen;
        }
    }
    if (descriptor >= 0) {
        close(descriptor);
    }
    rmdir(folder);
}

void sp_outputs_abandon(void)
{
    for (int pass = 0; pass < 2; pass++) { // a folder goes when those in it have gone
        for (int i = 0; i < MOST_PARTS; i++) {
            const char *part = atomic_load(&parts[i]);
            if (part != NULL && unlink(part) != 0) {
                remove_folder(part);
            }
        }
    }
}

sp_status sp_folder_make(const char *folder, sp_error *err)
{
    if (mkdir(folder, 0700) != 0) {
        return failed(folder, errno, err);
    }
    note_folder(folder);
    return SP_OK;
}

sp_status sp_folder_make_temporary(char *folder, size_t bytes, sp_error *err)
{
    const char *parent = getenv("TMPDIR");
    int length = snprintf(folder, bytes, "%s/slimpack-XXXXXX",
                          parent != NULL && parent[0] != '\0' ? parent : "/tmp");
    if (length >= (int)bytes) {
        return failed(folder, ENAMETOOLONG, err);
    }
    if (mkdtemp(folder) == NULL) {
        return failed(folder, errno, err);
    }
    note_folder(folder);
    return SP_OK;
}

void sp_folder_remove(const char *folder)
{
    remove_folder(folder);
    for (int i = 0; i < MOST_PARTS; i++) {
        char *part = atomic_load(&parts[i]);
        if (part != NULL && strcmp(part, folder) == 0) {
            forget_part(part);
            sp_free(part);
        }
    }
}

typedef struct place {
    bool there; // something, as `info` says
    struct stat info;
} place;

// Can the path be an output at all? As far as can be told without writing.
static sp_status look_at(const char *path, place *at, sp_error *err)
{
    *at = (place){0};
    at->there = stat(path, &at->info) == 0;
    if (!at->there && errno != ENOENT) {
        return failed(path, errno, err);
    }
    if (!at->there) {
        size_t length = strlen(path);
        return length > 0 && path[length - 1] == '/' ? failed(path, EISDIR, err) : SP_OK;
    }
    if (S_ISDIR(at->info.st_mode)) {
        return failed(path, EISDIR, err);
    }
    if (S_ISREG(at->info.st_mode) && was_read(&at->info)) {
        return sp_error_set(err, SP_ERR_USAGE,
                            "%s: is an input of this command: write to another file", path);
    }
    return access(path, W_OK) == 0 ? SP_OK : failed(path, errno, err);
}

static void let_go(sp_output *out)
{
    forget_part(out->part);
    sp_free(out->target);
    sp_free(out->part);
    *out = (sp_output){0};
}

// Opens a file of a new name in the folder of out->target; -1: errno says why not.
static int open_part(sp_output *out)
{
    static atomic_int latest;
    const char *slash = strrchr(out->target, '/');
    size_t folder = slash != NULL ? (size_t)(slash - out->target) + 1 : 0;
    out->part = sp_malloc(folder + PART_NAME);
    memcpy(out->part, out->target, folder);
    int descriptor = -1;
    for (int tries = 0; descriptor < 0 && tries < PART_NAMES; tries++) {
        snprintf(out->part + folder, PART_NAME, ".slimpack-%ld-%d.part", (long)getpid(),
                 atomic_fetch_add(&latest, 1));
        if (tries == 0) {
            (void)note_part(out->part); // before it is there, or a signal in between would leave it
        }
        descriptor = open(out->part, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0666);
        if (descriptor < 0 && errno != EEXIST) {
            break;
        }
    }
    return descriptor;
}

// errno says why not.
static bool open_beside(sp_output *out, const place *at)
{
    out->target = sp_link_target(out->path);
    int descriptor = open_part(out);
    if (descriptor < 0) {
        return false;
    }
    struct stat created;
    if (fstat(descriptor, &created) == 0) {
        forget_input(&created);
    }
    if (at->there) {
        // Who may read it stays as it was, as far as that is ours to say.
        int given = fchown(descriptor, at->info.st_uid, at->info.st_gid);
        (void)given;
        fchmod(descriptor, at->info.st_mode & 07777);
    }
    out->file = fdopen(descriptor, "w");
    if (out->file == NULL) {
        int error = errno;
        close(descriptor);
        unlink(out->part);
        errno = error;
    }
    return out->file != NULL;
}

sp_status sp_output_open(sp_output *out, const char *path, sp_error *err)
{
    place at;
    *out = (sp_output){.path = path};
    int descriptor = sp_descriptor_of(path);
    if (descriptor >= 0) {
        out->file =
            open_descriptor(descriptor == STDOUT_FILENO ? standard_output : descriptor, "w");
        return out->file != NULL ? SP_OK : failed(path, errno, err);
    }
    SP_TRY(look_at(path, &at, err));
    bool beside = !at.there || S_ISREG(at.info.st_mode);
    if (beside && open_beside(out, &at)) {
        return SP_OK;
    }
    int error = errno;
    let_go(out);
    out->path = path;
    if (beside && !(at.there && (error == EACCES || error == EPERM || error == EROFS))) {
        return failed(path, error, err);
    }
    out->file = fopen(path, "w");
    return out->file != NULL ? SP_OK : failed(path, errno, err);
}

sp_status sp_output_close(sp_output *out, sp_status written, sp_error *err)
{
    if (out->file == NULL) {
        return written;
    }
    int error = errno; // of the write that failed, where one did
    bool complete = ferror(out->file) == 0;
    if (fclose(out->file) != 0 && complete) {
        complete = false;
        error = errno;
    }
    if (written == SP_OK && !complete) {
        written = failed(out->path, error, err);
    }
    if (written == SP_OK && out->part != NULL && rename(out->part, out->target) != 0) {
        written = failed(out->path, errno, err);
    }
    if (written != SP_OK && out->part != NULL) {
        unlink(out->part);
    }
    let_go(out);
    return written;
}

sp_status sp_output_check(const char *path, sp_error *err)
{
    place at;
    if (sp_descriptor_of(path) >= 0) {
        return SP_OK;
    }
    sp_status status = look_at(path, &at, err);
    if (status != SP_OK || at.there) {
        return status;
    }
    char *target = sp_link_target(path);
    int descriptor = open(target, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0666);
    if (descriptor >= 0) {
        close(descriptor);
        unlink(target);
    } else if (errno != EEXIST) {
        status = failed(path, errno, err);
    }
    sp_free(target);
    return status;
}

// ---- Relative paths ----

// The real folder that a file is or will be in, with its last name behind it where `name` is asked
// for; false where there is no such folder.
static bool real_place(const char *file, bool with_name, char real[PATH_MAX])
{
    const char *slash = strrchr(file, '/');
    char folder[PATH_MAX];
    size_t bytes = slash != NULL ? (size_t)(slash - file) + 1 : 0;
    if (bytes + 2 > sizeof folder) {
        return false;
    }
    memcpy(folder, file, bytes);
    snprintf(folder + bytes, 2, "%s", bytes == 0 ? "." : "");
    if (realpath(folder, real) == NULL) {
        return false;
    }
    size_t length = strcmp(real, "/") == 0 ? 0 : strlen(real);
    int more = snprintf(real + length, PATH_MAX - length, "/%s",
                        !with_name      ? ""
                        : slash != NULL ? slash + 1
                                        : file);
    return more >= 0 && (size_t)more < PATH_MAX - length;
}

// `to` as a path from folder `from`, which ends with a slash; false where it is too long. Both are
// real.
static bool relative_path(const char *from, const char *to, char *path, size_t path_bytes)
{
    size_t shared = 0;
    size_t length = 0;
    for (size_t i = 0; from[i] != '\0' && from[i] == to[i]; i++) {
        shared = from[i] == '/' ? i + 1 : shared;
    }
    for (const char *rest = from + shared; *rest != '\0' && length + 4 < path_bytes; rest++) {
        if (*rest == '/') {
            memcpy(path + length, "../", 3);
            length += 3;
        }
    }
    int more = snprintf(path + length, path_bytes - length, "%s", to + shared);
    return more >= 0 && (size_t)more < path_bytes - length;
}

bool sp_path_from(const char *file, const char *name, char *path, size_t path_bytes)
{
    char from[PATH_MAX];
    char to[PATH_MAX];
    const bool absolute = name[0] == '/';
    const bool stream = sp_is_stream(file) || sp_descriptor_of(file) >= 0;
    if ((absolute ? stream : strchr(file, '/') == NULL) || !real_place(name, true, to)) {
        return false;
    }
    if (stream) {
        return snprintf(path, path_bytes, "%s", to) < (int)path_bytes;
    }
    return real_place(file, false, from) && relative_path(from, to, path, path_bytes) &&
           !(absolute && strncmp(path, "../", 3) == 0);
}
