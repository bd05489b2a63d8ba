// A profile from traces of PyTorch's profiler: what kernels of known work took.
#ifndef SLIMPACK_EXPERIMENTS_FIT_TRACE_PROFILE_H
#define SLIMPACK_EXPERIMENTS_FIT_TRACE_PROFILE_H

#include <jansson.h>
#include <stddef.h>

#include "experiments/measure/kineto.h"
#include "sim/base/status.h"
#include "sim/metrics/result.h"

// Fewer kernels of one kind are no evidence.
enum { FIT_TRACE_LEAST = 5, FIT_TRACE_PATH = 64, FIT_TRACE_WHY = 200 };

// A value that traces give a profile.
typedef struct fit_trace_value {
    char path[FIT_TRACE_PATH]; // "gemm 4096x14336 at m 8192", "memory.gb_per_s"
    const char *unit;
    double value;   // median
    double spread;  // half the distance of the quartiles over the median
    size_t kernels; // whose times it is of
    double rate;    // of a product or of the bytes of a collective; 0: none
    const char *rate_unit;
} fit_trace_value;

// A section that stays the base profile's, and why.
typedef struct fit_trace_absent {
    char section[FIT_TRACE_PATH];
    char why[FIT_TRACE_WHY];
} fit_trace_absent;

typedef struct fit_traced {
    fit_trace_value *values;  // owned
    fit_trace_absent *absent; // owned
    size_t value_count, absent_count, value_capacity, absent_capacity;
    sp_class_time of[SP_KERNEL_CLASSES];   // of all traces
    size_t with_shapes[SP_KERNEL_CLASSES]; // of these kernels, such as have an operator with shapes
    bool knows_waits;
    sp_warnings warnings;
    json_t *document; // the profile; owned. NULL: no value has enough kernels
} fit_traced;

// Measures what the traces show, on top of the profile `base`, which the result, to be written to
// `file`, extends:
//   gemm               times of products of bf16 or fp16 matrices with recorded shapes, by m
//   attention          `scale` of the causal tables: measured over the base profile's time of calls
//                      with recorded lengths, whose curve over length stays
//   memory             rate of copies on the device, and the share of it that elementwise kernels
//                      with recorded shapes reach; of 16 MiB and more
//   kernel             from one start to the next of the shortest quarter of kernels of up to 3 us
//                      whose stream is never empty
//   collective_times   of groups inside a node whose bytes are recorded, less the waiting where
//                      traces of several ranks show it, else the lower quartile
// SP_ERR_CONTENT where traces do not belong together (sp_traces_check).
sp_status fit_traces(const sp_kineto *const *traces, int count, const char *base, const char *file,
                     fit_traced *found, sp_error *err);
void fit_traced_fini(fit_traced *found);

// Schema slimpack/trace-calibration/1.
json_t *fit_traced_json(const sp_kineto *const *traces, int count, const fit_traced *found);

#endif
