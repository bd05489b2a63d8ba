// A world of ranks and what they have in common: groups, failure, waits without an end, counts.
// Ranks are threads of this process, or fibers of one thread, or a process each (below).
// What they exchange: collective.h, queue.h, comm.h, and between processes transport.h. What is
// exchanged lies in the memory of a device, which moves and adds it.
//
// World and groups are made before the ranks' threads start. From then on a rank calls through its
// own sp_comm, from one thread at a time. A rank that waits looks at atomic counters of its group
// or queue for a while and then sleeps until it is woken; only to sleep does it take a lock that
// all share.
//
// A world fails once, for the first reason given. Every call of every rank, waiting or new, then
// returns that status and its messages. Nothing can be exchanged any more, and no rank reads or
// writes another's buffers once that one's call has returned, so all may be freed; those that are
// not plain memory when the run has returned (run.h).
#ifndef SLIMPACK_BACKENDS_COMM_COMM_H
#define SLIMPACK_BACKENDS_COMM_COMM_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "backends/api/device_runtime.h"

enum { SP_COMM_ACTION = 32, SP_COMM_GROUP_NAME = 32, SP_COMM_RANK_NAME = 48 };

typedef struct sp_comm_world sp_comm_world;
struct sp_transport;            // transport.h
struct sp_workers_options;      // workers.h
typedef struct sp_comm sp_comm; // one rank's end

typedef struct sp_comm_options {
    int spins;           // looks before a waiting rank sleeps; 0: none; negative: some where every
                         // rank can have a core of its own
    int queue_slots;     // messages that a queue holds; 0: 2
    bool one_at_a_time;  // see below
    sp_runtime *runtime; // required: of all ranks; outlives the world
    bool clocked;        // the device's now_ns advances the ranks' clocks (comm.h); without,
                         // only their owners do
    struct sp_transport *transport; // where other ranks are processes, see below; or NULL
} sp_comm_options;

// With a transport the world knows all ranks, but only the transport's own is here: runs and
// failures are its alone, and collectives and what a rank may wait for are the transport's matter.
// Queues and flags reach no other rank. Groups are everyone's: all processes make the same
// ones in the same order, as the first of their transport. The transport outlives the world.

// One at a time: the ranks of sp_comm_run are fibers of one thread, so that each computes with the
// device to itself. A rank computes until it waits in a call. Then the next rank goes on, without
// the operating system. A rank that waits for others by other means than calls holds them up for
// ever. When the world fails, all ranks go on to their end, one after the other. All ranks share
// what is the thread's own (errno, thread-local variables), and the device is entered anew each
// time a rank goes on. One run at a time.

// What one rank has done so far. Bytes are those it wrote: of collectives into result buffers, its
// own and others'; of queues once by the sender and once more by the receiver.
typedef struct sp_comm_counts {
    int64_t collective_bytes, sent_bytes, received_bytes;
    int64_t collectives, messages_sent, messages_received;
    int64_t wait_ns; // spent in waits that were not over at the first look
} sp_comm_counts;

// SP_ERR_NO_MEMORY; SP_ERR_USAGE below one rank.
sp_status sp_comm_world_new(int ranks, const sp_comm_options *options, sp_comm_world **world,
                            sp_error *err);
// No rank may be in a call: abort the world and join the threads before. Messages that nobody
// received are dropped.
void sp_comm_world_free(sp_comm_world *world);

int sp_comm_world_ranks(const sp_comm_world *world);
sp_comm *sp_comm_of(sp_comm_world *world, int rank);
int sp_comm_rank(const sp_comm *me);
const sp_comm_world *sp_comm_world_of(const sp_comm *me);
sp_comm_counts sp_comm_counted(const sp_comm *me); // for the rank's own thread, or after joining it

// Makes a group of distinct ranks; the order given is that of its members. Any number of groups may
// hold the same rank and be at work at the same time. `name` stands in messages; *group is the id.
// SP_ERR_USAGE for ranks that are not there or stand twice.
sp_status sp_comm_group_new(sp_comm_world *world, const char *name, const int *ranks, int size,
                            int *group, sp_error *err);
// The first group made of exactly these ranks in this order, or -1. Linear in all groups' sizes.
int sp_comm_group_find(const sp_comm_world *world, const int *ranks, int size);
int sp_comm_group_size(const sp_comm_world *world, int group);
int sp_comm_group_rank(const sp_comm_world *world, int group, int member);
// This rank's place in the group, or -1.
int sp_comm_member(const sp_comm *me, int group);

// Names the rank in failures and reports, before the ranks' threads start; without: "rank 3".
void sp_comm_set_name(sp_comm *me, const char *name);
// Names what the rank does now, such as "F3.1", in failures and reports; "" for nothing.
void sp_comm_set_action(sp_comm *me, const char *action);

