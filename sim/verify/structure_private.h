// What the files of the dependency graph share.
#ifndef SLIMPACK_SIM_VERIFY_STRUCTURE_PRIVATE_H
#define SLIMPACK_SIM_VERIFY_STRUCTURE_PRIVATE_H

#include <igraph/igraph.h>
#include <stdbool.h>

#include "sim/verify/structure.h"

// Why one action waits for another.
typedef enum sp_i_wait {
    WAIT_ORDER,
    WAIT_INPUT,
    WAIT_GRADIENT,
    WAIT_ACTIVATIONS,
    WAIT_MEMBER,
    WAIT_COPY_OUT,
    WAIT_COPY_BACK,
    WAIT_SHARE
} sp_i_wait;

typedef struct sp_i_vertex {
    sp_action action;
    uint8_t share; // 0, or 1 + the end of which this is its rank's share
    int dp, pp;
    int64_t duration_ns;
} sp_i_vertex;

struct sp_structure {
    const sp_plan *plan;
    igraph_t graph;
    bool has_graph;
    sp_i_vertex *vertices;
    size_t vertex_count;
    // By igraph's edge number, which is the order in which edges were given.
    igraph_integer_t *ends; // 2 per edge: from, to
    int64_t *lag_ns;
    uint8_t *reason;
    size_t edge_count, edge_capacity, lag_capacity, reason_capacity;
};

// A failure inside igraph as an error of ours.
sp_status sp_i_igraph_failed(sp_error *err, const char *what, igraph_error_t code);

#endif
