// cuDNN's plans for all packs of a run, as few as are near what the packs need.
#include <stdlib.h>

#include "backends/cuda/attention/attention_packed.h"
#include "sim/base/alloc.h"

const char *sp_i_cuda_attention_model_refusal(const sp_model *model)
{
    return model->head_dim % 8 != 0 || model->head_dim > 128
               ? "attention on a GPU takes heads of a multiple of 8 up to 128"
               : NULL;
}

// Shapes of packs, then of plans.
typedef struct needs {
    sp_i_cuda_attention_shape *of;
    size_t count, capacity;
    bool backward;
} needs;

static bool add_need(needs *n, const sp_i_cuda_attention_shape *shape)
{
    for (size_t i = 0; i < n->count; i++) {
        if (sp_i_cuda_attention_one_plan(&n->of[i], shape)) {
            return true;
        }
    }
    if (n->count == n->capacity) {
        size_t capacity = n->capacity > 0 ? 2 * n->capacity : 16;
        sp_i_cuda_attention_shape *more = sp_realloc(n->of, capacity * sizeof *more);
        if (more == NULL) {
            return false;
        }
        n->of = more;
        n->capacity = capacity;
    }
    n->of[n->count++] = *shape;
    return true;
}

static bool add_pack(needs *n, const sp_i_exec_slices *slices, const sp_i_exec_pack *pack,
                     const sp_kernel_attention_shape *shape)
{
    sp_i_cuda_launches launches;
    bool ok = sp_i_cuda_launches_init(&launches, slices, pack);
    if (!ok) {
        return false;
    }
    for (int launch = 0; ok && launch < launches.count; launch++) {
        sp_i_cuda_segments segments;
        sp_i_cuda_attention_shape packed;
        ok = sp_i_cuda_segments_init(&segments, &launches, launch);
        if (ok && segments.count > 0 &&
            sp_i_cuda_packed_shape(&segments, pack->rows, shape, &packed)) {
            ok = add_need(n, &packed);
        }
        sp_i_cuda_segments_fini(&segments);
    }
    sp_i_cuda_launches_fini(&launches);
    return ok;
}

// A backward may compute its forward once more.
static bool add_job(needs *n, const sp_i_exec_job *job)
{
    sp_i_exec_stage stage = {.job = job};
    const layer l = {.stage = &stage};
    const sp_kernel_attention_shape shape = SP_EXEC(attention_shape)(&l);
    const sp_i_exec_slices *slices = &job->slices;
    bool ok = true;
    for (size_t p = 0; ok && !n->backward && p < slices->forward_count; p++) {
        ok = add_pack(n, slices, &slices->forward[p], &shape);
    }
    for (size_t p = 0; ok && p < slices->backward_count; p++) {
        ok = add_pack(n, slices, &slices->backward[p], &shape);
    }
    return ok;
}

// ---- fewer plans ----

static int compare_forward(const void *x, const void *y)
{
    int64_t a = sp_i_cuda_attention_area(x, false);
    int64_t b = sp_i_cuda_attention_area(y, false);
    return (a < b) - (a > b);
}

static int compare_backward(const void *x, const void *y)
{
    int64_t a = sp_i_cuda_attention_area(x, true);
    int64_t b = sp_i_cuda_attention_area(y, true);
    return (a < b) - (a > b);
}

static int64_t larger(int64_t a, int64_t b)
{
    return a > b ? a : b;
}

static sp_i_cuda_attention_shape join(const sp_i_cuda_attention_shape *x,
                                      const sp_i_cuda_attention_shape *y)
{
    sp_i_cuda_attention_shape joined = *x;
    joined.segments = larger(x->segments, y->segments);
    joined.queries = larger(x->queries, y->queries);
    joined.keys = larger(x->keys, y->keys);
    return joined;
}

// From the largest down: each shape joins a plan that stays near the least of its shapes (which is
// the last that joined, or this one), or becomes one. Plans stand in front.
static void join_needs(needs *n)
{
    size_t plans = 0;
    if (n->count > 1) {
        qsort(n->of, n->count, sizeof *n->of, n->backward ? compare_backward : compare_forward);
    }
    for (size_t i = 0; i < n->count; i++) {
        const sp_i_cuda_attention_shape need = n->of[i];
        const int64_t area = sp_i_cuda_attention_area(&need, n->backward);
        size_t best = plans;
        int64_t least = INT64_MAX;
        for (size_t p = 0; p < plans; p++) {
            const sp_i_cuda_attention_shape joined = join(&n->of[p], &need);
            int64_t planned = sp_i_cuda_attention_area(&joined, n->backward);
            if (sp_i_cuda_attention_alike(&joined, &need) && planned < least &&
                sp_i_cuda_attention_near(planned, area)) {
                best = p;
                least = planned;
            }
        }
        n->of[best] = best == plans ? need : join(&n->of[best], &need);
        plans += best == plans;
    }
    n->count = plans;
}

sp_status sp_i_cuda_attention_prepare(sp_i_cuda_attention *attention,
                                      const sp_i_exec_job *const *jobs, size_t count, sp_error *err)
{
    sp_status status = SP_OK;
    for (int pass = 0; status == SP_OK && pass < 2; pass++) {
        needs n = {.backward = pass == 1};
        bool ok = true;
        for (size_t j = 0; ok && j < count; j++) {
            ok = add_job(&n, jobs[j]);
        }
        status = ok ? SP_OK : sp_error_no_memory(err, "shapes of attention");
        if (ok) {
            join_needs(&n);
        }
        for (size_t i = 0; status == SP_OK && i < n.count; i++) {
            status = sp_i_cuda_attention_plan(attention, &n.of[i], n.backward, err);
        }
        sp_free(n.of);
    }
    return status;
}
