// Exchanges between ranks that share a layer or the vocabulary (Shoeybi and others: "Megatron-LM",
// 2019, section 3; with sequence parallelism Korthikanti and others: "Reducing Activation
// Recomputation in Large Transformer Models", 2022, section 4.2.2).
#include "backends/comm/collective.h"
#include "backends/host/typed/layer.h"

#define COMM_TYPE (sizeof(real) == sizeof(double) ? SP_COMM_F64 : SP_COMM_F32)

static bool is_split(const layer *l)
{
    return l->stage->job->slices.place.parts > 1;
}

static bool is_parallel(const layer *l)
{
    return l->stage->job->slices.place.tp > 1;
}

// Rows of each part, where its pieces end.
static void part_rows(const layer *l, int64_t *rows)
{
    for (int part = 0; part < l->stage->job->slices.place.parts; part++) {
        rows[part] = 0;
    }
    for (size_t p = 0; p < l->pack->first_piece[l->pack->count]; p++) {
        rows[l->pack->piece[p].part] += l->pack->piece[p].rows;
    }
}

static bool done(const layer *l, int64_t start_ns, sp_status status)
{
    sp_i_host_links *links = l->stage->links;
    links->tp_ns += links->now_ns() - start_ns;
    links->status = status;
    return status == SP_OK;
}

bool SP_HOST(adds)(const layer *l)
{
    return l->stage->job->slices.place.tp_rank == 0;
}

real *SP_HOST(gather)(const layer *l, real *own)
{
    sp_i_host_links *links = l->stage->links;
    int64_t h = l->stage->job->model->hidden;
    int64_t rows[SP_I_HOST_MOST_PARTS];
    if (!is_split(l)) {
        return own;
    }
    real *all = SP_HOST(take)(l, h);
    if (all == NULL) {
        return NULL;
    }
    part_rows(l, rows);
    int64_t start_ns = links->now_ns();
    return done(l, start_ns,
                sp_comm_all_gather_rows(links->me, links->tp_group, COMM_TYPE, own, all, rows, h,
                                        &links->err))
               ? all
               : NULL;
}

void SP_HOST(release)(const layer *l, const real *own, real *all)
{
    if (all != own) {
        sp_i_host_give(l->stage->arena, all);
    }
}

real *SP_HOST(partial)(const layer *l, real *own)
{
    return is_split(l) ? SP_HOST(take)(l, l->stage->job->model->hidden) : own;
}

bool SP_HOST(sum)(const layer *l, real *part, real *own)
{
    sp_i_host_links *links = l->stage->links;
    int64_t h = l->stage->job->model->hidden;
    int64_t rows[SP_I_HOST_MOST_PARTS];
    if (!is_split(l)) {
        return SP_HOST(reduce)(l, false, l->rows * h, own);
    }
    part_rows(l, rows);
    int64_t start_ns = links->now_ns();
    bool ok = done(l, start_ns,
                   sp_comm_reduce_scatter_rows(links->me, links->tp_group, COMM_TYPE, SP_COMM_SUM,
                                               part, own, rows, h, &links->err));
    sp_i_host_give(l->stage->arena, part);
    return ok;
}

bool SP_HOST(reduce)(const layer *l, bool maximum, int64_t n, real *x)
{
    sp_i_host_links *links = l->stage->links;
    if (!is_parallel(l)) {
        return true;
    }
    int64_t start_ns = links->now_ns();
    return done(l, start_ns,
                sp_comm_all_reduce(links->me, links->tp_group, COMM_TYPE,
                                   maximum ? SP_COMM_MAX : SP_COMM_SUM, x, x, n, &links->err));
}

bool SP_HOST(reduce_stages)(const layer *l, bool maximum, int64_t n, real *x)
{
    sp_i_host_links *links = l->stage->links;
    if (links->vocab_group < 0) {
        return true;
    }
    int64_t start_ns = links->now_ns();
    return done(l, start_ns,
                sp_comm_all_reduce(links->me, links->vocab_group, COMM_TYPE,
                                   maximum ? SP_COMM_MAX : SP_COMM_SUM, x, x, n, &links->err));
}

bool SP_HOST(share_stages)(const layer *l, bool last, real *x)
{
    sp_i_host_links *links = l->stage->links;
    if (links->vocab_group < 0) {
        return true;
    }
    int64_t start_ns = links->now_ns();
    return done(l, start_ns,
                sp_comm_broadcast(links->me, links->vocab_group, COMM_TYPE, x, x,
                                  l->own * l->stage->job->model->hidden, links->vocab_root[last],
                                  &links->err));
}
