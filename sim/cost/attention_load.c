#include "sim/cost/attention_load.h"

#include <math.h>

#include "sim/cost/op_time.h"
#include "sim/cost/profile_private.h"
#include "sim/cost/time_private.h"

// QK^T and PV; backward dV, dP, dQ, dK.
#define UNFUSED_FORWARD_MATMULS 2.0
#define UNFUSED_BACKWARD_MATMULS 4.0

// Where Megatron-LM's fused softmax serves (stack.h).
enum { FUSED_MULTIPLE = 4, FUSED_KEYS = 2048 };

// Equal segments that follow each other: `count` stretches of `length` tokens after `context`.
typedef struct run {
    double length, context, count;
} run;

static void add_run(const sp_i_attention *attention, const run *r, bool forward, bool backward,
                    sp_i_attention_load *load);
static double run_s(const sp_i_attention *attention, bool backward, const run *r);
static double slice_s(const sp_i_attention *attention, bool backward, const run *r);
static const double *remembered_s(const sp_i_attention *attention, bool backward, const run *r);
static double unfused_s(const sp_i_attention *attention, bool backward, const run *r);
static double score_weight(const sp_score_model *scores, double keys);
static bool is_softmax_unfused(const sp_i_attention *attention, const run *r);
static bool is_sliced(const sp_i_attention *attention);
static bool is_gathered(const sp_i_attention *attention);
static double sliced_s(const sp_i_attention *attention, bool backward, const run *r);

sp_i_attention_load sp_i_attention_load_of(const sp_i_attention *attention,
                                           const sp_pack_list *list, const sp_pack *pack,
                                           bool forward, bool backward)
{
    sp_i_attention_load load = {0};
    bool even = attention->rank_s == NULL;
    if (pack->slice_count == 0) {
        return load;
    }
    const sp_slice *slice = &list->slices[pack->first_slice];
    const sp_slice *end = slice + pack->slice_count;
    run pending = {0};
    while (slice < end) {
        double context = (double)slice->begin;
        int64_t length = slice->computed_tokens;
        slice = is_sliced(attention) ? slice + 1 : sp_i_segment_end(slice, end, &length);
        if ((double)length != pending.length || context != pending.context) {
            add_run(attention, &pending, forward && even, backward && even, &load);
            pending = (run){.length = (double)length, .context = context};
        }
        pending.count += 1.0;
    }
    add_run(attention, &pending, forward && even, backward && even, &load);
    load.forward_s /= attention->layout->cp;
    load.backward_s /= attention->layout->cp;
    if (!even) {
        sp_i_cp_slowest_s(attention, list, pack, forward, backward, &load);
    }
    load.pairs /= attention->layout->cp;
    load.unfused_pairs /= attention->layout->cp;
    return load;
}

double sp_i_cp_exchange_s(const sp_i_attention *attention, sp_group cp,
                          const sp_i_attention_load *load, double bytes, bool gradients)
{
    bool by_slices = is_sliced(attention) || is_gathered(attention);
    int64_t nics = attention->memory->stack.cp_ring_nics;
    if (sp_stack_passes_keys(&attention->memory->stack)) {
        return nics > 0 && cp.nodes > 1
                   ? sp_time_ring(attention->timer, cp, bytes, nics)
                   : sp_i_time_by_profile(attention->timer, SP_ALL_GATHER, cp, bytes);
    }
    if (!by_slices || !(load->exchanges > 0.0)) {
        return sp_time_collective(attention->timer, SP_ALL_GATHER, cp, bytes);
    }
    double each = bytes / load->exchanges / (gradients ? 2.0 : 1.0);
    double each_s = sp_time_collective(attention->timer, SP_ALL_GATHER, cp, each);
    if (gradients) {
        double number = is_gathered(attention) ? 2.0 : 1.0; // fp32 or bf16
        each_s += sp_time_collective(attention->timer, SP_REDUCE_SCATTER, cp, number * each);
    }
    return load->exchanges * each_s;
}

