// The opcodes of Python's pickle protocol 2 (PEP 307, Lib/pickletools.py) that a nest of lists,
// dictionaries, integers and texts needs. They are also among those that PyTorch's memory viewer
// knows, whose own reader (torch/utils/viz/MemoryViz.js) refuses others.
#ifndef SLIMPACK_SIM_METRICS_EXPORT_PICKLE_H
#define SLIMPACK_SIM_METRICS_EXPORT_PICKLE_H

#include "sim/metrics/export_internal.h"

void sp_i_pickle_begin(sp_i_writer *out);
void sp_i_pickle_end(sp_i_writer *out);

// A dictionary: begin, then key and value in turn, then end. At least one pair.
void sp_i_pickle_dict_begin(sp_i_writer *out);
void sp_i_pickle_dict_end(sp_i_writer *out);

// A list is made empty; items are then appended in batches. The viewer passes a batch as function
// arguments, so one batch should stay below some ten thousand items.
void sp_i_pickle_list(sp_i_writer *out);
void sp_i_pickle_batch_begin(sp_i_writer *out);
void sp_i_pickle_batch_end(sp_i_writer *out);

void sp_i_pickle_int(sp_i_writer *out, int64_t value);
void sp_i_pickle_text(sp_i_writer *out, const char *text);

// Remembers the object written last as `slot`; gives it again.
void sp_i_pickle_store(sp_i_writer *out, uint32_t slot);
void sp_i_pickle_recall(sp_i_writer *out, uint32_t slot);

#endif
