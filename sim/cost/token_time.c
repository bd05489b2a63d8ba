// Time of operators that depend on the token count alone.
#include <math.h>

#include "sim/cost/cost_private.h"
#include "sim/cost/op_time.h"

// The dimension that counts tokens goes first: a table of times for n and k then also serves the
// weight gradient, whose tokens are the reduction.
typedef struct gemm_shape {
    sp_gemm_pass pass;
    double tokens, n, k; // tokens for one local token
} gemm_shape;

static double op_s(const sp_op_timer *timer, const sp_op *op, double local_tokens);
static double gemm_s(const sp_op_timer *timer, const sp_op *op, double local_tokens);
static gemm_shape shape_of(const sp_op *op);
static sp_collective collective_of(sp_op_kind kind);
static bool is_tp_collective(const sp_op *op);
static bool is_alike(const sp_op *a, const sp_op *b);
static bool is_hidden(const sp_stack *stack, sp_pass pass, const sp_op *op);
static int neighbour(const sp_inventory *inventory, int at);
static double least_gemm_s(const sp_profile *profile, const sp_op *op);
static double least_compute_s(const sp_op_timer *timer, const sp_op *op);

void sp_i_token_time(const sp_op_timer *timer, const sp_stack *stack, sp_group tp,
                     const sp_inventory *inventory, sp_pass pass, double local_tokens,
                     sp_i_timed_collectives *timed, double *compute_s, double *tp_s)
{
    double left_s[SP_INVENTORY_OPS] = {0};
    *compute_s = 0.0;
    *tp_s = 0.0;
    for (int i = 0; i < inventory->count; i++) {
        if (!is_tp_collective(&inventory->ops[i])) {
            left_s[i] = op_s(timer, &inventory->ops[i], local_tokens);
            *compute_s += left_s[i];
        }
    }
    for (int i = 0; i < inventory->count; i++) {
        const sp_op *op = &inventory->ops[i];
        if (!is_tp_collective(op)) {
            continue;
        }
        sp_collective kind = collective_of(op->kind);
        if (timed->op[kind] == NULL || !is_alike(timed->op[kind], op)) {
            timed->once_s[kind] =
                sp_time_collective(timer, kind, tp, op->bytes_per_token * local_tokens);
            timed->op[kind] = op;
        }
        double exposed_s = op->repeat * timed->once_s[kind];
        int gemm = is_hidden(stack, pass, op) ? neighbour(inventory, i) : -1;
        if (gemm >= 0) {
            double hidden_s = fmin(exposed_s, left_s[gemm]);
            left_s[gemm] -= hidden_s;
            exposed_s -= hidden_s;
            *compute_s += timer->profile->interference.overlap_share * hidden_s;
        }
        *tp_s += exposed_s;
    }
}

double sp_i_qkv_s(const sp_op_timer *timer, const sp_inventory *inventory, double local_tokens)
{
    for (int i = 0; i < inventory->count; i++) {
        if (inventory->ops[i].is_qkv) {
            return gemm_s(timer, &inventory->ops[i], local_tokens);
        }
    }
    return 0.0;
}

// A GEMM and the collectives that hide behind it take together at least the longer of the two, each
// at its best rate.
double sp_i_token_least_s(const sp_op_timer *timer, const sp_stack *stack, sp_group tp,
                          const sp_inventory *inventory, sp_pass pass)
{
    double left_s[SP_INVENTORY_OPS] = {0};
    double least_s = 0.0;
    for (int i = 0; i < inventory->count; i++) {
        left_s[i] = least_compute_s(timer, &inventory->ops[i]);
        least_s += left_s[i];
    }
    for (int i = 0; i < inventory->count; i++) {
        const sp_op *op = &inventory->ops[i];
        if (!is_tp_collective(op)) {
            continue;
        }
        double exposed_s = op->repeat * op->bytes_per_token *
                           sp_i_collective_least_s_per_byte(timer, collective_of(op->kind), tp);
        int gemm = is_hidden(stack, pass, op) ? neighbour(inventory, i) : -1;
        if (gemm >= 0) {
            double hidden_s = fmin(exposed_s, left_s[gemm]);
            left_s[gemm] -= hidden_s;
            exposed_s -= hidden_s;
        }
        least_s += exposed_s;
    }
    return least_s;
}

