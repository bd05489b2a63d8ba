// Ranks that meet by files in FOLDER/RUN, each of which appears whole under its name:
//   rank-R     its card: a number that this process has drawn, and what it has in common with the
//              others. Locked as long as the process lives, so that its death is seen.
//   session    of rank 0: its own number and how it went, and the numbers of all ranks in their
//              order. A rank that does not find its number there has found an earlier run's.
//   S-go       of rank 0: all ranks have taken session S up in their cards
//   S-N        the Nth broadcast
//   S-failed   the first failure: a status, and what happened
#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "backends/cuda/distributed/rendezvous_folder.h"
#include "backends/cuda/distributed/rendezvous_mpi.h"
#include "sim/base/alloc.h"

// What a session begins with: its number, a status and a text.
enum { VERDICT = SP_I_NUMBER + SP_ERROR_TEXT + 16 };
enum { LOOKS = 8 };

typedef struct file_rendezvous {
    sp_i_rendezvous base; // first
    sp_i_folder at;
    sp_i_number *numbers; // [ranks] at rank 0; owned
    unsigned broadcasts;
    int next_look; // rank 0 looks at some ranks at a time
} file_rendezvous;

// ---- failure ----

static void look_for_failure(file_rendezvous *m)
{
    char path[SP_I_FOLDER_PATH];
    char text[SP_ERROR_TEXT + 16] = "";
    int status = SP_OK;
    int used = 0;
    sp_i_folder_path(&m->at, path, "%s-failed", m->at.session);
    sp_i_folder_look_again(&m->at);
    if (sp_i_folder_read(path, 0, text, sizeof text - 1) > 0 &&
        sscanf(text, "%d %n", &status, &used) == 1 && status > SP_OK && status <= SP_ERR_INTERNAL) {
        sp_i_rendezvous_note(&m->base, (sp_status)status, "%s", text + used);
    }
}

static void tell(sp_i_rendezvous *r, sp_status status, const char *text)
{
    file_rendezvous *m = (file_rendezvous *)(void *)r;
    char path[SP_I_FOLDER_PATH];
    char line[SP_ERROR_TEXT + 16];
    int length = snprintf(line, sizeof line, "%d %s", (int)status, text);
    sp_i_folder_path(&m->at, path, "%s-failed", m->at.session);
    if (r->ranks > 1 && !sp_i_folder_put(&m->at, path, line, (size_t)length, true)) {
        look_for_failure(m); // another rank was faster
    }
}

// A card of this session that nobody holds any more. One that is gone or another's has left well.
static bool is_dead(const file_rendezvous *m, int rank)
{
    char path[SP_I_FOLDER_PATH];
    sp_i_card there;
    if (!sp_i_card_read(&m->at, rank, &there) || strcmp(there.session, m->at.session) != 0) {
        return false;
    }
    sp_i_folder_path(&m->at, path, "rank-%d", rank);
    return !sp_i_card_is_held(path, true) && access(path, F_OK) == 0 &&
           sp_i_card_read(&m->at, rank, &there) && strcmp(there.session, m->at.session) == 0;
}

static void look(sp_i_rendezvous *r)
{
    file_rendezvous *m = (file_rendezvous *)(void *)r;
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
    file_rendezvous *m = (file_rendezvous *)(void *)r;
    char path[SP_I_FOLDER_PATH];
    struct stat there;
    int polls = 0;
    sp_i_folder_path(&m->at, path, "%s-%u", m->at.session, m->broadcasts++);
    if (r->rank == 0) {
        if (!sp_i_folder_put(&m->at, path, data, bytes, false)) {
            (void)sp_i_rendezvous_abort(r, SP_ERR_IO, "%s: %s", path, strerror(errno));
        }
        return;
    }
    for (sp_i_folder_look_again(&m->at); stat(path, &there) != 0; sp_i_folder_look_again(&m->at)) {
        if (sp_i_rendezvous_check(r, NULL) != SP_OK) {
            return;
        }
        if (sp_i_now_ms() >= until_ms) {
            (void)sp_i_rendezvous_abort_with(r, SP_ERR_LIMIT, "rank 0 did not send in time");
            return;
        }
        sp_pause(&polls);
    }
    if ((size_t)there.st_size != bytes ||
        sp_i_folder_read(path, 0, data, bytes) != (ssize_t)bytes) {
        (void)sp_i_rendezvous_abort(r, SP_ERR_INTERNAL,
                                    "expected a broadcast of %zu bytes, rank 0 sent %lld", bytes,
                                    (long long)there.st_size);
    }
}

// ---- joining: rank 0 ----

