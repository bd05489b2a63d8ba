#include "tests/gpu/products.h"

#include <pthread.h>

#include "backends/cuda/calibration.h"
#include "sim/base/alloc.h"
#include "tests/gpu/gpu_check.h"

// The linker's names for the calls that come by and for those of the backend.
sp_status __real_sp_i_cuda_gemm_run(sp_i_cuda_gemm *gemm, const sp_i_cuda_product *product,
                                    const sp_i_cuda_operands *operands, CUstream stream,
                                    sp_error *err);
sp_status __real_sp_i_cuda_gemm_run_biased(sp_i_cuda_gemm *gemm, const sp_i_cuda_product *product,
                                           const sp_i_cuda_operands *operands, const void *bias,
                                           bool *added, CUstream stream, sp_error *err);
sp_status __wrap_sp_i_cuda_gemm_run(sp_i_cuda_gemm *gemm, const sp_i_cuda_product *product,
                                    const sp_i_cuda_operands *operands, CUstream stream,
                                    sp_error *err);
sp_status __wrap_sp_i_cuda_gemm_run_biased(sp_i_cuda_gemm *gemm, const sp_i_cuda_product *product,
                                           const sp_i_cuda_operands *operands, const void *bias,
                                           bool *added, CUstream stream, sp_error *err);

typedef struct watched {
    sp_i_cuda_product product;
    CUevent begin, end;
} watched;

static struct {
    pthread_mutex_t lock;
    sp_i_cuda_device device;
    bool watching;
    int count, missed;
    watched of[PRODUCTS_MOST];
} seen = {.lock = PTHREAD_MUTEX_INITIALIZER};

// ---- in the executor ----

// A place with events; NULL where nothing is watched.
static watched *next(const sp_i_cuda_product *product)
{
    const sp_cuda_api *api = seen.device.api;
    watched *w = NULL;
    (void)pthread_mutex_lock(&seen.lock);
    if (seen.watching && seen.count == PRODUCTS_MOST) {
        seen.missed++;
    } else if (seen.watching) {
        w = &seen.of[seen.count];
        *w = (watched){.product = *product};
        if (api->EventCreate(&w->begin, CU_EVENT_DEFAULT) == CUDA_SUCCESS &&
            api->EventCreate(&w->end, CU_EVENT_DEFAULT) == CUDA_SUCCESS) {
            seen.count++;
        } else {
            seen.missed++;
            w = NULL;
        }
    }
    (void)pthread_mutex_unlock(&seen.lock);
    return w;
}

// Without a record there is no time, which is found when it is asked for.
static const watched *begin(const sp_i_cuda_product *product, CUstream stream)
{
    const watched *w = next(product);
    if (w != NULL) {
        (void)seen.device.api->EventRecord(w->begin, stream);
    }
    return w;
}

static void end(const watched *w, CUstream stream)
{
    if (w != NULL) {
        (void)seen.device.api->EventRecord(w->end, stream);
    }
}

sp_status __wrap_sp_i_cuda_gemm_run(sp_i_cuda_gemm *gemm, const sp_i_cuda_product *product,
                                    const sp_i_cuda_operands *operands, CUstream stream,
                                    sp_error *err)
{
    const watched *w = begin(product, stream);
    sp_status status = __real_sp_i_cuda_gemm_run(gemm, product, operands, stream, err);
    end(w, stream);
    return status;
}

sp_status __wrap_sp_i_cuda_gemm_run_biased(sp_i_cuda_gemm *gemm, const sp_i_cuda_product *product,
                                           const sp_i_cuda_operands *operands, const void *bias,
                                           bool *added, CUstream stream, sp_error *err)
{
    const watched *w = begin(product, stream);
    sp_status status =
        __real_sp_i_cuda_gemm_run_biased(gemm, product, operands, bias, added, stream, err);
    end(w, stream);
    return status;
}

void products_watch(const sp_i_cuda_device *device)
{
    seen.device = *device;
    seen.count = seen.missed = 0;
    seen.watching = true;
}

static bool same(const sp_i_cuda_product *a, const sp_i_cuda_product *b)
{
    return a->kind == b->kind && a->tokens == b->tokens && a->in == b->in && a->out == b->out &&
           a->fp32 == b->fp32 && a->accumulate == b->accumulate;
}

static int shape_of(const sp_i_cuda_product *product, const products_shape *shapes, int count)
{
    int at = 0;
    while (at < count && !same(&shapes[at].product, product)) {
        at++;
    }
    return at;
}

static void take_medians(const double *all_s, int first, products_shape *shapes, int count)
{
    double *own_s = sp_malloc((size_t)seen.count * sizeof *own_s);
    for (int s = 0; s < count; s++) {
        shapes[s].times = 0;
        for (int i = first; i < seen.count; i++) {
            if (same(&seen.of[i].product, &shapes[s].product)) {
                own_s[shapes[s].times++] = all_s[i];
            }
        }
        if (shapes[s].times > 0) {
            shapes[s].executor_s = sp_i_cuda_timing_of(own_s, shapes[s].times).median_s;
        }
    }
    sp_free(own_s);
}

