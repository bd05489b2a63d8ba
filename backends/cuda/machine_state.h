// What a machine of a GPU is made of; for machine*.c.
#ifndef SLIMPACK_BACKENDS_CUDA_MACHINE_STATE_H
#define SLIMPACK_BACKENDS_CUDA_MACHINE_STATE_H

#include "backends/cuda/arena.h"
#include "backends/cuda/delay.h"
#include "backends/cuda/lane.h"
#include "backends/cuda/partition.h"

// A moment of a rank that was noted; `known` when its time was asked for.
typedef struct sp_i_cuda_stamp {
    cudaEvent_t event;
    bool known;
    int64_t ns;
} sp_i_cuda_stamp;

// A rank's stamps. They start anew with the first that is noted after one was asked for.
typedef struct sp_i_cuda_stamps {
    sp_i_cuda_stamp *of;
    size_t used, made, capacity; // `made` have an event
    size_t noted;                // since the rehearsal's begin
    bool asked;
} sp_i_cuda_stamps;

typedef struct sp_i_cuda_machine {
    sp_runtime base; // first
    sp_i_cuda_device device;
    int ranks, lanes; // one lane for all ranks, or as many
    sp_i_cuda_rank *rank;
    sp_i_cuda_lane *lane;
    cudaStream_t stream;              // of all ranks, or
    sp_i_cuda_partitions *partitions; // of each
    sp_i_cuda_delay delay;            // or NULL
    pthread_mutex_t lock;             // of the arena and of the reference
    bool locks;
    char no_cudnn[SP_I_CUDA_TEXT]; // why not
    void *memory;
    sp_i_cuda_arena *arena;
    sp_i_cuda_stamps *stamps; // of each rank
    cudaEvent_t reference;    // whose time is reference_ns
    int64_t reference_ns;
    // A step that is captured, and repeated.
    bool capturing;
    cudaGraphExec_t graph;      // NULL: none
    sp_i_cuda_events joints;    // of each lane: where its part begins and ends
    sp_i_cuda_stamps *captured; // stamps in it, of each rank
} sp_i_cuda_machine;

// ---- slots of the machine's table ----

void *sp_i_cuda_machine_allocate(sp_runtime *machine, int64_t bytes);
void sp_i_cuda_machine_release(sp_runtime *machine, void *memory);
void *sp_i_cuda_machine_allocate_host(sp_runtime *machine, int64_t bytes);
void sp_i_cuda_machine_release_host(sp_runtime *machine, void *memory);
void sp_i_cuda_machine_copy(sp_runtime *machine, void *to, const void *from, int64_t bytes);
void sp_i_cuda_machine_copy_rows(sp_runtime *machine, int64_t rows, int64_t bytes, void *to,
                                 int64_t to_stride, const void *from, int64_t from_stride);
void sp_i_cuda_machine_zero(sp_runtime *machine, void *to, int64_t bytes);
void sp_i_cuda_machine_upload(sp_runtime *machine, void *to, const void *from, int64_t bytes);
void sp_i_cuda_machine_download(sp_runtime *machine, void *to, const void *from, int64_t bytes);
void sp_i_cuda_machine_reduce(sp_runtime *machine, sp_element element, bool maximum, int64_t count,
                              const void *const *in, int members, void *const *out, int outs);
void sp_i_cuda_machine_sum_of_squares(sp_runtime *machine, sp_element element, int64_t n,
                                      const void *x, double *sum);

// Order between ranks, and times.
sp_fence sp_i_cuda_machine_mark(sp_runtime *machine);
sp_fence sp_i_cuda_machine_mark_later(sp_runtime *machine, int64_t ns);
void sp_i_cuda_machine_wait(sp_runtime *machine, sp_fence fence);
int64_t sp_i_cuda_machine_now_ns(sp_runtime *machine);
uint64_t sp_i_cuda_machine_stamp(sp_runtime *machine);
int64_t sp_i_cuda_machine_stamp_ns(sp_runtime *machine, uint64_t stamp);
sp_status sp_i_cuda_machine_start_clock(sp_i_cuda_machine *machine, sp_error *err);
void sp_i_cuda_machine_stop_clock(sp_i_cuda_machine *machine);

// A step as a graph (machine_graph.c).
void sp_i_cuda_machine_rehearse(sp_runtime *machine);
sp_status sp_i_cuda_machine_capture_begin(sp_runtime *machine, sp_error *err);
sp_status sp_i_cuda_machine_capture_end(sp_runtime *machine, bool keep, sp_error *err);
sp_status sp_i_cuda_machine_replay(sp_runtime *machine, sp_error *err);
void sp_i_cuda_machine_drop_graph(sp_i_cuda_machine *machine);
// Events for as many stamps in it as were noted since the rehearsal's begin; another repetition,
// whose stamps have other times (machine_time.c).
sp_status sp_i_cuda_machine_capture_clock(sp_i_cuda_machine *machine, sp_error *err);
void sp_i_cuda_machine_repeat_clock(sp_i_cuda_machine *machine);

#endif
