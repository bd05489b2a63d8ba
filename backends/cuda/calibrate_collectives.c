#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "backends/cuda/calibration.h"
#include "backends/cuda/multi_process.h"
#include "backends/cuda/nccl.h"
#include "sim/base/alloc.h"

// Ranks must put as many collectives as each other, so that no clock says how many.
enum { WARM = 4, REPEATS = 20, EVENTS = REPEATS + 1, LEAST_BYTES = 1024, GROWTH = 4 };

// Sizes 2, 4, ... of a world of SP_LAUNCHER_RANKS.
enum { GROUPS = 17 };

typedef struct trial {
    const sp_i_cuda_collective_bench *bench;
    sp_i_nccl *n;
    int group[GROUPS]; // of the first 2, 4, ... ranks and of all
    sp_i_cuda_events events;
    void *memory;
    char *in, *out;
} trial;

static int64_t round_up(int64_t bytes, int ranks)
{
    int64_t unit = 2 * ranks;
    return (bytes + unit - 1) / unit * unit;
}

static int place_of(int ranks)
{
    int i = 0;
    while (2 << i < ranks) {
        i++;
    }
    return i;
}

static sp_status make_groups(trial *t, int ranks, sp_error *err)
{
    int *members = sp_calloc((size_t)ranks, sizeof *members);
    for (int i = 0; i < ranks; i++) {
        members[i] = i;
    }
    sp_status status = SP_OK;
    for (int i = 0; status == SP_OK && i <= place_of(ranks); i++) {
        const int size = 2 << i < ranks ? 2 << i : ranks;
        status = sp_i_nccl_group_new(t->n, "first", members, size, &t->group[i], err);
    }
    sp_free(members);
    return status;
}

// A collective of the world's first `ranks` ranks over a tensor of `bytes`, a multiple of 2 *
// ranks.
static sp_status put(const trial *t, sp_collective kind, int ranks, int64_t bytes, sp_error *err)
{
    const int group = t->group[place_of(ranks)];
    const CUstream stream = t->bench->stream;
    const sp_element type = SP_ELEMENT_BF16;
    const int64_t all = bytes / 2;
    const int64_t part = all / ranks;
    switch (kind) {
    case SP_ALL_REDUCE:
        return sp_i_nccl_all_reduce(t->n, group, type, false, t->in, t->out, all, stream, err);
    case SP_ALL_GATHER:
        return sp_i_nccl_all_gather(t->n, group, type, t->in, t->out, part, stream, err);
    case SP_REDUCE_SCATTER:
        return sp_i_nccl_reduce_scatter(t->n, group, type, false, t->in, t->out, part, stream, err);
    case SP_ALL_TO_ALL:
        return sp_i_nccl_all_to_all(t->n, group, type, t->in, t->out, part, stream, err);
    case SP_COLLECTIVES:
        break;
    }
    SP_UNREACHABLE("a collective that is timed");
}

static void trial_fini(trial *t)
{
    sp_i_cuda_events_fini(&t->events);
    if (t->memory != NULL) {
        sp_i_cuda_give(&t->bench->device, t->memory);
    }
}

static sp_status trial_init(const sp_i_cuda_collective_bench *b, sp_i_nccl *n, trial *t,
                            sp_error *err)
{
    *t = (trial){.bench = b, .n = n};
    int64_t each = (round_up(b->most_bytes, b->ranks) + 255) / 256 * 256;
    SP_TRY(sp_i_cuda_take(&b->device, 2 * (size_t)each, &t->memory, err));
    t->in = t->memory;
    t->out = t->in + each;
    SP_TRY(sp_i_cuda_fill_normal(&b->device, t->in, each, SP_I_CUDA_DRAWN, 1.0, b->seed, b->stream,
                                 err));
    return sp_i_cuda_events_init(&b->device, EVENTS, true, &t->events, err);
}

// One behind another, so that ranks that began late have caught up: from end to end.
static sp_status time_one(const trial *t, sp_collective kind, int ranks, int64_t bytes,
                          sp_i_cuda_timing *timing, sp_error *err)
{
    const sp_i_cuda_collective_bench *b = t->bench;
    double seconds[REPEATS];
    for (int i = 0; i < WARM + REPEATS; i++) {
        SP_TRY(put(t, kind, ranks, bytes, err));
        if (i >= WARM - 1) {
            SP_TRY(sp_i_cuda_record(&t->events, i - (WARM - 1), b->stream, err));
        }
    }
    SP_TRY(sp_i_nccl_synchronize(t->n, b->stream, err));
    for (int i = 0; i < REPEATS; i++) {
        int64_t ns;
        SP_TRY(sp_i_cuda_between(&t->events, i, i + 1, &ns, err));
        seconds[i] = 1e-9 * (double)(ns > 0 ? ns : 1);
    }
    *timing = sp_i_cuda_timing_of(seconds, REPEATS);
    return SP_OK;
}