// "2", "1 and 4", ... of ranks that have not come; how many they are.
static int name_missing(const file_rendezvous *m, char *text, size_t bytes)
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
static void read_cards(file_rendezvous *m, bool *changed, bool *taken_up, char *wrong, size_t bytes)
{
    *changed = false;
    *taken_up = m->at.session[0] != '\0';
    wrong[0] = '\0';
    sp_i_folder_look_again(&m->at);
    for (int i = 1; i < m->base.ranks; i++) {
        sp_i_card there;
        char path[SP_I_FOLDER_PATH];
        sp_i_folder_path(&m->at, path, "rank-%d", i);
        bool came = sp_i_card_read(&m->at, i, &there) && sp_i_card_is_held(path, true);
        if (strcmp(m->numbers[i], came ? there.own : "") != 0) {
            memcpy(m->numbers[i], there.own, came ? sizeof there.own : 0);
            m->numbers[i][came ? SP_I_NUMBER - 1 : 0] = '\0';
            *changed = true;
        }
        *taken_up = *taken_up && came && strcmp(there.session, m->at.session) == 0;
        if (came && strcmp(there.text, m->at.card) != 0) {
            sp_i_rendezvous_card_text(i, there.text, m->at.card, wrong, bytes);
        }
    }
}

// A session of the ranks that are there; any status but SP_OK ends it for them.
static bool put_session(file_rendezvous *m, sp_status status, const char *text)
{
    char path[SP_I_FOLDER_PATH];
    const size_t bytes = VERDICT + (size_t)m->base.ranks * SP_I_NUMBER;
    char *all = sp_calloc(1, bytes + 1);
    if (all == NULL) {
        return false;
    }
    sp_i_number_draw(m->at.session);
    snprintf(all, VERDICT, "%s %d %s", m->at.session, (int)status, text);
    for (int i = 0; i < m->base.ranks; i++) {
        snprintf(all + VERDICT + (size_t)i * SP_I_NUMBER, SP_I_NUMBER + 1, "%s\n",
                 i == 0 ? m->at.own : m->numbers[i]);
    }
    sp_i_folder_path(&m->at, path, "session");
    bool good = sp_i_folder_put(&m->at, path, all, bytes, false);
    sp_free(all);
    return good;
}

static void end_session(file_rendezvous *m, sp_status status, const char *text)
{
    sp_i_rendezvous_note(&m->base, status, "%s", text);
    (void)put_session(m, status, text);
    (void)sp_i_card_put(&m->at);
}

// All are there. True when the rendezvous is over.
static bool begin_session(file_rendezvous *m, bool changed, bool taken_up)
{
    char path[SP_I_FOLDER_PATH];
    bool good = true;
    sp_i_folder_path(&m->at, path, "%s-go", m->at.session);
    if (changed || m->at.session[0] == '\0') {
        taken_up = false;
        good = put_session(m, SP_OK, "") && sp_i_card_put(&m->at);
    } else if (taken_up) {
        good = sp_i_folder_put(&m->at, path, "go", 2, false);
    }
    if (!good) {
        sp_i_rendezvous_note(&m->base, SP_ERR_IO, "rank 0: %s: %s", m->at.path, strerror(errno));
    }
    return taken_up || !good;
}

static void lead(file_rendezvous *m, int64_t until_ms)
{
    enum { GRACE_MS = 3000 }; // for others to come and be told that one does not fit
    char wrong[SP_ERROR_TEXT];
    char text[SP_ERROR_TEXT];
    char names[128];
    int64_t grace_ms = INT64_MAX;
    for (int polls = 0;; sp_pause(&polls)) {
        bool changed;
        bool taken_up;
        (void)sp_i_card_keep(&m->at); // a rank that left may have taken it for one of its own run
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
                     m->base.timeout_ms, m->at.path, missing == 1 ? "" : "s",
                     missing > 0 ? names : "that had come", m->base.ranks);
            end_session(m, SP_ERR_LIMIT, text);
            return;
        }
        polls = changed ? 0 : polls;
    }
}

// ---- joining: the others ----

// Rank 0's session, where this process is in it.
static bool read_session(const file_rendezvous *m, sp_i_number session, int *status, char *text,
                         size_t bytes)
{
    char path[SP_I_FOLDER_PATH];
    char line[VERDICT + 1] = "";
    sp_i_number found = "";
    int used = 0;
    sp_i_folder_path(&m->at, path, "session");
    const off_t at = VERDICT + (off_t)m->base.rank * SP_I_NUMBER;
    if (sp_i_folder_read(path, at, found, SP_I_NUMBER - 1) != SP_I_NUMBER - 1 ||
        strcmp(found, m->at.own) != 0 || sp_i_folder_read(path, 0, line, VERDICT) != VERDICT ||
        sscanf(line, "%16s %d %n", session, status, &used) != 2) {
        return false;
    }
    snprintf(text, bytes, "%s", line + used);
    return true;
}

