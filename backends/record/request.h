// What a backend is given, as a document (slimpack/execution-request/1), so that plans can be made
// on one machine and executed on another. Nothing here needs more than the reader of plans.
//
// {"schema", "backend", "clock", "precision", "seed", "steps", "memory_limit_bytes", "timeout_ns",
//  "memory_points", "options": {key: value, ...}, "parallel": {...}, "model": {...} (the keys of a
//  scenario, all of them), "memory": {"recompute", "attention", "offload_ratio", "stack"},
//  "plan": {slimpack/plan/1}, "links": [{"forward_ns": [...], "backward_ns", "forward_far_ns",
//  "backward_far_ns", "far": [false, ...]}, ...]}; each batch of the plan is a run of its own. Of
// the simulator's costs the times of links alone are part of it, batch by batch: nanoseconds of
// each pack inside a node and across nodes, and which links between pipeline ranks cross nodes
// (sim/cost/link_times.h). Without them, as in older requests, links cannot be emulated.
#ifndef SLIMPACK_BACKENDS_RECORD_REQUEST_H
#define SLIMPACK_BACKENDS_RECORD_REQUEST_H

#include <stdio.h>

#include "backends/api/backend.h"
#include "sim/plan/plan_json.h"

// Writes a request: the head once (`run` without its plan's packing, which may be any of the
// batches'), then the batches, then the end. `backend` is a name; `scenario` is kept in the plan.
// SP_ERR_IO when the file cannot be written, SP_ERR_CONTENT for what a document cannot hold: no
// model, a seed above 2^63 - 1, an option twice.
sp_status sp_request_json_begin(FILE *file, const char *backend, const sp_run_request *run,
                                const json_t *scenario, sp_error *err);
sp_status sp_request_json_batch(FILE *file, int index, const sp_plan *plan, sp_error *err);
// `links` is what sp_request_links_add made of all batches, or NULL.
sp_status sp_request_json_end(FILE *file, const json_t *links, sp_error *err);
// Adds the times of links of the run of the next batch, where it has some; *links, the caller's, is
// NULL before the first.
sp_status sp_request_links_add(json_t **links, const sp_run_request *run, sp_error *err);

// A request in memory. It may be moved.
typedef struct sp_request_file {
    json_t *document; // owned; holds the texts below
    const char *backend;
    sp_model model;
    sp_memory_options memory;
    sp_layout layout;
    int *stage_layers;          // layout.stage_layers; owned, NULL: equal shares
    sp_plan_file plans;         // owned
    sp_link_times *links;       // [plans.count], owned; NULL: none
    sp_backend_option *options; // owned
    sp_run_request run;         // settings and options; what else it points to is set below
} sp_request_file;

// Reads and checks a request with all its plans; takes over `root`. Errors name file, path and
// value.
sp_status sp_request_json_read(json_t *root, const char *source, sp_request_file *file,
                               sp_error *err);
void sp_request_file_fini(sp_request_file *file);

// The run of one batch; borrows from the file, which must stay where it is.
sp_run_request sp_request_of_batch(const sp_request_file *file, int batch);

// Does the file ask for this model, layout and memory? A content error at `source` that names what
// differs.
sp_status sp_request_compare(const sp_request_file *file, const sp_model *model,
                             const sp_layout *layout, const sp_memory_options *memory,
                             const char *source, sp_error *err);

#endif
