#include "backends/cuda/distributed/calibrate_together.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "backends/cuda/distributed/multi_process.h"
#include "sim/base/alloc.h"

enum { LEAST_BYTES = 1024, GROWTH = 4, MOST_BYTES = 256 << 20, CARD = 300 };

typedef struct member {
    const sp_i_cuda_team *team;
    sp_i_cuda_device device;
    sp_i_cuda_info info;
    sp_i_nccl *n;
    cudaStream_t stream;
} member;

// ---- who we are ----

// What the ranks of a table have in common.
static sp_status card_of(const member *m, char card[CARD], sp_error *err)
{
    char machine[128] = "";
    json_t *model = sp_model_to_json(m->team->model);
    char *text = model != NULL ? json_dumps(model, JSON_COMPACT | JSON_SORT_KEYS) : NULL;
    json_decref(model);
    if (text == NULL) {
        return sp_error_no_memory(err, "a model's text");
    }
    const uint32_t hash = sp_i_cuda_hash(text, strlen(text));
    free(text);
    if (gethostname(machine, sizeof machine - 1) != 0) {
        return sp_error_set(err, SP_ERR_IO, "this machine has no name");
    }
    snprintf(card, CARD, "machine %s, GPU %s, model %08x", machine, m->info.name, (unsigned)hash);
    return SP_OK;
}

static sp_status find_gpu(member *m, sp_error *err)
{
    const sp_i_cuda_team *team = m->team;
    char reason[SP_I_CUDA_TEXT];
    m->device = (sp_i_cuda_device){team->api, team->device};
    if (team->nccl == NULL && sp_i_nccl_version(reason) == 0) {
        return sp_error_set(err, SP_ERR_USAGE, "no NCCL: %s", reason);
    }
    sp_status status =
        sp_i_cuda_process_device(team->api, team->place, team->device, &m->device.index, err);
    return status == SP_OK ? sp_i_cuda_device_info(&m->device, &m->info, err) : status;
}

static sp_status connect_ranks(member *m, sp_error *err)
{
    const sp_i_cuda_team *team = m->team;
    char card[CARD];
    sp_status status = card_of(m, card, err);
    if (status == SP_OK) {
        status = SP_I_CUDA(&m->device, err, StreamCreateWithPriority, &m->stream,
                           cudaStreamNonBlocking, 0);
    }
    const sp_i_nccl_options options = {.device = m->device,
                                       .place = team->place,
                                       .card = card,
                                       .timeout_ms = team->wait_ms,
                                       .api = team->nccl};
    return status == SP_OK ? sp_i_nccl_new(&options, &m->n, err) : status;
}

// ---- collectives ----

// Sizes 2, 4, ... of a world of SP_LAUNCHER_RANKS.
enum { GROUPS = 17 };

typedef struct groups {
    sp_i_nccl *n;
    int group[GROUPS]; // of the first 2, 4, ... ranks and of all
} groups;

static int place_of(int ranks)
{
    int i = 0;
    while (2 << i < ranks) {
        i++;
    }
    return i;
}

static sp_status put(void *context, sp_collective kind, int ranks, const void *in, void *out,
                     int64_t bytes, cudaStream_t stream, sp_error *err)
{
    const groups *g = context;
    const int group = g->group[place_of(ranks)];
    const sp_element type = SP_ELEMENT_BF16;
    const int64_t all = bytes / 2;
    const int64_t part = all / ranks;
    switch (kind) {
    case SP_ALL_REDUCE:
        return sp_i_nccl_all_reduce(g->n, group, type, false, in, out, all, stream, err);
    case SP_ALL_GATHER:
        return sp_i_nccl_all_gather(g->n, group, type, in, out, part, stream, err);
    case SP_REDUCE_SCATTER:
        return sp_i_nccl_reduce_scatter(g->n, group, type, false, in, out, part, stream, err);
    case SP_ALL_TO_ALL:
        return sp_i_nccl_all_to_all(g->n, group, type, in, out, part, stream, err);
    case SP_COLLECTIVES:
        break;
    }
    SP_UNREACHABLE("a collective that is timed");
}

static sp_status synchronize_group(void *context, cudaStream_t stream, sp_error *err)
{
    const groups *g = context;
    return sp_i_nccl_synchronize(g->n, stream, err);
}

