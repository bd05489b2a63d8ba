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

// Of PyTorch's top-k: 66 to 79 us for 4096 tokens of 256 scores on H800
// (at::native::sbtopk::gatherTopK in deepseek-ai/profile-data, train.json). Assumed: as long for
// other counts of experts and on other GPUs, since a block is taken for each token.
#define TOP_K_S (70.5e-6 / 4096.0)

// ---- experts on several ranks ----

// The host cannot launch the all-to-all before it has the counts of rows from the GPU, and the GPU
// has run dry meanwhile. Assumed: a copy of some bytes, a synchronisation and the next launches
// as launches of kernels take some microseconds each; no shipped profile measured it.
#define COUNTS_SYNC_S 20e-6

static bool is_of_experts(const sp_op *op)
{
    return op->kind >= SP_OP_EXPERT_ALL_TO_ALL && op->kind <= SP_OP_EXPERT_COUNTS;
}

static sp_collective exchange_of(sp_op_kind kind)
{
    if (kind == SP_OP_EXPERT_ALL_TO_ALL) {
        return SP_ALL_TO_ALL;
    }
    bool scatters = kind == SP_OP_EXPERT_SCATTER || kind == SP_OP_TOKENS_SCATTER;
    return scatters ? SP_REDUCE_SCATTER : SP_ALL_GATHER;
}

static sp_group exchange_group(const sp_i_block_groups *groups, sp_op_kind kind)
{
    if (kind == SP_OP_EXPERT_ALL_TO_ALL) {
        return groups->ep;
    }
    bool of_rows = kind == SP_OP_EXPERT_GATHER || kind == SP_OP_EXPERT_SCATTER;
    return of_rows ? groups->etp : groups->both;
}

static int etp_of(const sp_i_block_groups *groups)
{
    return groups->etp.size > 0 ? groups->etp.size : 1;
}

static double exchange_s(const sp_op_timer *timer, const sp_stack *stack,
                         const sp_i_block_groups *groups, const sp_op *op, double local_tokens)
{
    if (op->kind == SP_OP_ROUTED_TOKENS) {
        return local_tokens > 0.0
                   ? sp_i_routed_latency_s(timer, groups->both) +
                         local_tokens *
                             sp_i_routed_s_per_token(timer, stack, groups->both, etp_of(groups), op)
                   : 0.0;
    }
    double bytes = op->bytes_per_token * local_tokens + op->bytes_fixed;
    bool counts = op->kind == SP_OP_EXPERT_COUNTS;
    sp_op_timer of = *timer;
    of.uncalibrated = counts ? NULL : timer->uncalibrated; // a few bytes: nothing but latency
    return sp_time_collective(&of, exchange_of(op->kind), exchange_group(groups, op->kind), bytes) +
           (counts ? COUNTS_SYNC_S : 0.0);
}

static void add_way(sp_expert_exchange *exchange, sp_expert_way way, double layers, double bytes)
{
    exchange->bytes[way] += layers * bytes;
    exchange->calls[way] += bytes > 0.0 ? layers : 0.0;
}

// Routes count what a GPU has for its own node and itself, too.
static void add_routed(const sp_op *op, sp_group group, int etp, double layers,
                       sp_expert_exchange *exchange)
{
    double nodes = group.nodes;
    double inside = group.nodes > 1 ? group.most_per_node : group.size;
    sp_i_routed_bytes sent = sp_i_routed_bytes_of(op, group, etp);
    if (group.nodes > 1) {
        add_way(exchange, SP_WAY_NODES, layers, sent.network * nodes / (nodes - 1.0));
    }
    if (inside > 1.0) {
        add_way(exchange, SP_WAY_IN_NODE, layers, sent.nvlink * inside / (inside - 1.0));
    }
}

void sp_i_add_expert_exchange(const sp_op_timer *timer, const sp_stack *stack,
                              const sp_i_block_groups *groups, const sp_inventory *inventory,
                              double layers, sp_expert_exchange *exchange)
{
    for (int i = 0; layers > 0.0 && i < inventory->count; i++) {
        const sp_op *op = &inventory->ops[i];
        switch (op->kind) {
        case SP_OP_EXPERT_ALL_TO_ALL:
            add_way(exchange, SP_WAY_EXPERTS, layers, op->bytes_per_token);
            break;
        case SP_OP_EXPERT_GATHER:
        case SP_OP_EXPERT_SCATTER:
            add_way(exchange, SP_WAY_PARTS, layers, op->bytes_per_token);
            break;
        case SP_OP_TOKENS_GATHER:
        case SP_OP_TOKENS_SCATTER:
            add_way(exchange, SP_WAY_TOKENS, layers, op->bytes_per_token);
            break;
        case SP_OP_ROUTED_TOKENS:
            add_routed(op, groups->both, etp_of(groups), layers, exchange);
            break;
        case SP_OP_EXPERT_COUNTS:
            exchange->fixed_s += layers * exchange_s(timer, stack, groups, op, 1.0);
            break;
        default:
            break;
        }
    }
}

