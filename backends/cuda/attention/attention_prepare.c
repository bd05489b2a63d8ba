// cuDNN's plans for all packs of a run: one forward and one backward.
#include "backends/cuda/attention/attention_packed.h"

const char *sp_i_cuda_attention_model_refusal(const sp_model *model)
{
    return model->head_dim % 8 != 0 || model->head_dim > 128
               ? "attention on a GPU takes heads of a multiple of 8 up to 128"
               : NULL;
}

static int64_t larger(int64_t a, int64_t b)
{
    return a > b ? a : b;
}

// Widens the shape of a plan, which is empty at first, so that it serves the pack.
static bool add_pack(sp_i_cuda_attention_shape *plan, const sp_i_exec_slices *slices,
                     const sp_i_exec_pack *pack, const sp_kernel_attention_shape *shape)
{
    sp_i_cuda_launches launches;
    bool ok = sp_i_cuda_launches_init(&launches, slices, pack);
    for (int launch = 0; ok && launch < launches.count; launch++) {
        sp_i_cuda_segments segments;
        sp_i_cuda_attention_shape packed;
        ok = sp_i_cuda_segments_init(&segments, &launches, launch);
        if (ok && segments.count > 0 &&
            sp_i_cuda_packed_shape(&segments, pack->rows, shape, &packed)) {
            packed.segments = larger(packed.segments, plan->segments);
            packed.queries = larger(packed.queries, plan->queries);
            packed.keys = larger(packed.keys, plan->keys);
            *plan = packed;
        }
        sp_i_cuda_segments_fini(&segments);
    }
    sp_i_cuda_launches_fini(&launches);
    return ok;
}

// A backward may compute its forward once more.
static bool add_job(sp_i_cuda_attention_shape *plan, bool backward, const sp_i_exec_job *job)
{
    sp_i_exec_stage stage = {.job = job};
    const layer l = {.stage = &stage};
    const sp_kernel_attention_shape shape = SP_EXEC(attention_shape)(&l);
    const sp_i_exec_slices *slices = &job->slices;
    bool ok = true;
    for (size_t p = 0; ok && !backward && p < slices->forward_count; p++) {
        ok = add_pack(plan, slices, &slices->forward[p], &shape);
    }
    for (size_t p = 0; ok && p < slices->backward_count; p++) {
        ok = add_pack(plan, slices, &slices->backward[p], &shape);
    }
    return ok;
}

sp_status sp_i_cuda_attention_prepare(sp_i_cuda_attention *attention,
                                      const sp_i_exec_job *const *jobs, size_t count, sp_error *err)
{
    sp_status status = SP_OK;
    for (int pass = 0; status == SP_OK && pass < 2; pass++) {
        sp_i_cuda_attention_shape plan = {0};
        bool ok = true;
        for (size_t j = 0; ok && j < count; j++) {
            ok = add_job(&plan, pass == 1, jobs[j]);
        }
        status = ok ? SP_OK : sp_error_no_memory(err, "shapes of attention");
        if (status == SP_OK && plan.segments > 0) {
            status = sp_i_cuda_attention_plan(attention, &plan, pass == 1, err);
        }
    }
    return status;
}
