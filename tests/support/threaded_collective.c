#include "tests/support/threaded_collective.h"

#include <string.h>

#include "backends/comm/comm.h"
#include "backends/host/cpu_runtime.h"
#include "sim/base/alloc.h"

static int64_t count_of(const threaded_group *g, const threaded_call *c, int member)
{
    bool parts = c->kind == THREADED_GATHER || c->kind == THREADED_SCATTER;
    (void)g;
    return parts ? c->rows[member] * c->count : c->count;
}

bool threaded_alike(const threaded_group *g, const threaded_call *a, const threaded_call *b)
{
    bool alike = a->kind == b->kind && a->element == b->element && a->maximum == b->maximum &&
                 a->root == b->root;
    for (int m = 0; alike && a->kind != THREADED_EXCHANGE && m < g->size; m++) {
        alike = count_of(g, a, m) == count_of(g, b, m);
    }
    return alike;
}

// What all members brought, one behind the other.
static char *copy_inputs(const threaded_group *g, int64_t bytes)
{
    char *copy = sp_malloc((size_t)(bytes * g->size));
    SP_ASSERT(copy != NULL);
    for (int m = 0; m < g->size && bytes > 0; m++) {
        if (g->calls[m].in != NULL) {
            memcpy(copy + m * bytes, g->calls[m].in, (size_t)bytes);
        }
    }
    return copy;
}

static void copy_to(void *to, const void *from, int64_t bytes)
{
    if (bytes > 0) {
        memcpy(to, from, (size_t)bytes);
    }
}

// Elements [begin, begin + count) of all copied inputs.
static void reduce(const threaded_group *g, const char *copy, int64_t bytes, int64_t begin,
                   int64_t count, void *out)
{
    const void *in[THREADED_RANKS];
    int64_t element = sp_element_bytes(g->calls[0].element);
    for (int m = 0; m < g->size; m++) {
        in[m] = copy + m * bytes + begin * element;
    }
    if (count > 0) {
        sp_i_cpu_reduce(g->calls[0].element, g->calls[0].maximum, count, in, g->size, &out, 1);
    }
}

static void reduce_all(const threaded_group *g)
{
    int64_t bytes = g->calls[0].count * sp_element_bytes(g->calls[0].element);
    char *copy = copy_inputs(g, bytes);
    for (int m = 0; m < g->size; m++) {
        reduce(g, copy, bytes, 0, g->calls[0].count, g->calls[m].out);
    }
    sp_free(copy);
}

static void scatter(const threaded_group *g)
{
    int64_t all = 0, begin = 0;
    for (int m = 0; m < g->size; m++) {
        all += count_of(g, &g->calls[0], m);
    }
    int64_t bytes = all * sp_element_bytes(g->calls[0].element);
    char *copy = copy_inputs(g, bytes);
    for (int m = 0; m < g->size; m++) {
        int64_t count = count_of(g, &g->calls[0], m);
        reduce(g, copy, bytes, begin, count, g->calls[m].out);
        begin += count;
    }
    sp_free(copy);
}

static void gather(const threaded_group *g)
{
    int64_t element = sp_element_bytes(g->calls[0].element);
    int64_t at = 0;
    for (int m = 0; m < g->size; m++) {
        int64_t bytes = count_of(g, &g->calls[0], m) * element;
        for (int to = 0; to < g->size && bytes > 0; to++) {
            memmove((char *)g->calls[to].out + at, g->calls[m].in, (size_t)bytes);
        }
        at += bytes;
    }
}

static void broadcast(const threaded_group *g)
{
    const threaded_call *root = &g->calls[g->calls[0].root];
    for (int m = 0; m < g->size && root->count > 0; m++) {
        memmove(g->calls[m].out, root->in, (size_t)(root->count * sp_element_bytes(root->element)));
    }
}

static void exchange_parts(const threaded_group *g)
{
    for (int to = 0; to < g->size; to++) {
        sp_transport_part *parts = g->calls[to].out;
        for (int m = 0; m < g->size; m++) {
            parts[m].bytes = (size_t)g->calls[m].count;
            parts[m].data = sp_malloc(parts[m].bytes);
            SP_ASSERT(parts[m].data != NULL);
            copy_to(parts[m].data, g->calls[m].in, g->calls[m].count);
        }
    }
}

void threaded_work(const threaded_group *g)
{
    static void (*const works[])(const threaded_group *) = {NULL,    reduce_all, gather,
                                                            scatter, broadcast,  exchange_parts};
    if (works[g->calls[0].kind] != NULL) {
        works[g->calls[0].kind](g);
    }
}
