// Attention of a pack in bf16 on a GPU, where backends/host/typed/attention.c is the CPU's: one
// launch over all its slices and the keys of their samples, whose tables are made on the host. Keys
// that other ranks hold as well are gathered before. cuDNN takes the packs that it can.
#include "backends/cuda/attention/attention_packed.h"
#include "backends/cuda/attention/attention_pass.h"
#include "sim/base/alloc.h"

// ---- one launch ----

int sp_i_cuda_attention_launch(const sp_kernel_attention_shape *shape,
                               const sp_cuda_attention_tables *tables, bool backward,
                               cudaStream_t stream)
{
    if (!backward) {
        return sp_cuda_attention_forward(shape, tables, stream);
    }
    int code = sp_cuda_attention_delta(shape, tables, stream);
    if (code == 0) {
        code = sp_cuda_attention_backward_queries(shape, tables, stream);
    }
    return code == 0 ? sp_cuda_attention_backward_keys(shape, tables, stream) : code;
}

// The block of the device goes back before it is read: what the rank takes next, it writes later.
static bool by_kernels(const sp_i_cuda_pass *p, const sp_i_cuda_launches *launches, int launch)
{
    sp_runtime *runtime = p->l->stage->job->runtime;
    sp_cuda_attention_tables tables;
    int64_t bytes;
    int code;
    void *block =
        sp_i_cuda_tables_make(launches, launch, &p->shape, &p->rows, &tables, &bytes, &code);
    if (block == NULL) {
        return sp_i_cuda_pass_no_memory(p);
    }
    void *there = sp_i_cuda_pass_take(p, bytes, 1);
    if (there != NULL) {
        sp_i_cuda_note(p->rank, code, "sp_cuda_attention_plan", __FILE__, __LINE__);
        runtime->ops->upload(runtime, there, block, bytes);
        sp_i_cuda_tables_move(&tables, block, there);
        if (p->rank->status == SP_OK) {
            code = sp_i_cuda_attention_launch(&p->shape, &tables, p->backward, p->rank->stream);
            sp_i_cuda_note(p->rank, code,
                           p->backward ? "sp_cuda_attention_backward" : "sp_cuda_attention_forward",
                           __FILE__, __LINE__);
        }
    }
    sp_i_cuda_pass_give(p, there);
    sp_free(block);
    return there != NULL;
}

static bool compute(const sp_i_cuda_pass *p, const sp_i_cuda_launches *launches, int launch)
{
    sp_i_cuda_segments segments;
    sp_i_cuda_attention_shape packed;
    if (p->rank->attention == NULL) {
        return by_kernels(p, launches, launch);
    }
    if (!sp_i_cuda_segments_init(&segments, launches, launch)) {
        return sp_i_cuda_pass_no_memory(p);
    }
    bool ok = sp_i_cuda_packed_shape(&segments, p->l->rows, &p->shape, &packed)
                  ? sp_i_cuda_by_cudnn(p, launches, launch, &segments, &packed)
                  : by_kernels(p, launches, launch);
    sp_i_cuda_segments_fini(&segments);
    return ok;
}

static bool find_keys(const sp_i_cuda_pass *p, sp_i_cuda_seen *seen)
{
    seen->kv = *sp_i_exec_kv(p->l->stage, seen->slice, p->l->index);
    seen->dkv = p->backward ? SP_EXEC(kv_gradient)(p->l, seen->slice) : NULL;
    return !p->backward || seen->dkv != NULL;
}

