// A small 1F1B timeline with known closed forms, made without plan, engine or cost model.
#ifndef SLIMPACK_TESTS_SUPPORT_MAKE_TIMELINE_H
#define SLIMPACK_TESTS_SUPPORT_MAKE_TIMELINE_H

#include <stdio.h>

#include "sim/plan/timeline.h"

// What the timeline looks like; times in ns. With equal stages 1F1B takes (m + p - 1) * (F + B)
// (Narayanan et al., arXiv 2104.04473, section 2.2.1).
typedef struct made_spec {
    int pp, microbatches, chunks;
    int64_t forward_ns, backward_ns;
    int64_t tp_ns, cp_ns; // in every action
    int64_t p2p_ns;       // latency of each edge between ranks
    int alike;            // data-parallel ranks each entry stands for
    int64_t reduce_ns, optimizer_ns, gather_ns;
    int64_t unit_bytes;      // activations of one micro-batch on one rank
    int64_t workspace_bytes; // while a backward runs
} made_spec;

typedef struct made_timeline {
    sp_packing packing;
    sp_plan plan;
    sp_timeline timeline;
    sp_memory_timeline memory;
} made_timeline;

enum { MADE_STATE_BYTES = 1 << 30 }; // parameters; gradients twice, optimizer thrice as many

// p = 3, m = 4, F = 2 ms, B = 4 ms, an epilogue of 1 + 2 + 1 ms, 512 MiB and 64 MiB.
made_spec made_default(void);

// NULL: the default.
void make_timeline(made_timeline *made, const made_spec *given);
void made_timeline_fini(made_timeline *made);
// Such a timeline until the end of its block.
#define MADE_TIMELINE(name, given) \
    AUTO(made_timeline) name;      \
    make_timeline(&(name), given)

// The whole text of a file that was written, from its start; the caller frees it.
char *made_read_all(FILE *file, size_t *bytes);

#endif
