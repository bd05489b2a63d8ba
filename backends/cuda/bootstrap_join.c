// How ranks come together: rank 0 listens and looks at who comes, the others connect.
#include <poll.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "backends/cuda/bootstrap_peer.h"
#include "sim/base/alloc.h"

enum {
    DOOR = 64,       // connections that have not said who they are
    HELLO_MS = 5000, // they may take to say so
    GRACE_MS = 2000, // others wait for longer than rank 0, which knows who is missing
};

typedef struct visitor {
    int socket;
    int64_t until_ms;
    size_t have;
    unsigned char hello[SP_I_BOOTSTRAP_HELLO];
} visitor;

typedef struct door {
    const sp_i_bootstrap_place *place;
    uint32_t plan_hash;
    int listeners[SP_I_LISTENERS];
    int listener_count;
    visitor visitors[DOOR];
    int visitor_count;
    int strangers;
} door;

static sp_status check_fit(sp_i_bootstrap *b, const door *d, const sp_i_bootstrap_hello *hello,
                           bool seated)
{
    if (hello->version != SP_I_BOOTSTRAP_VERSION) {
        return sp_i_bootstrap_fail(b, SP_ERR_USAGE,
                                   "a rank of another version of slimpack came: its protocol is "
                                   "%lu, that of rank 0 is %d",
                                   (unsigned long)hello->version, SP_I_BOOTSTRAP_VERSION);
    }
    if (hello->ranks != (uint32_t)b->ranks) {
        return sp_i_bootstrap_fail(
            b, SP_ERR_USAGE, "rank %lu was started as one of %lu ranks, rank 0 as one of %d",
            (unsigned long)hello->rank, (unsigned long)hello->ranks, b->ranks);
    }
    if (hello->rank == 0 || hello->rank >= (uint32_t)b->ranks) {
        return sp_i_bootstrap_fail(b, SP_ERR_USAGE, "a rank %lu came to rank 0 of %d ranks",
                                   (unsigned long)hello->rank, b->ranks);
    }
    if (hello->plan_hash != d->plan_hash) {
        return sp_i_bootstrap_fail(
            b, SP_ERR_USAGE, "rank %lu runs another plan: its hash is %08lx, that of rank 0 %08lx",
            (unsigned long)hello->rank, (unsigned long)hello->plan_hash,
            (unsigned long)d->plan_hash);
    }
    if (!seated) {
        return sp_i_bootstrap_fail(b, SP_ERR_USAGE, "rank %lu came twice",
                                   (unsigned long)hello->rank);
    }
    return SP_OK;
}

static void refuse(int socket)
{
    static const char text[] = "rank 0 there belongs to another run";
    unsigned char frame[SP_I_BOOTSTRAP_HEAD + 4 + sizeof text - 1];
    const sp_i_bootstrap_head head = {SP_I_BOOTSTRAP_ABORT, 0, 4 + sizeof text - 1};
    size_t moved = 0;
    sp_i_bootstrap_head_write(&head, frame);
    sp_i_bootstrap_put_u32(frame + SP_I_BOOTSTRAP_HEAD, SP_ERR_USAGE);
    memcpy(frame + SP_I_BOOTSTRAP_HEAD + 4, text, sizeof text - 1);
    // A new connection has room for it; who is not there any more does not miss it.
    (void)sp_i_socket_send(socket, frame, sizeof frame, &moved);
}

// A visitor that has said who it is: a rank goes in, a stranger out. A rank that does not fit ends
// the run: it would be missing in any case.
static sp_status judge(sp_i_bootstrap *b, door *d, const visitor *v)
{
    sp_i_bootstrap_hello hello;
    bool known = sp_i_bootstrap_hello_read(v->hello, &hello);
    if (!known || strcmp(hello.run, d->place->run) != 0) {
        if (known) {
            refuse(v->socket);
        }
        d->strangers++;
        close(v->socket);
        return SP_OK;
    }
    bool seated = hello.rank > 0 && hello.rank < (uint32_t)b->ranks && !b->peer[hello.rank].came;
    // Without a place of its own it has rank 0's, which is free, to be told the reason.
    sp_i_bootstrap_peer *seat = &b->peer[seated ? hello.rank : 0];
    seat->socket = v->socket;
    seat->came = true;
    return check_fit(b, d, &hello, seated);
}

