#include "tests/gpu/gpu_check.h"

#include <jansson.h>
#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/types.h>
#include <sys/wait.h>
#include <unistd.h>

#include "backends/cuda/device.h"
#include "kernels/bf16.h"
#include "sim/base/alloc.h"

enum { USAGE = 2, NO_GPU = 77, CASE_S = 60 };

// ---- commands ----

typedef struct command {
    const char *name, *arguments;
    int (*run)(int argc, char **argv);
} command;

static const command commands[] = {
    {"checklist", " [--list] [CHECK...]", gpu_checklist},
    {"device_test", "", gpu_device_test},
    {"attention_test", "", gpu_attention_test},
    {"gradients_test", "", gpu_gradients_test},
#ifdef SP_GPU_NCCL
    {"nccl_test", "", gpu_nccl_test},
#endif
    {"kernels_test", " [CASE]", gpu_kernels_test},
    {"kernels_bench", "", gpu_kernels_bench},
    {"products", " PLAN...", gpu_products},
    {"gaps", " FILE", gpu_gaps},
    {"memory", " FILE", gpu_memory},
};
enum { COMMANDS = sizeof commands / sizeof *commands };

// "--list" prints the names.
int main(int argc, char **argv)
{
    bool lists = argc == 2 && strcmp(argv[1], "--list") == 0;
    for (int i = 0; i < COMMANDS; i++) {
        if (lists) {
            puts(commands[i].name);
        } else if (argc > 1 && strcmp(commands[i].name, argv[1]) == 0) {
            return commands[i].run(argc - 1, argv + 1);
        }
    }
    for (int i = 0; i < COMMANDS && !lists; i++) {
        fprintf(stderr, "%s gpu_check %s%s\n", i == 0 ? "usage:" : "      ", commands[i].name,
                commands[i].arguments);
    }
    return lists ? 0 : USAGE;
}

// ---- tests by cases ----

bool gpu_start(gpu_test *t, char reason[SP_ERROR_TEXT])
{
    int count = 0;
    char why[SP_I_CUDA_TEXT] = "";
    sp_error err = {0};
    sp_i_cuda_api_init(&t->api);
    t->device = (sp_i_cuda_device){&t->api, 0};
    sp_status status = sp_i_cuda_device_count(&t->api, &count, why, &err);
    if (status == SP_OK && count > 0) {
        status = sp_i_cuda_use(&t->device, &err);
    }
    if (status == SP_OK && count > 0) {
        status = sp_i_cuda_device_info(&t->device, &t->info, &err);
    }
    snprintf(reason, SP_ERROR_TEXT, "%s%s",
             status != SP_OK ? "" : "no GPU: ", status != SP_OK ? err.message[0] : why);
    return status == SP_OK && count > 0;
}

int gpu_start_command(gpu_test *t)
{
    char reason[SP_ERROR_TEXT];
    memset(t, 0, sizeof *t);
    t->small = getenv("SP_GPU_SMALL") != NULL;
    if (gpu_start(t, reason)) {
        return 0;
    }
    printf("%s\n", reason);
    return strncmp(reason, "no GPU: ", 8) == 0 ? NO_GPU : 1;
}

static void print_line(const char *name, const char *status, const char *finding)
{
    json_auto_t *line =
        json_pack("{s:s, s:s, s:s}", "test", name, "status", status, "finding", finding);
    char *text = json_dumps(line, JSON_COMPACT);
    puts(text != NULL ? text : name);
    fflush(stdout);
    free(text);
}

// 0 passed, 1 failed.
static int run_case(gpu_test *t, const gpu_case *c)
{
    sp_error err = {0};
    t->failed = false;
    t->context = c->context;
    t->finding[0] = '\0';
    sp_status status = c->run(t, &err);
    if (status == SP_ERR_USAGE) {
        print_line(c->name, "missing", err.message[0]);
    } else if (status != SP_OK) {
        print_line(c->name, "failed", err.message[0]);
    } else {
        print_line(c->name, t->failed ? "failed" : "passed", t->finding);
    }
    return t->failed || (status != SP_OK && status != SP_ERR_USAGE) ? 1 : 0;
}

// A device that a case has broken, or memory that it has overwritten, is no other case's. Without a
// case: whether there is a GPU, 0 or 77.
static int run_apart(const gpu_case *c)
{
    int how = 0;
    char text[64];
    fflush(stdout);
    pid_t child = fork();
    if (child == 0) {
        gpu_test t;
        (void)alarm(CASE_S);
        int status = gpu_start_command(&t);
        status = status == 0 ? (c != NULL ? run_case(&t, c) : 0) : NO_GPU;
        fflush(stdout);
        _exit(status);
    }
    if (child < 0 || waitpid(child, &how, 0) != child) {
        print_line(c != NULL ? c->name : "start", "failed", "no process");
        return 1;
    }
    if (WIFSIGNALED(how)) {
        snprintf(text, sizeof text, "ended by signal %d", WTERMSIG(how));
        print_line(c != NULL ? c->name : "start", "failed", text);
        return 1;
    }
    return WEXITSTATUS(how);
}

int gpu_run_cases(const gpu_case *cases, int count)
{
    bool failed = false;
    gpu_test t;
    const bool apart = count > 1 && getenv("SP_GPU_ONE_PROCESS") == NULL;
    if (apart ? run_apart(NULL) == NO_GPU : gpu_start_command(&t) != 0) {
        return NO_GPU;
    }
    for (int i = 0; i < count; i++) {
        failed = (apart ? run_apart(&cases[i]) : run_case(&t, &cases[i])) != 0 || failed;
    }
    return failed ? 1 : 0;
}

void gpu_require(gpu_test *t, bool holds, const char *format, ...)
{
    if (t->failed) {
        return;
    }
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(t->finding, sizeof t->finding, format, arguments);
    va_end(arguments);
    t->failed = !holds;
}

double gpu_relative_error(const double *got, const double *want, int64_t count)
{
    double difference = 0.0, size = 0.0;
    for (int64_t i = 0; i < count; i++) {
        // What is no number must not pass as one.
        if (!isfinite(got[i])) {
            return (double)INFINITY;
        }
        difference += (got[i] - want[i]) * (got[i] - want[i]);
        size += want[i] * want[i];
    }
    return sqrt(difference / size);
}

sp_status gpu_download(const gpu_test *t, void *to, const void *from, int64_t bytes,
                       CUstream stream, sp_error *err)
{
    GPU_TRY(
        SP_I_CUDA(&t->device, err, MemcpyDtoHAsync, to, sp_i_cuda_at(from), (size_t)bytes, stream));
    return SP_I_CUDA(&t->device, err, StreamSynchronize, stream);
}

double *gpu_read(gpu_test *t, const void *data, int64_t count, bool fp32, sp_error *err)
{
    const size_t size = fp32 ? sizeof(float) : sizeof(sp_bf16);
    char *stored = sp_malloc((size_t)count * size);
    double *values = sp_malloc((size_t)count * sizeof *values);
    if (gpu_download(t, stored, data, count * (int64_t)size, NULL, err) != SP_OK) {
        sp_free(stored);
        sp_free(values);
        return NULL;
    }
    for (int64_t i = 0; i < count; i++) {
        values[i] = (double)(fp32 ? ((const float *)(void *)stored)[i]
                                  : sp_bf16_to_float(((const sp_bf16 *)(void *)stored)[i]));
    }
    sp_free(stored);
    return values;
}