// True when the rendezvous is over, one way or the other.
static bool follow(file_rendezvous *m)
{
    char path[SP_I_FOLDER_PATH];
    char text[SP_ERROR_TEXT] = "";
    sp_i_number session;
    int status = SP_OK;
    sp_i_folder_look_again(&m->at);
    if (!read_session(m, session, &status, text, sizeof text)) {
        return false;
    }
    if (status != SP_OK) {
        memcpy(m->at.session, session, sizeof session);
        sp_i_rendezvous_note(&m->base, (sp_status)status, "%s", text);
        return true;
    }
    if (strcmp(session, m->at.session) != 0) {
        memcpy(m->at.session, session, sizeof session);
        (void)sp_i_card_put(&m->at);
    }
    sp_i_folder_path(&m->at, path, "%s-go", m->at.session);
    return access(path, F_OK) == 0;
}

static void wait_for_session(file_rendezvous *m, int64_t until_ms)
{
    enum { VERDICT_MS = 1000 }; // for rank 0, whose time may end with ours, to say who is missing
    for (int polls = 0; !follow(m); sp_pause(&polls)) {
        bool kept = sp_i_card_keep(&m->at);
        if (sp_i_now_ms() >= until_ms + VERDICT_MS) {
            sp_i_rendezvous_note(&m->base, SP_ERR_LIMIT,
                                 kept ? "rank %d: rank 0 did not come to %s in %d ms"
                                      : "rank %d: another process has its place in %s after %d ms",
                                 m->base.rank, m->at.path, m->base.timeout_ms);
            return;
        }
    }
}

// ---- begin and end ----

static void free_rendezvous(sp_i_rendezvous *r)
{
    file_rendezvous *m = (file_rendezvous *)(void *)r;
    char path[SP_I_FOLDER_PATH];
    if (m->at.card_file >= 0) {
        sp_i_folder_path(&m->at, path, "rank-%d", r->rank);
        if (sp_i_card_is_own(&m->at)) {
            unlink(path);
        }
        close(m->at.card_file);
        // Who leaves last takes everything along: others may still read how it ended.
        sp_i_folder_clear(&m->at, true);
        rmdir(m->at.path);
    }
    sp_free(m->numbers);
    sp_free(m);
}

static const sp_i_rendezvous_ops file_ops = {look, broadcast, tell, free_rendezvous};

// A rank that lives is still in the session before, whose files it may read.
static bool is_used(const file_rendezvous *m)
{
    char path[SP_I_FOLDER_PATH];
    sp_i_card there;
    for (int i = 1; i < m->base.ranks; i++) {
        sp_i_folder_path(&m->at, path, "rank-%d", i);
        if (sp_i_card_read(&m->at, i, &there) && strcmp(there.session, "-") != 0 &&
            sp_i_card_is_held(path, false)) {
            return true;
        }
    }
    return false;
}

// This rank's place in the folder, where nothing is left that others could mistake.
static void enter_folder(file_rendezvous *m, int64_t until_ms)
{
    for (int polls = 0; is_used(m) || !sp_i_card_keep(&m->at); sp_pause(&polls)) {
        if (sp_i_now_ms() >= until_ms) {
            sp_i_rendezvous_note(&m->base, SP_ERR_LIMIT,
                                 "rank 0: another process has its place in %s after %d ms",
                                 m->at.path, m->base.timeout_ms);
            return;
        }
    }
    sp_i_folder_clear(&m->at, false);
}

static void rendezvous(file_rendezvous *m, const sp_i_place *place)
{
    const int64_t until_ms = sp_i_now_ms() + m->base.timeout_ms;
    (void)mkdir(place->folder, 0700);
    if (mkdir(m->at.path, 0700) != 0 && errno != EEXIST) {
        sp_i_rendezvous_note(&m->base, SP_ERR_IO, "rank %d: %s: %s", m->base.rank, m->at.path,
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
    file_rendezvous *m = sp_calloc(1, sizeof *m);
    sp_i_number *numbers = sp_calloc((size_t)place->ranks, sizeof *numbers);
    if (m == NULL || numbers == NULL) {
        sp_free(m);
        sp_free(numbers);
        return sp_error_no_memory(err, "the ranks' rendezvous");
    }
    *m = (file_rendezvous){.base = {.ops = &file_ops,
                                    .rank = place->rank,
                                    .ranks = place->ranks,
                                    .timeout_ms = timeout_ms},
                           .at = {.rank = place->rank, .ranks = place->ranks, .card_file = -1},
                           .numbers = numbers};
    snprintf(m->at.path, sizeof m->at.path, "%s/%s", place->folder, place->run);
    snprintf(m->at.card, sizeof m->at.card, "%d ranks, %s", place->ranks, card);
    sp_i_number_draw(m->at.own);
    if (place->ranks > 1) {
        rendezvous(m, place);
    }
    sp_status status = m->base.failure.status;
    if (status != SP_OK) {
        (void)sp_error_set(err, status, "%s", m->base.failure.message[0]);
        free_rendezvous(&m->base);
        return status;
    }
    *made = &m->base;
    return SP_OK;
}