static void drop_visitor(door *d, int i)
{
    d->visitors[i] = d->visitors[--d->visitor_count];
}

// Goes on with what a visitor says; takes it from the list when it has said all, or too little for
// too long.
static sp_status hear_visitor(sp_i_bootstrap *b, door *d, int i)
{
    visitor *v = &d->visitors[i];
    size_t moved = 0;
    sp_i_socket_state state =
        sp_i_socket_receive(v->socket, v->hello + v->have, sizeof v->hello - v->have, &moved);
    v->have += moved;
    if (v->have == sizeof v->hello) {
        sp_status status = judge(b, d, v);
        drop_visitor(d, i);
        return status;
    }
    if (state == SP_I_SOCKET_ENDED || sp_i_socket_left_ms(v->until_ms) == 0) {
        close(v->socket);
        d->strangers++;
        drop_visitor(d, i);
    }
    return SP_OK;
}

static void open_door(door *d)
{
    for (int i = 0; i < d->listener_count; i++) {
        int socket = -1;
        while (d->visitor_count < DOOR && (socket = sp_i_socket_accept(d->listeners[i])) >= 0) {
            d->visitors[d->visitor_count++] =
                (visitor){.socket = socket, .until_ms = sp_i_socket_now_ms() + HELLO_MS};
        }
    }
}

// Sleeps until somebody comes or says something, or a moment has passed.
static void wait_at_door(const door *d, int64_t until_ms)
{
    enum { MOMENT_MS = 50 };
    struct pollfd waits[SP_I_LISTENERS + DOOR];
    int count = 0;
    for (int i = 0; i < d->listener_count && d->visitor_count < DOOR; i++) {
        waits[count++] = (struct pollfd){.fd = d->listeners[i], .events = POLLIN};
    }
    for (int i = 0; i < d->visitor_count; i++) {
        waits[count++] = (struct pollfd){.fd = d->visitors[i].socket, .events = POLLIN};
    }
    int left_ms = sp_i_socket_left_ms(until_ms);
    (void)poll(waits, (nfds_t)count, left_ms < MOMENT_MS ? left_ms : MOMENT_MS);
}

// Ranks that have not come; fails for those that have gone again.
static sp_status count_missing(sp_i_bootstrap *b, int *missing, char names[SP_I_BOOTSTRAP_NAMES])
{
    for (int i = 1; i < b->ranks; i++) {
        if (b->peer[i].came && b->peer[i].socket < 0) {
            return sp_i_bootstrap_fail(
                b, SP_ERR_IO, "rank %d is gone: its connection ended while others joined", i);
        }
        b->peer[i].missing = !b->peer[i].came;
    }
    *missing = sp_i_bootstrap_name_missing(b, names);
    return SP_OK;
}

static sp_status gather_ranks(sp_i_bootstrap *b, door *d)
{
    const int64_t until_ms = sp_i_socket_now_ms() + b->timeout_ms;
    for (;;) {
        char names[SP_I_BOOTSTRAP_NAMES];
        int missing = 0;
        open_door(d);
        sp_status status = sp_i_bootstrap_read(b);
        for (int i = d->visitor_count - 1; status == SP_OK && i >= 0; i--) {
            status = hear_visitor(b, d, i);
        }
        if (status == SP_OK) {
            status = count_missing(b, &missing, names);
        }
        if (status != SP_OK || missing == 0) {
            return status;
        }
        if (sp_i_socket_left_ms(until_ms) == 0) {
            return sp_i_bootstrap_fail(b, SP_ERR_LIMIT,
                                       "rank 0 waited %d ms at %s, port %d: %s of %d did not come; "
                                       "%d connections were not of this run",
                                       b->timeout_ms, d->place->address, d->place->port, names,
                                       b->ranks, d->strangers);
        }
        wait_at_door(d, until_ms);
    }
}

