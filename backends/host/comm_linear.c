#include "backends/host/comm_linear.h"

#include "kernels/kernels.h"

static void multiply(const sp_comm_linear *l, const void *x, const void *weight, const void *bias,
                     void *y)
{
    if (l->type == SP_COMM_F64) {
        sp_kernel_linear_f64(l->tokens, l->in, l->out, x, l->in, weight, l->in, bias, y, l->out);
    } else {
        sp_kernel_linear_f32(l->tokens, l->in, l->out, x, l->in, weight, l->in, bias, y, l->out);
    }
}

static void multiply_back(const sp_comm_linear *l, const void *dy, const void *weight, void *dx)
{
    if (l->type == SP_COMM_F64) {
        sp_kernel_linear_backward_input_f64(l->tokens, l->in, l->out, dy, l->out, weight, l->in,
                                            false, dx, l->in);
    } else {
        sp_kernel_linear_backward_input_f32(l->tokens, l->in, l->out, dy, l->out, weight, l->in,
                                            false, dx, l->in);
    }
}

static void add_weight_gradient(const sp_comm_linear *l, const void *dy, const void *x,
                                void *dweight, void *dbias)
{
    if (l->type == SP_COMM_F64) {
        sp_kernel_linear_backward_weight_f64(l->tokens, l->in, l->out, dy, l->out, x, l->in,
                                             dweight, l->in, dbias);
    } else {
        sp_kernel_linear_backward_weight_f32(l->tokens, l->in, l->out, dy, l->out, x, l->in,
                                             dweight, l->in, dbias);
    }
}

// All tokens of the outer side: gathered, or with `outer` NULL gathered before, or as they are.
static sp_status all_tokens(sp_comm *me, const sp_comm_linear *l, const void *outer, int64_t width,
                            void *all, const void **tokens, sp_error *err)
{
    if (l->shard_tokens == NULL) {
        *tokens = outer;
        return SP_OK;
    }
    *tokens = all;
    return outer == NULL ? SP_OK
                         : sp_comm_all_gather_rows(me, l->group, l->type, outer, all,
                                                   l->shard_tokens, width, err);
}

// The sum over the members of what stands in `all`, or without sequence parallelism in `outer`.
static sp_status sum_tokens(sp_comm *me, const sp_comm_linear *l, int64_t width, const void *all,
                            void *outer, sp_error *err)
{
    if (l->shard_tokens == NULL) {
        return sp_comm_all_reduce(me, l->group, l->type, SP_COMM_SUM, outer, outer,
                                  l->tokens * width, err);
    }
    return sp_comm_reduce_scatter_rows(me, l->group, l->type, SP_COMM_SUM, all, outer,
                                       l->shard_tokens, width, err);
}

static void *sum_buffer(const sp_comm_linear *l, void *all, void *outer)
{
    return l->shard_tokens == NULL ? outer : all;
}

sp_status sp_comm_column_forward(sp_comm *me, const sp_comm_linear *layer, const void *x,
                                 const void *weight, const void *bias, void *all, void *y,
                                 sp_error *err)
{
    const void *tokens;
    sp_status status = all_tokens(me, layer, x, layer->in, all, &tokens, err);
    if (status == SP_OK) {
        multiply(layer, tokens, weight, bias, y);
    }
    return status;
}

sp_status sp_comm_column_backward_input(sp_comm *me, const sp_comm_linear *layer, const void *dy,
                                        const void *weight, void *all, void *dx, sp_error *err)
{
    multiply_back(layer, dy, weight, sum_buffer(layer, all, dx));
    return sum_tokens(me, layer, layer->in, all, dx, err);
}

sp_status sp_comm_column_backward_weight(sp_comm *me, const sp_comm_linear *layer, const void *dy,
                                         const void *x, void *all, void *dweight, void *dbias,
                                         sp_error *err)
{
    const void *tokens;
    sp_status status = all_tokens(me, layer, x, layer->in, all, &tokens, err);
    if (status == SP_OK) {
        add_weight_gradient(layer, dy, tokens, dweight, dbias);
    }
    return status;
}

// The first member's sum begins with the bias, so that it is added once.
sp_status sp_comm_row_forward(sp_comm *me, const sp_comm_linear *layer, const void *x,
                              const void *weight, const void *bias, void *all, void *y,
                              sp_error *err)
{
    bool first = sp_comm_member(me, layer->group) == 0;
    multiply(layer, x, weight, first ? bias : NULL, sum_buffer(layer, all, y));
    return sum_tokens(me, layer, layer->out, all, y, err);
}

sp_status sp_comm_row_backward_input(sp_comm *me, const sp_comm_linear *layer, const void *dy,
                                     const void *weight, void *all, void *dx, sp_error *err)
{
    const void *tokens;
    sp_status status = all_tokens(me, layer, dy, layer->out, all, &tokens, err);
    if (status == SP_OK) {
        multiply_back(layer, tokens, weight, dx);
    }
    return status;
}

sp_status sp_comm_row_backward_weight(sp_comm *me, const sp_comm_linear *layer, const void *dy,
                                      const void *x, void *all, void *dweight, void *dbias,
                                      sp_error *err)
{
    const void *tokens;
    sp_status status = all_tokens(me, layer, dy, layer->out, all, &tokens, err);
    if (status == SP_OK) {
        add_weight_gradient(layer, tokens, x, dweight, dbias);
    }
    return status;
}
