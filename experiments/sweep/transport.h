// Messages between the processes of a sweep.
#ifndef SLIMPACK_EXPERIMENTS_SWEEP_TRANSPORT_H
#define SLIMPACK_EXPERIMENTS_SWEEP_TRANSPORT_H

#include <stdbool.h>
#include <stddef.h>

#include "sim/base/status.h"

typedef struct sweep_message {
    int rank; // it comes from, or goes to
    int tag;  // 0 to 32767, as MPI allows at least
    char *data;
    size_t bytes; // at most INT_MAX
} sweep_message;

typedef enum sweep_ending {
    SWEEP_END_TOGETHER, // when all ranks end
    SWEEP_END_ALONE,    // without waiting for others: some are dead
    SWEEP_END_ALL,      // ends them, also those that hang
} sweep_ending;

// Calls do not overlap.
typedef struct sweep_transport sweep_transport;
struct sweep_transport {
    int rank, ranks;
    int here;        // ranks on this machine, as far as is known
    double silent_s; // a rank that was not heard of for so long counts as dead
    // Copies the data and does not wait for the receiver, which may be gone. SP_ERR_NO_MEMORY.
    sp_status (*send)(sweep_transport *transport, const sweep_message *message, sp_error *err);
    // A message that has come; the caller frees its data with free(). False: none now.
    bool (*receive)(sweep_transport *transport, sweep_message *message);
    // What a rank is still sending is not waited for.
    void (*forget)(sweep_transport *transport, int rank);
    // Frees it. SWEEP_END_ALL ends this process, too; the exit status is that of the launcher then.
    void (*end)(sweep_transport *transport, sweep_ending ending, int exit_status);
};

// That of MPI, whose launcher started this process; *transport NULL: none did. SP_ERR_USAGE where
// one started several and this build has no MPI.
sp_status sweep_transport_mpi(sweep_transport **transport, sp_error *err);

#endif