static sp_status receive_ranks(sp_i_bootstrap *b, const sp_i_bootstrap_place *place,
                               uint32_t plan_hash)
{
    sp_error err = {0};
    door *d = sp_i_calloc(1, sizeof *d);
    if (d == NULL) {
        return sp_i_bootstrap_fail(b, SP_ERR_NO_MEMORY, "rank 0: out of memory for joining");
    }
    d->place = place;
    d->plan_hash = plan_hash;
    sp_status status =
        sp_i_socket_listen(place->address, place->port, d->listeners, &d->listener_count, &err);
    if (status != SP_OK) {
        (void)sp_i_bootstrap_fail(b, status, "rank 0: %s", err.message[0]);
    } else {
        status = gather_ranks(b, d);
    }
    const sp_i_bootstrap_head welcome = {SP_I_BOOTSTRAP_WELCOME, b->calls, 0};
    for (int i = 1; i < b->ranks && status == SP_OK; i++) {
        status = sp_i_bootstrap_write(b, i, &welcome, NULL, sp_i_socket_now_ms() + b->timeout_ms);
    }
    for (int i = 0; i < d->visitor_count; i++) {
        close(d->visitors[i].socket);
    }
    for (int i = 0; i < d->listener_count; i++) {
        close(d->listeners[i]);
    }
    sp_i_free(d);
    return status;
}

static sp_status come_to_rank_0(sp_i_bootstrap *b, const sp_i_bootstrap_place *place,
                                uint32_t plan_hash)
{
    sp_error err = {0};
    sp_status status =
        sp_i_socket_connect(place->address, place->port, sp_i_socket_now_ms() + b->timeout_ms,
                            &b->peer[0].socket, &err);
    if (status != SP_OK) {
        return sp_i_bootstrap_fail(b, status, "rank %d: %s", b->rank, err.message[0]);
    }
    b->peer[0].came = true;
    sp_i_bootstrap_hello hello = {.version = SP_I_BOOTSTRAP_VERSION,
                                  .ranks = (uint32_t)b->ranks,
                                  .rank = (uint32_t)b->rank,
                                  .plan_hash = plan_hash};
    snprintf(hello.run, sizeof hello.run, "%s", place->run);
    unsigned char bytes[SP_I_BOOTSTRAP_HELLO];
    sp_i_bootstrap_hello_write(&hello, bytes);
    // The first bytes of a connection always have room.
    size_t moved = 0;
    if (sp_i_socket_send(b->peer[0].socket, bytes, sizeof bytes, &moved) != SP_I_SOCKET_READY ||
        moved != sizeof bytes) {
        return sp_i_bootstrap_fail(b, SP_ERR_IO, "rank %d: cannot send to rank 0", b->rank);
    }
    status = sp_i_bootstrap_await(b, SP_I_BOOTSTRAP_WELCOME,
                                  sp_i_socket_now_ms() + b->timeout_ms + GRACE_MS);
    sp_i_bootstrap_take(&b->peer[0]);
    return status;
}

// Waits until every rank has come, rank 0, or for rank 0's word that they have.
static sp_status meet(sp_i_bootstrap *b, const sp_i_bootstrap_place *place, uint32_t plan_hash)
{
    return b->rank == 0 ? receive_ranks(b, place, plan_hash) : come_to_rank_0(b, place, plan_hash);
}

sp_status sp_i_bootstrap_join(const sp_i_bootstrap_place *place, uint32_t plan_hash, int timeout_ms,
                              sp_i_bootstrap **made, sp_error *err)
{
    SP_ASSERT(place->ranks >= 1 && place->rank >= 0 && place->rank < place->ranks);
    const int peers = place->rank == 0 ? place->ranks : 1;
    sp_i_bootstrap *b = sp_i_calloc(1, sizeof *b + (size_t)peers * sizeof *b->peer);
    *made = b;
    if (b == NULL) {
        return sp_error_no_memory(err, "the ranks' connections");
    }
    b->rank = place->rank;
    b->ranks = place->ranks;
    b->timeout_ms = timeout_ms;
    b->peers = peers;
    for (int i = 0; i < peers; i++) {
        b->peer[i].socket = -1;
    }
    sp_status status = b->ranks == 1 ? SP_OK : meet(b, place, plan_hash);
    b->calls = 1;
    if (status != SP_OK) {
        (void)sp_error_set(err, status, "%s", b->failure.message[0]);
        sp_i_bootstrap_free(b);
        *made = NULL;
    }
    return status;
}