// For a share of a local token.
static double least_exchange_s(const sp_op_timer *timer, const sp_stack *stack,
                               const sp_i_block_groups *groups, const sp_op *op, double share)
{
    return op->kind == SP_OP_ROUTED_TOKENS
               ? share * sp_i_routed_s_per_token(timer, stack, groups->both, etp_of(groups), op)
               : share * op->bytes_per_token *
                     sp_i_collective_least_s_per_byte(timer, exchange_of(op->kind),
                                                      exchange_group(groups, op->kind));
}

// Shared experts on a stream of their own: while the all-to-all runs they have the SMs that it
// leaves. What both take together beyond the shared experts' work alone counts as slower work and
// as what is left of the exchange.
static void hide_behind_shared(const sp_op_timer *timer, const sp_stack *stack,
                               const double beside_s[3][2], sp_i_token_times *times)
{
    double slows = sp_i_dispatcher_slows(timer, stack);
    for (int b = SP_BESIDE_FIRST; b <= SP_BESIDE_RETURN; b++) {
        double exchanged_s = beside_s[b][0];
        double shared_s = beside_s[b][1];
        double slowed_s = fmin(shared_s * slows, exchanged_s * slows / (1.0 + slows));
        double hidden_s = fmin(exchanged_s, shared_s + slowed_s);
        times->compute_s += slowed_s;
        times->mlp_s += slowed_s;
        times->ep_s -= hidden_s;
        times->beside_s += hidden_s;
        times->returns_s -= b == SP_BESIDE_RETURN ? hidden_s : 0.0;
    }
}

// ---- the operators of an inventory ----

sp_i_block_groups sp_i_block_groups_of(const sp_cluster *cluster, const sp_layout *layout)
{
    sp_i_block_groups groups = {.tp = sp_cluster_group(cluster, layout, SP_DIM_TP), .ranks = 1};
    if (sp_layout_dispatches(layout)) {
        groups.ep = sp_cluster_group(cluster, layout, SP_DIM_EP);
        groups.etp = sp_cluster_group(cluster, layout, SP_DIM_ETP);
        groups.both = sp_cluster_group(cluster, layout, SP_DIM_ETP_EP);
        groups.ranks = sp_layout_expert_ranks(layout);
    }
    return groups;
}

