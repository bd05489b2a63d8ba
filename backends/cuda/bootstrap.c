// What ranks that have come together exchange, all of it through rank 0.
#include "backends/cuda/bootstrap.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "backends/cuda/bootstrap_peer.h"
#include "sim/base/alloc.h"

void sp_i_bootstrap_free(sp_i_bootstrap *b)
{
    if (b == NULL) {
        return;
    }
    const sp_i_bootstrap_head bye = {SP_I_BOOTSTRAP_BYE, b->calls, 0};
    for (int i = 0; i < b->peers; i++) {
        sp_i_bootstrap_peer *peer = &b->peer[i];
        unsigned char bytes[SP_I_BOOTSTRAP_HEAD];
        size_t moved = 0;
        sp_i_bootstrap_head_write(&bye, bytes);
        if (peer->socket >= 0 && !peer->cut && b->failure.status == SP_OK) {
            (void)sp_i_socket_send(peer->socket, bytes, sizeof bytes, &moved);
        }
        if (peer->socket >= 0) {
            close(peer->socket);
        }
        sp_i_bootstrap_take(peer);
    }
    sp_i_free(b);
}

int sp_i_bootstrap_rank(const sp_i_bootstrap *b)
{
    return b->rank;
}

int sp_i_bootstrap_ranks(const sp_i_bootstrap *b)
{
    return b->ranks;
}

// ---- waiting ----

static bool is_used(const sp_i_bootstrap *b, int peer)
{
    return b->rank != 0 || peer != 0;
}

// Fails for a peer that can no longer send what it is waited for.
static sp_status check_lost(sp_i_bootstrap *b, int i, const char *what)
{
    const sp_i_bootstrap_peer *peer = &b->peer[i];
    int rank = b->rank == 0 ? i : 0;
    if (!is_used(b, i) || peer->waiting || peer->socket >= 0) {
        return SP_OK;
    }
    return peer->left
               ? sp_i_bootstrap_fail(b, SP_ERR_INTERNAL,
                                     "rank %d is at its end where rank %d is at %s, call %llu",
                                     rank, b->rank, what, (unsigned long long)b->calls)
               : sp_i_bootstrap_fail(b, SP_ERR_IO,
                                     "rank %d is gone: its connection ended where rank %d "
                                     "waited for it at %s, call %llu",
                                     rank, b->rank, what, (unsigned long long)b->calls);
}

static sp_status check_frame(sp_i_bootstrap *b, int i, sp_i_bootstrap_kind kind)
{
    const sp_i_bootstrap_head *head = &b->peer[i].head;
    if (head->kind == kind && head->call == b->calls) {
        return SP_OK;
    }
    return sp_i_bootstrap_fail(
        b, SP_ERR_INTERNAL, "rank %d is at %s, call %llu, where rank %d is at %s, call %llu",
        b->rank == 0 ? i : 0, sp_i_bootstrap_kind_name(head->kind), (unsigned long long)head->call,
        b->rank, sp_i_bootstrap_kind_name(kind), (unsigned long long)b->calls);
}

sp_status sp_i_bootstrap_await(sp_i_bootstrap *b, sp_i_bootstrap_kind kind, int64_t until_ms)
{
    const char *what = sp_i_bootstrap_kind_name(kind);
    for (;;) {
        char names[SP_I_BOOTSTRAP_NAMES];
        sp_status status = sp_i_bootstrap_read(b);
        for (int i = 0; i < b->peers && status == SP_OK; i++) {
            b->peer[i].missing = is_used(b, i) && !b->peer[i].waiting;
            status = check_lost(b, i, what);
        }
        if (status != SP_OK) {
            return status;
        }
        if (sp_i_bootstrap_name_missing(b, names) == 0) {
            break;
        }
        int left_ms = sp_i_socket_left_ms(until_ms);
        if (left_ms == 0) {
            return sp_i_bootstrap_fail(b, SP_ERR_LIMIT,
                                       "rank %d waited %d ms at %s, call %llu, for %s", b->rank,
                                       b->timeout_ms, what, (unsigned long long)b->calls, names);
        }
        (void)sp_i_bootstrap_read_within(b, left_ms);
    }
    for (int i = 0; i < b->peers; i++) {
        if (is_used(b, i) && check_frame(b, i, kind) != SP_OK) {
            return b->failure.status;
        }
    }
    return SP_OK;
}

static void take_all(sp_i_bootstrap *b)
{
    for (int i = 0; i < b->peers; i++) {
        sp_i_bootstrap_take(&b->peer[i]);
    }
}

static sp_status write_all(sp_i_bootstrap *b, sp_i_bootstrap_kind kind, const void *data,
                           size_t bytes, int64_t until_ms)
{
    const sp_i_bootstrap_head head = {kind, b->calls, bytes};
    for (int i = 0; i < b->peers; i++) {
        if (is_used(b, i) && sp_i_bootstrap_write(b, i, &head, data, until_ms) != SP_OK) {
            return b->failure.status;
        }
    }
    return SP_OK;
}

// The failure's message goes to the caller; the call is over.
static sp_status end_call(sp_i_bootstrap *b, sp_error *err)
{
    b->calls++;
    return b->failure.status == SP_OK
               ? SP_OK
               : sp_error_set(err, b->failure.status, "%s", b->failure.message[0]);
}

// ---- calls ----