static bool run_launch(const sp_i_cuda_pass *p, sp_i_cuda_launches *launches, int launch)
{
    bool shared = SP_EXEC(is_shared)(p->l);
    bool ok = true;
    for (size_t g = 0; ok && g < launches->groups; g++) {
        const sp_i_cuda_group *group = &launches->group[g];
        for (size_t s = 0; ok && group->launch == launch && s < group->seen; s++) {
            sp_i_cuda_seen *seen = &launches->seen[group->first_seen + s];
            ok = shared ? sp_i_cuda_gather(p, launches, group, seen) : find_keys(p, seen);
        }
    }
    ok = ok && compute(p, launches, launch);
    for (size_t g = 0; shared && g < launches->groups; g++) {
        const sp_i_cuda_group *group = &launches->group[g];
        for (size_t s = 0; group->launch == launch && s < group->seen; s++) {
            sp_i_cuda_seen *seen = &launches->seen[group->first_seen + s];
            ok = ok && (!p->backward || sp_i_cuda_scatter(p, launches, group, seen));
            sp_i_cuda_forget(p, seen);
        }
    }
    return ok;
}

// ---- a pack ----

static bool run_launches(const sp_i_cuda_pass *p)
{
    sp_i_cuda_launches launches;
    if (!sp_i_cuda_launches_init(&launches, &p->l->stage->job->slices, p->l->pack)) {
        return sp_i_cuda_pass_no_memory(p);
    }
    bool ok = true;
    for (int launch = 0; ok && launch < launches.count; launch++) {
        ok = run_launch(p, &launches, launch);
    }
    sp_i_cuda_launches_fini(&launches);
    return ok;
}

// Round a ring, keys come by queues that only a CPU's memory has.
static bool refuses(const sp_i_cuda_pass *p)
{
    sp_i_exec_links *links = p->l->stage->links;
    bool ring = SP_EXEC(is_shared)(p->l) && p->l->stage->job->attention_way == SP_COMM_RING;
    if (ring) {
        links->status = sp_error_set(&links->err, SP_ERR_USAGE,
                                     "attention: \"ring\" runs on a CPU alone, not on a GPU");
    }
    return ring;
}

static bool run(const sp_i_cuda_pass *p)
{
    return !refuses(p) && run_launches(p);
}

bool SP_EXEC(attend_pack)(layer *l)
{
    const sp_i_cuda_pass p = {.l = l,
                              .rank = sp_i_cuda_rank_now(),
                              .shape = SP_EXEC(attention_shape)(l),
                              .rows = {.q = l->t[SP_I_EXEC_QUERIES],
                                       .out = l->t[SP_I_EXEC_ATTENTION],
                                       .lse = l->t[SP_I_EXEC_LSE]}};
    return run(&p);
}

bool SP_EXEC(attend_pack_backward)(layer *l, const real *dout, real *dq)
{
    sp_i_cuda_pass p = {.l = l,
                        .rank = sp_i_cuda_rank_now(),
                        .shape = SP_EXEC(attention_shape)(l),
                        .rows = {.q = l->t[SP_I_EXEC_QUERIES],
                                 .out = l->t[SP_I_EXEC_ATTENTION],
                                 .lse = l->t[SP_I_EXEC_LSE],
                                 .dout = dout,
                                 .dq = dq},
                        .backward = true};
    p.rows.delta = sp_i_cuda_pass_take(&p, l->rows * p.shape.heads, (int64_t)sizeof *p.rows.delta);
    bool ok = p.rows.delta != NULL && run(&p);
    sp_i_cuda_pass_give(&p, p.rows.delta);
    return ok;
}

void *sp_i_cuda_pass_take(const sp_i_cuda_pass *pass, int64_t count, int64_t bytes)
{
    const sp_i_exec_width width = {bytes, 0};
    return sp_i_exec_take(pass->l->stage->arena, SP_MEM_WORKSPACE, count, width);
}

void sp_i_cuda_pass_give(const sp_i_cuda_pass *pass, void *block)
{
    sp_i_exec_give(pass->l->stage->arena, block);
}

bool sp_i_cuda_pass_no_memory(const sp_i_cuda_pass *pass)
{
    sp_i_exec_links *links = pass->l->stage->links;
    links->status = sp_error_no_memory(&links->err, "the tables of attention");
    return false;
}