// Rows of an expert with those that fill them up: half of the multiple more in the mean where
// tokens choose their experts, but never more than a multiple for each.
static double padded_rows(const sp_op *op, double rows)
{
    double multiple = op->pad_rows;
    return op->pad_rows == 0 ? rows
           : op->even_rows   ? multiple * ceil(rows / multiple)
                             : fmin(rows * multiple, rows + 0.5 * multiple);
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

static double gemm_s(const sp_op_timer *timer, const sp_op *op, double local_tokens)
{
    gemm_shape shape = shape_of(op);
    double tokens = padded_rows(op, shape.tokens * local_tokens);
    if (op->fp8) {
        return sp_time_fp8_gemm(timer, shape.pass, op->repeat, tokens, shape.n, shape.k);
    }
    if (op->of_experts) {
        return sp_time_grouped_gemm(timer, shape.pass, op->repeat, tokens, shape.n, shape.k);
    }
    return op->repeat * sp_time_gemm(timer, shape.pass, tokens, shape.n, shape.k);
}

// What a profile states of the loss is of the kind of its own stack; else it is counted by its
// kind.
static double bytes_per_token(const sp_op_timer *timer, const sp_op *op)
{
    const sp_profile *profile = timer->profile;
    bool own_kind = op->loss_in_place == sp_stack_keeps_bf16_logits(&profile->stack);
    if (op->logits_per_token > 0.0 && profile->loss_bytes_per_logit > 0.0 && own_kind) {
        return 0.5 * profile->loss_bytes_per_logit * op->logits_per_token;
    }
    return op->bytes_per_token;
}

// Seconds of an operator other than a collective.
static double op_s(const sp_op_timer *timer, const sp_op *op, double local_tokens)
{
    if (op->kind == SP_OP_GEMM) {
        return gemm_s(timer, op, local_tokens);
    }
    if (op->kind == SP_OP_MEMORY) {
        double bytes = bytes_per_token(timer, op) * local_tokens + op->bytes_fixed;
        return op->repeat * (sp_time_memory(timer, bytes, op->kernels) +
                             op->top_ks_per_token * local_tokens * TOP_K_S);
    }
    return 0.0;
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
    if (op->blocks) {
        return false;
    }
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

void sp_i_token_time(const sp_op_timer *timer, const sp_stack *stack,
                     const sp_i_block_groups *groups, const sp_inventory *inventory, sp_pass pass,
                     double local_tokens, double expert_tokens, double overload,
                     sp_i_timed_collectives *timed, sp_i_token_times *times)
{
    const sp_group tp = groups->tp;
    double left_s[SP_INVENTORY_OPS];
    double beside_s[3][2] = {{0}}; // exchange, shared experts
    *times = (sp_i_token_times){0};
    for (int i = 0; i < inventory->count; i++) {
        const sp_op *op = &inventory->ops[i];
        left_s[i] = 0.0;
        bool grows = op->routed || op->kind == SP_OP_EXPERT_ALL_TO_ALL;
        double tokens = (op->routed ? expert_tokens : local_tokens) * (grows ? overload : 1.0);
        if (is_of_experts(op)) {
            double ep_s = exchange_s(timer, stack, groups, op, tokens);
            times->ep_s += ep_s;
            times->returns_s += op->returns ? ep_s : 0.0;
            beside_s[op->returns ? SP_BESIDE_RETURN : SP_BESIDE_FIRST][0] +=
                op->kind == SP_OP_EXPERT_ALL_TO_ALL ? ep_s : 0.0;
        } else if (!is_tp_collective(op)) {
            left_s[i] = op_s(timer, op, tokens);
            times->compute_s += left_s[i];
            times->mlp_s += op->of_mlp ? left_s[i] : 0.0;
            beside_s[op->beside][1] += left_s[i];
        }
    }
    if (stack->shared_expert_overlap) {
        hide_behind_shared(timer, stack, (const double(*)[2])beside_s, times);
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
            double slowed_s = timer->profile->interference.overlap_share * hidden_s;
            times->compute_s += slowed_s;
            times->mlp_s += op->of_mlp ? slowed_s : 0.0;
        }
        times->tp_s += exposed_s;
        times->mlp_s += op->of_mlp ? exposed_s : 0.0;
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

// Least seconds of a GEMM per token: best rate of the curve, or best time per token of the table.
static double least_gemm_s(const sp_profile *profile, const sp_op *op)
{
    gemm_shape shape = shape_of(op);
    if (op->fp8) {
        return 2.0 * shape.tokens * shape.n * shape.k / sp_gemm_most_fp8_rate(profile);
    }
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

// A GEMM and the collectives that hide behind it take together at least the longer of the two, each
// at its best rate.
double sp_i_token_least_s(const sp_op_timer *timer, const sp_stack *stack,
                          const sp_i_block_groups *groups, const sp_inventory *inventory,
                          sp_pass pass, double expert_share)
{
    const sp_group tp = groups->tp;
    double left_s[SP_INVENTORY_OPS];
    double least_s = 0.0;
    double shared_s = 0.0;
    double exchanged_s = 0.0;
    const bool hides = stack->shared_expert_overlap || stack->expert_overlap;
    for (int i = 0; i < inventory->count; i++) {
        const sp_op *op = &inventory->ops[i];
        double share = op->routed ? expert_share : 1.0;
        left_s[i] = share * least_compute_s(timer, op);
        least_s += left_s[i];
        shared_s += op->beside != SP_BESIDE_NOTHING ? left_s[i] : 0.0;
        if (is_of_experts(op)) {
            double exchange_least_s = least_exchange_s(timer, stack, groups, op, share);
            *(hides ? &exchanged_s : &least_s) += exchange_least_s;
        }
    }
    if (hides) {
        least_s += stack->expert_overlap ? 0.0 : fmax(0.0, exchanged_s - shared_s);
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
