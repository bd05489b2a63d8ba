#include "backends/cuda/bootstrap_socket.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <netdb.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

int64_t sp_i_socket_now_ms(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (int64_t)now.tv_sec * 1000 + now.tv_nsec / 1000000;
}

int sp_i_socket_left_ms(int64_t until_ms)
{
    int64_t left = until_ms - sp_i_socket_now_ms();
    return left <= 0 ? 0 : left > INT_MAX ? INT_MAX : (int)left;
}

void sp_i_socket_sleep_ms(int ms)
{
    struct timespec time = {ms / 1000, ms % 1000 * 1000000L};
    (void)nanosleep(&time, NULL);
}

static int open_socket(const struct addrinfo *at)
{
    int made = socket(at->ai_family, SOCK_STREAM, 0);
    if (made >= 0 && (fcntl(made, F_SETFD, FD_CLOEXEC) < 0 ||
                      fcntl(made, F_SETFL, fcntl(made, F_GETFL) | O_NONBLOCK) < 0)) {
        close(made);
        return -1;
    }
    return made;
}

static void set_option(int socket, int level, int option)
{
    const int on = 1;
    // What is asked for makes things better, not right: it may fail.
    (void)setsockopt(socket, level, option, &on, sizeof on);
}

// Messages are small and waited for; a machine that vanished is noticed in the end.
static void set_up(int socket)
{
    set_option(socket, IPPROTO_TCP, TCP_NODELAY);
    set_option(socket, SOL_SOCKET, SO_KEEPALIVE);
}

static int resolve(const char *address, int port, int flags, struct addrinfo **found)
{
    char service[8];
    snprintf(service, sizeof service, "%d", port);
    const struct addrinfo hints = {
        .ai_family = AF_UNSPEC, .ai_socktype = SOCK_STREAM, .ai_flags = flags | AI_NUMERICSERV};
    *found = NULL;
    return getaddrinfo(address, service, &hints, found);
}

static bool is_loopback(const struct addrinfo *at)
{
    if (at->ai_family == AF_INET) {
        struct sockaddr_in in;
        memcpy(&in, at->ai_addr, sizeof in);
        return ntohl(in.sin_addr.s_addr) >> 24 == 127;
    }
    if (at->ai_family == AF_INET6) {
        struct sockaddr_in6 in;
        memcpy(&in, at->ai_addr, sizeof in);
        return memcmp(&in.sin6_addr, &in6addr_loopback, sizeof in6addr_loopback) == 0;
    }
    return false;
}

// A machine's own name may stand for an address of its loopback that other machines do not reach;
// so only "localhost" and addresses written out count.
static bool is_loopback_name(const char *address)
{
    if (strcmp(address, "localhost") == 0) {
        return true;
    }
    struct addrinfo *found = NULL;
    bool loopback = resolve(address, 1, AI_NUMERICHOST, &found) == 0 && is_loopback(found);
    if (found != NULL) {
        freeaddrinfo(found);
    }
    return loopback;
}

static int listen_at(const struct addrinfo *at)
{
    int made = open_socket(at);
    if (made < 0) {
        return -1;
    }
    set_option(made, SOL_SOCKET, SO_REUSEADDR);
    if (at->ai_family == AF_INET6) {
        // IPv4 has a socket of its own.
        set_option(made, IPPROTO_IPV6, IPV6_V6ONLY);
    }
    if (bind(made, at->ai_addr, at->ai_addrlen) != 0 || listen(made, SOMAXCONN) != 0) {
        int why = errno;
        close(made);
        errno = why;
        return -1;
    }
    return made;
}

sp_status sp_i_socket_listen(const char *address, int port, int sockets[SP_I_LISTENERS], int *count,
                             sp_error *err)
{
    struct addrinfo *found = NULL;
    *count = 0;
    int code = resolve(is_loopback_name(address) ? address : NULL, port, AI_PASSIVE, &found);
    if (code != 0) {
        return sp_error_set(err, SP_ERR_IO, "cannot listen at %s: %s", address, gai_strerror(code));
    }
    int why = 0;
    for (struct addrinfo *at = found; at != NULL && *count < SP_I_LISTENERS; at = at->ai_next) {
        int made = listen_at(at);
        if (made >= 0) {
            sockets[(*count)++] = made;
        } else if (why != EADDRINUSE) {
            why = errno;
        }
    }
    freeaddrinfo(found);
    // One free family beside a taken one would leave some ranks at another program's door.
    if (*count == 0 || why == EADDRINUSE) {
        while (*count > 0) {
            close(sockets[--*count]);
        }
        return sp_error_set(
            err, SP_ERR_IO, "cannot listen at %s, port %d: %s%s", address, port, strerror(why),
            why == EADDRINUSE ? "; set SLIMPACK_PORT to another for all ranks" : "");
    }
    return SP_OK;
}

