// Captures of streams and their graphs, for fakes of CUDA. What is put on a stream that a capture
// holds is a node, whose only order is that of its stream and of events. A launch does the nodes in
// an order drawn anew, that keeps no other order than that: what a missing edge leaves to chance
// comes out differently here.
#ifndef SLIMPACK_TESTS_GPU_SUPPORT_FAKE_GRAPH_H
#define SLIMPACK_TESTS_GPU_SUPPORT_FAKE_GRAPH_H

#include <cuda_runtime_api.h>
#include <stdbool.h>
#include <stddef.h>

typedef struct fake_graph_counts {
    int live;     // graphs, instantiated or not
    int captures; // begun so far
    int launches; // of graphs
    int crossed;  // calls while another thread's was in a capture
    int refused;  // calls that a capture does not take
} fake_graph_counts;

extern fake_graph_counts fake_graphs;

// Forgets counts and a capture that was not ended.
void fake_graph_reset(void);

// Is there a capture, and is the stream in it?
bool fake_graph_capturing(void);
bool fake_graph_holds(cudaStream_t stream);
// The call is not permitted in a capture, which is of no use from here on.
cudaError_t fake_graph_refuse(cudaError_t code);

// Work on a stream that a capture holds: `run` does it, `drop` frees its context. NULL: nothing to
// do. Both are called later.
void fake_graph_add(cudaStream_t stream, void (*run)(void *), void *context, void (*drop)(void *));

// A point in a capture that an event stands for; `capture` 0: the event was recorded elsewhere.
typedef struct fake_graph_point {
    int capture, node;
} fake_graph_point;

fake_graph_point fake_graph_record(cudaStream_t stream);
// A wait of any stream for a point in a capture, which a stream joins by it.
cudaError_t fake_graph_wait(cudaStream_t stream, fake_graph_point point);

cudaError_t fake_graph_begin(cudaStream_t stream, enum cudaStreamCaptureMode mode);
cudaError_t fake_graph_end(cudaStream_t stream, cudaGraph_t *graph);
cudaError_t fake_graph_instantiate(cudaGraphExec_t *made, cudaGraph_t graph);
cudaError_t fake_graph_launch(cudaGraphExec_t graph);
cudaError_t fake_graph_exec_free(cudaGraphExec_t graph);
cudaError_t fake_graph_free(cudaGraph_t graph);

#endif
