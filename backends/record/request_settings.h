// Parts of a request (request.h) that are no plan, as documents.
#ifndef SLIMPACK_BACKENDS_RECORD_REQUEST_SETTINGS_H
#define SLIMPACK_BACKENDS_RECORD_REQUEST_SETTINGS_H

#include "sim/base/json.h"
#include "sim/model/footprint.h"

// The keys of a scenario's `parallel`, with "cp_sharding" and "placement". NULL when memory runs
// out; so below.
json_t *sp_i_layout_json(const sp_layout *layout);
json_t *sp_i_memory_json(const sp_memory_options *memory);

// Readers of the members "parallel" and "memory" of `root`; errors are collected in root->err.
// *stage_layers is the layout's own list, the caller's, or NULL. False when memory runs out.
bool sp_i_layout_from_member(sp_object *root, sp_layout *layout, int **stage_layers);
void sp_i_memory_from_member(sp_object *root, sp_memory_options *memory);

// An object of text; with `key` required, and each value a string. Returns it, or NULL with an
// error in root->err.
const json_t *sp_i_texts_of_member(sp_object *root, const char *key);

#endif
