// The state of a world, and the calls between the files of the communicator.
#ifndef SLIMPACK_BACKENDS_RANKS_PRIVATE_H
#define SLIMPACK_BACKENDS_RANKS_PRIVATE_H

#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>

#include "backends/ranks/comm.h"
#include "sim/base/alloc.h"

// Runs a function for each rank in a thread of its own, with `pin` on a core of its own where the
// process may use enough of them; none begins before all are there. Returns when all have ended,
// and calls `late` where some have not after timeout_ns (0: there is no deadline). SP_ERR_NO_MEMORY
// where a thread cannot be made, and then none has run.
sp_status sp_i_run_threads(int count, bool pin, void (*run)(void *data, int rank),
                           void (*late)(void *data), void *data, int64_t timeout_ns, sp_error *err);

// A flow of control with a stack of its own, on the thread of whoever drives it: entered and left
// at places that it chooses, without the operating system, in a fraction of the time in which one
// thread wakes another.
typedef struct sp_i_fiber sp_i_fiber;
sp_i_fiber *sp_i_fiber_new(void);
// The fiber has ended or not been started. NULL is allowed.
void sp_i_fiber_free(sp_i_fiber *fiber);
// The next resume enters main(data); the fiber has ended or not been started.
void sp_i_fiber_start(sp_i_fiber *fiber, void (*main)(void *data), void *data);
// Runs the fiber until it suspends itself (true) or has ended (false). A fiber stays on the thread
// of its first resume.
bool sp_i_fiber_resume(sp_i_fiber *fiber);
void sp_i_fiber_suspend(sp_i_fiber *fiber);

enum { SP_I_CACHE_LINE = 64 };

typedef enum sp_i_comm_kind {
    SP_I_BARRIER,
    SP_I_ALL_REDUCE,
    SP_I_ALL_GATHER,
    SP_I_REDUCE_SCATTER,
    SP_I_BROADCAST
} sp_i_comm_kind;

// A call of a collective by one member.
typedef struct sp_i_comm_call {
    sp_i_comm_kind kind;
    sp_element type;
    sp_comm_op op;
    int root;
    int64_t count;       // elements of a row
    const int64_t *rows; // of each member's part; NULL: one for all members
    const char *in;
    char *out;
} sp_i_comm_call;

// The phases of a group's barrier are numbered from 1. A member writes its call before it enters a
// phase, and the others read the call after that phase and before they enter the next but one: two
// places are enough.
typedef struct sp_i_comm_member {
    sp_i_comm_call call[2];
    int64_t clock_ns[2];      // when it entered; written and read as the calls
    sp_fence fence[2];        // what its rank had been given then; written and read as the calls
    _Atomic uint64_t entered; // phases this member has entered
    atomic_bool touching;     // between two phases, at work in the others' buffers
    char unshared[SP_I_CACHE_LINE];
} sp_i_comm_member;

typedef struct sp_i_comm_group {
    char name[SP_COMM_GROUP_NAME];
    int size;
    int *ranks;     // of members
    int *member_of; // of each rank of the world, or -1
    sp_i_comm_member *members;
    char unshared[SP_I_CACHE_LINE];
    _Atomic uint64_t arrivals; // of all members at all phases: phase n is complete at n * size
} sp_i_comm_group;

typedef struct sp_i_comm_slot {
    int64_t sent_ns; // the sender's clock
    char *data;
    size_t capacity, bytes;
} sp_i_comm_slot;

enum { SP_I_COMM_SLOTS = 2 };

typedef struct sp_i_comm_queue {
    struct sp_i_comm_queue *next; // of the same two ranks
    int from, to, tag;
    sp_i_comm_slot slot[SP_I_COMM_SLOTS]; // message n in slot n % SP_I_COMM_SLOTS
    char unshared[SP_I_CACHE_LINE];
    _Atomic uint64_t sent; // by the sender alone
    char unshared_too[SP_I_CACHE_LINE];
    _Atomic uint64_t received; // by the receiver alone
} sp_i_comm_queue;

