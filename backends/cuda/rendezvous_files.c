// Ranks that meet by files in FOLDER/RUN, each of which appears whole under its name:
//   rank-R     its card: a number that this process has drawn, and what it has in common with the
//              others. Locked as long as the process lives, so that its death is seen.
//   session    of rank 0: its own number and how it went, and the numbers of all ranks in their
//              order. A rank that does not find its number there has found an earlier run's.
//   S-go       of rank 0: all ranks have taken session S up in their cards
//   S-N        the Nth broadcast
//   S-failed   the first failure: a status, and what happened
// Shared file systems show others' files late where a folder was just looked at (NFS): opening the
// folder makes them look again.
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include "backends/cuda/rendezvous_mpi.h"
#include "sim/base/alloc.h"

enum { PATH = SP_I_PLACE_FOLDER + SP_I_PLACE_RUN + 64, NUMBER = 17, LOOKS = 8 };
// What a session begins with: its number, a status and a text.
enum { VERDICT = NUMBER + SP_ERROR_TEXT + 16 };
// A card is its number, its session ("-": none yet) and its text.
enum { CARD = 2 * NUMBER + SP_I_RENDEZVOUS_CARD + 2 };

typedef char number[NUMBER]; // 16 hexadecimal digits

typedef struct meeting {
    sp_i_rendezvous base;            // first
    char folder[PATH - 64];          // of the run
    char card[SP_I_RENDEZVOUS_CARD]; // text
    int card_file;                   // open and locked; -1: none
    number own, session;
    number *numbers; // [ranks] at rank 0; owned
    unsigned broadcasts;
    int next_look; // rank 0 looks at some ranks at a time
} meeting;

// ---- files ----

static void path_of(const meeting *m, char path[PATH], const char *format, ...) SP_PRINTF(3, 4);

static void path_of(const meeting *m, char path[PATH], const char *format, ...)
{
    va_list arguments;
    int used = snprintf(path, PATH, "%s/", m->folder);
    va_start(arguments, format);
    vsnprintf(path + used, (size_t)(PATH - used), format, arguments);
    va_end(arguments);
}

