#include "backends/cuda/execute.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "backends/cuda/attention.h"
#include "backends/cuda/kernel_record.h"
#include "backends/cuda/multi_process.h"
#include "backends/cuda/nccl.h"
#include "backends/cuda/runtime.h"
#include "backends/executor/run.h"
#include "sim/base/alloc.h"

static const char backend[] = "cuda";

// A run and what it stands on.
typedef struct execution {
    sp_cuda_api api;
    sp_i_cublas_api cublas;
    bool multi_process; // ranks are processes
    bool failed;
    sp_transport *transport;      // of ranks that are processes, or NULL
    int64_t spare_bytes;          // left to what is between them
    sp_i_kernel_records *kernels; // with option kernels, or NULL
    sp_runtime *runtime;
    sp_i_exec_run *run;
} execution;

const sp_backend_option_info sp_i_cuda_option_list[] = {
    SP_I_EXEC_OPTION_LIST,
    {"cudnn", "\"on\" (default): attention by cuDNN where it is there and takes the pack; \"off\": "
              "by plain reference kernels"},
    {"stale", "\"on\": memory that a rank takes holds NaN until it is written, for tests; \"off\" "
              "(default)"},
    {"kernels",
     "\"on\": CUPTI records every kernel of the steps with the SMs of its partition, and the "
     "report sums them up; \"off\" (default)"},
    {"partition", "on the wall clock: \"on\" (default), each rank has SMs of its own, and it is an "
                  "error where the driver cannot split the device; \"off\": all share them"},
    {"transport",
     "\"threads\": all ranks on one GPU; \"nccl\": a process and a GPU for each, as a "
     "launcher starts them, on the wall clock; \"auto\" (default): nccl where there are "
     "several processes"},
    {"nccl_mib", "device memory that is left to NCCL, MiB (default 2048)"},
    {NULL, NULL},
};

// *on stays as it is where it is not given.
static sp_status read_switch(const sp_run_request *request, const char *key, bool *on,
                             sp_error *err)
{
    const char *value = sp_i_cuda_option(request, key);
    if (value == NULL) {
        return SP_OK;
    }
    *on = strcmp(value, "on") == 0;
    if (!*on && strcmp(value, "off") != 0) {
        return sp_error_set(err, SP_ERR_USAGE,
                            "backend 'cuda': %s: expected \"on\" or \"off\", got \"%.64s\"", key,
                            value);
    }
    return SP_OK;
}

static sp_status check_attention(const sp_run_request *request, sp_error *err)
{
    const char *way = sp_i_cuda_option(request, "attention");
    if (way != NULL && strcmp(way, "ring") == 0) {
        return sp_error_set(err, SP_ERR_USAGE,
                            "backend 'cuda': attention: keys pass round a ring on the CPU alone");
    }
    if (request->memory != NULL && request->memory->stack.flash_attention_2) {
        return sp_error_set(err, SP_ERR_USAGE,
                            "backend 'cuda': stack.flash_attention_2: attention runs by cuDNN's "
                            "kernels or the reference's, not by FlashAttention-2's");
    }
    return SP_OK;
}

sp_status sp_i_cuda_check_request(int device SP_UNUSED, const sp_run_request *request,
                                  sp_error *err)
{
    bool on = true;
    sp_status status = sp_i_exec_check(request, backend, 0, err);
    sp_status own = read_switch(request, "cudnn", &on, err);
    own = own == SP_OK ? read_switch(request, "partition", &on, err) : own;
    own = own == SP_OK ? read_switch(request, "stale", &on, err) : own;
    own = own == SP_OK ? read_switch(request, "kernels", &on, err) : own;
    own = own == SP_OK ? check_attention(request, err) : own;
    sp_i_cuda_process_options chosen;
    own = own == SP_OK ? sp_i_cuda_process_options_read(request, &chosen, err) : own;
    return status != SP_OK ? status : own;
}

