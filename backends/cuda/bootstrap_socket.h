// Sockets that never block: what is waited for, and how long, is the caller's.
#ifndef SLIMPACK_BACKENDS_CUDA_BOOTSTRAP_SOCKET_H
#define SLIMPACK_BACKENDS_CUDA_BOOTSTRAP_SOCKET_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "sim/base/status.h"

enum { SP_I_LISTENERS = 4 };

// Of a clock that only goes forward.
int64_t sp_i_socket_now_ms(void);
// Until then, for poll(): 0 when it is over.
int sp_i_socket_left_ms(int64_t until_ms);
void sp_i_socket_sleep_ms(int ms);

// Listens at every address of `address` if that is one of the loopback, at all of this machine's
// otherwise. SP_ERR_IO. The caller closes sockets[0 .. *count).
sp_status sp_i_socket_listen(const char *address, int port, int sockets[SP_I_LISTENERS], int *count,
                             sp_error *err);
// A connection that waits, or -1.
int sp_i_socket_accept(int listener);

// Tries each of the addresses of `address` again and again until one answers. SP_ERR_LIMIT with the
// last reason when time is over.
sp_status sp_i_socket_connect(const char *address, int port, int64_t until_ms, int *socket,
                              sp_error *err);

typedef enum sp_i_socket_state {
    SP_I_SOCKET_READY, // *moved > 0
    SP_I_SOCKET_EMPTY, // nothing now
    SP_I_SOCKET_ENDED, // by the other side, or broken
} sp_i_socket_state;
sp_i_socket_state sp_i_socket_receive(int socket, void *data, size_t bytes, size_t *moved);
// The same, and what was read can be read again.
sp_i_socket_state sp_i_socket_peek(int socket, void *data, size_t bytes, size_t *moved);
sp_i_socket_state sp_i_socket_send(int socket, const void *data, size_t bytes, size_t *moved);

#endif
