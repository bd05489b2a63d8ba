#include "backends/cuda/bootstrap_peer.h"

#include <ctype.h>
#include <poll.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "sim/base/alloc.h"

enum { FAREWELL_MS = 500 }; // given to telling a rank of a failure

static int rank_of(const sp_i_bootstrap *b, int peer)
{
    return b->rank == 0 ? peer : 0;
}

static void hang_up(sp_i_bootstrap_peer *peer)
{
    close(peer->socket);
    peer->socket = -1;
}

void sp_i_bootstrap_take(sp_i_bootstrap_peer *peer)
{
    sp_i_free(peer->body);
    peer->body = NULL;
    peer->have = 0;
    peer->waiting = false;
}

// ---- failure ----

static void tell(sp_i_bootstrap *b, sp_status status, const char *text)
{
    unsigned char body[4 + SP_ERROR_TEXT];
    size_t length = strlen(text);
    sp_i_bootstrap_put_u32(body, (uint32_t)status);
    memcpy(body + 4, text, length);
    const sp_i_bootstrap_head head = {SP_I_BOOTSTRAP_ABORT, b->calls, 4 + length};
    for (int i = 0; i < b->peers; i++) {
        if (b->peer[i].socket >= 0 && !b->peer[i].cut) {
            (void)sp_i_bootstrap_write(b, i, &head, body, sp_i_socket_now_ms() + FAREWELL_MS);
        }
        // The socket stays: closing it with something unread would take back what was told.
        if (b->peer[i].socket >= 0) {
            (void)shutdown(b->peer[i].socket, SHUT_WR);
        }
    }
}

sp_status sp_i_bootstrap_fail(sp_i_bootstrap *b, sp_status status, const char *format, ...)
{
    if (b->failure.status == SP_OK) {
        char text[SP_ERROR_TEXT];
        va_list arguments;
        va_start(arguments, format);
        vsnprintf(text, sizeof text, format, arguments);
        va_end(arguments);
        sp_error_set(&b->failure, status, "%s", text);
        tell(b, status, text);
    }
    return b->failure.status;
}

// The body of an abort that came.
static sp_status aborted(sp_i_bootstrap *b, const unsigned char *body, size_t bytes)
{
    char text[SP_ERROR_TEXT];
    size_t length = bytes - 4 < sizeof text ? bytes - 4 : sizeof text - 1;
    for (size_t i = 0; i < length; i++) {
        unsigned char c = body[4 + i];
        text[i] = (char)(c >= 0x80 || isprint(c) ? c : '?');
    }
    text[length] = '\0';
    uint32_t code = sp_i_bootstrap_u32(body);
    sp_status status = code > SP_OK && code <= SP_ERR_INTERNAL ? (sp_status)code : SP_ERR_INTERNAL;
    return sp_i_bootstrap_fail(b, status, "%s", text);
}

// ---- reading ----

// What a head announces.
static sp_status begin_body(sp_i_bootstrap *b, int i)
{
    sp_i_bootstrap_peer *peer = &b->peer[i];
    if (!sp_i_bootstrap_head_read(peer->head_bytes, &peer->head)) {
        hang_up(peer);
        return sp_i_bootstrap_fail(b, SP_ERR_IO, "rank %d: what came from rank %d is no message",
                                   b->rank, rank_of(b, i));
    }
    if (peer->head.bytes > 0) {
        peer->body = sp_i_malloc((size_t)peer->head.bytes);
        if (peer->body == NULL) {
            return sp_i_bootstrap_fail(b, SP_ERR_NO_MEMORY, "rank %d: out of memory for a message",
                                       b->rank);
        }
    }
    return SP_OK;
}

static sp_status end_body(sp_i_bootstrap *b, int i)
{
    sp_i_bootstrap_peer *peer = &b->peer[i];
    peer->waiting = true;
    if (peer->head.kind == SP_I_BOOTSTRAP_ABORT) {
        return aborted(b, peer->body, (size_t)peer->head.bytes);
    }
    if (peer->head.kind == SP_I_BOOTSTRAP_BYE) {
        peer->left = true;
        hang_up(peer);
        sp_i_bootstrap_take(peer);
    }
    return SP_OK;
}

// A frame that nobody has taken yet does not hide that its sender has given up since.
static sp_status look_behind(sp_i_bootstrap *b, const sp_i_bootstrap_peer *peer)
{
    unsigned char bytes[SP_I_BOOTSTRAP_HEAD + 4 + SP_ERROR_TEXT];
    sp_i_bootstrap_head head;
    size_t moved = 0;
    bool is_abort =
        sp_i_socket_peek(peer->socket, bytes, sizeof bytes, &moved) == SP_I_SOCKET_READY &&
        moved >= SP_I_BOOTSTRAP_HEAD && sp_i_bootstrap_head_read(bytes, &head) &&
        head.kind == SP_I_BOOTSTRAP_ABORT && moved >= SP_I_BOOTSTRAP_HEAD + (size_t)head.bytes;
    return is_abort ? aborted(b, bytes + SP_I_BOOTSTRAP_HEAD, (size_t)head.bytes) : SP_OK;
}

