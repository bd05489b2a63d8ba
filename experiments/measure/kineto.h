// Traces of PyTorch's profiler (Kineto): what ran on a GPU and when, and for which operator.
#ifndef SLIMPACK_EXPERIMENTS_MEASURE_KINETO_H
#define SLIMPACK_EXPERIMENTS_MEASURE_KINETO_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "sim/base/status.h"

// Kernels by what bounds them, by their names (kernel_class.c). A name alone cannot tell an
// all-to-all from a transfer between two ranks (both are ncclDevKernel_SendRecv): where the
// collective's own record is in the trace that one counts.
typedef enum sp_kernel_class {
    SP_KERNEL_PRODUCT,
    SP_KERNEL_ATTENTION_FORWARD,
    SP_KERNEL_ATTENTION_BACKWARD,
    SP_KERNEL_NORM,
    SP_KERNEL_ELEMENTWISE, // bound by memory, as norms are: copies, casts, activations, reductions
    SP_KERNEL_OPTIMIZER,   // over lists of tensors: clipping and the step
    SP_KERNEL_OTHER,
    SP_KERNEL_MEMCPY,
    SP_KERNEL_MEMSET,
    SP_KERNEL_ALL_REDUCE, // the first that is communication
    SP_KERNEL_ALL_GATHER,
    SP_KERNEL_REDUCE_SCATTER,
    SP_KERNEL_ALL_TO_ALL,
    SP_KERNEL_ROOTED, // broadcast, reduce, gather and scatter
    SP_KERNEL_SEND_RECEIVE,
    SP_KERNEL_EXPERT_EXCHANGE, // DeepEP's kernels: dispatch, combine and their notes
    SP_KERNEL_OTHER_COMMUNICATION,
    SP_KERNEL_CLASSES
} sp_kernel_class;

extern const char *const sp_kernel_class_names[]; // "products", ..., NULL

static inline bool sp_kernel_communicates(sp_kernel_class of)
{
    return of >= SP_KERNEL_ALL_REDUCE;
}

sp_kernel_class sp_kernel_class_of(const char *name);

// What the recorded shapes of an operator on the CPU say (record_shapes=True).
typedef enum sp_traced_kind {
    SP_TRACED_PRODUCT,
    SP_TRACED_ATTENTION,
    SP_TRACED_ELEMENTS,
    SP_TRACED_COLLECTIVE
} sp_traced_kind;

enum { SP_TRACED_GPU = 64, SP_TRACED_FILES = 64 };

typedef struct sp_traced_op {
    sp_traced_kind kind;
    int64_t external_id; // 0: none
    int32_t thread;
    int64_t start_ns, end_ns;
    int element_bytes; // of the first operand; 0: not recorded
    bool is_bf16;      // or fp16
    union {
        struct {
            int64_t batch, m, n, k;
        } product;
        struct {
            int64_t batch, heads, queries, keys;
            double head_dim; // mean of keys' and values'
            bool backward;
            int causal; // 1, 0; negative: not recorded
        } attention;
        double bytes; // SP_TRACED_ELEMENTS: read and written, each operand once
        struct {
            sp_kernel_class of;
            double bytes;     // of the whole tensor; 0: not recorded
            int64_t ranks;    // of the group; 0: not recorded
            int64_t span;     // highest less lowest world rank of the group; negative: not recorded
            int64_t first;    // its lowest world rank
            uint64_t members; // a hash of the recorded ranks; 0: not recorded
        } collective;
    } of;
} sp_traced_op;

// One kernel, copy or memset. Times are since whatever the trace counts from.
typedef struct sp_traced_span {
    int64_t start_ns, duration_ns;
    int64_t launched_ns; // when the host was done with the launch; negative: not recorded
    int64_t stream;
    int64_t bytes; // of copies; 0: not recorded
    int32_t name;  // of sp_kineto.names
    int32_t op;    // of sp_kineto.ops; negative: none with shapes
    int32_t device;
    sp_kernel_class of;
} sp_traced_span;