static sp_status make_groups(groups *g, int ranks, sp_error *err)
{
    int *members = sp_calloc((size_t)ranks, sizeof *members);
    for (int i = 0; i < ranks; i++) {
        members[i] = i;
    }
    sp_status status = SP_OK;
    for (int i = 0; status == SP_OK && i <= place_of(ranks); i++) {
        const int size = 2 << i < ranks ? 2 << i : ranks;
        status = sp_i_nccl_group_new(g->n, "first", members, size, &g->group[i], err);
    }
    sp_free(members);
    return status;
}

sp_status sp_i_nccl_time_collectives(sp_i_nccl *n, const sp_i_cuda_collective_bench *bench,
                                     json_t **tables, sp_error *err)
{
    groups g = {.n = n};
    sp_i_cuda_collective_bench b = *bench;
    b.put = put;
    b.synchronize = synchronize_group;
    b.context = &g;
    *tables = NULL;
    sp_status status = make_groups(&g, b.ranks, err);
    return status == SP_OK ? sp_i_cuda_time_collectives(&b, tables, err) : status;
}

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
    const sp_i_cuda_collective_bench bench = {.device = m->device,
                                              .stream = m->stream,
                                              .rank = team->place->rank,
                                              .ranks = team->place->ranks,
                                              .seed = team->seed,
                                              .most_bytes =
                                                  sp_i_cuda_most_exchanged_bytes(team->model),
                                              .source = source};
    sp_status status = sp_i_nccl_time_collectives(m->n, &bench, &tables, err);
    if (status == SP_OK && document != NULL &&
        json_object_set(document, "collective_times", tables) != 0) {
        status = sp_error_no_memory(err, "a profile");
    }
    json_decref(tables);
    return status;
}

// ---- what all ranks give each other ----

static sp_status exchange(const member *m, const char *text, sp_transport_part **parts,
                          sp_error *err)
{
    *parts = sp_calloc((size_t)m->team->place->ranks, sizeof **parts);
    return *parts != NULL
               ? sp_i_nccl_exchange_bytes(m->n, text, strlen(text), *parts, m->stream, err)
               : sp_error_no_memory(err, "what the ranks give");
}

static void release(const member *m, sp_transport_part *parts)
{
    for (int i = 0; parts != NULL && i < m->team->place->ranks; i++) {
        sp_free(parts[i].data);
    }
    sp_free(parts);
}

// All give something, and all get rank 0's.
static sp_status share_document(const member *m, json_t **document, sp_error *err)
{
    sp_transport_part *parts = NULL;
    char *text = *document != NULL ? json_dumps(*document, JSON_COMPACT) : NULL;
    sp_status status =
        *document != NULL && text == NULL ? sp_error_no_memory(err, "a profile") : SP_OK;
    status = status == SP_OK ? exchange(m, text != NULL ? text : "", &parts, err) : status;
    if (status == SP_OK && *document == NULL) {
        *document = json_loadb(parts[0].data, parts[0].bytes, 0, NULL);
        status = *document != NULL ? SP_OK : sp_error_no_memory(err, "a profile");
    }
    release(m, parts);
    free(text);
    return status;
}

// ---- all of it ----

// The others wait for rank 0's measurements where they meet, with nothing on their GPUs.
static sp_status work(member *m, sp_i_cuda_measure measure, void *context, json_t **document,
                      sp_error *err)
{
    sp_i_meeting_clear(m->team->place);
    sp_status status = find_gpu(m, err);
    if (status == SP_OK && m->team->place->rank == 0) {
        status = measure(context, &m->device, document, err);
    }
    status = status == SP_OK ? connect_ranks(m, err) : status;
    status = status == SP_OK ? time_collectives(m, *document, err) : status;
    return status == SP_OK ? share_document(m, document, err) : status;
}

sp_status sp_i_cuda_calibrate_together(const sp_i_cuda_team *team, sp_i_cuda_measure measure,
                                       void *context, json_t **document, sp_error *err)
{
    member m = {.team = team};
    *document = NULL;
    sp_status status = work(&m, measure, context, document, err);
    if (status != SP_OK) {
        json_decref(*document);
        *document = NULL;
        return status;
    }
    sp_i_nccl_free(m.n);
    (void)team->api->StreamDestroy(m.stream);
    return SP_OK;
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