static sp_status read_peer(sp_i_bootstrap *b, int i)
{
    sp_i_bootstrap_peer *peer = &b->peer[i];
    if (peer->socket >= 0 && peer->waiting) {
        return look_behind(b, peer);
    }
    while (peer->socket >= 0 && !peer->waiting) {
        bool in_head = peer->have < SP_I_BOOTSTRAP_HEAD;
        unsigned char *to = in_head ? peer->head_bytes + peer->have
                                    : peer->body + (peer->have - SP_I_BOOTSTRAP_HEAD);
        size_t size =
            in_head ? SP_I_BOOTSTRAP_HEAD : SP_I_BOOTSTRAP_HEAD + (size_t)peer->head.bytes;
        size_t moved = 0;
        switch (sp_i_socket_receive(peer->socket, to, size - peer->have, &moved)) {
        case SP_I_SOCKET_EMPTY:
            return SP_OK;
        case SP_I_SOCKET_ENDED:
            hang_up(peer);
            return SP_OK;
        case SP_I_SOCKET_READY:
            break;
        }
        peer->have += moved;
        sp_status status = SP_OK;
        if (in_head && peer->have == SP_I_BOOTSTRAP_HEAD) {
            status = begin_body(b, i);
            size = SP_I_BOOTSTRAP_HEAD + (size_t)peer->head.bytes;
        }
        if (status == SP_OK && peer->have == size && peer->have >= SP_I_BOOTSTRAP_HEAD) {
            status = end_body(b, i);
        }
        if (status != SP_OK) {
            return status;
        }
    }
    return SP_OK;
}

sp_status sp_i_bootstrap_read(sp_i_bootstrap *b)
{
    for (int i = 0; i < b->peers && b->failure.status == SP_OK; i++) {
        (void)read_peer(b, i);
    }
    return b->failure.status;
}

sp_status sp_i_bootstrap_read_within(sp_i_bootstrap *b, int wait_ms)
{
    // What comes behind a frame that waits wakes nobody up.
    enum { MOMENT_MS = 100 };
    struct pollfd *waits = sp_i_calloc((size_t)b->peers, sizeof *waits);
    if (waits == NULL) {
        return sp_i_bootstrap_fail(b, SP_ERR_NO_MEMORY, "rank %d: out of memory", b->rank);
    }
    for (int i = 0; i < b->peers; i++) {
        // poll() passes over negative ones.
        waits[i].fd = b->peer[i].waiting ? -1 : b->peer[i].socket;
        waits[i].events = POLLIN;
    }
    (void)poll(waits, (nfds_t)b->peers, wait_ms < MOMENT_MS ? wait_ms : MOMENT_MS);
    sp_i_free(waits);
    return sp_i_bootstrap_read(b);
}

// ---- writing ----

// An abort that a rank has sent before its connection ended says more than the end.
static sp_status write_failed(sp_i_bootstrap *b, int i, bool ended)
{
    if (b->failure.status == SP_OK && ended) {
        (void)read_peer(b, i);
    }
    if (b->failure.status != SP_OK) {
        return b->failure.status;
    }
    return ended ? sp_i_bootstrap_fail(b, SP_ERR_IO, "rank %d is gone: its connection ended",
                                       rank_of(b, i))
                 : sp_i_bootstrap_fail(b, SP_ERR_LIMIT,
                                       "rank %d: rank %d has not taken a message in %d ms", b->rank,
                                       rank_of(b, i), b->timeout_ms);
}

static sp_status write_bytes(sp_i_bootstrap *b, int i, const unsigned char *bytes, size_t count,
                             int64_t until_ms)
{
    sp_i_bootstrap_peer *peer = &b->peer[i];
    const bool failing = b->failure.status != SP_OK;
    while (count > 0) {
        size_t moved = 0;
        sp_i_socket_state state = peer->socket < 0
                                      ? SP_I_SOCKET_ENDED
                                      : sp_i_socket_send(peer->socket, bytes, count, &moved);
        if (state == SP_I_SOCKET_ENDED) {
            return write_failed(b, i, true);
        }
        bytes += moved;
        count -= moved;
        if (state == SP_I_SOCKET_EMPTY) {
            int left_ms = sp_i_socket_left_ms(until_ms);
            if (left_ms == 0) {
                return write_failed(b, i, false);
            }
            short events = peer->waiting || failing ? POLLOUT : POLLOUT | POLLIN;
            struct pollfd wait = {.fd = peer->socket, .events = events};
            (void)poll(&wait, 1, left_ms);
            if (!failing && read_peer(b, i) != SP_OK) {
                return write_failed(b, i, false);
            }
        }
    }
    return SP_OK;
}

sp_status sp_i_bootstrap_write(sp_i_bootstrap *b, int peer, const sp_i_bootstrap_head *head,
                               const void *body, int64_t until_ms)
{
    unsigned char bytes[SP_I_BOOTSTRAP_HEAD];
    sp_i_bootstrap_head_write(head, bytes);
    b->peer[peer].cut = true;
    sp_status status = write_bytes(b, peer, bytes, sizeof bytes, until_ms);
    if (status == SP_OK && head->bytes > 0) {
        status = write_bytes(b, peer, body, (size_t)head->bytes, until_ms);
    }
    b->peer[peer].cut = status != SP_OK;
    return status;
}

int sp_i_bootstrap_name_missing(const sp_i_bootstrap *b, char text[SP_I_BOOTSTRAP_NAMES])
{
    enum { LISTED = 12 };
    int count = 0;
    for (int i = 0; i < b->peers; i++) {
        count += b->peer[i].missing;
    }
    int used = snprintf(text, SP_I_BOOTSTRAP_NAMES, count == 1 ? "rank" : "ranks");
    int listed = 0;
    for (int i = 0; i < b->peers && listed < LISTED; i++) {
        if (b->peer[i].missing) {
            const char *before = listed == 0 ? " " : listed + 1 == count ? " and " : ", ";
            used += snprintf(text + used, (size_t)(SP_I_BOOTSTRAP_NAMES - used), "%s%d", before,
                             rank_of(b, i));
            listed++;
        }
    }
    if (count > listed) {
        snprintf(text + used, (size_t)(SP_I_BOOTSTRAP_NAMES - used), " and %d more",
                 count - listed);
    }
    return count;
}
