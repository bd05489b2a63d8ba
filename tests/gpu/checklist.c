// gpu_check checklist [--list] [CHECK...]: runs all checks, or the named ones, on the first GPU.
// Exit status: 0 ran, 1 a check failed, 2 wrong usage, 77 no GPU.
#include "tests/gpu/checklist.h"

#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "backends/cuda/calibration.h"
#include "backends/cuda/gemm.h"
#include "tests/gpu/gpu_check.h"

typedef struct check {
    const char *name;
    sp_status (*run)(checklist *c, sp_error *err);
} check;

static const check checks[] = {
    {"green", check_green},         {"versions", check_versions},
    {"clocks", check_clocks},       {"events", check_events},
    {"copies", check_copies},       {"splits", check_splits},
    {"sm_target", check_sm_target}, {"neighbours", check_neighbours},
    {"attention", check_attention},
};

enum { CHECKS = sizeof checks / sizeof *checks };

void checklist_found(const char *name, json_t *fields)
{
    json_auto_t *line = json_pack("{s:s, s:s}", "check", name, "status", "ok");
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
}

static void without_result(const char *name, const char *status, const char *reason)
{
    checklist_found(name, json_pack("{s:s, s:s}", "status", status, "reason", reason));
}

void checklist_missing(const char *name, const char *reason)
{
    without_result(name, "missing", reason);
}

