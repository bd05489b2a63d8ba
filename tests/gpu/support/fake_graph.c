#include "tests/gpu/support/fake_graph.h"

#include <stdatomic.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

fake_graph_counts fake_graphs;

enum { NONE = -1, STREAMS = 64 };

typedef struct node {
    void (*run)(void *);
    void (*drop)(void *);
    void *context;
    int before[2]; // nodes that it comes after, or NONE
} node;

// As many graphs as captures: an instantiated one is the same.
typedef struct graph {
    node *nodes;
    int count, capacity, owners;
} graph;

typedef struct held {
    cudaStream_t stream;
    int last; // node, or NONE
} held;

static struct {
    bool active, useless;
    graph *made;
    held streams[STREAMS]; // the first began it
    int stream_count;
} now;

static uint64_t drawn = 1;
static atomic_int inside; // calls of captures at the moment

static void enter(void)
{
    if (atomic_fetch_add(&inside, 1) > 0) {
        fake_graphs.crossed++;
    }
}

static void leave(void)
{
    (void)atomic_fetch_sub(&inside, 1);
}

static void give_up(graph *g)
{
    if (g == NULL || --g->owners > 0) {
        return;
    }
    for (int i = 0; i < g->count; i++) {
        if (g->nodes[i].drop != NULL) {
            g->nodes[i].drop(g->nodes[i].context);
        }
    }
    free(g->nodes);
    free(g);
}

void fake_graph_reset(void)
{
    give_up(now.made);
    memset(&now, 0, sizeof now);
    fake_graphs = (fake_graph_counts){0};
}

bool fake_graph_capturing(void)
{
    return now.active;
}

static held *held_stream(cudaStream_t stream)
{
    for (int i = 0; now.active && i < now.stream_count; i++) {
        if (now.streams[i].stream == stream) {
            return &now.streams[i];
        }
    }
    return NULL;
}

bool fake_graph_holds(cudaStream_t stream)
{
    return held_stream(stream) != NULL;
}

cudaError_t fake_graph_refuse(cudaError_t code)
{
    fake_graphs.refused++;
    now.useless = now.active;
    return code;
}

// ---- nodes ----

static int add(held *stream, const node *n)
{
    graph *g = now.made;
    if (g->count == g->capacity) {
        g->capacity = g->capacity > 0 ? 2 * g->capacity : 64;
        node *nodes = realloc(g->nodes, (size_t)g->capacity * sizeof *nodes);
        if (nodes == NULL) {
            abort();
        }
        g->nodes = nodes;
    }
    g->nodes[g->count] = *n;
    stream->last = g->count++;
    return stream->last;
}

void fake_graph_add(cudaStream_t stream, void (*run)(void *), void *context, void (*drop)(void *))
{
    enter();
    held *of = held_stream(stream);
    const node n = {run, drop, context, {of->last, NONE}};
    (void)add(of, &n);
    leave();
}

fake_graph_point fake_graph_record(cudaStream_t stream)
{
    enter();
    held *of = held_stream(stream);
    const node n = {NULL, NULL, NULL, {of->last, NONE}};
    const fake_graph_point point = {fake_graphs.captures, add(of, &n)};
    leave();
    return point;
}

cudaError_t fake_graph_wait(cudaStream_t stream, fake_graph_point point)
{
    enter();
    held *of = held_stream(stream);
    cudaError_t code = cudaSuccess;
    if (!now.active || point.capture != fake_graphs.captures) {
        // Out of a capture, or into one, or from one to another.
        code = fake_graph_refuse(cudaErrorStreamCaptureIsolation);
    } else if (of == NULL && now.stream_count == STREAMS) {
        code = cudaErrorUnknown;
    } else {
        if (of == NULL) {
            of = &now.streams[now.stream_count++];
            *of = (held){stream, NONE};
        }
        const node n = {NULL, NULL, NULL, {of->last, point.node}};
        (void)add(of, &n);
    }
    leave();
    return code;
}

// ---- captures ----

cudaError_t fake_graph_begin(cudaStream_t stream, enum cudaStreamCaptureMode mode)
{
    if (now.active || mode != cudaStreamCaptureModeRelaxed) {
        return cudaErrorIllegalState;
    }
    now.active = true;
    now.useless = false;
    now.made = calloc(1, sizeof *now.made);
    now.made->owners = 1;
    now.streams[0] = (held){stream, NONE};
    now.stream_count = 1;
    fake_graphs.captures++;
    return cudaSuccess;
}

