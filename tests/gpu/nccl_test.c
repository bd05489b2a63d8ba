// NCCL on GPUs, through worlds and groups: alone, or as the ranks that a launcher starts
// (torchrun --no-python --nproc-per-node 8 gpu_check nccl_test), each with the GPU of its local
// rank. Their times are a calibration's.
#include <stdlib.h>

#include "backends/cuda/calibration.h"
#include "backends/cuda/device.h"
#include "sim/base/alloc.h"
#include "tests/gpu/gpu_check.h"

enum { WIDTH = 1 << 12, TIMEOUT_MS = 60000 };

typedef struct rank {
    gpu_test *test;
    sp_i_place place;
    sp_i_nccl *n;
    int group;
    CUstream stream;
    float *in, *out;   // of the GPU, [count] each
    float *numbers;    // of the host
    int64_t *rows;     // of each member: 1, 2, 3, ...
    int64_t count;     // WIDTH * sum of rows
    int64_t own_first; // number at which this rank's rows begin
} rank;

// Whole numbers whose sums fp32 holds.
static float value_of(int member, int64_t i)
{
    return (float)((member * 7 + i) % 1021);
}

static float sum_of(const rank *r, int64_t i)
{
    float sum = 0.0f;
    for (int m = 0; m < r->place.ranks; m++) {
        sum += value_of(m, i);
    }
    return sum;
}

static sp_status start_call(rank *r, int64_t count, sp_error *err)
{
    for (int64_t i = 0; i < count; i++) {
        r->numbers[i] = value_of(r->place.rank, i);
    }
    return sp_i_cuda_upload(&r->test->device, r->in, r->numbers, 4 * count, r->stream, err);
}

static sp_status end_call(rank *r, sp_error *err)
{
    GPU_TRY(sp_i_nccl_synchronize(r->n, r->stream, err));
    return gpu_download(r->test, r->numbers, r->out, 4 * r->count, r->stream, err);
}

static sp_status sums(rank *r, sp_error *err)
{
    GPU_TRY(start_call(r, r->count, err));
    GPU_TRY(sp_i_nccl_all_reduce(r->n, r->group, SP_ELEMENT_F32, false, r->in, r->out, r->count,
                                 r->stream, err));
    GPU_TRY(end_call(r, err));
    for (int64_t i = 0; i < r->count; i++) {
        gpu_require(r->test, r->numbers[i] == sum_of(r, i), "%d ranks: a sum", r->place.ranks);
    }
    GPU_TRY(start_call(r, r->count, err));
    GPU_TRY(sp_i_nccl_reduce_scatter_rows(r->n, r->group, SP_ELEMENT_F32, false, r->in, r->out,
                                          r->rows, WIDTH, r->stream, err));
    GPU_TRY(end_call(r, err));
    for (int64_t i = 0; i < r->rows[r->place.rank] * WIDTH; i++) {
        gpu_require(r->test, r->numbers[i] == sum_of(r, r->own_first + i),
                    "%d ranks: a sum of rows", r->place.ranks);
    }
    return SP_OK;
}

static sp_status moves(rank *r, sp_error *err)
{
    const int ranks = r->place.ranks;
    GPU_TRY(start_call(r, r->rows[r->place.rank] * WIDTH, err));
    GPU_TRY(sp_i_nccl_all_gather_rows(r->n, r->group, SP_ELEMENT_F32, r->in, r->out, r->rows, WIDTH,
                                      r->stream, err));
    GPU_TRY(end_call(r, err));
    int64_t at = 0;
    for (int m = 0; m < ranks; m++) {
        for (int64_t i = 0; i < r->rows[m] * WIDTH; i++) {
            gpu_require(r->test, r->numbers[at++] == value_of(m, i), "%d ranks: a row", ranks);
        }
    }
    GPU_TRY(start_call(r, ranks * WIDTH, err));
    GPU_TRY(
        sp_i_nccl_all_to_all(r->n, r->group, SP_ELEMENT_F32, r->in, r->out, WIDTH, r->stream, err));
    GPU_TRY(end_call(r, err));
    for (int64_t i = 0; i < ranks * WIDTH; i++) {
        gpu_require(r->test,
                    r->numbers[i] == value_of((int)(i / WIDTH), r->place.rank * WIDTH + i % WIDTH),
                    "%d ranks: a message", ranks);
    }
    return SP_OK;
}

// ---- a world ----

static sp_status make_group(rank *r, sp_error *err)
{
    int *members = sp_calloc((size_t)r->place.ranks, sizeof *members);
    for (int i = 0; i < r->place.ranks; i++) {
        members[i] = i;
    }
    sp_status status = sp_i_nccl_group_new(r->n, "ranks", members, r->place.ranks, &r->group, err);
    sp_free(members);
    return status;
}

static sp_status make_world(rank *r, sp_error *err)
{
    const sp_i_nccl_options options = {.device = r->test->device,
                                       .place = &r->place,
                                       .card = "nccl_test",
                                       .timeout_ms = TIMEOUT_MS};
    GPU_TRY(sp_i_nccl_new(&options, &r->n, err));
    return make_group(r, err);
}

static sp_status make_buffers(rank *r, sp_error *err)
{
    const sp_i_cuda_device *device = &r->test->device;
    r->rows = sp_calloc((size_t)r->place.ranks, sizeof *r->rows);
    for (int i = 0; i < r->place.ranks; i++) {
        r->own_first += i < r->place.rank ? (i + 1) * WIDTH : 0;
        r->rows[i] = i + 1;
        r->count += r->rows[i] * WIDTH;
    }
    const size_t bytes = (size_t)r->count * sizeof *r->in;
    r->numbers = sp_malloc(bytes);
    void *in = NULL;
    void *out = NULL;
    GPU_TRY(sp_i_cuda_take(device, bytes, &in, err));
    GPU_TRY(sp_i_cuda_take(device, bytes, &out, err));
    r->in = in;
    r->out = out;
    return SP_I_CUDA(device, err, StreamCreateWithPriority, &r->stream, CU_STREAM_NON_BLOCKING, 0);
}

static sp_status ranks_exchange(gpu_test *t, sp_error *err)
{
    rank r = {.test = t};
    GPU_TRY(sp_i_place_read(getenv, &r.place, err));
    sp_i_meeting_clear(&r.place);
    if (r.place.local_rank > 0) {
        t->device.index = r.place.local_rank;
        GPU_TRY(sp_i_cuda_use(&t->device, err));
    }
    GPU_TRY(make_buffers(&r, err));
    GPU_TRY(make_world(&r, err));
    GPU_TRY(sums(&r, err));
    GPU_TRY(moves(&r, err));
    sp_i_nccl_free(r.n);
    (void)t->api.StreamDestroy(r.stream);
    sp_i_cuda_give(&t->device, r.in);
    sp_i_cuda_give(&t->device, r.out);
    sp_free(r.numbers);
    sp_free(r.rows);
    return SP_OK;
}

int gpu_nccl_test(int argc, char **argv)
{
    static const gpu_case cases[] = {{"ranks_exchange", ranks_exchange, NULL}};
    return gpu_run_cases(cases, sizeof cases / sizeof *cases);
}
