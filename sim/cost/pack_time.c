#include "sim/cost/pack_time.h"

#include <math.h>

#include "sim/base/alloc.h"
#include "sim/cost/collective.h"
#include "sim/cost/curve.h"
#include "sim/cost/time_common.h"

enum { MEMO = 512 }; // token counts kept; packs of a packing repeat few

// QK^T and PV; backward dV, dP, dQ, dK.
#define UNFUSED_FORWARD_MATMULS 2.0
#define UNFUSED_BACKWARD_MATMULS 4.0

// One part in one pass.
typedef struct pass_ops {
    sp_inventory inventory;
    int attentions; // attention cores; their slices are priced one by one
    int attention_kernels;
    double pair_bytes;           // score traffic of the unfused attention, per full pair
    double ring_bytes_per_token; // keys and values around the CP ring
} pass_ops;

// Inventories and groups for packs of `dp_count` merged data-parallel ranks.
typedef struct variant {
    sp_layout layout;
    sp_group tp, cp;
    pass_ops ops[SP_I_PARTS][SP_I_PASSES];
} variant;

// Times of the operators that depend on the token count alone.
typedef struct memo {
    int64_t tokens;
    int dp_count; // 0: empty
    double compute_s[SP_I_PARTS][SP_I_PASSES];
    double tp_s[SP_I_PARTS][SP_I_PASSES];
} memo;

struct sp_i_pack_timer {
    const sp_model *model;
    const sp_layout *layout;
    const sp_cluster *cluster;
    sp_memory_options memory;
    variant **variants; // by dp_count, [1..dp]; made when first asked for
    memo *memos;        // [MEMO], by token count modulo MEMO
};

// What attention the slices of a pack need in one layer of one rank.
typedef struct attention_load {
    double forward_s, backward_s;
    double keys;  // tokens with the context that slices read
    double pairs; // full (query, key) pairs
} attention_load;

static variant *variant_new(const sp_i_pack_timer *packs, int dp_count);
static const memo *token_times(sp_i_pack_timer *packs, const sp_op_timer *timer, const variant *v,
                               int dp_count, int64_t tokens);
static attention_load load_of(const sp_i_pack_timer *packs, const sp_op_timer *timer,
                              const variant *v, const sp_pack_list *list, const sp_pack *pack,
                              bool backward);
static sp_i_time pass_time(const sp_op_timer *timer, const variant *v, const pass_ops *ops,
                           const attention_load *load, sp_pass pass);

sp_status sp_i_pack_timer_new(const sp_model *model, const sp_layout *layout,
                              const sp_cluster *cluster, const sp_memory_options *memory,
                              sp_i_pack_timer **out, sp_error *err)
{
    *out = NULL;
    sp_i_pack_timer *packs = sp_i_calloc(1, sizeof *packs);
    if (packs == NULL) {
        return sp_error_no_memory(err, "the cost model");
    }
    packs->model = model;
    packs->layout = layout;
    packs->cluster = cluster;
    packs->memory = *memory;
    packs->variants = sp_i_calloc((size_t)layout->dp + 1, sizeof(variant *));
    packs->memos = sp_i_calloc(MEMO, sizeof *packs->memos);
    if (packs->variants != NULL && packs->memos != NULL) {
        packs->variants[1] = variant_new(packs, 1);
        if (packs->variants[1] != NULL) {
            *out = packs;
            return SP_OK;
        }
    }
    sp_i_pack_timer_free(packs);
    return sp_error_no_memory(err, "the cost model");
}

void sp_i_pack_timer_free(sp_i_pack_timer *packs)
{
    if (packs == NULL) {
        return;
    }
    for (int i = 0; packs->variants != NULL && i <= packs->layout->dp; i++) {
        sp_i_free(packs->variants[i]);
    }
    sp_i_free(packs->variants);
    sp_i_free(packs->memos);
    sp_i_free(packs);
}

