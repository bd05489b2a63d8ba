#include "backends/cuda/distributed/multi_process.h"

#include <limits.h>
#include <stdlib.h>
#include <string.h>

enum { TIMEOUT_MS = 600000, NS_PER_MS = 1000000, SPARE_MIB = 2048, MOST_MIB = 1 << 20 };

// ---- options ----

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

// ---- which ranks are processes ----

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

sp_status sp_i_cuda_process_device(const sp_i_cuda_api *api, const sp_i_place *place, int device,
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

int sp_i_cuda_timeout_ms(const sp_run_request *request)
{
    int64_t ms = request->timeout_ns / NS_PER_MS + (request->timeout_ns % NS_PER_MS > 0);
    return request->timeout_ns == 0 ? TIMEOUT_MS : ms < INT_MAX ? (int)ms : INT_MAX;
}

// ---- this process ----

// CUDA loads a kernel when it is first launched, for which it may wait until the GPU is idle, and
// streams may share a queue: neither may happen where one waits for another GPU. NCCL connects the
// ranks of a group when they first need it, for which it takes memory.
static const char *const settings[][2] = {{"CUDA_MODULE_LOADING", "EAGER"},
                                          {"CUDA_DEVICE_MAX_CONNECTIONS", "32"},
                                          {"NCCL_RUNTIME_CONNECT", "0"}};

sp_status sp_i_cuda_process(int *rank, int *ranks, sp_error *err)
{
    sp_i_place place;
    sp_status status = sp_i_place_of_process(&place, err);
    *rank = place.rank;
    *ranks = place.ranks;
    for (size_t i = 0; status == SP_OK && place.ranks > 1 && i < sizeof settings / sizeof *settings;
         i++) {
        if (setenv(settings[i][0], settings[i][1], 0) != 0) {
            return sp_error_no_memory(err, "the environment");
        }
    }
    return status;
}