// One of the things that a rank waits for: a phase of a group, room or a message in a queue, or a
// flag.
typedef struct sp_i_comm_wait {
    const char *operation; // NULL: it does not wait
    sp_i_comm_group *group;
    uint64_t phase;
    sp_i_comm_queue *queue;
    bool sending;
    const sp_comm_flag *flag;
    int raiser; // of the flag
    char what[SP_COMM_WHAT];
} sp_i_comm_wait;

// Who goes on next, in worlds with one rank at a time; for the thread that runs them alone.
typedef struct sp_i_comm_scheduler {
    sp_comm **queue; // [rank_count], a circle from `first` on
    int first, waiting;
} sp_i_comm_scheduler;

struct sp_comm {
    sp_comm_world *world;
    int rank;
    int64_t clock_ns, reading_ns; // virtual time; the device's now_ns when it was last read
    int64_t own_ns;               // what the clock advanced by its own computing
    const void **inputs;          // [rank_count], what a reduction reads, and where it writes
    void **outputs;
    pthread_mutex_t lock; // of action, wait and end, and of new queues to this rank
    pthread_cond_t wake;
    atomic_bool sleeping; // or about to: whoever changes what it may wait for must wake it
    sp_i_comm_wait wait;  // what it sleeps for
    bool ended;           // it is in no run, or at its end
    char name[SP_COMM_RANK_NAME];
    char action[SP_COMM_ACTION];
    sp_i_fiber *fiber; // in worlds with one rank at a time, once it was needed
    bool queued;       // it may go on
    char unshared[SP_I_CACHE_LINE];
};

struct sp_comm_world {
    sp_arena memory; // of tables and groups
    int rank_count;
    sp_comm *ranks;
    int spins; // 0 where ranks compute one at a time
    sp_runtime *runtime;
    sp_transport *transport; // or NULL
    bool fenced;             // memory is not plain: work is ordered by fences
    bool one_at_a_time;
    sp_i_comm_scheduler scheduler;
    sp_i_comm_group **groups;
    size_t group_count, group_capacity;
    _Atomic(sp_i_comm_queue *) *queues; // [from * rank_count + to]
    pthread_mutex_t work_lock;          // of at_work; all others may be taken while it is held
    int at_work;                        // ranks of runs that neither sleep nor have ended
    atomic_bool failed;                 // from the moment a reason is being written down
    pthread_mutex_t failure_lock;       // of all below; never taken while a rank's lock is held
    sp_error failure;
    int failed_rank;
    bool *reported; // [rank_count]
};

// Returns when the wait is over or the world has failed.
sp_status sp_i_comm_wait_for(sp_comm *me, const sp_i_comm_wait *wait, sp_error *err);
// To be called after a change of an atomic counter that the rank may wait for.
void sp_i_comm_wake(sp_comm_world *world, int rank);

// Clocks. `advance` takes a reading of the device's time by which the clock goes on, `skip` one by
// which it does not. `merge` advances the clock and then sets it to the other time if that is
// later.
void sp_i_comm_clock_advance(sp_comm *me);
void sp_i_comm_clock_skip(sp_comm *me);
void sp_i_comm_clock_merge(sp_comm *me, int64_t other_ns);

// Lets the world fail with "rank 2: F3.1: <text>"; any status but SP_OK. Returns the status of the
// failure that won, which may be an earlier one, and adds its messages to err.
sp_status sp_i_comm_fail(sp_comm *me, sp_error *err, sp_status status, const char *format, ...)
    SP_PRINTF(4, 5);
// A barrier: enters the group's next phase and waits until all members have entered it. The rank's
// work from then on is done after all that members were given before.
sp_status sp_i_comm_wait_group(sp_comm *me, sp_i_comm_group *group, int member,
                               const char *operation, sp_error *err);

// The queue between two ranks with this tag, which comes into being at the first call.
sp_i_comm_queue *sp_i_comm_queue_find(sp_comm_world *world, int from, int to, int tag);

#endif
