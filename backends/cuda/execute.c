#include "backends/cuda/execute.h"

#include <string.h>

#include "backends/cuda/attention_prepare.h"
#include "backends/cuda/machine.h"
#include "backends/executor/run.h"
#include "sim/base/alloc.h"

static const char backend[] = "cuda";

// A run and what it stands on.
typedef struct execution {
    sp_i_cuda_api api;
    sp_i_cublas_api cublas;
    sp_machine *machine;
    sp_i_exec_run *run;
} execution;

const sp_backend_option_info sp_i_cuda_option_list[] = {
    SP_I_EXEC_OPTION_LIST,
    {"cudnn", "\"on\" (default): attention by cuDNN where it is there and takes the pack; \"off\": "
              "slimpack's own kernels"},
    {"partition", "on the wall clock: \"on\" (default), each rank has SMs of its own, and it is an "
                  "error where the driver cannot split the device; \"off\": all share them"},
    {NULL, NULL},
};

static const char *option_of(const sp_run_request *request, const char *key)
{
    for (size_t o = 0; o < request->option_count; o++) {
        if (strcmp(request->options[o].key, key) == 0) {
            return request->options[o].value;
        }
    }
    return NULL;
}

// "on" where it is not given.
static sp_status read_switch(const sp_run_request *request, const char *key, bool *on,
                             sp_error *err)
{
    const char *value = option_of(request, key);
    *on = value == NULL || strcmp(value, "on") == 0;
    if (!*on && strcmp(value, "off") != 0) {
        return sp_error_set(err, SP_ERR_USAGE,
                            "backend 'cuda': %s: expected \"on\" or \"off\", got \"%.64s\"", key,
                            value);
    }
    return SP_OK;
}

static sp_status check_shapes(const sp_run_request *request, sp_error *err)
{
    const sp_model *model = request->model;
    const char *way = option_of(request, "attention");
    const char *refusal = model != NULL ? sp_i_cuda_attention_model_refusal(model) : NULL;
    if (refusal != NULL) {
        return sp_error_set(err, SP_ERR_CONTENT,
                            "backend 'cuda' cannot execute heads of %lld features: %s",
                            (long long)model->head_dim, refusal);
    }
    if (way != NULL && strcmp(way, "ring") == 0) {
        return sp_error_set(err, SP_ERR_USAGE,
                            "backend 'cuda': attention: keys pass round a ring on the CPU alone");
    }
    return SP_OK;
}

sp_status sp_i_cuda_check_request(int device, const sp_run_request *request, sp_error *err)
{
    (void)device;
    bool on;
    sp_status status = sp_i_exec_check(request, backend, err);
    sp_status own = read_switch(request, "cudnn", &on, err);
    own = own == SP_OK ? read_switch(request, "partition", &on, err) : own;
    own = own == SP_OK ? check_shapes(request, err) : own;
    return status != SP_OK ? status : own;
}

static sp_status make_machine(execution *e, int device, const sp_run_request *request,
                              sp_error *err)
{
    const sp_layout *layout = &request->plan->layout;
    const sp_i_cuda_device of = {&e->api, device};
    sp_i_cuda_machine_options options = {.ranks = layout->tp * layout->cp * layout->pp * layout->dp,
                                         .partitioned = request->clock == SP_CLOCK_WALL};
    bool split = false;
    const char *reason = NULL;
    sp_status status = read_switch(request, "cudnn", &options.cudnn, err);
    status = status == SP_OK ? read_switch(request, "partition", &split, err) : status;
    status = status == SP_OK ? sp_i_cuda_use(&of, err) : status;
    status = status == SP_OK ? sp_i_cuda_machine_new(&of, &e->cublas, &options, &e->machine, err)
                             : status;
    if (status == SP_OK && options.partitioned && options.ranks > 1 && split &&
        !sp_i_cuda_machine_partitioned(e->machine, &reason)) {
        return sp_error_set(err, SP_ERR_USAGE,
                            "backend 'cuda': %d ranks cannot have SMs of their own (%s); option "
                            "partition=off lets them share all",
                            options.ranks, reason);
    }
    return status;
}

// Plans of cuDNN are made before anything is timed.
static sp_status prepare_attention(const execution *e, sp_error *err)
{
    sp_status status = SP_OK;
    for (size_t r = 0; status == SP_OK && r < sp_i_exec_rank_count(e->run); r++) {
        const sp_i_exec_rank *rank = &e->run->ranks[r];
        sp_i_exec_enter(e->run, rank);
        sp_i_cuda_attention *attention = sp_i_cuda_rank_now()->attention;
        status = attention != NULL ? sp_i_cuda_attention_prepare(attention, rank->job, err) : SP_OK;
    }
    return status;
}

sp_status sp_i_cuda_execute_with(const sp_i_cuda_api *api, const sp_i_cublas_api *cublas,
                                 int device, const sp_run_request *request, sp_measured_step *steps,
                                 void **state, sp_error *err)
{
    *state = NULL;
    execution *e = sp_i_calloc(1, sizeof *e);
    if (e == NULL) {
        return sp_error_no_memory(err, "a run");
    }
    e->api = *api;
    e->cublas = *cublas;
    *state = e;
    sp_status status = make_machine(e, device, request, err);
    if (status == SP_OK) {
        const sp_i_exec_site site = {backend, e->machine, &sp_i_exec_math_bf16};
        status = sp_i_exec_run_new(request, &site, &e->run, err);
    }
    status = status == SP_OK ? prepare_attention(e, err) : status;
    for (int i = 0; status == SP_OK && i < request->steps; i++) {
        status = sp_i_exec_run_step(e->run, &steps[i], err);
    }
    return status;
}

sp_status sp_i_cuda_execute(int device, const sp_run_request *request, sp_measured_step *steps,
                            void **state, sp_error *err)
{
    sp_i_cuda_api api;
    sp_i_cublas_api cublas;
    char reason[SP_I_CUDA_TEXT];
    *state = NULL;
    sp_i_cuda_api_init(&api);
    if (!sp_i_cublas_api_init(&cublas, reason, sizeof reason)) {
        return sp_error_set(err, SP_ERR_USAGE, "backend 'cuda': no cuBLASLt: %s", reason);
    }
    return sp_i_cuda_execute_with(&api, &cublas, device, request, steps, state, err);
}

void sp_i_cuda_free_state(void *state)
{
    execution *e = state;
    if (e != NULL && e->run != NULL) {
        sp_i_exec_run_free(e->run);
    }
    if (e != NULL && e->machine != NULL) {
        sp_i_cuda_machine_free(e->machine);
    }
    sp_i_free(e);
}

sp_status sp_i_cuda_tensor_count(void *state, size_t *count, sp_error *err)
{
    (void)err;
    *count = sp_i_exec_tensor_count(((execution *)state)->run);
    return SP_OK;
}

sp_status sp_i_cuda_tensor_info(void *state, size_t index, sp_tensor_info *info, sp_error *err)
{
    (void)err;
    sp_i_exec_tensor_info(((execution *)state)->run, index, info);
    return SP_OK;
}

sp_status sp_i_cuda_tensor_read(void *state, size_t index, double *values, sp_error *err)
{
    return sp_i_exec_tensor_read(((execution *)state)->run, index, values, err);
}