static void pass_ops_build(const sp_i_pack_timer *packs, const sp_layout *layout, sp_part part,
                           sp_pass pass, pass_ops *ops)
{
    sp_inventory_build(packs->model, layout, packs->memory.attention, packs->memory.recompute, part,
                       pass, &ops->inventory);
    for (int i = 0; i < ops->inventory.count; i++) {
        const sp_op *op = &ops->inventory.ops[i];
        if (op->kind == SP_OP_ATTENTION) {
            ops->attentions += op->repeat;
            ops->attention_kernels += op->kernels * op->repeat;
        }
        if (op->kind == SP_OP_MEMORY) {
            ops->pair_bytes += op->bytes_per_pair * op->repeat;
        }
        if (op->kind == SP_OP_CP_KV) {
            ops->ring_bytes_per_token += op->bytes_per_token * op->repeat;
        }
    }
}

// Merged data-parallel ranks are neighbours, so together they make a context-parallel group.
static variant *variant_new(const sp_i_pack_timer *packs, int dp_count)
{
    variant *v = sp_i_calloc(1, sizeof *v);
    if (v == NULL) {
        return NULL;
    }
    v->layout = *packs->layout;
    v->layout.cp = packs->layout->cp * dp_count;
    v->layout.dp = packs->layout->dp / dp_count;
    v->tp = sp_cluster_group(packs->cluster, packs->layout, SP_DIM_TP);
    v->cp = sp_cluster_group(packs->cluster, &v->layout, SP_DIM_CP);
    for (int part = 0; part < SP_I_PARTS; part++) {
        for (int pass = 0; pass < SP_I_PASSES; pass++) {
            pass_ops_build(packs, &v->layout, (sp_part)part, (sp_pass)pass, &v->ops[part][pass]);
        }
    }
    return v;
}

sp_status sp_i_pack_time_of(sp_i_pack_timer *packs, const sp_op_timer *timer,
                            const sp_pack_list *list, const sp_pack *pack, bool backward,
                            sp_i_pack_time *time, sp_error *err)
{
    SP_ASSERT(pack->dp_count >= 1 && pack->dp_count <= packs->layout->dp);
    variant **v = &packs->variants[pack->dp_count];
    if (*v == NULL) {
        *v = variant_new(packs, pack->dp_count);
        if (*v == NULL) {
            return sp_error_no_memory(err, "the cost model");
        }
    }
    const memo *tokens = token_times(packs, timer, *v, pack->dp_count, pack->computed);
    attention_load load = load_of(packs, timer, *v, list, pack, backward);
    *time = (sp_i_pack_time){.layout = &(*v)->layout};
    for (int part = 0; part < SP_I_PARTS; part++) {
        for (int pass = 0; pass < SP_I_PASSES; pass++) {
            if ((pass != SP_PASS_F) != backward) {
                continue;
            }
            sp_i_time *of = &time->of[part][pass];
            *of = pass_time(timer, *v, &(*v)->ops[part][pass], &load, (sp_pass)pass);
            of->compute_s += tokens->compute_s[part][pass];
            of->tp_s += tokens->tp_s[part][pass];
        }
    }
    return SP_OK;
}

// ---- operators that depend on the token count ----

// The dimension that counts tokens goes first: rate and traffic of a GEMM do not depend on the
// order of m, n and k, and a table of times for n and k then also serves the weight gradient, whose
// tokens are the reduction.
typedef struct gemm_shape {
    double tokens, n, k; // tokens for one local token
} gemm_shape;

static gemm_shape shape_of(const sp_op *op)
{
    double m = (double)op->m;
    double n = (double)op->n;
    double k = (double)op->k;
    if (op->m == 0) {
        return (gemm_shape){op->token_share, n, k};
    }
    return op->n == 0 ? (gemm_shape){op->token_share, m, k} : (gemm_shape){op->token_share, m, n};
}

static sp_collective collective_of(sp_op_kind kind)
{
    if (kind == SP_OP_ALL_GATHER) {
        return SP_ALL_GATHER;
    }
    return kind == SP_OP_REDUCE_SCATTER ? SP_REDUCE_SCATTER : SP_ALL_REDUCE;
}