// Where the slowest rank's attention takes attention_s, as many times what was found of one layer.
static double exposed_ring_s(const sp_i_attention *attention, double cp_s, double attention_s,
                             bool backward)
{
    int cp = attention->layout->cp;
    const double *rank_s = attention->rank_s + (backward ? cp : 0);
    double most_s = 0.0;
    for (int r = 0; r < cp; r++) {
        most_s = fmax(most_s, rank_s[r]);
    }
    if (!(most_s > 0.0)) {
        return cp_s;
    }
    double layers = attention_s / most_s;
    double transfer_s = cp_s / layers / (cp - 1);
    return fmax(0.0, layers * sp_i_cp_ring_s(attention->ring, rank_s, transfer_s) - attention_s);
}

double sp_i_exposed_cp_s(const sp_i_attention *attention, double cp_s, double attention_s,
                         double qkv_s, bool backward)
{
    double blocks =
        attention->layout->cp / sp_stack_head_ranks(&attention->memory->stack, attention->layout);
    switch (attention->memory->stack.cp_overlap) {
    case SP_CP_ATTENTION:
    case SP_CP_A2A_P2P: // of even shares alone, whose steps nobody follows
        if (attention->ring != NULL && attention_s > 0.0) {
            return exposed_ring_s(attention, cp_s, attention_s, backward);
        }
        return fmax(0.0, cp_s - attention_s * (blocks - 1.0) / blocks);
    case SP_CP_QKV:
        return attention->model->kv_heads == attention->model->heads ? fmax(0.0, cp_s - qkv_s)
                                                                     : cp_s;
    case SP_CP_BLOCKING:
    case SP_CP_SLICES:
    case SP_CP_GATHERED:
    case SP_CP_A2A:
        return cp_s;
    }
    SP_UNREACHABLE("a CP overlap");
}

// Packs of merged ranks run in blocks as well, so this does not ask for the CP size.
static double most_of_blocks(const sp_i_attention *attention, const sp_curve *curve)
{
    bool used = attention->memory->stack.cp_overlap == SP_CP_SLICES && curve->points > 0;
    return used ? sp_i_curve_most(curve) : 0.0;
}

void sp_i_attention_least_s(const sp_i_attention *attention, double *forward_s, double *backward_s)
{
    const sp_profile *profile = attention->timer->profile;
    double width = 0.5 * (double)attention->model->heads / attention->layout->tp *
                   (double)attention->model->head_dim;
    *forward_s = SP_I_FORWARD_FLOPS_PER_PAIR * width /
                 fmax(sp_i_curve_most(&profile->attention_forward_causal),
                      most_of_blocks(attention, &profile->attention_forward_block));
    *backward_s = SP_I_BACKWARD_FLOPS_PER_PAIR * width /
                  fmax(sp_i_curve_most(&profile->attention_backward_causal),
                       most_of_blocks(attention, &profile->attention_backward_block));
    if (attention->memory->attention == SP_ATTENTION_UNFUSED) {
        double matmul = 2.0 * width / sp_gemm_most_rate(profile);
        *forward_s = UNFUSED_FORWARD_MATMULS * matmul;
        *backward_s = UNFUSED_BACKWARD_MATMULS * matmul;
    }
}

static void add_run(const sp_i_attention *attention, const run *r, bool forward, bool backward,
                    sp_i_attention_load *load)
{
    if (!(r->length > 0.0)) {
        return;
    }
    double keys = r->context + r->length;
    double pairs =
        r->count * r->length * keys * score_weight(&attention->timer->profile->scores, keys);
    bool unfused = is_softmax_unfused(attention, r);
    load->forward_s += forward ? run_s(attention, false, r) : 0.0;
    load->backward_s += backward ? run_s(attention, true, r) : 0.0;
    load->keys += r->count * keys;
    load->exchanges += r->count * (1.0 + ceil(r->context / r->length));
    load->pairs += pairs;
    load->unfused_pairs += unfused ? pairs : 0.0;
    load->calls += 1.0;
    load->unfused_calls += unfused ? 1.0 : 0.0;
}

static double run_s(const sp_i_attention *attention, bool backward, const run *r)
{
    if (attention->memory->attention == SP_ATTENTION_UNFUSED) {
        return unfused_s(attention, backward, r);
    }
    if (is_sliced(attention)) {
        return r->count * sliced_s(attention, backward, r);
    }
    return r->count * (attention->memo != NULL ? *remembered_s(attention, backward, r)
                                               : slice_s(attention, backward, r));
}