static sp_status make_runtime(execution *e, int device, const sp_run_request *request,
                              sp_error *err)
{
    const sp_layout *layout = &request->plan->layout;
    const sp_i_cuda_device of = {&e->api, device};
    sp_i_cuda_runtime_options options = {.ranks = layout->tp * layout->cp * layout->pp * layout->dp,
                                         .partitioned =
                                             request->clock == SP_CLOCK_WALL && !e->multi_process,
                                         .cudnn = true,
                                         .spare_bytes = e->spare_bytes};
    bool split = true;
    const char *reason = NULL;
    SP_TRY(read_switch(request, "cudnn", &options.cudnn, err));
    SP_TRY(read_switch(request, "partition", &split, err));
    SP_TRY(read_switch(request, "stale", &options.stale, err));
    SP_TRY(sp_i_cuda_use(&of, err));
    SP_TRY(sp_i_cuda_runtime_new(&of, &e->cublas, &options, &e->runtime, err));
    if (options.partitioned && options.ranks > 1 && split &&
        !sp_i_cuda_runtime_partitioned(e->runtime, &reason)) {
        return sp_error_set(err, SP_ERR_USAGE,
                            "backend 'cuda': %d ranks cannot have SMs of their own (%s); option "
                            "partition=off lets them share all",
                            options.ranks, reason);
    }
    return SP_OK;
}

// Plans of cuDNN are made before anything is timed. All ranks' streams share them.
static sp_status prepare_attention(const execution *e, sp_error *err)
{
    const size_t count = e->run->end_local - e->run->first_local;
    const sp_i_exec_job **jobs = sp_calloc(count + 1, sizeof *jobs);
    for (size_t r = 0; r < count; r++) {
        jobs[r] = e->run->ranks[e->run->first_local + r].job;
    }
    sp_i_exec_enter(e->run, &e->run->ranks[e->run->first_local]);
    sp_i_cuda_attention *attention = sp_i_cuda_rank_now()->attention;
    sp_status status =
        attention != NULL ? sp_i_cuda_attention_prepare(attention, jobs, count, err) : SP_OK;
    sp_free(jobs);
    return status;
}

// ---- ranks that are processes ----

static sp_status connect_ranks(execution *e, const sp_i_place *place, int device,
                               const sp_run_request *request, const struct sp_i_nccl_api *nccl,
                               sp_error *err)
{
    uint32_t hash = 0;
    char card[32];
    sp_status status = sp_i_cuda_request_hash(request, &hash, err);
    snprintf(card, sizeof card, "plan %08x", (unsigned)hash);
    const sp_i_nccl_transport_options options = {
        .device = {&e->api, device},
        .runtime = e->runtime,
        .place = place,
        .card = card,
        .api = nccl,
        .timeout_ms = sp_i_cuda_timeout_ms(request),
    };
    return status == SP_OK ? sp_i_nccl_transport_new(&options, &e->transport, err) : status;
}

// ---- execution ----

static sp_status record_kernels(execution *e, const sp_i_cuda_tables *tables,
                                const sp_run_request *request, sp_error *err)
{
    bool records = false;
    sp_error own = {0};
    sp_status status = read_switch(request, "kernels", &records, err);
    if (status != SP_OK || !records) {
        return status;
    }
    status = sp_i_kernel_records_begin(tables->cupti, &e->kernels, &own);
    return status == SP_OK
               ? SP_OK
               : sp_error_set(err, status, "backend 'cuda': kernels: %s", own.message[0]);
}

static sp_status execute(execution *e, const sp_i_cuda_tables *tables, const sp_i_place *place,
                         int device, const sp_run_request *request, sp_measured_step *steps,
                         sp_error *err)
{
    sp_i_cuda_process_options chosen;
    sp_status status = sp_i_cuda_process_options_read(request, &chosen, err);
    status = status == SP_OK
                 ? sp_i_cuda_is_multi_process(request, &chosen, place, &e->multi_process, err)
                 : status;
    if (status == SP_OK && e->multi_process) {
        e->spare_bytes = chosen.spare_bytes;
        sp_i_meeting_clear(place); // before the others can look, who take up their GPU first
        status = sp_i_cuda_process_device(&e->api, place, device, &device, err);
    }
    status = status == SP_OK ? record_kernels(e, tables, request, err) : status;
    status = status == SP_OK ? make_runtime(e, device, request, err) : status;
    if (status == SP_OK && e->multi_process) {
        status = connect_ranks(e, place, device, request, tables->nccl, err);
    }
    if (status == SP_OK) {
        const sp_i_exec_site site = {.backend = backend,
                                     .runtime = e->runtime,
                                     .math = &sp_i_exec_math_bf16,
                                     .transport = e->transport};
        status = sp_i_exec_run_new(request, &site, &e->run, err);
    }
    status = status == SP_OK ? prepare_attention(e, err) : status;
    if (status == SP_OK && e->kernels != NULL) {
        status = sp_i_kernel_records_restart(e->kernels, err);
    }
    for (int i = 0; status == SP_OK && i < request->steps; i++) {
        status = sp_i_exec_run_step(e->run, &steps[i], err);
    }
    return status == SP_OK && e->kernels != NULL ? sp_i_kernel_records_end(e->kernels, err)
                                                 : status;
}