static sp_status add_table(const trial *t, sp_collective kind, int ranks, json_t *tables,
                           sp_error *err)
{
    const sp_i_cuda_collective_bench *b = t->bench;
    json_t *points = json_array();
    sp_status status = SP_OK;
    for (int64_t size = LEAST_BYTES; status == SP_OK && size <= b->most_bytes; size *= GROWTH) {
        sp_i_cuda_timing timing;
        int64_t bytes = round_up(size, ranks);
        status = time_one(t, kind, ranks, bytes, &timing, err);
        if (status == SP_OK) {
            (void)json_array_append_new(
                points, json_pack("[I, f]", (json_int_t)bytes, 1e6 * timing.median_s));
        }
    }
    if (status == SP_OK && tables != NULL) {
        (void)json_array_append_new(
            tables, json_pack("{s:s, s:s, s:s, s:i, s:O}", "level", "measured", "source", b->source,
                              "kind", sp_collective_names[kind], "ranks", ranks, "points", points));
    }
    json_decref(points);
    return status;
}

static int next_group(int ranks, int all)
{
    return ranks < all && 2 * ranks > all ? all : 2 * ranks;
}

sp_status sp_i_nccl_time_collectives(sp_i_nccl *n, const sp_i_cuda_collective_bench *b,
                                     json_t **tables, sp_error *err)
{
    trial t;
    json_t *made = b->rank == 0 ? json_array() : NULL;
    *tables = NULL;
    sp_status status = trial_init(b, n, &t, err);
    status = status == SP_OK ? make_groups(&t, b->ranks, err) : status;
    for (int kind = 0; kind < SP_COLLECTIVES; kind++) {
        for (int ranks = 2; status == SP_OK && ranks <= b->ranks;
             ranks = next_group(ranks, b->ranks)) {
            if (b->rank < ranks) {
                status = add_table(&t, (sp_collective)kind, ranks, made, err);
            }
        }
    }
    trial_fini(&t);
    if (status != SP_OK) {
        json_decref(made);
        return status;
    }
    *tables = made;
    return SP_OK;
}

// ---- A calibration by several processes ----

enum { MOST_BYTES = 256 << 20, CARD = 300 };

typedef struct member {
    const sp_i_cuda_team *team;
    sp_i_cuda_device device;
    sp_i_cuda_info info;
    sp_i_nccl *n;
    CUstream stream;
} member;

// Writes what the ranks of a table must have in common.
static sp_status card_of(const member *m, char card[CARD], sp_error *err)
{
    char machine[128] = "";
    json_t *model = sp_model_to_json(m->team->model);
    char *text = json_dumps(model, JSON_COMPACT | JSON_SORT_KEYS);
    json_decref(model);
    const uint32_t hash = text != NULL ? sp_i_cuda_hash(text, strlen(text)) : 0;
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
    SP_TRY(sp_i_cuda_process_device(team->api, team->place, team->device, &m->device.index, err));
    return sp_i_cuda_device_info(&m->device, &m->info, err);
}

static sp_status connect_ranks(member *m, sp_error *err)
{
    const sp_i_cuda_team *team = m->team;
    char card[CARD];
    sp_status status = card_of(m, card, err);
    if (status == SP_OK) {
        status = SP_I_CUDA(&m->device, err, StreamCreateWithPriority, &m->stream,
                           CU_STREAM_NON_BLOCKING, 0);
    }
    const sp_i_nccl_options options = {.device = m->device,
                                       .place = team->place,
                                       .card = card,
                                       .timeout_ms = team->wait_ms,
                                       .api = team->nccl};
    return status == SP_OK ? sp_i_nccl_new(&options, &m->n, err) : status;
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
    if (status == SP_OK && document != NULL) {
        (void)json_object_set(document, "collective_times", tables);
    }
    json_decref(tables);
    return status;
}

// All give something, and all get rank 0's.
static sp_status share_document(const member *m, json_t **document, sp_error *err)
{
    const int ranks = m->team->place->ranks;
    sp_transport_part *parts = sp_calloc((size_t)ranks, sizeof *parts);
    char *text = *document != NULL ? json_dumps(*document, JSON_COMPACT) : NULL;
    const char *given = text != NULL ? text : "";
    sp_status status = sp_i_nccl_exchange_bytes(m->n, given, strlen(given), parts, m->stream, err);
    if (status == SP_OK && *document == NULL) {
        *document = json_loadb(parts[0].data, parts[0].bytes, 0, NULL);
        status = *document != NULL ? SP_OK : sp_i_calibration_unwritable(err);
    }
    for (int i = 0; i < ranks; i++) {
        sp_free(parts[i].data);
    }
    sp_free(parts);
    free(text);
    return status;
}

// The others wait for rank 0's measurements where they meet, with nothing on their GPUs.
static sp_status work(member *m, sp_i_cuda_measure measure, void *context, json_t **document,
                      sp_error *err)
{
    sp_i_meeting_clear(m->team->place);
    SP_TRY(find_gpu(m, err));
    if (m->team->place->rank == 0) {
        SP_TRY(measure(context, &m->device, document, err));
    }
    SP_TRY(connect_ranks(m, err));
    SP_TRY(time_collectives(m, *document, err));
    return share_document(m, document, err);
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