static double slice_s(const sp_i_attention *attention, bool backward, const run *r)
{
    double heads = (double)attention->model->heads / attention->layout->tp;
    return sp_time_attention_slice(attention->timer, backward, r->length, r->context, heads,
                                   (double)attention->model->head_dim);
}

static const double *remembered_s(const sp_i_attention *attention, bool backward, const run *r)
{
    uint64_t hash =
        ((uint64_t)r->length * 0x9E3779B97F4A7C15u) ^ ((uint64_t)r->context * 0xC2B2AE3D27D4EB4Fu);
    sp_i_attention_memo *memo = &attention->memo[(hash >> 40) % SP_I_ATTENTION_MEMOS];
    if (memo->length < r->length || memo->length > r->length || memo->context < r->context ||
        memo->context > r->context) {
        *memo = (sp_i_attention_memo){r->length, r->context, {-1.0, -1.0}};
    }
    if (memo->time_s[backward] < 0.0) {
        memo->time_s[backward] = slice_s(attention, backward, r);
    }
    return &memo->time_s[backward];
}

static double unfused_s(const sp_i_attention *attention, bool backward, const run *r)
{
    double batch = r->count * (double)attention->model->heads / attention->layout->tp;
    double hd = (double)attention->model->head_dim;
    double l = r->length;
    double keys = r->context + r->length;
    double scores_s = sp_time_batched_gemm(attention->timer, batch, l, keys, hd);
    double rows_s = sp_time_batched_gemm(attention->timer, batch, l, hd, keys);
    if (!backward) {
        return scores_s + rows_s;
    }
    return scores_s + rows_s + 2.0 * sp_time_batched_gemm(attention->timer, batch, keys, hd, l);
}

static bool is_sliced(const sp_i_attention *attention)
{
    return attention->layout->cp > 1 && attention->memory->stack.cp_overlap == SP_CP_SLICES;
}

static bool is_gathered(const sp_i_attention *attention)
{
    return attention->layout->cp > 1 && attention->memory->stack.cp_overlap == SP_CP_GATHERED;
}

// All ranks together. Of the 2*cp runs of a slice the i-th sees i runs before it and itself; a
// rank's two, i and 2*cp-1-i, see 2*cp-1, and each sees all runs of the context. Every run with
// itself is a call as well, and takes no less than the shortest block.
static double sliced_s(const sp_i_attention *attention, bool backward, const run *r)
{
    double cp = attention->layout->cp;
    double heads = (double)attention->model->heads / attention->layout->tp;
    double head_dim = (double)attention->model->head_dim;
    double l = r->length / (2.0 * cp);
    double seen = 2.0 * cp - 1.0 + 2.0 * r->context / l;
    double own_s = sp_time_attention_slice(attention->timer, backward, l, 0.0, heads, head_dim);
    double seen_s = sp_time_attention_block(attention->timer, backward, l, l, heads, head_dim);
    double one = fmin(l, 1.0);
    double least_s = sp_time_attention_block(attention->timer, backward, one, one, heads, head_dim);
    return cp * (2.0 * fmax(own_s, least_s) + seen * seen_s);
}

// Traffic per score over what the kernels' own count says.
static double score_weight(const sp_score_model *scores, double keys)
{
    if (!(scores->factor > 0.0)) {
        return 1.0;
    }
    double held = fmin(fmax(keys, 1.0), scores->to_keys);
    return scores->factor * pow(held / scores->from_keys, scores->growth);
}

static bool is_softmax_unfused(const sp_i_attention *attention, const run *r)
{
    if (attention->memory->attention != SP_ATTENTION_UNFUSED) {
        return false;
    }
    double matrices = r->count * (double)attention->model->heads / attention->layout->tp;
    bool beyond = fmod(matrices, FUSED_MULTIPLE) != 0.0 || r->context + r->length > FUSED_KEYS;
    const sp_stack *stack = &attention->memory->stack;
    return stack->unfused_softmax || (stack->fused_softmax_limited && beyond);
}
