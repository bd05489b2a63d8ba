// A world of ranks and what they have in common: groups, failure, detection of deadlocks. Ranks are
// threads of this process, or fibers of one thread, or a process each (below). They exchange by
// collectives, messages and flags, and between processes by a transport. The data lies in the
// memory of a device, which moves and adds it.
//
// World and groups are made before the ranks' threads start. From then on a rank calls through its
// own sp_comm, from one thread at a time. A rank that waits looks at atomic counters of its group
// or queue for a while and then sleeps until it is woken; only to sleep does it take a lock that
// all share.
//
// A world fails once, for the first reason given. Every call of every rank, waiting or new, then
// returns that status and its messages. Nothing can be exchanged any more, and no rank reads or
// writes another's buffers once that one's call has returned, so all may be freed; those that are
// not plain memory when sp_comm_run has returned.
#ifndef SLIMPACK_BACKENDS_RANKS_COMM_H
#define SLIMPACK_BACKENDS_RANKS_COMM_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "backends/api/device_runtime.h"
#include "sim/base/status.h"

enum { SP_COMM_ACTION = 32, SP_COMM_GROUP_NAME = 32, SP_COMM_RANK_NAME = 48 };

typedef struct sp_comm_world sp_comm_world;
typedef struct sp_transport sp_transport;
typedef struct sp_comm sp_comm; // one rank's end

