#include "backends/cuda/multi_process.h"

#include <ctype.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "sim/base/alloc.h"
#include "sim/base/launcher.h"
#include "sim/base/writer.h"
#include "sim/plan/plan_json.h"

enum { TIMEOUT_MS = 600000, NS_PER_MS = 1000000, SPARE_MIB = 2048, MOST_MIB = 1 << 20 };

// ---- which process this is ----

typedef char *(*lookup_call)(const char *name);

// Letters, digits and '-' of a text, as a part of a file's name.
static void add_to_name(char *name, size_t bytes, const char *text)
{
    size_t end = strlen(name);
    for (; *text != '\0' && end + 1 < bytes; text++) {
        name[end++] = (char)(isalnum((unsigned char)*text) ? *text : '-');
    }
    name[end] = '\0';
}

// Two runs at a time on one machine have another port, or another id. A job of Slurm's has several
// steps, one after another.
static void name_run(lookup_call lookup, char *name, size_t bytes)
{
    static const char *const ids[] = {"SLIMPACK_RUN_ID", "TORCHELASTIC_RUN_ID", "PMIX_NAMESPACE",
                                      "SLURM_JOB_ID"};
    static const char *const more[] = {"SLURM_STEP_ID", "MASTER_PORT"};
    const char *id = NULL;
    size_t i = 0;
    for (; i < sizeof ids / sizeof *ids && id == NULL; i++) {
        id = sp_launcher_get(lookup, ids[i]);
    }
    bool slurm = id != NULL && i == sizeof ids / sizeof *ids;
    add_to_name(name, bytes, id != NULL ? id : "run");
    for (i = slurm ? 0 : 1; i < 2; i++) {
        const char *text = sp_launcher_get(lookup, more[i]);
        if (text != NULL) {
            add_to_name(name, bytes, "-");
            add_to_name(name, bytes, text);
        }
    }
}

static sp_status find_file(lookup_call lookup, bool one_machine, sp_i_place *place, sp_error *err)
{
    enum { NAME = 160 };
    char name[NAME] = "";
    char own[64];
    const char *folder = sp_launcher_get(lookup, "SLIMPACK_RENDEZVOUS");
    if (folder == NULL && !one_machine) {
        return sp_error_set(err, SP_ERR_USAGE,
                            "environment: SLIMPACK_RENDEZVOUS is not set: %d ranks that may be on "
                            "several machines need a folder that all of them see",
                            place->ranks);
    }
    if (folder == NULL) {
        snprintf(own, sizeof own, "/tmp/slimpack-%lu", (unsigned long)getuid());
        folder = own;
    }
    if (strlen(folder) + NAME + 2 > sizeof place->file) {
        return sp_error_set(err, SP_ERR_USAGE,
                            "environment: SLIMPACK_RENDEZVOUS is longer than %d bytes",
                            SP_I_PLACE_PATH - NAME - 2);
    }
    name_run(lookup, name, sizeof name);
    snprintf(place->file, sizeof place->file, "%s/%s", folder, name);
    return SP_OK;
}

sp_status sp_i_place_read(char *(*lookup)(const char *name), sp_i_place *place, sp_error *err)
{
    sp_launcher_place launched;
    sp_status status = sp_launcher_read(lookup, true, &launched, err);
    *place = (sp_i_place){.rank = launched.rank,
                          .ranks = launched.ranks,
                          .local_rank = launched.local_rank,
                          .variable = launched.variable};
    return status == SP_OK && place->ranks > 1 ? find_file(lookup, launched.one_machine, place, err)
                                               : status;
}

// CUDA loads a kernel when it is first launched, for which it may wait until the GPU is idle: that
// may not happen where one waits for another GPU. NCCL connects the ranks of a group when they
// first need it, for which it takes memory.
static const char *const settings[][2] = {{"CUDA_MODULE_LOADING", "EAGER"},
                                          {"NCCL_RUNTIME_CONNECT", "0"}};

