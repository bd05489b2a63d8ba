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
#ifndef SLIMPACK_BACKENDS_COMM_COLLECTIVE_H
#define SLIMPACK_BACKENDS_COMM_COLLECTIVE_H

#include "backends/comm/comm.h"

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

#endif
