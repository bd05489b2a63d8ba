// plan.json: writing and reading (schema slimpack/plan/1). A slice that is computed longer than its
// tokens (padding) carries "computed" beside "tokens". A slice names its sample by the position in
// "samples"; "dropped" and "delayed" list sample ids. Packs that are slices of one row carry the
// row's "microbatch"; without it a pack is a micro-batch of its own. "documents" says of how many
// samples those listed are pieces (strategy concat), "cut_tokens" how many tokens are trained that
// do not see the beginning of their document, "whole_backwards" that they were packed without
// input gradients apart for lack of memory, "regrouped" that backward packs which are the forward
// packs are a list of their own all the same, "row_tokens" how long rows are by the strategy's
// choice. What forming the batches did to the samples stands
// behind them ("over_length", "left_over", "lengths_started_again"), and so do the "reason" why a
// plan does not fit the memory, the "settings" that were tried for it, and "curtailed" where a
// bound of work ended the search for it. An action that runs side by side with the next one ends in
// '&': "F4.0&", "B1.1".
#ifndef SLIMPACK_SIM_PLAN_PLAN_JSON_H
#define SLIMPACK_SIM_PLAN_PLAN_JSON_H

#include <jansson.h>
#include <stdio.h>

#include "sim/plan/plan.h"

typedef struct sp_plan_predictions {
    double lower_bound_ms; // negative: unknown, left out
    double predicted_ms;   // negative: left out
} sp_plan_predictions;

// Writes a plan of several batches: the head once (with the resolved scenario), then the batches,
// then the end. Returns SP_ERR_IO when the file cannot be written.
SP_API sp_status sp_plan_json_begin(FILE *file, const json_t *scenario, sp_error *err);
SP_API sp_status sp_plan_json_batch(FILE *file, int index, const sp_plan *plan,
                                    sp_plan_predictions predictions, sp_error *err);
// How a plan was found, which only planning anew would say again.
typedef struct sp_plan_notes {
    const char *reason;   // why it does not fit; NULL or "": it does
    const char *settings; // with which others it would; NULL or "": none is known
    bool curtailed;       // a bound of work ended the search for it
} sp_plan_notes;

// The end, with what these batches left out (their samples are not looked at) and notes; NULL:
// none.
SP_API sp_status sp_plan_json_end(FILE *file, const sp_batches *formed, const sp_plan_notes *notes,
                                  sp_error *err);

// A plan file in memory; owns its batches, packings and plans.
typedef struct sp_plan_file {
    json_t *scenario;  // as stored
    json_t *settings;  // that were tried for it, a string; NULL: none is known
    bool curtailed;    // a bound of work ended the search for it
    sp_batches formed; // what forming the batches left out, and no batch
    int count;
    sp_batch *batches;
    sp_packing *packings;
    sp_plan *plans;
} sp_plan_file;

// Is this document a plan (schema slimpack/plan/1)?
SP_API bool sp_plan_json_is_plan(const json_t *root);

// Reads and checks all batches. `layout` is that of the stored scenario (the caller resolves it).
// Errors name file and JSON path.
SP_API sp_status sp_plan_json_read(const json_t *root, const char *source, const sp_layout *layout,
                                   sp_plan_file *file, sp_error *err);
SP_API void sp_plan_file_fini(sp_plan_file *file);

#endif