sp_status sp_i_cuda_process(int *rank, int *ranks, sp_error *err)
{
    sp_i_place place;
    sp_status status = sp_i_place_read(getenv, &place, err);
    *rank = place.rank;
    *ranks = place.ranks;
    for (size_t i = 0; status == SP_OK && place.ranks > 1 && i < sizeof settings / sizeof *settings;
         i++) {
        if (setenv(settings[i][0], settings[i][1], 0) != 0) {
            sp_out_of_memory(strlen(settings[i][0]) + strlen(settings[i][1]) + 2);
        }
    }
    return status;
}

sp_status sp_i_cuda_process_device(const sp_cuda_api *api, const sp_i_place *place, int device,
                                   int *own, sp_error *err)
{
    char reason[SP_I_CUDA_TEXT];
    int count = 0;
    *own = 0;
    sp_status status = sp_i_cuda_device_count(api, &count, reason, err);
    if (status != SP_OK || count == 1) {
        return status;
    }
    if (count == 0) {
        return sp_error_set(err, SP_ERR_USAGE, "backend 'cuda': rank %d sees no GPU: %s",
                            place->rank, reason);
    }
    if (place->local_rank < 0) {
        return sp_error_set(err, SP_ERR_USAGE,
                            "backend 'cuda': the launcher does not say which rank of its machine "
                            "rank %d is, and it has %d GPUs: set LOCAL_RANK, or let each process "
                            "see one",
                            place->rank, count);
    }
    *own = device + place->local_rank;
    return *own < count ? SP_OK
                        : sp_error_set(err, SP_ERR_USAGE,
                                       "backend 'cuda': rank %d is number %d of its machine, which "
                                       "has no device %d (it has %d)",
                                       place->rank, place->local_rank, *own, count);
}

// ---- meeting ----

