// What the two parts of the picture of a cluster share: the first nodes with all their links, and
// the others as cells.
#ifndef SLIMPACK_SIM_METRICS_EXPORT_TOPOLOGY_PRIVATE_H
#define SLIMPACK_SIM_METRICS_EXPORT_TOPOLOGY_PRIVATE_H

#include "sim/base/writer.h"
#include "sim/network/topology.h"

enum { SP_I_PICTURE_MARGIN = 10 };

typedef struct sp_i_picture {
    sp_writer *out;
    const sp_topology *topology;
    const double *bytes; // [links]
    double step_s;
    int nodes, leaves;
    int ends[SP_LINK_KINDS];    // GPUs and NICs of a node, and rails
    int whole;                  // nodes drawn with their links: the first
    int whole_leaves;           // leaf switches that join these: the first
    double most[SP_LINK_KINDS]; // bytes of both directions of the fullest drawn link of a kind
} sp_i_picture;

// Share of the step in which the busier direction would have sent at its full rate: 0 for idle to
// SP_I_SHADES - 1 for all of it. Both directions of an end stand next to each other, outward first.
enum { SP_I_SHADES = 10 };
int sp_i_picture_shade(const sp_i_picture *picture, int32_t outward);
// "<title>GPU 3, node 0: 1.250 GB out, 1.250 GB in</title>"
void sp_i_picture_title(const sp_i_picture *picture, int32_t outward);

// Number of the leaf switch of a link to the spine: they stand last in the order of links.
int sp_i_picture_leaf(const sp_i_picture *picture, int32_t link);
bool sp_i_picture_is_whole(const sp_i_picture *picture, int32_t link);

// The part of whole nodes, at the top; its size.
void sp_i_picture_write_whole(const sp_i_picture *picture);
int sp_i_picture_whole_width(const sp_i_picture *picture);
int sp_i_picture_whole_height(void);

#endif