// Lets the world fail with "rank 2: F3.1: <text>"; any status but SP_OK. Returns the status of the
// failure that won, which may be an earlier one.
sp_status sp_comm_abort(sp_comm *me, sp_status status, const char *format, ...) SP_PRINTF(3, 4);
// Lets the world fail from a thread that is no rank. The text stands alone.
sp_status sp_comm_world_abort(sp_comm_world *world, sp_status status, const char *format, ...)
    SP_PRINTF(3, 4);

// SP_OK, or the failure, whose messages are added to err. For any thread.
sp_status sp_comm_world_failure(sp_comm_world *world, sp_error *err);
// The rank that let the world fail; -1 without failure or from outside.
int sp_comm_failed_rank(sp_comm_world *world);

// A wait may last as long as others compute. When all ranks of a run (run.h) wait or have
// ended and nothing that one waits for is there, they would do so for ever: the world fails at once
// with SP_ERR_LIMIT. The first message is that of the rank at the end of the chain of who waits for
// whom, or of one in a circle; the next are those of the ranks along the chain from there, then
// the other ranks in order, as far as an sp_error has room.

// ---- Clocks ----

// Clocks of virtual time: what each rank's clock would show if every rank had a device of its own.
// A clock advances by its rank's own computing, and goes on at the time of others where it waits:
// - the members of a collective go on at the latest of their clocks, before and after its work;
// - a message brings the sender's time when it was complete, a flag that of raising it: who
//   receives it goes on at the later of that time and its own.
// A send takes no time but its own copying, as if queues had room without end. So times depend on
// what the ranks compute and exchange, not on when their threads run.
//
// Own computing is what the owner adds, and where the world is clocked (sp_comm_options) what the
// device's now_ns has advanced between two readings. The calls of the communicator read it, so
// they wait for the rank's work, and leave out what it advances while they wait and while they wake
// others: ranks with devices of their own would look for each other, and whether one already
// sleeps is chance.

// For the rank's own thread, or after joining it. A clock is 0 at first.

// The time of the last call or reading.
int64_t sp_comm_clock(const sp_comm *me);
void sp_comm_clock_add(sp_comm *me, int64_t ns);

// Sets the clock and takes a reading: computing counts from here. To be called by the rank itself,
// and sp_comm_run does so before each body, at the time the clock had.
void sp_comm_clock_start(sp_comm *me, int64_t at_ns);
// Takes a reading and returns the time.
int64_t sp_comm_clock_read(sp_comm *me);
// Takes a reading and returns how much the clock has ever advanced by the rank's own computing,
// that is without waits.
int64_t sp_comm_clock_own(sp_comm *me);

// ---- Flags ----

// Flags between two ranks: one raises it, once, the other waits for it. What the first wrote before
// it raised the flag, the second sees after its wait, and what the device is given for the second
// from then on is done after what it was given for the first until then. A zeroed flag is down.

enum { SP_COMM_WHAT = 64 };

// In the caller's storage, until both ranks' calls have returned.
typedef struct sp_comm_flag {
    atomic_bool raised;
    int64_t raised_ns; // the clock of the rank that raised it (comm.h)
    sp_fence fence;    // what that rank had been given
} sp_comm_flag;

// For the flag's own rank, and it has not been raised. Never waits.
void sp_comm_flag_raise(sp_comm *me, int waiting_rank, sp_comm_flag *flag);
// Waits until `raiser` raises the flag; it stays so. `what` stands in reports ("rank 2: B1: waits
// for F3.1 of pp 1"), cut to SP_COMM_WHAT - 1 bytes.
sp_status sp_comm_flag_wait(sp_comm *me, const sp_comm_flag *flag, int raiser, const char *what,
                            sp_error *err);
// Takes it down, while no rank may wait for it or raise it.
void sp_comm_flag_clear(sp_comm_flag *flag);

// ---- Runs ----

// All ranks of a world at work: a thread each, or one for all where they compute one at a time; one
// failure, one deadline. Without a deadline one rank alone, and ranks one at a time, run on the
// thread of the caller.

typedef sp_status sp_comm_body(sp_comm *me, void *data, sp_error *err);

// Runs the body on every rank, for which its thread has entered the device, and returns when all
// have ended and their work is done. A rank whose body fails, or then its work, lets the world fail
// with its messages. After timeout_ns (0: none) the world fails with SP_ERR_LIMIT, first with the
// ranks that were at work; ranks that compute end with their next call. Returns the world's
// failure, so the first reason, even where no body gave one, or SP_OK; SP_ERR_NO_MEMORY where the
// threads cannot start. `options` may be NULL.
sp_status sp_comm_run(sp_comm_world *world, const struct sp_workers_options *options,
                      sp_comm_body *body, void *data, int64_t timeout_ns, sp_error *err);
// On `count` distinct ranks alone, of a world that has not failed: what they wait for must come
// from each other. `ranks` NULL: the first ones.
sp_status sp_comm_run_ranks(sp_comm_world *world, const int *ranks, int count,
                            const struct sp_workers_options *options, sp_comm_body *body,
                            void *data, int64_t timeout_ns, sp_error *err);

#endif
