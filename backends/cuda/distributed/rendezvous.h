// How the processes of a run find each other before NCCL connects them, and how the others learn
// that one has failed: by MPI where it started them, else by files in a folder that all see. What
// ranks tell each other once NCCL is there goes by NCCL (nccl.h).
//
// Every rank makes the same calls in the same order, from one thread at a time. Every wait ends:
// after the timeout with a message that names the ranks that are missing, sooner where one has died
// or given up. The first failure is final and everyone's: each later call returns it.
#ifndef SLIMPACK_BACKENDS_CUDA_RENDEZVOUS_H
#define SLIMPACK_BACKENDS_CUDA_RENDEZVOUS_H

#include <stdatomic.h>
#include <stddef.h>
#include <stdint.h>

#include "backends/cuda/distributed/place.h"

enum { SP_I_RENDEZVOUS_CARD = 400 }; // bytes of a card

typedef struct sp_i_rendezvous sp_i_rendezvous;

// Returns when all ranks have come. `card` is one line of less than SP_I_RENDEZVOUS_CARD bytes with
// what all of them must have alike, such as "plan 0badcafe". What an earlier run left in the folder
// is not taken for this one's: rank 0 names the ranks that it has found by numbers that each of
// them has just drawn. SP_ERR_LIMIT: time is over; SP_ERR_USAGE: a rank that does not fit;
// SP_ERR_IO.
sp_status sp_i_rendezvous_join(const sp_i_place *place, const char *card, int timeout_ms,
                               sp_i_rendezvous **made, sp_error *err);
void sp_i_rendezvous_free(sp_i_rendezvous *r);
int sp_i_rendezvous_rank(const sp_i_rendezvous *r);
int sp_i_rendezvous_ranks(const sp_i_rendezvous *r);

// data [bytes] of rank 0 to all; `bytes` is the same everywhere. Rank 0 does not wait.
sp_status sp_i_rendezvous_broadcast(sp_i_rendezvous *r, void *data, size_t bytes, sp_error *err);

// Does not wait: SP_OK, or that a rank has given up or died.
sp_status sp_i_rendezvous_check(sp_i_rendezvous *r, sp_error *err);

// Lets all ranks fail with "rank 2: <text>"; any status but SP_OK. Others learn of it in their next
// call. Returns the status of the failure that was first.
sp_status sp_i_rendezvous_abort(sp_i_rendezvous *r, sp_status status, const char *format, ...)
    SP_PRINTF(3, 4);
// Takes the whole text, which says who failed.
sp_status sp_i_rendezvous_abort_with(sp_i_rendezvous *r, sp_status status, const char *text);

// From any thread, whatever call another is in: the next check lets all ranks fail with this text,
// the first that was asked for. Returns the status of that one.
sp_status sp_i_rendezvous_ask(sp_i_rendezvous *r, sp_status status, const char *text);
bool sp_i_rendezvous_is_asked(const sp_i_rendezvous *r);

// ---- for those who implement it ----

typedef struct sp_i_rendezvous_ops {
    // Both note a failure (sp_i_rendezvous_note) of another rank where there is one.
    void (*look)(sp_i_rendezvous *r);
    void (*broadcast)(sp_i_rendezvous *r, void *data, size_t bytes, int64_t until_ms);
    // The first failure of all: to the others.
    void (*tell)(sp_i_rendezvous *r, sp_status status, const char *text);
    void (*free)(sp_i_rendezvous *r);
} sp_i_rendezvous_ops;

// What an implementation begins with.
struct sp_i_rendezvous {
    const sp_i_rendezvous_ops *ops;
    int rank, ranks, timeout_ms;
    sp_error failure;
    atomic_int asking; // 0: nobody has asked, 1: somebody is at it, 2: `asked` is there
    sp_error asked;
};

// Notes a failure that the others know of, or will learn of by themselves; the first stays.
void sp_i_rendezvous_note(sp_i_rendezvous *r, sp_status status, const char *format, ...)
    SP_PRINTF(3, 4);
// What rank 0 says of a card that is not its own: "rank 2 has X, rank 0 has Y".
void sp_i_rendezvous_card_text(int rank, const char *card, const char *own, char *text,
                               size_t bytes);

// Of a clock that never goes back.
int64_t sp_i_now_ms(void);
// Sleeps, longer each time, from a millisecond up to 50.
void sp_pause(int *polls);

#endif
