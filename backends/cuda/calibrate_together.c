#include "backends/cuda/calibrate_together.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "backends/cuda/collective_nccl.h"
#include "backends/cuda/joined.h"
#include "sim/base/alloc.h"

enum { NCCL_TIMEOUT_MS = 60000, LEAST_BYTES = 1024, GROWTH = 4, MOST_BYTES = 256 << 20 };

typedef struct member {
    const sp_i_cuda_team *team;
    sp_i_cuda_device device;
    sp_i_cuda_info info;
    sp_i_bootstrap *bootstrap;
    sp_i_nccl *n;
    cudaStream_t stream;
} member;

// ---- who we are ----

// What the ranks of a table have in common: a machine, and a model of GPU.
typedef struct home {
    char machine[256], gpu[64];
} home;

static sp_status compare_homes(const sp_i_bootstrap_part *parts, int ranks, sp_error *err)
{
    home first;
    memcpy(&first, parts[0].data, sizeof first);
    for (int i = 1; i < ranks; i++) {
        home other;
        if (parts[i].bytes != sizeof other) {
            return sp_error_set(err, SP_ERR_USAGE, "rank %d is of another version of slimpack", i);
        }
        memcpy(&other, parts[i].data, sizeof other);
        if (strcmp(first.machine, other.machine) != 0) {
            return sp_error_set(err, SP_ERR_USAGE,
                                "times of collectives are those inside one machine: this one is "
                                "%.64s, that of rank %d %.64s",
                                first.machine, i, other.machine);
        }
        if (strcmp(first.gpu, other.gpu) != 0) {
            return sp_error_set(err, SP_ERR_USAGE, "the GPUs differ: %s at rank 0, %s at rank %d",
                                first.gpu, other.gpu, i);
        }
    }
    return SP_OK;
}

static sp_status meet_neighbours(const member *m, sp_error *err)
{
    const int ranks = m->team->place->ranks;
    home own = {0};
    if (gethostname(own.machine, sizeof own.machine - 1) != 0) {
        return sp_error_set(err, SP_ERR_IO, "this machine has no name");
    }
    snprintf(own.gpu, sizeof own.gpu, "%s", m->info.name);
    sp_i_bootstrap_part *parts = sp_i_calloc((size_t)ranks, sizeof *parts);
    if (parts == NULL) {
        return sp_error_no_memory(err, "the ranks' machines");
    }
    sp_status status = sp_i_bootstrap_gather(m->bootstrap, &own, sizeof own, parts, err);
    if (status == SP_OK && m->team->place->rank == 0) {
        status = compare_homes(parts, ranks, err);
    }
    sp_i_bootstrap_parts_fini(parts, ranks);
    sp_i_free(parts);
    return status;
}

// Ranks that are to measure something else do not fit.
static sp_status hash_of(const sp_i_cuda_team *team, uint32_t *hash, sp_error *err)
{
    json_t *model = sp_model_to_json(team->model);
    char *text = model != NULL ? json_dumps(model, JSON_COMPACT | JSON_SORT_KEYS) : NULL;
    json_decref(model);
    if (text == NULL) {
        return sp_error_no_memory(err, "a model's text");
    }
    *hash = sp_i_bootstrap_hash(text, strlen(text));
    free(text);
    return SP_OK;
}

static sp_status find_gpu(member *m, sp_error *err)
{
    const sp_i_cuda_team *team = m->team;
    m->device = (sp_i_cuda_device){team->api, team->device};
    sp_status status =
        sp_i_cuda_joined_device(team->api, team->place, team->device, &m->device.index, err);
    return status == SP_OK ? sp_i_cuda_device_info(&m->device, &m->info, err) : status;
}

static sp_status join(member *m, sp_error *err)
{
    const sp_i_cuda_team *team = m->team;
    uint32_t hash = 0;
    sp_status status = hash_of(team, &hash, err);
    if (status == SP_OK) {
        status = sp_i_bootstrap_join(team->place, hash, team->wait_ms, &m->bootstrap, err);
    }
    // From here on the others learn of a failure.
    if (status == SP_OK) {
        status = find_gpu(m, err);
    }
    if (status == SP_OK) {
        status = meet_neighbours(m, err);
    }
    if (status != SP_OK) {
        return status;
    }
    const sp_i_nccl_options options = {.device = m->device,
                                       .exchange = sp_i_nccl_over_bootstrap(m->bootstrap),
                                       .rank = team->place->rank,
                                       .ranks = team->place->ranks,
                                       .timeout_ms = NCCL_TIMEOUT_MS,
                                       .api = team->nccl};
    return sp_i_nccl_new(&options, &m->n, err);
}

// ---- collectives ----