static void price_tokens(const sp_op_timer *timer, const variant *v, const pass_ops *ops,
                         double local_tokens, double *compute_s, double *tp_s)
{
    for (int i = 0; i < ops->inventory.count; i++) {
        const sp_op *op = &ops->inventory.ops[i];
        gemm_shape shape = shape_of(op);
        switch (op->kind) {
        case SP_OP_GEMM:
            *compute_s +=
                op->repeat * sp_time_gemm(timer, shape.tokens * local_tokens, shape.n, shape.k);
            break;
        case SP_OP_MEMORY:
            *compute_s +=
                op->repeat * sp_time_memory(timer,
                                            op->bytes_per_token * local_tokens + op->bytes_fixed,
                                            op->kernels);
            break;
        case SP_OP_ALL_GATHER:
        case SP_OP_REDUCE_SCATTER:
        case SP_OP_ALL_REDUCE:
            *tp_s += op->repeat * sp_time_collective(timer, collective_of(op->kind), v->tp,
                                                     op->bytes_per_token * local_tokens);
            break;
        case SP_OP_ATTENTION:
        case SP_OP_CP_KV:
            break;
        }
    }
}

static const memo *token_times(sp_i_pack_timer *packs, const sp_op_timer *timer, const variant *v,
                               int dp_count, int64_t tokens)
{
    memo *entry = &packs->memos[(uint64_t)tokens % MEMO];
    if (entry->dp_count == dp_count && entry->tokens == tokens) {
        return entry;
    }
    *entry = (memo){.tokens = tokens, .dp_count = dp_count};
    double local_tokens = (double)tokens / v->layout.cp;
    for (int part = 0; part < SP_I_PARTS; part++) {
        for (int pass = 0; pass < SP_I_PASSES; pass++) {
            price_tokens(timer, v, &v->ops[part][pass], local_tokens, &entry->compute_s[part][pass],
                         &entry->tp_s[part][pass]);
        }
    }
    return entry;
}

// ---- operators that depend on the slices ----

// Unfused, the heads' matmuls of one segment run as one batched GEMM over all keys, masked ones
// too, without its launch.
static double matmul_s(const sp_op_timer *timer, double length, double context, double heads,
                       double head_dim)
{
    return sp_time_gemm(timer, heads * length, context + length, head_dim) -
           sp_time_launch(timer, 1);
}

static double segment_s(const sp_i_pack_timer *packs, const sp_op_timer *timer, bool backward,
                        double length, double context)
{
    double heads = (double)packs->model->heads / packs->layout->tp;
    double head_dim = (double)packs->model->head_dim;
    if (!(length > 0.0)) {
        return 0.0;
    }
    if (packs->memory.attention == SP_ATTENTION_UNFUSED) {
        return (backward ? UNFUSED_BACKWARD_MATMULS : UNFUSED_FORWARD_MATMULS) *
               matmul_s(timer, length, context, heads, head_dim);
    }
    return sp_time_attention_slice(timer, backward, length, context, heads, head_dim);
}

// Slices of one sample that follow each other in a pack run as one segment of the variable-length
// call. CP ranks hold equal shares of the pairs (zig-zag).
static attention_load load_of(const sp_i_pack_timer *packs, const sp_op_timer *timer,
                              const variant *v, const sp_pack_list *list, const sp_pack *pack,
                              bool backward)
{
    attention_load load = {0};
    if (pack->slice_count == 0) {
        return load;
    }
    const sp_slice *slice = &list->slices[pack->first_slice];
    const sp_slice *end = slice + pack->slice_count;
    bool rebuilt = v->ops[SP_PART_LAYER][SP_PASS_RECOMPUTE].attentions > 0;
    while (slice < end) {
        double context = (double)slice->begin;
        int64_t length = slice->computed_tokens;
        const sp_slice *next = slice + 1;
        while (next < end && next->sample == slice->sample &&
               next->begin == slice->begin + length) {
            length += next->computed_tokens;
            next++;
        }
        if (!backward || rebuilt) {
            load.forward_s += segment_s(packs, timer, false, (double)length, context);
        }
        if (backward) {
            load.backward_s += segment_s(packs, timer, true, (double)length, context);
        }
        load.keys += context + (double)length;
        slice = next;
    }
    load.forward_s /= v->layout.cp;
    load.backward_s /= v->layout.cp;
    load.pairs = (double)pack->full_pairs / v->layout.cp;
    return load;
}