sp_status sp_i_cuda_execute_at(const sp_i_cuda_tables *tables, const sp_i_place *place, int device,
                               const sp_run_request *request, sp_measured_step *steps, void **state,
                               sp_error *err)
{
    *state = NULL;
    execution *e = sp_calloc(1, sizeof *e);
    e->api = *tables->cuda;
    e->cublas = *tables->cublas;
    *state = e;
    sp_status status = execute(e, tables, place, device, request, steps, err);
    e->failed = status != SP_OK;
    return status;
}

sp_status sp_i_cuda_execute(int device, const sp_run_request *request, sp_measured_step *steps,
                            void **state, sp_error *err)
{
    sp_cuda_api api;
    sp_i_cublas_api cublas;
    sp_i_place place;
    char reason[SP_I_CUDA_TEXT];
    *state = NULL;
    sp_i_cuda_api_init(&api);
    if (!sp_i_cublas_api_init(&cublas, reason, sizeof reason)) {
        return sp_error_set(err, SP_ERR_USAGE, "backend 'cuda': no cuBLASLt: %s", reason);
    }
    const sp_i_cuda_tables tables = {&api, &cublas, NULL, NULL};
    sp_status status = sp_i_place_read(getenv, &place, err);
    return status == SP_OK
               ? sp_i_cuda_execute_at(&tables, &place, device, request, steps, state, err)
               : status;
}

void sp_i_cuda_free_state(void *state)
{
    execution *e = state;
    // The GPU's work may wait for other ranks for ever, and so would who frees what it uses: that
    // ends with the process.
    if (e != NULL && e->multi_process && e->failed) {
        return;
    }
    if (e != NULL && e->run != NULL) {
        sp_i_exec_run_free(e->run);
    }
    if (e != NULL && e->transport != NULL) {
        sp_i_nccl_transport_free(e->transport);
    }
    if (e != NULL && e->runtime != NULL) {
        sp_i_cuda_runtime_free(e->runtime);
    }
    sp_i_kernel_records_free(e->kernels);
    sp_free(e);
}

sp_status sp_i_cuda_report(void *state, json_t **report, sp_error *err)
{
    const execution *e = state;
    *report = sp_i_cuda_runtime_report(e->runtime);
    if (*report != NULL && e->kernels != NULL) {
        json_object_set_new(*report, "kernels", sp_i_kernel_records_report(e->kernels));
    }
    return *report != NULL ? SP_OK : sp_error_set(err, SP_ERR_INTERNAL, "no report can be written");
}

sp_status sp_i_cuda_tensor_count(void *state, size_t *count, sp_error *err SP_UNUSED)
{
    *count = sp_i_exec_tensor_count(((execution *)state)->run);
    return SP_OK;
}

sp_status sp_i_cuda_tensor_info(void *state, size_t index, sp_tensor_info *info,
                                sp_error *err SP_UNUSED)
{
    sp_i_exec_tensor_info(((execution *)state)->run, index, info);
    return SP_OK;
}

sp_status sp_i_cuda_tensor_read(void *state, size_t index, double *values, sp_error *err)
{
    execution *e = state;
    sp_status status = sp_i_exec_tensor_read(e->run, index, values, err);
    e->failed = e->failed || status != SP_OK;
    return status;
}