int sp_i_socket_accept(int listener)
{
    int made = accept(listener, NULL, NULL);
    if (made >= 0 && (fcntl(made, F_SETFD, FD_CLOEXEC) < 0 ||
                      fcntl(made, F_SETFL, fcntl(made, F_GETFL) | O_NONBLOCK) < 0)) {
        close(made);
        return -1;
    }
    if (made >= 0) {
        set_up(made);
    }
    return made;
}

// Without a listener, a port that connections are given may be connected to itself.
static bool is_itself(int socket)
{
    struct sockaddr_storage own = {0};
    struct sockaddr_storage other = {0};
    socklen_t own_bytes = sizeof own;
    socklen_t other_bytes = sizeof other;
    return getsockname(socket, (struct sockaddr *)&own, &own_bytes) == 0 &&
           getpeername(socket, (struct sockaddr *)&other, &other_bytes) == 0 &&
           own_bytes == other_bytes && memcmp(&own, &other, own_bytes) == 0;
}

// 0, or why not.
static int connect_to(const struct addrinfo *at, int64_t until_ms, int *made)
{
    int error = 0;
    socklen_t bytes = sizeof error;
    *made = open_socket(at);
    if (*made < 0) {
        return errno;
    }
    if (connect(*made, at->ai_addr, at->ai_addrlen) != 0) {
        struct pollfd wait = {.fd = *made, .events = POLLOUT};
        error = errno;
        if (error == EINPROGRESS) {
            int ready = poll(&wait, 1, sp_i_socket_left_ms(until_ms));
            error = ready > 0 ? 0 : ready == 0 ? ETIMEDOUT : errno;
            if (ready > 0 && getsockopt(*made, SOL_SOCKET, SO_ERROR, &error, &bytes) != 0) {
                error = errno;
            }
        }
    }
    if (error == 0 && is_itself(*made)) {
        error = ECONNREFUSED;
    }
    if (error != 0) {
        close(*made);
        *made = -1;
    }
    return error;
}

sp_status sp_i_socket_connect(const char *address, int port, int64_t until_ms, int *socket,
                              sp_error *err)
{
    enum { FIRST_PAUSE_MS = 5, LONGEST_PAUSE_MS = 500, ATTEMPT_MS = 10000 };
    int pause_ms = FIRST_PAUSE_MS;
    for (;;) {
        struct addrinfo *found = NULL;
        // A name may be made known while the ranks start.
        int code = resolve(address, port, 0, &found);
        const char *why = code != 0 ? gai_strerror(code) : "no address";
        for (struct addrinfo *at = found; at != NULL; at = at->ai_next) {
            int64_t attempt_ms = sp_i_socket_now_ms() + ATTEMPT_MS;
            int error = connect_to(at, attempt_ms < until_ms ? attempt_ms : until_ms, socket);
            if (error == 0) {
                freeaddrinfo(found);
                set_up(*socket);
                return SP_OK;
            }
            why = strerror(error);
        }
        if (found != NULL) {
            freeaddrinfo(found);
        }
        int left_ms = sp_i_socket_left_ms(until_ms);
        if (left_ms == 0) {
            return sp_error_set(err, SP_ERR_LIMIT, "rank 0 does not answer at %s, port %d: %s",
                                address, port, why);
        }
        sp_i_socket_sleep_ms(pause_ms < left_ms ? pause_ms : left_ms);
        pause_ms = 2 * pause_ms < LONGEST_PAUSE_MS ? 2 * pause_ms : LONGEST_PAUSE_MS;
    }
}

static sp_i_socket_state state_after(ssize_t result, size_t *moved)
{
    *moved = result > 0 ? (size_t)result : 0;
    if (result > 0) {
        return SP_I_SOCKET_READY;
    }
    bool again = result < 0 && (errno == EAGAIN || errno == EWOULDBLOCK || errno == EINTR);
    return again ? SP_I_SOCKET_EMPTY : SP_I_SOCKET_ENDED;
}

sp_i_socket_state sp_i_socket_receive(int socket, void *data, size_t bytes, size_t *moved)
{
    return state_after(recv(socket, data, bytes, 0), moved);
}

sp_i_socket_state sp_i_socket_peek(int socket, void *data, size_t bytes, size_t *moved)
{
    return state_after(recv(socket, data, bytes, MSG_PEEK), moved);
}

sp_i_socket_state sp_i_socket_send(int socket, const void *data, size_t bytes, size_t *moved)
{
    return state_after(send(socket, data, bytes, MSG_NOSIGNAL), moved);
}
