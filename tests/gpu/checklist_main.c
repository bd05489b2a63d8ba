// checklist [--list] [CHECK...]: runs all checks, or the named ones, on the first GPU. Exit status:
// 0 ran, 1 a check failed, 2 wrong usage, 77 no GPU.
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tests/gpu/checklist.h"

typedef struct check {
    const char *name;
    sp_status (*run)(checklist *c, sp_error *err);
} check;

static const check checks[] = {
    {"versions", check_versions},
    {"clocks", check_clocks},
    {"events", check_events},
    {"copies", check_copies},
    {"splits", check_splits},
    {"sm_target", check_sm_target},
    {"neighbours", check_neighbours},
    {"copy_place", check_copy_place},
    {"attention", check_attention},
#ifdef SP_GPU_NCCL
    {"nccl", check_nccl},
#endif

};

enum { CHECKS = sizeof checks / sizeof *checks };

void checklist_found(const char *name, json_t *fields)
{
    json_t *line = json_pack("{s:s, s:s}", "check", name, "status", "ok");
    if (fields != NULL && json_object_get(fields, "status") != NULL) {
        json_object_del(line, "status");
    }
    json_object_update_new(line, fields);
    char *text = json_dumps(line, JSON_COMPACT | JSON_REAL_PRECISION(6));
    if (text != NULL) {
        puts(text);
        fflush(stdout);
    }
    free(text);
    json_decref(line);
}

static void without_result(const char *name, const char *status, const char *reason)
{
    checklist_found(name, json_pack("{s:s, s:s}", "status", status, "reason", reason));
}

void checklist_missing(const char *name, const char *reason)
{
    without_result(name, "missing", reason);
}

static bool start(checklist *c, char *reason, size_t reason_bytes)
{
    int count = 0;
    char why[SP_I_CUDA_TEXT];
    sp_error err = {0};
    sp_i_cuda_api_init(&c->api);
    c->device = (sp_i_cuda_device){&c->api, 0};
    sp_status status = sp_i_cuda_device_count(&c->api, &count, why, &err);
    if (status == SP_OK && count == 0) {
        snprintf(reason, reason_bytes, "no GPU: %s", why);
        return false;
    }
    if (status == SP_OK) {
        status = sp_i_cuda_use(&c->device, &err);
    }
    if (status == SP_OK) {
        status = sp_i_cuda_device_info(&c->device, &c->info, &err);
    }
    if (status != SP_OK) {
        snprintf(reason, reason_bytes, "%s", err.message[0]);
        return false;
    }
    c->has_cublas = sp_i_cublas_api_init(&c->cublas, c->no_cublas, sizeof c->no_cublas);
    c->nvml = sp_i_nvml_open(c->info.pci, c->no_nvml, sizeof c->no_nvml);
    return true;
}

static bool wanted(const char *name, int argc, char **argv)
{
    bool found = argc < 2;
    for (int i = 1; i < argc; i++) {
        found = found || strcmp(argv[i], name) == 0;
    }
    return found;
}

static bool known(const char *name)
{
    for (int i = 0; i < CHECKS; i++) {
        if (strcmp(checks[i].name, name) == 0) {
            return true;
        }
    }
    return false;
}

int main(int argc, char **argv)
{
    checklist c = {0};
    char reason[SP_ERROR_TEXT];
    bool failed = false;
    if (argc == 2 && strcmp(argv[1], "--list") == 0) {
        for (int i = 0; i < CHECKS; i++) {
            puts(checks[i].name);
        }
        return 0;
    }
    for (int i = 1; i < argc; i++) {
        if (!known(argv[i])) {
            fprintf(stderr, "checklist: no check '%s'\n", argv[i]);
            return 2;
        }
    }
    // Queues of the hardware: with fewer, work of different partitions may wait for each other.
    (void)setenv("CUDA_DEVICE_MAX_CONNECTIONS", "32", 0);
    if (!start(&c, reason, sizeof reason)) {
        checklist_missing("device", reason);
        return 77;
    }
    for (int i = 0; i < CHECKS; i++) {
        sp_error err = {0};
        if (wanted(checks[i].name, argc, argv) && checks[i].run(&c, &err) != SP_OK) {
            without_result(checks[i].name, "failed", err.message[0]);
            failed = true;
        }
    }
    sp_i_nvml_close(c.nvml);
    return failed ? 1 : 0;
}
