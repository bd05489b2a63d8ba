#include "sim/inference/forward_time.h"

#include <math.h>

#include "sim/cost/cost_private.h"
#include "sim/memory/footprint.h"

static void build(const sp_forward_pricer *pricer, const sp_model *model, sp_part part,
                  sp_inventory *inventory)
{
    sp_inventory_build(model, &pricer->layout, &pricer->stack, SP_ATTENTION_FLASH,
                       SP_RECOMPUTE_NONE, part, SP_PASS_F, inventory);
}

void sp_forward_pricer_init(sp_forward_pricer *pricer, const sp_profile *profile,
                            const sp_cluster *cluster, const sp_stack *stack, const sp_model *model,
                            const sp_layout *layout)
{
    *pricer = (sp_forward_pricer){.timer = {.cluster = cluster, .profile = profile},
                                  .stack = *stack,
                                  .model = *model,
                                  .layout = *layout};
    sp_stack_without_training(&pricer->stack);
    // Sums of all ranks are one collective; to split rows of so few tokens gains nothing.
    pricer->layout.sequence_parallel = false;
    pricer->tp = sp_cluster_group(cluster, &pricer->layout, SP_DIM_TP);
    for (int r = 0; r + 1 < layout->pp; r++) {
        pricer->boundaries[sp_cluster_pp_crosses_node(cluster, layout, r) != 0]++;
    }
    for (int k = 0; k < sp_model_kinds(model); k++) {
        sp_model space;
        build(pricer, sp_model_of_kind(model, k, &space), SP_PART_LAYER, &pricer->layer[k]);
    }
    build(pricer, model, SP_PART_EMBEDDING, &pricer->embedding);
    build(pricer, model, SP_PART_HEAD, &pricer->head);
}

int64_t sp_kv_bytes(const sp_model *model, const sp_layout *layout)
{
    sp_shard shard = sp_shard_of(model, layout);
    return SP_I_BF16_BYTES * (shard.k + shard.v);
}

static double part_s(const sp_forward_pricer *pricer, const sp_inventory *inventory, double rows)
{
    const sp_i_block_groups groups = {.tp = pricer->tp, .ranks = 1};
    sp_i_token_times times;
    sp_i_timed_collectives timed = {.op = {NULL}};
    sp_i_token_time(&pricer->timer, &pricer->stack, &groups, inventory, SP_PASS_F, rows, rows, 1.0,
                    &timed, &times);
    return times.compute_s + times.tp_s;
}

// The layer where `touched` of the experts share the rows.
static double layer_of_experts_s(const sp_forward_pricer *pricer, int kind, double rows,
                                 int touched, double share)
{
    sp_inventory layer = pricer->layer[kind];
    sp_model space;
    int experts = sp_model_of_kind(&pricer->model, kind, &space)->experts;
    for (int i = 0; i < layer.count; i++) {
        sp_op *op = &layer.ops[i];
        if (op->of_experts && op->kind == SP_OP_GEMM) {
            op->repeat = touched;
            op->token_share = share;
        } else if (op->of_experts) {
            op->kernels = op->kernels / experts * touched;
        }
    }
    return part_s(pricer, &layer, rows);
}

// With E experts, k to a token, n tokens touch E (1 - (1 - k/E)^n), if all are as likely: the time
// lies between those of the whole numbers around it.
static double layer_s(const sp_forward_pricer *pricer, int kind, double rows)
{
    sp_model space;
    const sp_model *alike = sp_model_of_kind(&pricer->model, kind, &space);
    double experts = (double)alike->experts;
    double each = (double)alike->experts_per_token;
    if (alike->experts == 0) {
        return part_s(pricer, &pricer->layer[kind], rows);
    }
    double touched = experts * (1.0 - pow(1.0 - each / experts, rows));
    double share = each / touched;
    double few_s = layer_of_experts_s(pricer, kind, rows, (int)floor(touched), share);
    double more_s = layer_of_experts_s(pricer, kind, rows, (int)ceil(touched), share);
    return few_s + (touched - floor(touched)) * (more_s - few_s);
}

static double attention_s(const sp_forward_pricer *pricer, const sp_forward *forward)
{
    const sp_model *model = &pricer->model;
    const sp_profile *profile = pricer->timer.profile;
    double read_s = sp_time_memory(
        &pricer->timer, forward->kv_tokens * (double)sp_kv_bytes(model, &pricer->layout), 0);
    double flops = forward->pairs * sp_model_attention_flops_per_pair(model) / pricer->layout.tp;
    return fmax(read_s, flops / sp_gemm_most_rate(profile)) + sp_time_launch(&pricer->timer, 1);
}

static double token_s(const sp_forward_pricer *pricer, double rows)
{
    const sp_model *model = &pricer->model;
    double hidden_bytes = SP_I_BF16_BYTES * rows * (double)model->hidden;
    double sends_s = 0.0;
    for (int crosses = 0; crosses < 2; crosses++) {
        sends_s += pricer->boundaries[crosses] * sp_time_p2p(&pricer->timer, hidden_bytes, crosses);
    }
    int count[SP_LAYER_KINDS];
    double layers_s = 0.0;
    sp_model_count_kinds(model, 0, model->layers, count);
    for (int k = 0; k < sp_model_kinds(model); k++) {
        layers_s += count[k] * layer_s(pricer, k, rows);
    }
    return layers_s + part_s(pricer, &pricer->embedding, rows) +
           part_s(pricer, &pricer->head, rows) + sends_s;
}

double sp_forward_s(sp_forward_pricer *pricer, const sp_forward *forward)
{
    double all_layers_s = pricer->model.layers * attention_s(pricer, forward);
    int rows = forward->rows < SP_FORWARD_ROWS ? (int)forward->rows : 0;
    if ((double)rows != forward->rows) {
        return token_s(pricer, forward->rows) + all_layers_s;
    }
    if (pricer->token_s[rows] <= 0.0) {
        pricer->token_s[rows] = token_s(pricer, forward->rows);
    }
    return pricer->token_s[rows] + all_layers_s;
}

// ---- what a GPU holds ----

// All chunks of a rank as one.
static sp_stage whole_of(const sp_layout *layout, const sp_stage *stages, int pp)
{
    sp_stage whole = {0};
    for (int chunk = 0; chunk < layout->chunks; chunk++) {
        const sp_stage *stage = &stages[sp_layout_vstage(layout, pp, chunk)];
        whole.layers += stage->layers;
        for (int k = 0; k < SP_LAYER_KINDS; k++) {
            whole.count[k] += stage->count[k];
        }
        whole.embedding = whole.embedding || stage->embedding;
        whole.head = whole.head || stage->head;
    }
    return whole;
}

sp_i_held sp_i_held_by(const sp_model *model, const sp_layout *layout, const sp_stage *stages,
                       int pp, int64_t tokens)
{
    const sp_stage whole = whole_of(layout, stages, pp);
    return (sp_i_held){
        .parameters = SP_I_BF16_BYTES * sp_footprint_parameters(model, layout, &whole, 1),
        .kv_cache = sp_kv_bytes(model, layout) * whole.layers * tokens,
    };
}
