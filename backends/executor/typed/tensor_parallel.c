// Exchanges between ranks that share a layer or the vocabulary (Shoeybi and others: "Megatron-LM",
// 2019, section 3; with sequence parallelism Korthikanti and others: "Reducing Activation
// Recomputation in Large Transformer Models", 2022, section 4.2.2).
#include "backends/executor/typed/layer.h"
#include "backends/ranks/comm.h"

static bool is_split(const layer *l)
{
    return l->stage->job->slices.place.parts > 1;
}

static int64_t hidden_elements(const layer *l)
{
    return l->own * l->stage->job->model->hidden;
}

// Of the ranks that share the layers' widths; -1 for one alone.
static int layer_group(const layer *l)
{
    return l->stage->job->slices.place.tp > 1 ? l->stage->links->tp_group : -1;
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

static bool done(const layer *l, uint64_t start, sp_status status)
{
    return sp_i_exec_exchange_end(l->stage->links, SP_I_EXEC_TP, start, status);
}

// In place; nothing for a group of -1.
static bool all_reduce(const layer *l, int group, sp_comm_op op, sp_element element, int64_t n,
                       void *x)
{
    sp_i_exec_links *links = l->stage->links;
    if (group < 0) {
        return true;
    }
    uint64_t start = sp_i_exec_exchange_begin(links);
    return done(l, start, sp_comm_all_reduce(links->me, group, element, op, x, x, n, &links->err));
}

bool SP_EXEC(adds)(const layer *l)
{
    return l->stage->job->slices.place.tp_rank == 0;
}

real *SP_EXEC(gather)(const layer *l, real *own)
{
    sp_i_exec_links *links = l->stage->links;
    int64_t h = l->stage->job->model->hidden;
    int64_t rows[SP_I_EXEC_MOST_PARTS];
    if (!is_split(l)) {
        return own;
    }
    real *all = SP_EXEC(take)(l, h);
    if (all == NULL) {
        return NULL;
    }
    part_rows(l, rows);
    uint64_t start = sp_i_exec_exchange_begin(links);
    return done(l, start,
                sp_comm_all_gather(links->me, links->tp_group, SP_REAL_ELEMENT, own, all, rows, h,
                                   &links->err))
               ? all
               : NULL;
}

void SP_EXEC(release)(const layer *l, const real *own, real *all)
{
    if (all != own) {
        sp_i_exec_give(l->stage->arena, all);
    }
}

real *SP_EXEC(partial)(const layer *l, real *own)
{
    return is_split(l) ? SP_EXEC(take)(l, l->stage->job->model->hidden) : own;
}

bool SP_EXEC(sum)(const layer *l, real *part, real *own)
{
    sp_i_exec_links *links = l->stage->links;
    int64_t h = l->stage->job->model->hidden;
    int64_t rows[SP_I_EXEC_MOST_PARTS];
    if (!is_split(l)) {
        return all_reduce(l, layer_group(l), SP_COMM_SUM, SP_REAL_ELEMENT, l->rows * h, own);
    }
    part_rows(l, rows);
    uint64_t start = sp_i_exec_exchange_begin(links);
    bool ok = done(l, start,
                   sp_comm_reduce_scatter(links->me, links->tp_group, SP_REAL_ELEMENT, SP_COMM_SUM,
                                          part, own, rows, h, &links->err));
    sp_i_exec_give(l->stage->arena, part);
    return ok;
}

bool SP_EXEC(sum_stages)(const layer *l, real *x)
{
    return all_reduce(l, l->stage->links->vocab_group, SP_COMM_SUM, SP_REAL_ELEMENT,
                      hidden_elements(l), x);
}

bool SP_EXEC(reduce)(const layer *l, bool maximum, int64_t n, exact *x)
{
    sp_comm_op op = maximum ? SP_COMM_MAX : SP_COMM_SUM;
    return all_reduce(l, layer_group(l), op, SP_EXACT_ELEMENT, n, x) &&
           all_reduce(l, l->stage->links->vocab_group, op, SP_EXACT_ELEMENT, n, x);
}

bool SP_EXEC(share_stages)(const layer *l, bool last, real *x)
{
    sp_i_exec_links *links = l->stage->links;
    if (links->vocab_group < 0) {
        return true;
    }
    uint64_t start = sp_i_exec_exchange_begin(links);
    return done(l, start,
                sp_comm_broadcast(links->me, links->vocab_group, SP_REAL_ELEMENT, x, x,
                                  hidden_elements(l), links->vocab_root[last], &links->err));
}