// Does the last node of the first stream come after all others?
static bool is_joined(const graph *g, int last)
{
    bool *after = calloc((size_t)g->count + 1, sizeof *after);
    bool joined = true;
    for (int i = g->count - 1; i >= 0; i--) {
        after[i] = after[i] || i == last;
        joined = joined && after[i];
        for (int b = 0; b < 2 && after[i]; b++) {
            if (g->nodes[i].before[b] != NONE) {
                after[g->nodes[i].before[b]] = true;
            }
        }
    }
    free(after);
    return joined;
}

cudaError_t fake_graph_end(cudaStream_t stream, cudaGraph_t *made)
{
    *made = NULL;
    if (!now.active || now.streams[0].stream != stream) {
        return cudaErrorIllegalState;
    }
    cudaError_t code = now.useless ? cudaErrorStreamCaptureInvalidated
                       : is_joined(now.made, now.streams[0].last) ? cudaSuccess
                                                                  : cudaErrorStreamCaptureUnjoined;
    if (code == cudaSuccess) {
        *made = (cudaGraph_t)(void *)now.made;
        fake_graphs.live++;
    } else {
        give_up(now.made);
    }
    memset(&now, 0, sizeof now);
    return code;
}

cudaError_t fake_graph_instantiate(cudaGraphExec_t *made, cudaGraph_t from)
{
    graph *g = (graph *)(void *)from;
    g->owners++;
    *made = (cudaGraphExec_t)(void *)g;
    fake_graphs.live++;
    return cudaSuccess;
}

cudaError_t fake_graph_exec_free(cudaGraphExec_t made)
{
    fake_graphs.live--;
    give_up((graph *)(void *)made);
    return cudaSuccess;
}

cudaError_t fake_graph_free(cudaGraph_t made)
{
    fake_graphs.live--;
    give_up((graph *)(void *)made);
    return cudaSuccess;
}

// ---- launches ----

// xorshift64 (Marsaglia: "Xorshift RNGs", 2003).
static int below(int n)
{
    drawn ^= drawn << 13;
    drawn ^= drawn >> 7;
    drawn ^= drawn << 17;
    return (int)(drawn >> 33) % n;
}

// Nodes that come after each: those of node i begin at first[i].
typedef struct order {
    int *first, *after, *missing, *ready;
} order;

static void find_order(const graph *g, order *o)
{
    size_t n = (size_t)g->count;
    o->first = calloc(n + 2, sizeof *o->first);
    o->after = calloc(2 * n + 1, sizeof *o->after);
    o->missing = calloc(n + 1, sizeof *o->missing);
    o->ready = calloc(n + 1, sizeof *o->ready);
    for (int i = 0; i < g->count; i++) {
        for (int b = 0; b < 2; b++) {
            if (g->nodes[i].before[b] != NONE) {
                o->first[g->nodes[i].before[b] + 2]++;
                o->missing[i]++;
            }
        }
    }
    for (int i = 2; i <= g->count + 1; i++) {
        o->first[i] += o->first[i - 1];
    }
    for (int i = 0; i < g->count; i++) {
        for (int b = 0; b < 2; b++) {
            if (g->nodes[i].before[b] != NONE) {
                o->after[o->first[g->nodes[i].before[b] + 1]++] = i;
            }
        }
    }
}

cudaError_t fake_graph_launch(cudaGraphExec_t made)
{
    const graph *g = (const graph *)(void *)made;
    order o;
    int ready = 0;
    fake_graphs.launches++;
    find_order(g, &o);
    for (int i = 0; i < g->count; i++) {
        if (o.missing[i] == 0) {
            o.ready[ready++] = i;
        }
    }
    while (ready > 0) {
        int at = below(ready);
        int next = o.ready[at];
        o.ready[at] = o.ready[--ready];
        if (g->nodes[next].run != NULL) {
            g->nodes[next].run(g->nodes[next].context);
        }
        for (int k = o.first[next]; k < o.first[next + 1]; k++) {
            if (--o.missing[o.after[k]] == 0) {
                o.ready[ready++] = o.after[k];
            }
        }
    }
    free(o.first);
    free(o.after);
    free(o.missing);
    free(o.ready);
    return cudaSuccess;
}