typedef struct sp_comm_options {
    bool one_at_a_time;      // see below; the device's now_ns then advances the ranks' clocks
    sp_runtime *runtime;     // required: of all ranks; outlives the world
    sp_transport *transport; // where other ranks are processes, see below; or NULL
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

// SP_ERR_USAGE below one rank.
sp_status sp_comm_world_new(int ranks, const sp_comm_options *options, sp_comm_world **world,
                            sp_error *err);
// No rank may be in a call: Messages that nobody received are dropped.
void sp_comm_world_free(sp_comm_world *world);

int sp_comm_world_ranks(const sp_comm_world *world);
sp_comm *sp_comm_of(sp_comm_world *world, int rank);
int sp_comm_rank(const sp_comm *me);
const sp_comm_world *sp_comm_world_of(const sp_comm *me);

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

// SP_OK, or the failure, whose messages are added to err. For any thread.
sp_status sp_comm_world_failure(sp_comm_world *world, sp_error *err);
// The rank that let the world fail; -1 without failure, and where time is up.
int sp_comm_failed_rank(sp_comm_world *world);

// A wait may last as long as others compute. When all ranks of a run wait or have
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
// Own computing is what the device's now_ns has advanced between two readings; clocks stand where
// ranks do not compute one at a time. The calls of the communicator read it, so they wait for the
// rank's work, and leave out what it advances while they wait and while they wake others: ranks
// with devices of their own would look for each other, and whether one already sleeps is chance.

// For the rank's own thread. A clock is 0 at first.

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
    int64_t raised_ns; // the clock of the rank that raised it
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
// threads cannot start. Each has a core of its own where the process may use enough of them.
sp_status sp_comm_run(sp_comm_world *world, sp_comm_body *body, void *data, int64_t timeout_ns,
                      sp_error *err);
// On `count` distinct ranks alone, of a world that has not failed: what they wait for must come
// from each other. `ranks` NULL: the first ones.
sp_status sp_comm_run_ranks(sp_comm_world *world, const int *ranks, int count, sp_comm_body *body,
                            void *data, int64_t timeout_ns, sp_error *err);

// ---- Collectives ----

// Collectives of a group. Every member makes the same calls in the same order; a call returns when
// its buffers are complete and may be changed, by what the rank gives its device from then on:
// where memory is not plain, work may still be under way. Sums and maxima are formed in the order
// of members, element by element, as sp_runtime_ops.reduce does: equal input gives equal bits,
// whatever the timing.
//
// Buffers lie in the memory of the world's device; those of one call do not overlap, but for the
// in-place forms below. Members whose calls differ in kind, type, size or root let the world fail
// with SP_ERR_INTERNAL. Counts are in elements. A member reads and writes the buffers of the
// others, so bandwidth is that of memory. Bytes below are per member of m.

// Bytes can be moved, not reduced. A maximum with a NaN is NaN.
typedef enum sp_comm_op { SP_COMM_SUM, SP_COMM_MAX } sp_comm_op;

// Returns when every member has called it; what a rank is given afterwards is done after what any
// member was given before.
sp_status sp_comm_barrier(sp_comm *me, int group, sp_error *err);

// out[i] = sum over members of in[i]. In place: out == in. Reads and writes `count`.
sp_status sp_comm_all_reduce(sp_comm *me, int group, sp_element type, sp_comm_op op, const void *in,
                             void *out, int64_t count, sp_error *err);

// out = the members' in, one after the other, rows[j] rows of `width` elements of member j. In
// place: in is this member's part of out. Writes all of out.
sp_status sp_comm_all_gather(sp_comm *me, int group, sp_element type, const void *in, void *out,
                             const int64_t *rows, int64_t width, sp_error *err);

// out = sum over members of this member's part of in, which has rows as the out of an all-gather.
// In place: out is that part; the other parts of in keep their values. Reads all of in.
sp_status sp_comm_reduce_scatter(sp_comm *me, int group, sp_element type, sp_comm_op op,
                                 const void *in, void *out, const int64_t *rows, int64_t width,
                                 sp_error *err);

// out = in of the member `root`. In place: out == in at every member. `in` is read at the root
// only.
sp_status sp_comm_broadcast(sp_comm *me, int group, sp_element type, const void *in, void *out,
                            int64_t count, int root, sp_error *err);

// ---- Messages ----

// Messages between two ranks: for each sender, receiver and tag a bounded queue, first in, first
// out. A message is copied in by the sender and out by the receiver, so that a send is over as soon
// as the queue has room. Both sides know its size; a receiver that expects another one lets the
// world fail with SP_ERR_INTERNAL. For plain memory: with a device that has other memory the calls
// are SP_ERR_USAGE.

// Waits for room, or for a message. A queue comes into being at its first call, and its slots grow
// with the messages.
sp_status sp_comm_send(sp_comm *me, int to, int tag, const void *data, size_t bytes, sp_error *err);
sp_status sp_comm_receive(sp_comm *me, int from, int tag, void *data, size_t bytes, sp_error *err);

// ---- Ranks in other processes ----

// How ranks that are processes reach each other, each on a device of its own: a world with a
// transport has one rank here, and its calls go through this table. Without one, all ranks of a
// world are in this process and reach each other's memory.
//
// All ranks make the calls that are said to be everyone's, in the same order; those of one rank
// come from one thread at a time, which has entered the device for that rank. Collectives and
// messages are put down as work of the rank, in the order of the calls, and may return before it is
// done (backends/api/device_runtime.h). After an error the rank makes no further call: the others
// may wait for it for ever, and whoever started the processes ends them with its own.

// The data that a rank gave to an exchange.
typedef struct sp_transport_part {
    void *data; // of sp_malloc
    size_t bytes;
} sp_transport_part;

typedef struct sp_transport_ops {
    // Everyone's, member or not. Groups count up from 0; `ranks` [size] are distinct and in the
    // order of members.
    sp_status (*group_new)(sp_transport *transport, const char *name, const int *ranks, int size,
                           sp_error *err);

    // ---- collectives, every member's; shapes, and what may be in place, as above, but
    // sums and maxima may be formed in any order that is the same every time ----

    // Work that a member is given afterwards is done after what every member was given before.
    sp_status (*barrier)(sp_transport *transport, int group, sp_error *err);
    sp_status (*all_reduce)(sp_transport *transport, int group, sp_element element, bool maximum,
                            const void *in, void *out, int64_t count, sp_error *err);
    // rows [members], of `width` elements.
    sp_status (*all_gather)(sp_transport *transport, int group, sp_element element, const void *in,
                            void *out, const int64_t *rows, int64_t width, sp_error *err);
    sp_status (*reduce_scatter)(sp_transport *transport, int group, sp_element element,
                                bool maximum, const void *in, void *out, const int64_t *rows,
                                int64_t width, sp_error *err);
    sp_status (*broadcast)(sp_transport *transport, int group, sp_element element, const void *in,
                           void *out, int64_t count, int root, sp_error *err);

    // ---- messages: a channel goes one way between two ranks, first in, first out ----

    // Everyone's. Channels count up from 0. Messages of different channels never wait for each
    // other.
    sp_status (*channel_new)(sp_transport *transport, int from, int to, sp_error *err);
    // Sends what the rank's work so far has written, and receives into what it no longer uses. The
    // rank's further work does not wait for it: `bytes` at data are not to be touched until
    // `wait` for *message. Both ends give the same sizes in the same order.
    sp_status (*send)(sp_transport *transport, int channel, const void *data, int64_t bytes,
                      uint64_t *message, sp_error *err);
    sp_status (*receive)(sp_transport *transport, int channel, void *data, int64_t bytes,
                         uint64_t *message, sp_error *err);
    // Work that the rank is given from now on is done after the message is over.
    sp_status (*wait)(sp_transport *transport, uint64_t message, sp_error *err);

    // ---- beside the device ----

    // Everyone's: `mine` [bytes] of plain memory, any size at each rank; parts [ranks], what each
    // gave, on every rank, which frees the data with sp_free. Zeroed where it fails.
    sp_status (*exchange)(sp_transport *transport, const void *mine, size_t bytes,
                          sp_transport_part *parts, sp_error *err);
    // Waits until all work of the rank and its messages are over; the first thing that went wrong.
    sp_status (*synchronize)(sp_transport *transport, sp_error *err);
} sp_transport_ops;

// A transport begins with this.
struct sp_transport {
    const sp_transport_ops *ops;
    int rank, ranks; // of the world
};

// Cores that this process may use; at least 1.
int sp_i_cores(void);

#endif