// Shared file systems show others' files late where a folder was just looked at (NFS): opening the
// folder makes them look again.
static void look_again(const char *folder)
{
    int opened = open(folder, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (opened >= 0) {
        close(opened);
    }
}

static void folder_of(const sp_i_place *place, char folder[SP_I_PLACE_PATH])
{
    snprintf(folder, SP_I_PLACE_PATH, "%s", place->file);
    char *end = strrchr(folder, '/');
    SP_ASSERT(end != NULL);
    *end = '\0';
}

void sp_i_meeting_clear(const sp_i_place *place)
{
    if (place->rank == 0 && place->ranks > 1) {
        (void)unlink(place->file);
    }
}

// Under another name first: the others find the whole of it or nothing.
static sp_status put_id(const sp_i_place *place, const char *card, const void *id, size_t bytes,
                        sp_error *err)
{
    char folder[SP_I_PLACE_PATH];
    char hidden[SP_I_PLACE_PATH + 8];
    folder_of(place, folder);
    snprintf(hidden, sizeof hidden, "%s.new", place->file);
    (void)mkdir(folder, 0700);
    // Who reads it could join the run.
    int opened = open(hidden, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
    FILE *file = opened >= 0 ? fdopen(opened, "wb") : NULL;
    bool good =
        file != NULL && fprintf(file, "%s\n", card) > 0 && fwrite(id, 1, bytes, file) == bytes;
    good = file != NULL && fclose(file) == 0 && good;
    return good && rename(hidden, place->file) == 0 ? SP_OK
                                                    : sp_error_system(err, place->file, errno);
}

// False where there is none yet.
static bool read_id(const sp_i_place *place, const struct timespec *oldest, char *card, void *id,
                    size_t bytes)
{
    struct stat there;
    FILE *file = fopen(place->file, "rb");
    bool good =
        file != NULL && fstat(fileno(file), &there) == 0 &&
        (there.st_mtim.tv_sec > oldest->tv_sec ||
         (there.st_mtim.tv_sec == oldest->tv_sec && there.st_mtim.tv_nsec >= oldest->tv_nsec)) &&
        fgets(card, SP_I_MEETING_CARD, file) != NULL && fread(id, 1, bytes, file) == bytes;
    if (file != NULL) {
        (void)fclose(file);
    }
    card[strcspn(card, "\n")] = '\0';
    return good;
}

// Sleeps, longer each time, from a millisecond up to 50.
static void pause_a_while(int polls)
{
    enum { LONGEST_MS = 50, DOUBLINGS = 6 };
    const int ms = polls < DOUBLINGS ? 1 << polls : LONGEST_MS;
    (void)nanosleep(&(struct timespec){.tv_nsec = ms * NS_PER_MS}, NULL);
}

static sp_status wait_for_id(const sp_i_place *place, char *card, void *id, size_t bytes,
                             int timeout_ms, sp_error *err)
{
    char folder[SP_I_PLACE_PATH];
    struct timespec oldest;
    folder_of(place, folder);
    (void)clock_gettime(CLOCK_REALTIME, &oldest);
    oldest.tv_sec -= timeout_ms / 1000 + 1;
    const int64_t until_ms = sp_i_cuda_now_ms() + timeout_ms;
    for (int polls = 0; !read_id(place, &oldest, card, id, bytes); polls++) {
        if (sp_i_cuda_now_ms() >= until_ms) {
            return sp_error_set(err, SP_ERR_LIMIT, "rank 0 did not come to %s in %d ms",
                                place->file, timeout_ms);
        }
        pause_a_while(polls);
        look_again(folder);
    }
    return SP_OK;
}

sp_status sp_i_meeting_give_id(const sp_i_place *place, const char *card, void *id, size_t bytes,
                               int timeout_ms, sp_error *err)
{
    char theirs[SP_I_MEETING_CARD] = "";
    char own[SP_I_MEETING_CARD];
    snprintf(own, sizeof own, "%d ranks, %s", place->ranks, card);
    if (place->ranks == 1) {
        return SP_OK;
    }
    if (place->rank == 0) {
        return put_id(place, own, id, bytes, err);
    }
    sp_status status = wait_for_id(place, theirs, id, bytes, timeout_ms, err);
    return status == SP_OK && strcmp(own, theirs) != 0
               ? sp_error_set(err, SP_ERR_USAGE, "rank %d has %s, rank 0 has %s", place->rank, own,
                              theirs)
               : status;
}

// ---- requests ----

const char *sp_i_cuda_option(const sp_run_request *request, const char *key)
{
    for (size_t o = 0; o < request->option_count; o++) {
        if (strcmp(request->options[o].key, key) == 0) {
            return request->options[o].value;
        }
    }
    return NULL;
}

sp_status sp_i_cuda_process_options_read(const sp_run_request *request,
                                         sp_i_cuda_process_options *chosen, sp_error *err)
{
    static const char *const names[] = {"auto", "threads", "nccl"};
    const char *ranks = sp_i_cuda_option(request, "transport");
    const char *mib = sp_i_cuda_option(request, "nccl_mib");
    char *end = NULL;
    long spare = mib != NULL ? strtol(mib, &end, 10) : SPARE_MIB;
    *chosen = (sp_i_cuda_process_options){0};
    if (mib != NULL && (end == mib || *end != '\0' || spare < 0 || spare > MOST_MIB)) {
        return sp_error_set(err, SP_ERR_USAGE,
                            "backend 'cuda': nccl_mib: expected an integer from 0 to %d, got "
                            "\"%.64s\"",
                            MOST_MIB, mib);
    }
    chosen->spare_bytes = (int64_t)spare << 20;
    for (int i = 0; ranks != NULL && i < 3; i++) {
        if (strcmp(ranks, names[i]) == 0) {
            chosen->ranks = (sp_i_cuda_ranks)i;
            return SP_OK;
        }
    }
    return ranks == NULL ? SP_OK
                         : sp_error_set(err, SP_ERR_USAGE,
                                        "backend 'cuda': transport: expected \"auto\", \"threads\" "
                                        "or \"nccl\", got \"%.64s\"",
                                        ranks);
}

sp_status sp_i_cuda_is_multi_process(const sp_run_request *request,
                                     const sp_i_cuda_process_options *chosen,
                                     const sp_i_place *place, bool *multi_process, sp_error *err)
{
    const long long ranks = (long long)sp_layout_ranks(&request->plan->layout);
    *multi_process =
        chosen->ranks == SP_I_CUDA_NCCL || (chosen->ranks == SP_I_CUDA_AUTO && place->ranks > 1);
    if (!*multi_process) {
        return SP_OK;
    }
    if (ranks != place->ranks) {
        return sp_error_set(err, SP_ERR_USAGE,
                            "backend 'cuda': the plan has %lld ranks, this run %d process%s: start "
                            "one for each rank, or set transport=threads for all ranks on one GPU",
                            ranks, place->ranks, place->ranks == 1 ? "" : "es");
    }
    return request->clock == SP_CLOCK_WALL
               ? SP_OK
               : sp_error_set(err, SP_ERR_USAGE,
                              "backend 'cuda': ranks that are processes run on the wall clock "
                              "alone; transport=threads has all of them on one GPU");
}

int sp_i_cuda_timeout_ms(const sp_run_request *request)
{
    int64_t ms = request->timeout_ns / NS_PER_MS + (request->timeout_ns % NS_PER_MS > 0);
    return request->timeout_ns == 0 ? TIMEOUT_MS : ms < INT_MAX ? (int)ms : INT_MAX;
}

// ---- what processes have in common, as text and as a number ----

uint32_t sp_i_cuda_hash(const void *text, size_t bytes)
{
    const unsigned char *at = text;
    uint32_t crc = 0xffffffffu;
    for (size_t i = 0; i < bytes; i++) {
        crc ^= at[i];
        for (int bit = 0; bit < 8; bit++) {
            crc = crc >> 1 ^ (0xedb88320u & (0u - (crc & 1u)));
        }
    }
    return ~crc;
}

static void put_layout(FILE *file, const sp_layout *l)
{
    fprintf(file, "\nlayout %d %d %d %d %d %d %d %d %d %d", l->tp, l->cp, l->pp, l->dp,
            (int)l->cp_sharding, l->chunks, (int)l->placement, l->sequence_parallel,
            l->vocab_parallel, l->zero);
    for (int i = 0; l->stage_layers != NULL && i < l->pp * l->chunks; i++) {
        fprintf(file, " %d", l->stage_layers[i]);
    }
}

static void put_model(FILE *file, const sp_model *model)
{
    json_t *document = model != NULL ? sp_model_to_json(model) : json_null();
    (void)json_dumpf(document, file, JSON_ENCODE_ANY | JSON_SORT_KEYS | JSON_COMPACT);
    json_decref(document);
}

static void put_settings(FILE *file, const sp_run_request *request)
{
    const sp_memory_options *memory = request->memory;
    fprintf(file, "\nrun %d %d %llu %d %lld %lld %d", (int)request->clock, (int)request->precision,
            (unsigned long long)request->seed, request->steps,
            (long long)request->memory_limit_bytes, (long long)request->timeout_ns,
            request->memory_points);
    if (memory != NULL) {
        fprintf(file, "\nmemory %d %d %.17g %s", (int)memory->recompute, (int)memory->attention,
                memory->offload_ratio, memory->stack.name);
    }
    for (size_t o = 0; o < request->option_count; o++) {
        fprintf(file, "\n%s=%s", request->options[o].key, request->options[o].value);
    }
}

sp_status sp_i_cuda_request_hash(const sp_run_request *request, uint32_t *hash, sp_error *err)
{
    static const sp_plan_predictions unknown = {-1.0, -1.0};
    sp_text text;
    FILE *file = sp_text_begin(&text);
    sp_status status = sp_plan_json_batch(file, 0, request->plan, unknown, err);
    if (status == SP_OK) {
        put_layout(file, &request->plan->layout);
        put_model(file, request->model);
        put_settings(file, request);
    }
    char *written = sp_text_end(&text);
    *hash = status == SP_OK ? sp_i_cuda_hash(written, text.bytes) : 0;
    sp_free(written);
    return status;
}
