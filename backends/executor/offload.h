// What offloading takes away from a unit (a forward pack on one virtual stage), and what a rank
// keeps account of for its copies.
#ifndef SLIMPACK_BACKENDS_EXECUTOR_OFFLOAD_H
#define SLIMPACK_BACKENDS_EXECUTOR_OFFLOAD_H

#include "backends/executor/stage.h"

// One tensor, or the keys and values of one slice.
typedef struct sp_i_exec_leaving {
    void **place; // where the stage holds it
    int64_t elements;
    sp_i_exec_width width;
    sp_i_exec_width away; // bytes that leave, from its beginning on
    bool in_part;         // it belongs to the one of the predictor's tensors that leaves in part
    void *host;           // what has left, in host memory
    void *rest;           // what stays meanwhile
} sp_i_exec_leaving;

typedef struct sp_i_exec_copies {
    sp_i_exec_leaving *items;
    size_t count, capacity;
    int32_t forward; // its place among the rank's forwards
    size_t out;      // number of its O among the rank's actions
} sp_i_exec_copies;

// A rank's. Copies back go into buffers, each as large as the rank's largest copy: the first two
// make one each, later ones use one that nobody reads any more.
typedef struct sp_i_exec_offload {
    sp_i_exec_arena *host;
    sp_i_exec_copies *units; // [forward packs][chunks]; NULL where nothing leaves
    size_t unit_count;
    sp_i_exec_copies *leaving; // copied, but still there too
    int32_t forwards, forwards_done;
    sp_i_exec_width largest; // bytes of a buffer
    void **buffers;
    size_t buffer_count, buffer_capacity;
    int64_t loads;
    sp_bytes moved; // what copies have changed so far in what the rank holds
} sp_i_exec_offload;

// Lists what leaves with an offload of `ratio`: the tensors, and the part of the last one, that the
// predictor names (sim/model/unit_tensors.h). `shape` is the forward pack, `layout` the plan's.
// False when memory ran out. O(tensors of the unit).
bool sp_i_exec_list_leaving(const sp_i_exec_stage *stage, int32_t pack, const sp_pack *shape,
                            const sp_layout *layout, sp_recompute recompute, double ratio,
                            sp_i_exec_copies *copies);

#endif