// The ring runs beside the attention on the blocks that are already there: all but the first of cp
// (Liu et al., Ring Attention, arXiv 2310.01889).
static sp_i_time pass_time(const sp_op_timer *timer, const variant *v, const pass_ops *ops,
                           const attention_load *load, sp_pass pass)
{
    double cp = v->layout.cp;
    double attention_s = ops->attentions * (pass == SP_PASS_I ? load->backward_s : load->forward_s);
    double ring_s = sp_time_collective(timer, SP_ALL_GATHER, v->cp,
                                       ops->ring_bytes_per_token * load->keys / cp);
    sp_i_time time = {.cp_s = fmax(0.0, ring_s - attention_s * (cp - 1.0) / cp),
                      .attention_s = attention_s};
    // The ring cuts an attention call into one for each block.
    time.compute_s = attention_s + sp_time_launch(timer, ops->attention_kernels * v->layout.cp) +
                     sp_time_memory(timer, ops->pair_bytes * load->pairs, 0);
    return time;
}

// ---- lower bounds ----

// Least seconds of a GEMM per token: best rate of the curve, or best time per token of the table.
static double least_gemm_s(const sp_profile *profile, const sp_op *op)
{
    gemm_shape shape = shape_of(op);
    const sp_gemm_table *table = sp_i_gemm_table(profile, shape.n, shape.k);
    if (table == NULL) {
        return 2.0 * shape.tokens * shape.n * shape.k / sp_i_curve_most(&profile->gemm_rate);
    }
    double least = table->time_s.y[0] / table->time_s.x[0];
    for (int i = 1; i < table->time_s.points; i++) {
        least = fmin(least, table->time_s.y[i] / table->time_s.x[i]);
    }
    return shape.tokens * least;
}

static double least_per_token_s(const sp_op_timer *timer, const variant *v, const pass_ops *ops)
{
    double least_s = 0.0;
    for (int i = 0; i < ops->inventory.count; i++) {
        const sp_op *op = &ops->inventory.ops[i];
        switch (op->kind) {
        case SP_OP_GEMM:
            least_s += op->repeat * least_gemm_s(timer->profile, op);
            break;
        case SP_OP_MEMORY:
            least_s += op->repeat * sp_time_memory(timer, op->bytes_per_token, 0);
            break;
        case SP_OP_ALL_GATHER:
        case SP_OP_REDUCE_SCATTER:
        case SP_OP_ALL_REDUCE:
            least_s += op->repeat * op->bytes_per_token *
                       sp_i_collective_least_s_per_byte(timer, collective_of(op->kind), v->tp);
            break;
        case SP_OP_ATTENTION:
        case SP_OP_CP_KV:
            break;
        }
    }
    return least_s;
}

// A sample of n tokens covers n*n/2 causal pairs however it is cut, at no better than the best
// causal rate (op_time.h); its full pairs are at least as many, with the finest slices.
void sp_i_pack_least_work(const sp_i_pack_timer *packs, const sp_op_timer *timer,
                          double per_token_s[SP_I_PARTS], double *per_square_s)
{
    const variant *v = packs->variants[1];
    const sp_profile *profile = timer->profile;
    double cp = v->layout.cp;
    double width =
        0.5 * (double)packs->model->heads / v->layout.tp * (double)packs->model->head_dim;
    double forward_s =
        SP_I_FORWARD_FLOPS_PER_PAIR * width / sp_i_curve_most(&profile->attention_forward_causal);
    double backward_s =
        SP_I_BACKWARD_FLOPS_PER_PAIR * width / sp_i_curve_most(&profile->attention_backward_causal);
    if (packs->memory.attention == SP_ATTENTION_UNFUSED) {
        double matmul = 2.0 * width / sp_i_curve_most(&profile->gemm_rate);
        forward_s = UNFUSED_FORWARD_MATMULS * matmul;
        backward_s = UNFUSED_BACKWARD_MATMULS * matmul;
    }
    *per_square_s = 0.0;
    for (int part = 0; part < SP_I_PARTS; part++) {
        per_token_s[part] = 0.0;
        for (int pass = 0; pass < SP_I_PASSES; pass++) {
            const pass_ops *ops = &v->ops[part][pass];
            per_token_s[part] += least_per_token_s(timer, v, ops) / cp;
            *per_square_s += (ops->attentions * (pass == SP_PASS_I ? backward_s : forward_s) +
                              sp_time_memory(timer, 0.5 * ops->pair_bytes, 0)) /
                             cp;
        }
    }
}
