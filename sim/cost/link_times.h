// How long hidden states and their gradients are under way between pipeline ranks: of a step's
// costs the part that links need which are emulated. Made from costs (step_costs.h), whose tables
// are then borrowed, or of its own, from a document.
#ifndef SLIMPACK_SIM_COST_LINK_TIMES_H
#define SLIMPACK_SIM_COST_LINK_TIMES_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "sim/base/status.h"

// Transfers of a pack to the next (forward) or previous (backward) pipeline rank.
typedef struct sp_link_times {
    size_t forward_packs, backward_packs;
    int64_t *f_ns, *b_ns;         // inside a node, [pack]
    int64_t *f_far_ns, *b_far_ns; // across nodes, [pack]
    uint8_t *far;                 // [pp]: the link between ranks r and (r+1) % pp crosses nodes
} sp_link_times;

// Zeroed tables of its own; SP_ERR_NO_MEMORY.
sp_status sp_link_times_init(sp_link_times *links, size_t forward_packs, size_t backward_packs,
                             int pp, sp_error *err);
// Of tables of its own.
void sp_link_times_fini(sp_link_times *links);

// Time of a crossing from pipeline rank `from` to rank `to` (neighbours on the ring of pp).
static inline int64_t sp_link_times_ns(const sp_link_times *links, bool backward, size_t pack,
                                       int from, int to, int pp)
{
    // The link between ranks r and r+1 carries both directions; `from` names it going up.
    int link = (from + 1) % pp == to ? from : to;
    if (links->far[link]) {
        return backward ? links->b_far_ns[pack] : links->f_far_ns[pack];
    }
    return backward ? links->b_ns[pack] : links->f_ns[pack];
}

#endif