sp_status sp_i_bootstrap_broadcast(sp_i_bootstrap *b, void *data, size_t bytes, sp_error *err)
{
    SP_ASSERT(bytes <= SP_I_BOOTSTRAP_BYTES);
    const int64_t until_ms = sp_i_socket_now_ms() + b->timeout_ms;
    sp_status status = sp_i_bootstrap_read(b);
    if (status == SP_OK && b->rank == 0) {
        status = write_all(b, SP_I_BOOTSTRAP_BROADCAST, data, bytes, until_ms);
    } else if (status == SP_OK) {
        sp_i_bootstrap_peer *root = &b->peer[0];
        status = sp_i_bootstrap_await(b, SP_I_BOOTSTRAP_BROADCAST, until_ms);
        if (status == SP_OK && root->head.bytes != bytes) {
            status = sp_i_bootstrap_fail(
                b, SP_ERR_INTERNAL, "rank %d expects a broadcast of %zu bytes, rank 0 sent %llu",
                b->rank, bytes, (unsigned long long)root->head.bytes);
        }
        if (status == SP_OK && bytes > 0) {
            memcpy(data, root->body, bytes);
        }
        take_all(b);
    }
    return end_call(b, err);
}

static sp_status take_parts(sp_i_bootstrap *b, const void *data, size_t bytes,
                            sp_i_bootstrap_part *parts)
{
    parts[0].data = sp_i_malloc(bytes);
    if (parts[0].data == NULL) {
        return sp_i_bootstrap_fail(b, SP_ERR_NO_MEMORY, "rank 0: out of memory for a gather");
    }
    if (bytes > 0) {
        memcpy(parts[0].data, data, bytes);
    }
    parts[0].bytes = bytes;
    for (int i = 1; i < b->ranks; i++) {
        parts[i] = (sp_i_bootstrap_part){b->peer[i].body, (size_t)b->peer[i].head.bytes};
        b->peer[i].body = NULL;
    }
    return SP_OK;
}

sp_status sp_i_bootstrap_gather(sp_i_bootstrap *b, const void *data, size_t bytes,
                                sp_i_bootstrap_part *parts, sp_error *err)
{
    SP_ASSERT(bytes <= SP_I_BOOTSTRAP_BYTES);
    const int64_t until_ms = sp_i_socket_now_ms() + b->timeout_ms;
    sp_status status = sp_i_bootstrap_read(b);
    if (b->rank == 0) {
        memset(parts, 0, (size_t)b->ranks * sizeof *parts);
    }
    if (status == SP_OK && b->rank != 0) {
        status = write_all(b, SP_I_BOOTSTRAP_GATHER, data, bytes, until_ms);
    } else if (status == SP_OK) {
        status = sp_i_bootstrap_await(b, SP_I_BOOTSTRAP_GATHER, until_ms);
        if (status == SP_OK) {
            (void)take_parts(b, data, bytes, parts);
        }
        take_all(b);
    }
    return end_call(b, err);
}

void sp_i_bootstrap_parts_fini(sp_i_bootstrap_part *parts, int ranks)
{
    for (int i = 0; i < ranks; i++) {
        sp_i_free(parts[i].data);
        parts[i] = (sp_i_bootstrap_part){0};
    }
}

sp_status sp_i_bootstrap_barrier(sp_i_bootstrap *b, sp_error *err)
{
    const int64_t until_ms = sp_i_socket_now_ms() + b->timeout_ms;
    sp_status status = sp_i_bootstrap_read(b);
    if (status == SP_OK && b->rank != 0) {
        status = write_all(b, SP_I_BOOTSTRAP_ARRIVE, NULL, 0, until_ms);
    }
    if (status == SP_OK) {
        status = sp_i_bootstrap_await(
            b, b->rank == 0 ? SP_I_BOOTSTRAP_ARRIVE : SP_I_BOOTSTRAP_LEAVE, until_ms);
        take_all(b);
    }
    if (status == SP_OK && b->rank == 0) {
        (void)write_all(b, SP_I_BOOTSTRAP_LEAVE, NULL, 0, until_ms);
    }
    return end_call(b, err);
}

sp_status sp_i_bootstrap_check(sp_i_bootstrap *b, sp_error *err)
{
    (void)sp_i_bootstrap_read(b);
    for (int i = 0; i < b->peers; i++) {
        const sp_i_bootstrap_peer *peer = &b->peer[i];
        if (is_used(b, i) && b->ranks > 1 && peer->socket < 0 && !peer->left && !peer->waiting) {
            (void)sp_i_bootstrap_fail(b, SP_ERR_IO, "rank %d is gone: its connection ended",
                                      b->rank == 0 ? i : 0);
        }
    }
    return b->failure.status == SP_OK
               ? SP_OK
               : sp_error_set(err, b->failure.status, "%s", b->failure.message[0]);
}

sp_status sp_i_bootstrap_abort(sp_i_bootstrap *b, sp_status status, const char *format, ...)
{
    char text[SP_ERROR_TEXT];
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(text, sizeof text, format, arguments);
    va_end(arguments);
    char with_rank[SP_ERROR_TEXT];
    snprintf(with_rank, sizeof with_rank, "rank %d: %.*s", b->rank, SP_ERROR_TEXT - 40, text);
    return sp_i_bootstrap_abort_with(b, status, with_rank);
}

sp_status sp_i_bootstrap_abort_with(sp_i_bootstrap *b, sp_status status, const char *text)
{
    (void)sp_i_bootstrap_read(b);
    // What came before and has another cause is first.
    return sp_i_bootstrap_fail(b, status, "%s", text);
}
