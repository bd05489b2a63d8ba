// Plain memory of all ranks of a world at all of them.
#include <string.h>

#include "backends/cuda/distributed/nccl_world.h"
#include "sim/base/alloc.h"

// Of each rank at a time: enough for what a step reports, little beside many ranks' together.
enum { MOST_BYTES = 1 << 18, MOST_OF_ALL = 1 << 25, LEAST_BYTES = 64 };

typedef struct gathering {
    sp_i_nccl *n;
    cudaStream_t stream;
    char *device; // of each rank a part; then this rank's own
    char *host;   // [ranks] parts
    size_t part_bytes;
} gathering;

// Of every rank `bytes` of the device, beside each other.
static sp_status all_gather(const gathering *g, size_t bytes, sp_error *err)
{
    sp_i_nccl *n = g->n;
    const char *own = g->device + (size_t)n->ranks * g->part_bytes;
    sp_status status = sp_i_nccl_failure(n, err);
    return status != SP_OK ? status
                           : sp_i_nccl_finish(n, &n->all, "AllGather",
                                              n->api->AllGather(own, g->device, bytes, ncclUint8,
                                                                n->all.comm, g->stream),
                                              err);
}

// Of every rank `bytes`, at most a part, from plain memory into g->host.
static sp_status gather(const gathering *g, const void *mine, size_t bytes, sp_error *err)
{
    const size_t ranks = (size_t)g->n->ranks;
    const sp_i_cuda_device *device = &g->n->options.device;
    sp_error found = {0};
    sp_status status = SP_I_CUDA(device, &found, MemcpyAsync, g->device + ranks * g->part_bytes,
                                 mine, bytes, cudaMemcpyHostToDevice, g->stream);
    if (status == SP_OK) {
        status = all_gather(g, bytes, err);
        if (status != SP_OK) {
            return status;
        }
        status = SP_I_CUDA(device, &found, MemcpyAsync, g->host, g->device, ranks * bytes,
                           cudaMemcpyDeviceToHost, g->stream);
    }
    return status == SP_OK ? sp_i_nccl_synchronize(g->n, g->stream, err)
                           : sp_i_nccl_fail(g->n, err, status, "%s", found.message[0]);
}

static sp_status gather_sizes(const gathering *g, size_t bytes, sp_transport_part *parts,
                              size_t *most, sp_error *err)
{
    const uint64_t own = bytes;
    sp_status status = gather(g, &own, sizeof own, err);
    *most = 0;
    for (int i = 0; status == SP_OK && i < g->n->ranks; i++) {
        uint64_t theirs;
        memcpy(&theirs, g->host + (size_t)i * sizeof theirs, sizeof theirs);
        parts[i].bytes = (size_t)theirs;
        parts[i].data = sp_malloc(theirs > 0 ? (size_t)theirs : 1);
        *most = parts[i].bytes > *most ? parts[i].bytes : *most;
        if (parts[i].data == NULL) {
            status = sp_i_nccl_fail(g->n, err, SP_ERR_NO_MEMORY, "out of memory for an exchange");
        }
    }
    return status;
}

static sp_status gather_all(const gathering *g, const void *mine, size_t bytes,
                            sp_transport_part *parts, sp_error *err)
{
    size_t most;
    sp_status status = gather_sizes(g, bytes, parts, &most, err);
    for (size_t done = 0; status == SP_OK && done < most; done += g->part_bytes) {
        // Ranks that gave less send zeros.
        const size_t now = most - done < g->part_bytes ? most - done : g->part_bytes;
        const size_t left = bytes > done ? bytes - done : 0;
        memset(g->host, 0, now);
        if (left > 0) {
            memcpy(g->host, (const char *)mine + done, left < now ? left : now);
        }
        status = gather(g, g->host, now, err);
        for (int i = 0; status == SP_OK && i < g->n->ranks; i++) {
            const size_t theirs = parts[i].bytes > done ? parts[i].bytes - done : 0;
            memcpy((char *)parts[i].data + (theirs > 0 ? done : 0), g->host + (size_t)i * now,
                   theirs < now ? theirs : now);
        }
    }
    // A rank that could not read what it was given keeps the others here until they know.
    status = status == SP_OK ? all_gather(g, 1, err) : status;
    return status == SP_OK ? sp_i_nccl_synchronize(g->n, g->stream, err) : status;
}

sp_status sp_i_nccl_exchange_bytes(sp_i_nccl *n, const void *mine, size_t bytes,
                                   sp_transport_part *parts, cudaStream_t stream, sp_error *err)
{
    const size_t ranks = (size_t)n->ranks;
    const sp_i_cuda_device *device = &n->options.device;
    gathering g = {.n = n, .stream = stream, .part_bytes = MOST_OF_ALL / (ranks + 1)};
    sp_error found = {0};
    void *memory = NULL;
    memset(parts, 0, ranks * sizeof *parts);
    g.part_bytes = g.part_bytes > MOST_BYTES    ? MOST_BYTES
                   : g.part_bytes < LEAST_BYTES ? LEAST_BYTES
                                                : g.part_bytes;
    sp_status status = sp_i_nccl_failure(n, err);
    if (status != SP_OK) {
        return status;
    }
    g.host = sp_malloc(ranks * g.part_bytes);
    status = g.host == NULL
                 ? sp_error_no_memory(&found, "an exchange")
                 : SP_I_CUDA(device, &found, Malloc, &memory, (ranks + 1) * g.part_bytes);
    g.device = memory;
    status = status == SP_OK ? gather_all(&g, mine, bytes, parts, err)
                             : sp_i_nccl_fail(n, err, status, "%s", found.message[0]);
    if (memory != NULL) {
        (void)device->api->Free(memory);
    }
    sp_free(g.host);
    for (size_t i = 0; status != SP_OK && i < ranks; i++) {
        sp_free(parts[i].data);
        parts[i] = (sp_transport_part){0};
    }
    return status;
}