static bool start(checklist *c, char reason[SP_ERROR_TEXT])
{
    gpu_test t;
    if (!gpu_start(&t, reason)) {
        return false;
    }
    c->api = t.api;
    c->device = (sp_i_cuda_device){&c->api, 0};
    c->info = t.info;
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

int gpu_checklist(int argc, char **argv)
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
    if (!start(&c, reason)) {
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

// ---- what the machine has, and what its clocks, events and copies do ----

// Version of a library by its own function; -1 where there is none.
static long long library_version(const char *library, const char *symbol, bool by_pointer)
{
    long long version = -1;
    void *handle = dlopen(library, RTLD_NOW | RTLD_LOCAL);
    void *found = handle != NULL ? dlsym(handle, symbol) : NULL;
    if (found != NULL && by_pointer) {
        int (*get)(int *);
        int value = 0;
        memcpy(&get, &found, sizeof get);
        version = get(&value) == 0 ? value : -1;
    } else if (found != NULL) {
        size_t (*get)(void);
        memcpy(&get, &found, sizeof get);
        version = (long long)get();
    }
    return version;
}

sp_status check_versions(checklist *c, sp_error *err)
{
    const sp_i_cuda_info *i = &c->info;
    char driver[80] = "";
    int64_t free_bytes, total_bytes;
    GPU_TRY(sp_i_cuda_memory(&c->device, &free_bytes, &total_bytes, err));
    if (c->nvml != NULL) {
        sp_i_nvml_driver(c->nvml, driver, sizeof driver);
    } else {
        checklist_missing("nvml", c->no_nvml);
    }
    checklist_found(
        "versions",
        json_pack("{s:s, s:s, s:i, s:i, s:i, s:I, s:I, s:I, s:i, s:i, s:s, s:I, s:I, s:I}", "gpu",
                  i->name, "pci", i->pci, "major", i->major, "minor", i->minor, "sms", i->sm_count,
                  "memory_bytes", (json_int_t)total_bytes, "free_bytes", (json_int_t)free_bytes,
                  "l2_bytes", (json_int_t)i->l2_bytes, "cuda_driver", i->driver, "toolkit",
                  CUDA_VERSION, "driver", driver, "cublaslt",
                  (json_int_t)(c->has_cublas ? (long long)c->cublas.GetVersion() : -1), "cudnn",
                  (json_int_t)library_version("libcudnn.so.9", "cudnnGetVersion", false), "nccl",
                  (json_int_t)library_version("libnccl.so.2", "ncclGetVersion", true)));
    return SP_OK;
}

static json_t *state_json(const checklist *c)
{
    sp_i_nvml_state s = sp_i_nvml_read(c->nvml);
    return json_pack("{s:i, s:i, s:f, s:f, s:i, s:I}", "sm_mhz", s.sm_mhz, "memory_mhz",
                     s.memory_mhz, "power_w", s.power_w, "power_limit_w", s.power_limit_w,
                     "temperature_c", s.temperature_c, "throttle", (json_int_t)s.throttle);
}

// Products for about a second, read while they run: what a calibration's numbers are at.
sp_status check_clocks(checklist *c, sp_error *err)
{
    enum { PRODUCTS = 600 };
    square_product p;
    if (c->nvml == NULL) {
        checklist_missing("clocks", c->no_nvml);
        return SP_OK;
    }
    json_auto_t *idle = state_json(c);
    GPU_TRY(square_product_init(c, 8192, 0, &p, err));
    for (int i = 0; i < PRODUCTS; i++) {
        GPU_TRY(square_product_run(&p, NULL, err));
    }
    checklist_found("clocks", json_pack("{s:o, s:o}", "idle", idle, "queued", state_json(c)));
    idle = NULL;
    GPU_TRY(SP_I_CUDA(&c->device, err, StreamSynchronize, (CUstream)NULL));
    checklist_found("clocks", json_pack("{s:o}", "after", state_json(c)));
    square_product_fini(&p);
    return SP_OK;
}

// ---- events ----

static sp_status nothing(void *context, CUstream stream, sp_error *err)
{
    return SP_OK;
}

typedef struct set {
    const checklist *c;
    void *data;
} set;

// The smallest thing that takes a kernel.
static sp_status small_set(void *context, CUstream stream, sp_error *err)
{
    const set *s = context;
    return SP_I_CUDA(&s->c->device, err, MemsetD8Async, sp_i_cuda_at(s->data), 1, 256, stream);
}

static json_t *timing_json(const sp_i_cuda_timing *t)
{
    return json_pack("{s:f, s:f, s:f, s:i}", "median_us", 1e6 * t->median_s, "least_us",
                     1e6 * t->least_s, "spread", t->spread, "repeats", t->repeats);
}

// Between the two events of a pair: with nothing, and with one small kernel.
sp_status check_events(checklist *c, sp_error *err)
{
    sp_i_cuda_bench bench = {0};
    sp_i_cuda_timing empty, small;
    set s = {c, NULL};
    GPU_TRY(sp_i_cuda_bench_init(&c->device, NULL, 2 * c->info.l2_bytes, &bench, err));
    GPU_TRY(sp_i_cuda_take(&c->device, 256, &s.data, err));
    GPU_TRY(sp_i_cuda_bench_time(&bench, nothing, NULL, 0.001, &empty, err));
    GPU_TRY(sp_i_cuda_bench_time(&bench, small_set, &s, 0.002, &small, err));
    checklist_found("events", json_pack("{s:o, s:o}", "empty_pair", timing_json(&empty),
                                        "small_kernel", timing_json(&small)));
    sp_i_cuda_give(&c->device, s.data);
    sp_i_cuda_bench_fini(&bench);
    return SP_OK;
}

// ---- copies ----

typedef struct copy {
    const checklist *c;
    char *data;
    int64_t bytes;
} copy;

enum { MOST_COPIED = 1 << 30 };

static sp_status run_copy(void *context, CUstream stream, sp_error *err)
{
    const copy *m = context;
    return SP_I_CUDA(&m->c->device, err, MemcpyAsync, sp_i_cuda_at(m->data + MOST_COPIED),
                     sp_i_cuda_at(m->data), (size_t)m->bytes, stream);
}

static sp_status time_copies(copy *m, int partitions, int64_t least, sp_error *err)
{
    const checklist *c = m->c;
    sp_i_cuda_partitions *p;
    sp_i_cuda_bench bench = {0};
    GPU_TRY(sp_i_cuda_partitions_new(&c->device, partitions, 1, &p, err));
    GPU_TRY(sp_i_cuda_bench_init(&c->device, sp_i_cuda_partition_stream(p, 0, 0),
                                 2 * c->info.l2_bytes, &bench, err));
    for (m->bytes = least; m->bytes <= MOST_COPIED; m->bytes *= 8) {
        sp_i_cuda_timing t;
        GPU_TRY(sp_i_cuda_bench_time(&bench, run_copy, m, 0.03, &t, err));
        checklist_found("copies",
                        json_pack("{s:i, s:i, s:b, s:I, s:o, s:f}", "partitions", partitions, "sms",
                                  sp_i_cuda_partition_sms(p, 0), "disjoint",
                                  sp_i_cuda_are_partitioned(p, NULL), "bytes", (json_int_t)m->bytes,
                                  "time", timing_json(&t), "read_and_written_gb_per_s",
                                  2e-9 * (double)m->bytes / t.median_s));
    }
    sp_i_cuda_bench_fini(&bench);
    sp_i_cuda_partitions_free(p);
    return SP_OK;
}

// On the device, and on the stream of a small partition: at the device's rate a copy uses no SMs of
// its own, at a share of it the partition's.
sp_status check_copies(checklist *c, sp_error *err)
{
    copy m = {.c = c};
    void *data = NULL;
    GPU_TRY(sp_i_cuda_take(&c->device, 2 * (size_t)MOST_COPIED, &data, err));
    m.data = data;
    GPU_TRY(
        sp_i_cuda_fill_normal(&c->device, data, MOST_COPIED, SP_I_CUDA_DRAWN, 1.0, 1, NULL, err));
    for (int partitions = 1; partitions <= 16; partitions *= 4) {
        GPU_TRY(time_copies(&m, partitions, partitions == 1 ? 1 << 12 : 1 << 27, err));
    }
    sp_i_cuda_give(&c->device, data);
    return SP_OK;
}

// ---- a product ----

sp_status square_product_init(const checklist *c, int64_t edge, int sms, square_product *p,
                              sp_error *err)
{
    const int64_t bytes = 2 * edge * edge;
    *p = (square_product){.device = c->device, .edge = edge};
    if (!c->has_cublas) {
        return sp_error_set(err, SP_ERR_USAGE, "%s", c->no_cublas);
    }
    GPU_TRY(sp_i_cuda_take(&c->device, (size_t)(3 * bytes + SP_I_CUDA_GEMM_WORKSPACE), &p->memory,
                           err));
    p->x = p->memory;
    p->w = p->x + bytes;
    p->y = p->w + bytes;
    const sp_i_cuda_gemm_place place = {p->y + bytes, SP_I_CUDA_GEMM_WORKSPACE, sms};
    GPU_TRY(sp_i_cuda_fill_normal(&c->device, p->x, 2 * edge * edge, SP_I_CUDA_DRAWN, 1.0, 3, NULL,
                                  err));
    return sp_i_cuda_gemm_new(&c->device, &c->cublas, &place, &p->gemm, err);
}

void square_product_fini(square_product *p)
{
    sp_i_cuda_gemm_free(p->gemm);
    if (p->memory != NULL) {
        sp_i_cuda_give(&p->device, p->memory);
    }
    *p = (square_product){0};
}

sp_status square_product_run(void *context, CUstream stream, sp_error *err)
{
    const square_product *p = context;
    const sp_i_cuda_product product = {
        SP_I_PRODUCT_FORWARD, p->edge, p->edge, p->edge, false, false};
    const sp_i_cuda_operands operands = {p->x, p->w, p->y};
    return sp_i_cuda_gemm_run(p->gemm, &product, &operands, stream, err);
}