// Per local token, without collectives.
static double least_compute_s(const sp_op_timer *timer, const sp_op *op)
{
    if (op->kind == SP_OP_GEMM) {
        return op->repeat * least_gemm_s(timer->profile, op);
    }
    if (op->kind != SP_OP_MEMORY ||
        (op->logits_per_token > 0.0 && timer->profile->loss_bytes_per_logit > 0.0)) {
        return 0.0;
    }
    return op->repeat * sp_time_memory(timer, op->bytes_per_token, 0);
}

// Seconds of an operator other than a collective.
static double op_s(const sp_op_timer *timer, const sp_op *op, double local_tokens)
{
    if (op->kind == SP_OP_GEMM) {
        return gemm_s(timer, op, local_tokens);
    }
    if (op->kind == SP_OP_MEMORY) {
        double per_token = op->bytes_per_token;
        if (op->logits_per_token > 0.0 && timer->profile->loss_bytes_per_logit > 0.0) {
            per_token = 0.5 * timer->profile->loss_bytes_per_logit * op->logits_per_token;
        }
        return op->repeat *
               sp_time_memory(timer, per_token * local_tokens + op->bytes_fixed, op->kernels);
    }
    return 0.0;
}

static double gemm_s(const sp_op_timer *timer, const sp_op *op, double local_tokens)
{
    gemm_shape shape = shape_of(op);
    return op->repeat *
           sp_time_gemm(timer, shape.pass, shape.tokens * local_tokens, shape.n, shape.k);
}

static gemm_shape shape_of(const sp_op *op)
{
    double m = (double)op->m;
    double n = (double)op->n;
    double k = (double)op->k;
    if (op->m == 0) {
        return (gemm_shape){SP_GEMM_TOKENS_OUT, op->token_share, n, k};
    }
    SP_ASSERT(op->k == 0);
    return (gemm_shape){SP_GEMM_TOKENS_IN, op->token_share, m, n};
}

static sp_collective collective_of(sp_op_kind kind)
{
    if (kind == SP_OP_ALL_GATHER) {
        return SP_ALL_GATHER;
    }
    return kind == SP_OP_REDUCE_SCATTER ? SP_REDUCE_SCATTER : SP_ALL_REDUCE;
}

static bool is_tp_collective(const sp_op *op)
{
    return op->kind == SP_OP_ALL_GATHER || op->kind == SP_OP_REDUCE_SCATTER ||
           op->kind == SP_OP_ALL_REDUCE;
}

// Do two collectives of one kind take as long? A layer has the same one for attention and MLP.
static bool is_alike(const sp_op *a, const sp_op *b)
{
    return !(a->bytes_per_token < b->bytes_per_token) && !(a->bytes_per_token > b->bytes_per_token);
}

// Does the stack hide this collective behind the GEMM next to it?
static bool is_hidden(const sp_stack *stack, sp_pass pass, const sp_op *op)
{
    bool forward = pass == SP_PASS_F || pass == SP_PASS_RECOMPUTE;
    if (op->kind == SP_OP_ALL_GATHER) {
        return forward ? stack->hide_forward_gather : stack->hide_backward_gather;
    }
    return forward ? stack->hide_forward_reduce : stack->hide_backward_reduce;
}

// The GEMM that a collective stands next to: a gather comes before it, a reduction after it; -1
// where there is none.
static int neighbour(const sp_inventory *inventory, int at)
{
    int step = inventory->ops[at].kind == SP_OP_ALL_GATHER ? 1 : -1;
    for (int i = at + step; i >= 0 && i < inventory->count; i += step) {
        if (inventory->ops[i].kind == SP_OP_GEMM) {
            return i;
        }
    }
    return -1;
}

// Least seconds of a GEMM per token: best rate of the curve, or best time per token of the table.
static double least_gemm_s(const sp_profile *profile, const sp_op *op)
{
    gemm_shape shape = shape_of(op);
    const sp_gemm_table *table = sp_i_gemm_table(profile, shape.pass, shape.n, shape.k);
    if (table == NULL) {
        return 2.0 * shape.tokens * shape.n * shape.k / sp_gemm_most_rate(profile);
    }
    double least = table->time_s.y[0] / table->time_s.x[0];
    for (int i = 1; i < table->time_s.points; i++) {
        least = fmin(least, table->time_s.y[i] / table->time_s.x[i]);
    }
    return shape.tokens * least;
}