static void look_again(const meeting *m)
{
    int folder = open(m->folder, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (folder >= 0) {
        close(folder);
    }
}

// A new file of the folder that others do not see yet, or -1. `path` is its name.
static int new_file(const meeting *m, char path[PATH])
{
    path_of(m, path, "new-%s-%d", m->own, m->base.rank);
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

// Puts a whole file under its name; where `first` is set only if there is none of that name.
static bool put_file(const meeting *m, const char *path, const void *data, size_t bytes, bool first)
{
    char hidden[PATH];
    int file = new_file(m, hidden);
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

// Up to `bytes` of a file from an offset on; how many there were, or -1: no such file.
static ssize_t read_file(const char *path, off_t from, void *data, size_t bytes)
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

static void draw_number(number drawn)
{
    unsigned char bytes[NUMBER / 2];
    int file = open("/dev/urandom", O_RDONLY | O_CLOEXEC);
    SP_ASSERT(file >= 0 && read(file, bytes, sizeof bytes) == (ssize_t)sizeof bytes);
    close(file);
    for (size_t i = 0; i < sizeof bytes; i++) {
        snprintf(drawn + 2 * i, 3, "%02x", bytes[i]);
    }
}

// ---- cards ----

typedef struct peer_card {
    number own, session;
    char text[SP_I_RENDEZVOUS_CARD];
} peer_card;

static bool read_card(const meeting *m, int rank, peer_card *read)
{
    char path[PATH];
    char line[CARD] = "";
    char format[40];
    path_of(m, path, "rank-%d", rank);
    ssize_t bytes = read_file(path, 0, line, sizeof line - 1);
    snprintf(format, sizeof format, "%%16s %%16s %%%d[^\n]", SP_I_RENDEZVOUS_CARD - 1);
    *read = (peer_card){0};
    return bytes > 0 && sscanf(line, format, read->own, read->session, read->text) == 3;
}

// Does a process that lives hold this card? A file system without locks cannot say that one does
// not, but for cards that nobody could hold.
static bool is_held(const char *path, bool unknown)
{
    int file = open(path, O_RDWR | O_CLOEXEC);
    if (file < 0) {
        return false;
    }
    bool held = flock(file, LOCK_SH | LOCK_NB) != 0 ? errno == EWOULDBLOCK || unknown : false;
    close(file);
    return held;
}

// This rank's card with the session it has taken up. False where another process that lives has it.
static bool put_card(meeting *m)
{
    char path[PATH];
    char hidden[PATH];
    char line[CARD];
    peer_card there;
    path_of(m, path, "rank-%d", m->base.rank);
    bool mine = read_card(m, m->base.rank, &there) && strcmp(there.own, m->own) == 0;
    if (!mine && is_held(path, false)) {
        return false;
    }
    int file = new_file(m, hidden);
    int length = snprintf(line, sizeof line, "%s %s %s\n", m->own,
                          m->session[0] != '\0' ? m->session : "-", m->card);
    if (file < 0) {
        return false;
    }
    (void)flock(file, LOCK_EX | LOCK_NB);
    if (!write_all(file, line, (size_t)length) || fsync(file) != 0 || rename(hidden, path) != 0) {
        close(file);
        unlink(hidden);
        return false;
    }
    if (m->card_file >= 0) {
        close(m->card_file);
    }
    m->card_file = file;
    return true;
}

static bool has_own_card(const meeting *m)
{
    peer_card there;
    return read_card(m, m->base.rank, &there) && strcmp(there.own, m->own) == 0;
}

// Puts the card again where it is not there: rank 0 clears the folder when it comes, and another
// process of this rank may still be at its end.
static bool keep_card(meeting *m)
{
    if (!has_own_card(m)) {
        (void)mkdir(m->folder, 0700);
        return put_card(m);
    }
    return true;
}

// ---- what is left of earlier runs ----

// Removes all files but cards that are held and this process's own. For one that leaves, nothing is
// removed while a card is held, nor what a rank of a next run is writing.
static void clear_folder(const meeting *m, bool leaves)
{
    char held[PATH];
    for (int i = 0; leaves && i < m->base.ranks; i++) {
        path_of(m, held, "rank-%d", i);
        if (is_held(held, false)) {
            return;
        }
    }
    DIR *folder = opendir(m->folder);
    if (folder == NULL) {
        return;
    }
    char own[32];
    snprintf(own, sizeof own, "rank-%d", m->base.rank);
    for (const struct dirent *entry = readdir(folder); entry != NULL; entry = readdir(folder)) {
        char path[PATH + sizeof entry->d_name];
        const bool is_card = strncmp(entry->d_name, "rank-", 5) == 0;
        const bool is_new = strncmp(entry->d_name, "new-", 4) == 0;
        snprintf(path, sizeof path, "%s/%s", m->folder, entry->d_name);
        if (entry->d_name[0] != '.' && strcmp(entry->d_name, own) != 0 &&
            !(is_card && is_held(path, false)) && !(is_new && leaves)) {
            unlink(path);
        }
    }
    closedir(folder);
}

// ---- failure ----

static void look_for_failure(meeting *m)
{
    char path[PATH];
    char text[SP_ERROR_TEXT + 16] = "";
    int status = SP_OK;
    int used = 0;
    path_of(m, path, "%s-failed", m->session);
    look_again(m);
    if (read_file(path, 0, text, sizeof text - 1) > 0 &&
        sscanf(text, "%d %n", &status, &used) == 1 && status > SP_OK && status <= SP_ERR_INTERNAL) {
        sp_i_rendezvous_note(&m->base, (sp_status)status, "%s", text + used);
    }
}

static void tell(sp_i_rendezvous *r, sp_status status, const char *text)
{
    meeting *m = (meeting *)(void *)r;
    char path[PATH];
    char line[SP_ERROR_TEXT + 16];
    int length = snprintf(line, sizeof line, "%d %s", (int)status, text);
    path_of(m, path, "%s-failed", m->session);
    if (r->ranks > 1 && !put_file(m, path, line, (size_t)length, true)) {
        look_for_failure(m); // another rank was faster
    }
}

// A card of this session that nobody holds any more. One that is gone or another's has left well.
static bool is_dead(const meeting *m, int rank)
{
    char path[PATH];
    peer_card there;
    if (!read_card(m, rank, &there) || strcmp(there.session, m->session) != 0) {
        return false;
    }
    path_of(m, path, "rank-%d", rank);
    return !is_held(path, true) && access(path, F_OK) == 0 && read_card(m, rank, &there) &&
           strcmp(there.session, m->session) == 0;
}

static void look(sp_i_rendezvous *r)
{
    meeting *m = (meeting *)(void *)r;
    if (r->ranks == 1) {
        return;
    }
    look_for_failure(m);
    // The others look at rank 0, which looks at all of them in turn.
    for (int i = 0; i < LOOKS && r->failure.status == SP_OK; i++) {
        const int rank = r->rank > 0 ? 0 : 1 + m->next_look++ % (r->ranks - 1);
        if (is_dead(m, rank)) {
            char text[64];
            snprintf(text, sizeof text, "rank %d is gone: its process ended", rank);
            tell(r, SP_ERR_IO, text);
            sp_i_rendezvous_note(r, SP_ERR_IO, "%s", text);
        }
        if (r->rank > 0 || i + 2 > r->ranks) {
            break;
        }
    }
}

// ---- broadcast ----

static void broadcast(sp_i_rendezvous *r, void *data, size_t bytes, int64_t until_ms)
{
    meeting *m = (meeting *)(void *)r;
    char path[PATH];
    struct stat there;
    int turns = 0;
    path_of(m, path, "%s-%u", m->session, m->broadcasts++);
    if (r->rank == 0) {
        if (!put_file(m, path, data, bytes, false)) {
            (void)sp_i_rendezvous_abort(r, SP_ERR_IO, "%s: %s", path, strerror(errno));
        }
        return;
    }
    for (look_again(m); stat(path, &there) != 0; look_again(m)) {
        if (sp_i_rendezvous_check(r, NULL) != SP_OK) {
            return;
        }
        if (sp_i_now_ms() >= until_ms) {
            (void)sp_i_rendezvous_abort_with(r, SP_ERR_LIMIT, "rank 0 did not send in time");
            return;
        }
        sp_i_pause(&turns);
    }
    if ((size_t)there.st_size != bytes || read_file(path, 0, data, bytes) != (ssize_t)bytes) {
        (void)sp_i_rendezvous_abort(r, SP_ERR_INTERNAL,
                                    "expected a broadcast of %zu bytes, rank 0 sent %lld", bytes,
                                    (long long)there.st_size);
    }
}

// ---- joining: rank 0 ----

// "2", "1 and 4", ... of ranks that have not come; how many they are.
static int name_missing(const meeting *m, char *text, size_t bytes)
{
    enum { NAMED = 8 };
    int missing = 0;
    size_t used = 0;
    text[0] = '\0';
    for (int i = 1; i < m->base.ranks; i++) {
        if (m->numbers[i][0] == '\0' && missing++ < NAMED) {
            used += (size_t)snprintf(text + used, bytes - used, "%s%d", missing > 1 ? ", " : "", i);
        }
    }
    if (missing > NAMED) {
        snprintf(text + used, bytes - used, " and %d others", missing - NAMED);
    }
    return missing;
}

// Numbers of the ranks that are there: do they differ from those that were, have all taken up the
// session? `wrong` says which of them does not fit.
static void read_cards(meeting *m, bool *changed, bool *taken_up, char *wrong, size_t bytes)
{
    *changed = false;
    *taken_up = m->session[0] != '\0';
    wrong[0] = '\0';
    look_again(m);
    for (int i = 1; i < m->base.ranks; i++) {
        peer_card there;
        char path[PATH];
        path_of(m, path, "rank-%d", i);
        bool came = read_card(m, i, &there) && is_held(path, true);
        if (strcmp(m->numbers[i], came ? there.own : "") != 0) {
            memcpy(m->numbers[i], there.own, came ? sizeof there.own : 0);
            m->numbers[i][came ? NUMBER - 1 : 0] = '\0';
            *changed = true;
        }
        *taken_up = *taken_up && came && strcmp(there.session, m->session) == 0;
        if (came && strcmp(there.text, m->card) != 0) {
            sp_i_rendezvous_card_text(i, there.text, m->card, wrong, bytes);
        }
    }
}

// A session of the ranks that are there; any status but SP_OK ends it for them.
static bool put_session(meeting *m, sp_status status, const char *text)
{
    char path[PATH];
    const size_t bytes = VERDICT + (size_t)m->base.ranks * NUMBER;
    char *all = sp_i_calloc(1, bytes + 1);
    if (all == NULL) {
        return false;
    }
    draw_number(m->session);
    snprintf(all, VERDICT, "%s %d %s", m->session, (int)status, text);
    for (int i = 0; i < m->base.ranks; i++) {
        snprintf(all + VERDICT + (size_t)i * NUMBER, NUMBER + 1, "%s\n",
                 i == 0 ? m->own : m->numbers[i]);
    }
    path_of(m, path, "session");
    bool good = put_file(m, path, all, bytes, false);
    sp_i_free(all);
    return good;
}

static void end_session(meeting *m, sp_status status, const char *text)
{
    sp_i_rendezvous_note(&m->base, status, "%s", text);
    (void)put_session(m, status, text);
    (void)put_card(m);
}

// All are there. True when the meeting is over.
static bool begin_session(meeting *m, bool changed, bool taken_up)
{
    char path[PATH];
    bool good = true;
    path_of(m, path, "%s-go", m->session);
    if (changed || m->session[0] == '\0') {
        taken_up = false;
        good = put_session(m, SP_OK, "") && put_card(m);
    } else if (taken_up) {
        good = put_file(m, path, "go", 2, false);
    }
    if (!good) {
        sp_i_rendezvous_note(&m->base, SP_ERR_IO, "rank 0: %s: %s", m->folder, strerror(errno));
    }
    return taken_up || !good;
}

static void lead(meeting *m, int64_t until_ms)
{
    enum { GRACE_MS = 3000 }; // for others to come and be told that one does not fit
    char wrong[SP_ERROR_TEXT];
    char text[SP_ERROR_TEXT];
    char names[128];
    int64_t grace_ms = INT64_MAX;
    for (int turns = 0;; sp_i_pause(&turns)) {
        bool changed;
        bool taken_up;
        (void)keep_card(m); // a rank that left may have taken it for one of its own run
        read_cards(m, &changed, &taken_up, wrong, sizeof wrong);
        const int missing = name_missing(m, names, sizeof names);
        const int64_t now_ms = sp_i_now_ms();
        if (wrong[0] != '\0') {
            grace_ms = grace_ms == INT64_MAX ? now_ms + GRACE_MS : grace_ms;
            if (missing == 0 || now_ms >= grace_ms || now_ms >= until_ms) {
                end_session(m, SP_ERR_USAGE, wrong);
                return;
            }
        } else if (missing == 0 && begin_session(m, changed, taken_up)) {
            return;
        } else if (now_ms >= until_ms) {
            snprintf(text, sizeof text,
                     "rank 0 waited %d ms in %.400s: rank%s %s of %d did not come",
                     m->base.timeout_ms, m->folder, missing == 1 ? "" : "s",
                     missing > 0 ? names : "that had come", m->base.ranks);
            end_session(m, SP_ERR_LIMIT, text);
            return;
        }
        turns = changed ? 0 : turns;
    }
}

// ---- joining: the others ----

// Rank 0's session, where this process is in it.
static bool read_session(const meeting *m, number session, int *status, char *text, size_t bytes)
{
    char path[PATH];
    char line[VERDICT + 1] = "";
    number found = "";
    int used = 0;
    path_of(m, path, "session");
    const off_t at = VERDICT + (off_t)m->base.rank * NUMBER;
    if (read_file(path, at, found, NUMBER - 1) != NUMBER - 1 || strcmp(found, m->own) != 0 ||
        read_file(path, 0, line, VERDICT) != VERDICT ||
        sscanf(line, "%16s %d %n", session, status, &used) != 2) {
        return false;
    }
    snprintf(text, bytes, "%s", line + used);
    return true;
}

// True when the meeting is over, one way or the other.
static bool follow(meeting *m)
{
    char path[PATH];
    char text[SP_ERROR_TEXT] = "";
    number session;
    int status = SP_OK;
    look_again(m);
    if (!read_session(m, session, &status, text, sizeof text)) {
        return false;
    }
    if (status != SP_OK) {
        memcpy(m->session, session, sizeof session);
        sp_i_rendezvous_note(&m->base, (sp_status)status, "%s", text);
        return true;
    }
    if (strcmp(session, m->session) != 0) {
        memcpy(m->session, session, sizeof session);
        (void)put_card(m);
    }
    path_of(m, path, "%s-go", m->session);
    return access(path, F_OK) == 0;
}

static void wait_for_session(meeting *m, int64_t until_ms)
{
    enum { VERDICT_MS = 1000 }; // for rank 0, whose time may end with ours, to say who is missing
    for (int turns = 0; !follow(m); sp_i_pause(&turns)) {
        bool kept = keep_card(m);
        if (sp_i_now_ms() >= until_ms + VERDICT_MS) {
            sp_i_rendezvous_note(&m->base, SP_ERR_LIMIT,
                                 kept ? "rank %d: rank 0 did not come to %s in %d ms"
                                      : "rank %d: another process has its place in %s after %d ms",
                                 m->base.rank, m->folder, m->base.timeout_ms);
            return;
        }
    }
}

// ---- begin and end ----

static void free_meeting(sp_i_rendezvous *r)
{
    meeting *m = (meeting *)(void *)r;
    char path[PATH];
    if (m->card_file >= 0) {
        path_of(m, path, "rank-%d", r->rank);
        if (has_own_card(m)) {
            unlink(path);
        }
        close(m->card_file);
        // Who leaves last takes everything along: others may still read how it ended.
        clear_folder(m, true);
        rmdir(m->folder);
    }
    sp_i_free(m->numbers);
    sp_i_free(m);
}

static const sp_i_rendezvous_ops file_ops = {look, broadcast, tell, free_meeting};

// A rank that lives is still in the session before, whose files it may read.
static bool is_used(const meeting *m)
{
    char path[PATH];
    peer_card there;
    for (int i = 1; i < m->base.ranks; i++) {
        path_of(m, path, "rank-%d", i);
        if (read_card(m, i, &there) && strcmp(there.session, "-") != 0 && is_held(path, false)) {
            return true;
        }
    }
    return false;
}

// This rank's place in the folder, where nothing is left that others could mistake.
static void enter_folder(meeting *m, int64_t until_ms)
{
    for (int turns = 0; is_used(m) || !keep_card(m); sp_i_pause(&turns)) {
        if (sp_i_now_ms() >= until_ms) {
            sp_i_rendezvous_note(&m->base, SP_ERR_LIMIT,
                                 "rank 0: another process has its place in %s after %d ms",
                                 m->folder, m->base.timeout_ms);
            return;
        }
    }
    clear_folder(m, false);
}

static void meet(meeting *m, const sp_i_place *place)
{
    const int64_t until_ms = sp_i_now_ms() + m->base.timeout_ms;
    (void)mkdir(place->folder, 0700);
    if (mkdir(m->folder, 0700) != 0 && errno != EEXIST) {
        sp_i_rendezvous_note(&m->base, SP_ERR_IO, "rank %d: %s: %s", m->base.rank, m->folder,
                             strerror(errno));
    } else if (m->base.rank > 0) {
        wait_for_session(m, until_ms);
    } else {
        enter_folder(m, until_ms);
        if (m->base.failure.status == SP_OK) {
            lead(m, until_ms);
        }
    }
}

sp_status sp_i_rendezvous_join(const sp_i_place *place, const char *card, int timeout_ms,
                               sp_i_rendezvous **made, sp_error *err)
{
    *made = NULL;
    SP_ASSERT(strlen(card) + 32 < SP_I_RENDEZVOUS_CARD);
    if (place->by_mpi) {
        return sp_i_mpi_join(place, card, timeout_ms, made, err);
    }
    meeting *m = sp_i_calloc(1, sizeof *m);
    number *numbers = sp_i_calloc((size_t)place->ranks, sizeof *numbers);
    if (m == NULL || numbers == NULL) {
        sp_i_free(m);
        sp_i_free(numbers);
        return sp_error_no_memory(err, "the ranks' meeting");
    }
    *m = (meeting){.base = {&file_ops, place->rank, place->ranks, timeout_ms, {0}},
                   .card_file = -1,
                   .numbers = numbers};
    snprintf(m->folder, sizeof m->folder, "%s/%s", place->folder, place->run);
    snprintf(m->card, sizeof m->card, "%d ranks, %s", place->ranks, card);
    draw_number(m->own);
    if (place->ranks > 1) {
        meet(m, place);
    }
    sp_status status = m->base.failure.status;
    if (status != SP_OK) {
        (void)sp_error_set(err, status, "%s", m->base.failure.message[0]);
        free_meeting(&m->base);
        return status;
    }
    *made = &m->base;
    return SP_OK;
}