typedef struct sp_kineto {
    char *path;
    char gpu[SP_TRACED_GPU]; // "NVIDIA H800"; "": not recorded
    int node_gpus;           // devices that the process saw; 0: not recorded
    int sms;                 // of each; 0: not recorded
    int64_t rank, world;     // negative: not recorded
    int steps;               // marked "ProfilerStep#N"; 0: none is
    bool has_shapes;         // some operator has them
    bool is_whole_us;        // all times are whole microseconds
    bool is_cut;             // the file ends in the middle; what stands before it was read
    long cut_line, cut_column;
    size_t events, operators; // that were read; of them, operators on the CPU
    size_t undated;           // spans without a duration, which count as 0
    sp_traced_span *spans;    // by start; owned
    size_t span_count;
    sp_traced_op *ops; // owned
    size_t op_count;
    char **names; // owned
    size_t name_count;
} sp_kineto;

// Reads a trace, gzip or not ("-" and pipes too), in one pass: it holds what the struct does, not
// the document. `ts` and `dur` are microseconds with or without decimals, and are kept exact.
//
// SP_ERR_SYNTAX with line and column: text that is no JSON. SP_ERR_CONTENT: JSON of another kind;
// a damaged gzip file; a trace without a span of a GPU (of the CPU alone, say). A file that ends
// in the middle is no error where some span of a GPU stands before that: is_cut. Events of a trace
// are in no order of time, so that its end lacks nobody knows what.
sp_status sp_kineto_read(const char *path, sp_kineto *trace, sp_error *err);
sp_status sp_kineto_from_text(const char *text, size_t bytes, const char *source, sp_kineto *trace,
                              sp_error *err);
void sp_kineto_fini(sp_kineto *trace);

// ---- what a GPU did (trace_times.c) ----

typedef struct sp_class_time {
    size_t spans;
    int64_t ns; // their sum
} sp_class_time;

// Of one GPU of a trace, over all its steps. Between the first span and the last a moment is of
// one of four kinds: extent = busy + exposed + idle, exposed_wait being a part of exposed.
typedef struct sp_trace_times {
    int32_t device;
    int64_t extent_ns;        // from the first start to the last end
    int64_t busy_ns;          // something runs that is no communication
    int64_t exposed_ns;       // communication alone runs, on any stream
    int64_t exposed_wait_ns;  // of it: it waits for other ranks (sp_trace_waits)
    int64_t idle_ns;          // nothing runs
    int64_t communication_ns; // communication runs, hidden or not
    int64_t wait_ns;          // sum of the waiting in collectives, hidden or not
    bool knows_waits;
    sp_class_time of[SP_KERNEL_CLASSES];
} sp_trace_times;

// The device with the most spans. `waits`, [span_count]: nanoseconds at the beginning of each span
// that are waiting; NULL: not known. O(spans log spans).
void sp_trace_times_of(const sp_kineto *trace, const int64_t *waits, sp_trace_times *times);

// Tells waiting in collectives apart by traces of several ranks of one run: a collective ends on
// all its ranks at once, so that what it takes longer than on the rank where it is shortest is
// waiting for that rank. Needs no clocks that agree. Spans are matched by kind, and by their group
// where it is recorded, in order of time. waits[t] is [traces[t].span_count], to be filled.
//
// False where no collective is matched. `reason` says why one is not, or "": traces have different
// numbers of a kind whose groups are not recorded, or there is one trace. Transfers between two
// ranks by their record are no collectives.
enum { SP_TRACE_REASON = 240 };
bool sp_trace_waits(const sp_kineto *const *traces, int count, int64_t **waits,
                    char reason[SP_TRACE_REASON]);

// SP_ERR_CONTENT where traces are of different GPUs or of runs of different sizes, or where
// `ranks_once` and two of them are of one rank.
sp_status sp_traces_check(const sp_kineto *const *traces, int count, bool ranks_once,
                          sp_error *err);

#endif
