// Gradients of small plans on a GPU against the plain step in fp64 on the CPU, tensor by tensor
// (gradients.h): with the reference kernels' attention, and with cuDNN's where it takes the pack.
// The plans were made elsewhere (thresholds/gradients, or the folder in SP_GPU_GRADIENTS). Prints
// a line for each; `share` is the largest distance over its bound.
#include <dirent.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "backends/host/host.h"
#include "tests/gpu/gpu_check.h"
#include "tests/gpu/gradients.h"

enum { PATH_BYTES = 1024 };

static int is_request(const struct dirent *entry)
{
    const char *end = strrchr(entry->d_name, '.');
    return end != NULL && strcmp(end, ".json") == 0;
}

static void print_report(const char *name, const char *cudnn, const gradients_report *r)
{
    json_auto_t *line =
        json_pack("{s:s, s:s, s:f, s:s, s:f, s:f, s:i, s:f, s:f}", "gradients", name, "cudnn",
                  cudnn, "share", r->worst, "tensor", r->tensor, "distance", r->distance, "bound",
                  r->bound, "tensors", r->tensors, "loss", r->loss, "plain_loss", r->plain_loss);
    char *text = line != NULL ? json_dumps(line, JSON_COMPACT | JSON_REAL_PRECISION(6)) : NULL;
    // What is no number cannot stand in the line.
    puts(text != NULL ? text : "{\"gradients\":\"no numbers\",\"share\":1e99}");
    fflush(stdout);
    free(text);
}

static sp_status compare_all(gpu_test *t, const sp_backend *gpu, const sp_backend *cpu,
                             const char *cudnn, sp_error *err)
{
    const sp_backend_option options[] = {{"cudnn", cudnn}, {"stale", "on"}};
    const char *named = getenv("SP_GPU_GRADIENTS");
    const char *folder = named != NULL ? named : "tests/gpu/thresholds/gradients";
    struct dirent **entries;
    gradients_report worst = {0};
    sp_status status = SP_OK;
    int count = scandir(folder, &entries, is_request, alphasort);
    if (count <= 0) {
        return sp_error_set(err, SP_ERR_IO, "%s: %s", folder,
                            count < 0 ? strerror(errno) : "there are no requests");
    }
    for (int i = 0; i < count; i++) {
        char path[PATH_BYTES];
        gradients_report report;
        snprintf(path, sizeof path, "%s/%s", folder, entries[i]->d_name);
        if (status == SP_OK && (i == 0 || !t->small)) {
            status = gradients_compare_file(gpu, cpu, path, options, 2, &report, err);
            if (status == SP_OK) {
                print_report(entries[i]->d_name, cudnn, &report);
                worst = i == 0 || report.worst > worst.worst ? report : worst;
            }
        }
        free(entries[i]);
    }
    free(entries);
    if (status == SP_OK) {
        gpu_require(t, worst.tensors > 0 && worst.worst <= 1.0, "%s: %.3g of the bound %.3g",
                    worst.tensor, worst.distance, worst.bound);
    }
    return status;
}

// With cuDNN, as the context says.
static sp_status gradients(gpu_test *t, sp_error *err)
{
    sp_backend *gpu = NULL;
    sp_backend *cpu = NULL;
    sp_status status = sp_i_backend_new(&sp_backend_plugin, "gradients", &gpu, err);
    if (status == SP_OK) {
        status = sp_i_backend_new(&sp_host_backend, "gradients", &cpu, err);
    }
    if (status == SP_OK) {
        status = compare_all(t, gpu, cpu, t->context, err);
    }
    sp_backend_free(gpu);
    sp_backend_free(cpu);
    return status;
}

int gpu_gradients_test(int argc, char **argv)
{
    static const gpu_case cases[] = {
        {"gradients_with_own_attention", gradients, "off"},
        {"gradients_with_cudnn", gradients, "on"},
    };
    return gpu_run_cases(cases, sizeof cases / sizeof *cases);
}
