// Collectives and messages between GPUs by NCCL, one rank for each process or thread with a GPU of
// its own. Groups, their ids and the shapes of calls are those of backends/ranks/comm.h, so
// that a world can hand its collectives over with the group's id; buffers are the GPU's, and a call
// returns when it is put down on its stream. Calls of a world come from one thread at a time, whose
// device is the world's.
//
// Communicators block. After an error nothing of a world can be used or freed: the other ranks, and
// work of this GPU, may wait for what is no longer put down, and end with their processes
// (multi_process.h).
//
// Sums and maxima are formed in NCCL's order, by its algorithm for the size: equal for the same
// ranks, size and NCCL, not those of the members' order. bf16 is added up in bf16. A maximum with a
// NaN may be one or not.
#ifndef SLIMPACK_BACKENDS_CUDA_NCCL_H
#define SLIMPACK_BACKENDS_CUDA_NCCL_H

#include <stddef.h>
#include <stdint.h>

#include "backends/cuda/device.h"
#include "backends/cuda/multi_process.h"
#include "backends/ranks/comm.h"

enum { SP_I_NCCL_NAME = 32 };

struct sp_i_nccl_api;

typedef struct sp_i_nccl_options {
    sp_i_cuda_device device;
    const sp_i_place *place;         // of this rank; for the call of sp_i_nccl_new alone
    const char *card;                // what all ranks have alike (sp_i_meeting_give_id); likewise
    int timeout_ms;                  // for rank 0 to come, and of work that is waited for
    const struct sp_i_nccl_api *api; // NULL: that of libnccl, loaded when the first world is made
} sp_i_nccl_options;

typedef struct sp_i_nccl sp_i_nccl;

// The version of NCCL (10000 * major + 100 * minor + patch), or 0 and why there is none to use.
int sp_i_nccl_version(char reason[SP_I_CUDA_TEXT]);

// Returns when all ranks have called it. SP_ERR_USAGE: no NCCL, versions or cards that differ, two
// ranks on one GPU; SP_ERR_LIMIT: rank 0 did not come in time; SP_ERR_IO: the network;
// SP_ERR_INTERNAL.
sp_status sp_i_nccl_new(const sp_i_nccl_options *options, sp_i_nccl **made, sp_error *err);
// All ranks' calls are over, and what they put on streams. Other ranks free theirs too.
void sp_i_nccl_free(sp_i_nccl *n);
// The version of the world's library, as sp_i_nccl_version has it.
int sp_i_nccl_world_version(const sp_i_nccl *n);

// As sp_comm_group_new: *group counts up from 0. Every rank of the world calls it for every group,
// member or not, in the same order. `ranks` [size] are distinct.
sp_status sp_i_nccl_group_new(sp_i_nccl *n, const char *name, const int *ranks, int size,
                              int *group, sp_error *err);

// ---- collectives of a group's members, as in backends/ranks/comm.h ----

// out[i] = sum over members of in[i]. In place: out == in.
sp_status sp_i_nccl_all_reduce(sp_i_nccl *n, int group, sp_element element, bool maximum,
                               const void *in, void *out, int64_t count, CUstream stream,
                               sp_error *err);
// out [m * count] = the members' in [count]. In place: in == out + member * count.
sp_status sp_i_nccl_all_gather(sp_i_nccl *n, int group, sp_element element, const void *in,
                               void *out, int64_t count, CUstream stream, sp_error *err);
// Gathers rows[j] rows of `width` elements of each member j.
sp_status sp_i_nccl_all_gather_rows(sp_i_nccl *n, int group, sp_element element, const void *in,
                                    void *out, const int64_t *rows, int64_t width, CUstream stream,
                                    sp_error *err);
// out [count] = sum over members of this member's part of in [m * count]. In place: out == in +
// member * count; the other parts of in keep their values.
sp_status sp_i_nccl_reduce_scatter(sp_i_nccl *n, int group, sp_element element, bool maximum,
                                   const void *in, void *out, int64_t count, CUstream stream,
                                   sp_error *err);
// Sums and scatters, rows[j] rows of `width` elements for each member j.
sp_status sp_i_nccl_reduce_scatter_rows(sp_i_nccl *n, int group, sp_element element, bool maximum,
                                        const void *in, void *out, const int64_t *rows,
                                        int64_t width, CUstream stream, sp_error *err);
// out = in of the member `root`. In place: out == in. `in` is read at the root only.
sp_status sp_i_nccl_broadcast(sp_i_nccl *n, int group, sp_element element, const void *in,
                              void *out, int64_t count, int root, CUstream stream, sp_error *err);
// Part j of out [m * count] = this member's part of member j's in [m * count]. Not in place.
sp_status sp_i_nccl_all_to_all(sp_i_nccl *n, int group, sp_element element, const void *in,
                               void *out, int64_t count, CUstream stream, sp_error *err);

// ---- plain memory ----

// mine [bytes], of any size at each rank: parts [ranks], what each gave, which the caller frees
// with sp_free; zeroed where it fails. Every rank calls it; returns when the stream is done with
// it. Takes up to 32 MiB of the device for as long as it lasts.
sp_status sp_i_nccl_exchange_bytes(sp_i_nccl *n, const void *mine, size_t bytes,
                                   sp_transport_part *parts, CUstream stream, sp_error *err);

// Waits until all work of the stream is over. SP_ERR_LIMIT where that is not so when the time is.
sp_status sp_i_nccl_synchronize(sp_i_nccl *n, CUstream stream, sp_error *err);

// ---- The transport of a plan's ranks ----

// Ranks that are processes, or threads, with a GPU each: the transport of their world
// (backends/ranks/comm.h) by NCCL.
//
// Collectives stand on the rank's own stream. A channel is a group of its two ends with a stream of
// its own at each, which waits for the rank's stream by events and is waited for by them: messages
// of different channels are in no order. A channel's first message goes when it is made, because
// NCCL connects two ranks with the first, and then each waits for the other on the host.

// Device, runtime and api are borrowed for as long as the transport lives.
typedef struct sp_i_nccl_transport_options {
    sp_i_cuda_device device;
    sp_runtime *runtime;     // of that device (runtime.h), of which this rank is one
    const sp_i_place *place; // this and all below as in nccl.h
    const char *card;
    const struct sp_i_nccl_api *api;
    int timeout_ms;
} sp_i_nccl_transport_options;

// Returns when all ranks have called it. Fails as sp_i_nccl_new, for all.
sp_status sp_i_nccl_transport_new(const sp_i_nccl_transport_options *options, sp_transport **made,
                                  sp_error *err);
// Waits for all work. Other ranks free theirs too; none does after an error (nccl.h).
void sp_i_nccl_transport_free(sp_transport *transport);

#endif