static sp_status read_times(int steps, double *all_s, products_shape *shapes, int *count,
                            sp_error *err)
{
    const int first = seen.count / steps;
    sp_status status = SP_OK;
    *count = 0;
    if (seen.missed > 0 || steps < 2 || seen.count % steps != 0) {
        return sp_error_set(err, SP_ERR_LIMIT, "%d products and %d more in %d steps", seen.count,
                            seen.missed, steps);
    }
    for (int i = 0; status == SP_OK && i < seen.count; i++) {
        float ms = 0.0f;
        status =
            SP_I_CUDA(&seen.device, err, EventElapsedTime, &ms, seen.of[i].begin, seen.of[i].end);
        all_s[i] = 1e-3 * (double)ms;
        int at = shape_of(&seen.of[i].product, shapes, *count);
        if (status == SP_OK && at == PRODUCTS_SHAPES) {
            return sp_error_set(err, SP_ERR_LIMIT, "more than %d shapes", PRODUCTS_SHAPES);
        }
        if (status == SP_OK && at == *count) {
            shapes[(*count)++] = (products_shape){.product = seen.of[i].product};
        }
    }
    if (status == SP_OK) {
        take_medians(all_s, first, shapes, *count);
    }
    return status;
}

sp_status products_seen(int steps, products_shape shapes[PRODUCTS_SHAPES], int *count,
                        sp_error *err)
{
    const sp_cuda_api *api = seen.device.api;
    seen.watching = false;
    double *all_s = sp_malloc((size_t)(seen.count + 1) * sizeof *all_s);
    sp_status status = read_times(steps, all_s, shapes, count, err);
    for (int i = 0; i < seen.count; i++) {
        (void)api->EventDestroy(seen.of[i].begin);
        (void)api->EventDestroy(seen.of[i].end);
    }
    sp_free(all_s);
    return status;
}

// ---- alone ----

typedef struct alone {
    sp_i_cuda_gemm *gemm;
    const sp_i_cuda_product *product;
    sp_i_cuda_operands operands;
} alone;

static sp_status run(void *context, CUstream stream, sp_error *err)
{
    const alone *a = context;
    return __real_sp_i_cuda_gemm_run(a->gemm, a->product, &a->operands, stream, err);
}

static int64_t largest(const products_shape *shapes, int count)
{
    int64_t most = 0;
    for (int i = 0; i < count; i++) {
        const sp_i_cuda_product *p = &shapes[i].product;
        const int64_t elements[] = {p->tokens * p->in, p->tokens * p->out, p->in * p->out};
        for (int m = 0; m < 3; m++) {
            most = elements[m] > most ? elements[m] : most;
        }
    }
    return most;
}

// Three matrices of which each holds the largest, even in fp32, and the workspace.
static sp_status time_all(alone *a, sp_i_cuda_bench *bench, char *memory, int64_t room,
                          double budget_s, products_shape *shapes, int count, sp_error *err)
{
    a->operands = (sp_i_cuda_operands){memory, memory + room, memory + 2 * room};
    for (int i = 0; i < count; i++) {
        sp_i_cuda_timing timing = {0};
        a->product = &shapes[i].product;
        GPU_TRY(sp_i_cuda_bench_time(bench, run, a, budget_s, &timing, err));
        shapes[i].alone_s = timing.median_s;
    }
    return SP_OK;
}

sp_status products_alone(const sp_i_cuda_device *device, const sp_i_cublas_api *cublas,
                         double budget_s, products_shape *shapes, int count, sp_error *err)
{
    const int64_t room = (4 * largest(shapes, count) + 255) / 256 * 256;
    void *memory = NULL;
    alone a = {0};
    sp_i_cuda_bench bench = {0};
    GPU_TRY(sp_i_cuda_take(device, (size_t)(3 * room + SP_I_CUDA_GEMM_WORKSPACE), &memory, err));
    const sp_i_cuda_gemm_place place = {.workspace = (char *)memory + 3 * room,
                                        .workspace_bytes = SP_I_CUDA_GEMM_WORKSPACE};
    GPU_TRY(sp_i_cuda_fill_normal(device, memory, room, SP_I_CUDA_DRAWN, 1.0, 1, NULL, err));
    GPU_TRY(SP_I_CUDA(device, err, MemsetD8Async, sp_i_cuda_at((char *)memory + 2 * room), 0,
                      (size_t)room, (CUstream)NULL));
    GPU_TRY(sp_i_cuda_gemm_new(device, cublas, &place, &a.gemm, err));
    GPU_TRY(sp_i_cuda_bench_init(device, NULL, 0, &bench, err));
    GPU_TRY(time_all(&a, &bench, memory, room, budget_s, shapes, count, err));
    sp_i_cuda_bench_fini(&bench);
    sp_i_cuda_gemm_free(a.gemm);
    sp_i_cuda_give(device, memory);
    return SP_OK;
}