static sp_status time_collectives(member *m, json_t *document, sp_error *err)
{
    const sp_i_cuda_team *team = m->team;
    const int version = sp_i_nccl_world_version(m->n);
    const sp_i_cuda_info *info = &m->info;
    json_t *tables = NULL;
    char source[200];
    snprintf(
        source, sizeof source,
        "NCCL %d.%d.%d between GPUs of a node with %d of %.40s, CUDA %d.%d; bf16, random data, "
        "medians of calls one behind another",
        version / 10000, version / 100 % 100, version % 100, team->place->ranks, info->name,
        info->driver / 1000, info->driver % 1000 / 10);
    sp_status status =
        SP_I_CUDA(&m->device, err, StreamCreateWithPriority, &m->stream, cudaStreamNonBlocking, 0);
    if (status != SP_OK) {
        return status;
    }
    const sp_i_cuda_collective_bench bench = {.device = m->device,
                                              .stream = m->stream,
                                              .rank = team->place->rank,
                                              .ranks = team->place->ranks,
                                              .seed = team->seed,
                                              .most_bytes =
                                                  sp_i_cuda_most_exchanged_bytes(team->model),
                                              .source = source};
    status = sp_i_nccl_time_collectives(m->n, &bench, &tables, err);
    if (status == SP_OK && document != NULL &&
        json_object_set(document, "collective_times", tables) != 0) {
        status = sp_error_no_memory(err, "a profile");
    }
    json_decref(tables);
    return status;
}

// ---- rank 0's document ----

static sp_status send_document(const member *m, const json_t *document, sp_error *err)
{
    char *text = json_dumps(document, JSON_COMPACT);
    if (text == NULL) {
        return sp_error_no_memory(err, "a profile");
    }
    uint64_t bytes = strlen(text);
    sp_status status = sp_i_bootstrap_broadcast(m->bootstrap, &bytes, sizeof bytes, err);
    if (status == SP_OK) {
        status = sp_i_bootstrap_broadcast(m->bootstrap, text, (size_t)bytes, err);
    }
    free(text);
    return status;
}

static sp_status receive_document(const member *m, json_t **document, sp_error *err)
{
    uint64_t bytes = 0;
    sp_status status = sp_i_bootstrap_broadcast(m->bootstrap, &bytes, sizeof bytes, err);
    if (status != SP_OK) {
        return status;
    }
    char *text = bytes <= SP_I_BOOTSTRAP_BYTES ? sp_i_malloc((size_t)bytes) : NULL;
    if (text == NULL) {
        return sp_error_no_memory(err, "a profile");
    }
    status = sp_i_bootstrap_broadcast(m->bootstrap, text, (size_t)bytes, err);
    if (status == SP_OK) {
        *document = json_loadb(text, (size_t)bytes, 0, NULL);
        status = *document != NULL ? SP_OK : sp_error_no_memory(err, "a profile");
    }
    sp_i_free(text);
    return status;
}

// ---- all of it ----

static sp_status work(member *m, sp_i_cuda_measure measure, void *context, json_t **document,
                      sp_error *err)
{
    const bool first = m->team->place->rank == 0;
    sp_status status = join(m, err);
    if (status == SP_OK && first) {
        status = measure(context, &m->device, document, err);
    }
    if (status == SP_OK) {
        status = sp_i_bootstrap_barrier(m->bootstrap, err);
    }
    if (status == SP_OK) {
        status = time_collectives(m, *document, err);
    }
    if (status != SP_OK) {
        return status;
    }
    status = first ? send_document(m, *document, err) : receive_document(m, document, err);
    // Nobody ends while another rank may still fail.
    return status == SP_OK ? sp_i_bootstrap_barrier(m->bootstrap, err) : status;
}

// Everybody's failure, which this rank's may be.
static sp_status fail(const member *m, sp_status status, const char *text, sp_error *err)
{
    if (m->n != NULL) {
        (void)sp_i_nccl_abort(m->n, status, "%s", text);
    }
    if (m->bootstrap == NULL) {
        return sp_error_set(err, status, "%s", text);
    }
    (void)sp_i_bootstrap_abort(m->bootstrap, status, "%s", text);
    return sp_i_bootstrap_check(m->bootstrap, err);
}

sp_status sp_i_cuda_calibrate_together(const sp_i_cuda_team *team, sp_i_cuda_measure measure,
                                       void *context, json_t **document, sp_error *err)
{
    member m = {.team = team};
    sp_error found = {0};
    *document = NULL;
    sp_status status = work(&m, measure, context, document, &found);
    if (status != SP_OK) {
        status = fail(&m, status, found.message[0], err);
        json_decref(*document);
        *document = NULL;
    }
    sp_i_nccl_free(m.n);
    if (m.stream != NULL) {
        (void)team->api->StreamDestroy(m.stream);
    }
    sp_i_bootstrap_free(m.bootstrap);
    return status;
}

int64_t sp_i_cuda_most_exchanged_bytes(const sp_model *model)
{
    const int64_t parameters = sp_model_parameters(model);
    int64_t most = LEAST_BYTES;
    while (most < MOST_BYTES && most / 4 < parameters) {
        most *= GROWTH;
    }
    return most;
}
